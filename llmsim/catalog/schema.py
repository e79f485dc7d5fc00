"""What the catalog's TOML files may hold; read by pydantic, which refuses anything else."""

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from llmsim.catalog.types import DTYPES
from llmsim.errors import InputError
from llmsim.units import parse_bandwidth, parse_duration, parse_flop_rate, parse_size

Confidence = Literal["vendor", "secondary", "measured", "derived", "disputed", "nominal"]


def parse_op_rate(text: str) -> float:
    """FLOP/s, or the same of integer operations: ``"624TOP/s"``."""
    return parse_flop_rate(text if "FLOP" in text else text.replace("OP/s", "FLOP/s"))


def parse_power(text: str) -> float:
    """Watts: ``"700W"``."""
    match = re.fullmatch(r"(\d+\.?\d*)\s*W", text)
    if match is None:
        raise InputError(f"{text!r} is not a power", mend="write watts such as 700W")
    return float(match[1])


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SourceModel(_Strict):
    """A document, by the short name that figures refer to."""

    text: str = Field(min_length=1)
    confidence: Confidence


class FigureModel(_Strict):
    """A quantity as its source prints it."""

    value: str
    source: str
    confidence: Confidence | None = None
    note: str = ""


def _of(parse: Callable[[str], object]) -> AfterValidator:
    def check(figure: FigureModel) -> FigureModel:
        parse(figure.value)
        return figure

    return AfterValidator(check)


Size = Annotated[FigureModel, _of(parse_size)]
Bandwidth = Annotated[FigureModel, _of(parse_bandwidth)]
Duration = Annotated[FigureModel, _of(parse_duration)]
OpRate = Annotated[FigureModel, _of(parse_op_rate)]
Power = Annotated[FigureModel, _of(parse_power)]


class DeviceModel(_Strict):
    """One device of ``devices.toml``."""

    description: str
    kind: Literal["gpu", "tpu", "npu", "cpu"]
    memory: Size
    memory_bandwidth: Bandwidth
    scale_up_bandwidth: Bandwidth | None = None
    power: Power | None = None
    peak: dict[Literal[DTYPES], OpRate]  # type: ignore[valid-type]


class LinkModel(_Strict):
    """One link of ``links.toml``."""

    description: str
    per: str
    bandwidth: Bandwidth
    unit_bandwidth: Bandwidth | None = None
    latency: Duration | None = None
    switch_latency: Duration | None = None


class ClusterModel(_Strict):
    """One cluster of ``clusters.toml``."""

    description: str
    source: str
    builder: Literal["nodes", "torus", "hccs", "host"]
    device: str
    scale_up: str
    network: str | None = None
    gpus_per_node: int | None = None
    defaults: dict[str, int | str]
