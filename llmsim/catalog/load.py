"""Reads the catalog's TOML files, once, checked."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from llmsim.catalog.types import Device, Figure, LinkType
from llmsim.errors import InputError

if TYPE_CHECKING:
    from llmsim.catalog.schema import ClusterModel, FigureModel

T = TypeVar("T")


def read_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML document."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}", where=where) from None


def parse_devices(text: str, where: str = "devices.toml") -> dict[str, Device]:
    """Devices by name, from the text of a TOML file in the form of ``devices.toml``."""
    from llmsim.catalog.schema import DeviceModel, parse_op_rate, parse_power
    from llmsim.units import parse_bandwidth, parse_size

    devices = {}
    for name, model, figures in _entries(DeviceModel, text, where):
        devices[name] = Device(
            name=name,
            description=model.description,
            kind=model.kind,
            memory_bytes=parse_size(model.memory.value),
            memory_bandwidth_bytes_per_s=parse_bandwidth(model.memory_bandwidth.value),
            peaks_flop_per_s={dtype: parse_op_rate(figure.value) for dtype, figure in model.peak.items()},
            scale_up_bandwidth_bytes_per_s=_optional(parse_bandwidth, model.scale_up_bandwidth),
            power_w=_optional(parse_power, model.power),
            figures=figures,
        )
    return devices


def parse_links(text: str, where: str = "links.toml") -> dict[str, LinkType]:
    """Links by name, from the text of a TOML file in the form of ``links.toml``."""
    from llmsim.catalog.schema import LinkModel
    from llmsim.units import parse_bandwidth, parse_duration

    links = {}
    for name, model, figures in _entries(LinkModel, text, where):
        links[name] = LinkType(
            name=name,
            description=model.description,
            per=model.per,
            bandwidth_bytes_per_s=parse_bandwidth(model.bandwidth.value),
            unit_bandwidth_bytes_per_s=_optional(parse_bandwidth, model.unit_bandwidth),
            latency_s=_optional(parse_duration, model.latency),
            switch_latency_s=_optional(parse_duration, model.switch_latency),
            figures=figures,
        )
    return links


def _optional(parse, figure: "FigureModel | None"):
    return None if figure is None else parse(figure.value)


def _entries(model: Any, text: str, where: str) -> list[tuple[str, Any, dict[str, Figure]]]:
    """(name, checked entry, its figures) of each table but ``sources``."""
    from llmsim.catalog.schema import SourceModel

    tables = read_toml(text, where)
    listed = tables.pop("sources", {})
    if not isinstance(listed, dict):
        raise InputError("is not a table", where=f"{where}: sources")
    sources = {name: _checked(SourceModel, source, f"{where}: sources.{name}") for name, source in listed.items()}
    result = []
    for name, table in tables.items():
        entry = _checked(model, table, f"{where}: {name}")
        result.append((name, entry, _figures(entry, sources, f"{where}: {name}")))
    return result


def _checked(model: Any, table: object, where: str) -> Any:
    from pydantic import ValidationError

    try:
        return model.model_validate(table)
    except ValidationError as error:
        raise InputError.of_validation(error, where) from None


def _figures(entry: Any, sources: Mapping[str, Any], where: str) -> dict[str, Figure]:
    from llmsim.catalog.schema import FigureModel

    found: dict[str, FigureModel] = {}
    for field, value in entry:
        if isinstance(value, FigureModel):
            found[field] = value
        elif isinstance(value, dict):
            found |= {f"{field}.{key}": item for key, item in value.items() if isinstance(item, FigureModel)}
    figures = {}
    for field, value in found.items():
        if value.source not in sources:
            raise InputError(
                f"there is no source {value.source!r}", where=f"{where}.{field}", mend="add it to [sources]"
            )
        source = sources[value.source]
        figures[field] = Figure(value.value, source.text, value.confidence or source.confidence, value.note)
    return figures


def _text(name: str) -> str:
    return files("llmsim.catalog").joinpath(name).read_text(encoding="utf-8")


@cache
def devices() -> Mapping[str, Device]:
    """All devices of the catalog by name."""
    return parse_devices(_text("devices.toml"))


@cache
def links() -> Mapping[str, LinkType]:
    """All links of the catalog by name."""
    return parse_links(_text("links.toml"))


@cache
def cluster_models() -> "Mapping[str, ClusterModel]":
    """All clusters of the catalog by name, as written."""
    from llmsim.catalog.schema import ClusterModel

    tables = read_toml(_text("clusters.toml"), "clusters.toml")
    return {name: _checked(ClusterModel, table, f"clusters.toml: {name}") for name, table in tables.items()}


def pick(table: Mapping[str, T], name: str, kind: str) -> T:
    """The entry ``name`` of a table.

    Raises:
        InputError: there is none; names that contain it are given, or else some that are spelt alike.
    """
    if name in table:
        return table[name]
    spelt = name.lower().replace(" ", "-")
    close = [known for known in table if spelt and spelt in known][:3]
    close = close or difflib.get_close_matches(spelt, table, n=3, cutoff=0.5)
    mend = f"did you mean {' or '.join(close)}?" if close else f"choose among {', '.join(table)}"
    raise InputError(f"there is no {kind} {name!r} in the catalog", mend=mend)
