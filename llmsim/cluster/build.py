"""Topologies by name, for the command line and for cluster files: ``build_topology("ring", 64, 50e9, 500e-9)``."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llmsim.cluster import topologies
from llmsim.cluster.cluster import Cluster
from llmsim.errors import InputError
from llmsim.units import parse_bandwidth, parse_duration


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InputError(f"{value!r} is not a whole number")
    try:
        return int(value)
    except ValueError:
        raise InputError(f"{value!r} is not a whole number") from None


def _ratio(value: object) -> float:
    text = value.removesuffix(":1") if isinstance(value, str) else value
    try:
        if isinstance(text, bool):
            raise ValueError
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{value!r} is not a ratio", mend="write 4 or 4:1") from None


def _dims(value: object) -> tuple[int, ...]:
    parts = value.split("x") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not parts:
        raise InputError(f"{value!r} is no shape", mend="write sizes such as 4x4 or 4x4x4")
    return tuple(_whole(part) for part in parts)


def _rate(value: object) -> float:
    return float(value) if isinstance(value, float | int) else parse_bandwidth(value)  # type: ignore[arg-type]


def _delay(value: object) -> float:
    return float(value) if isinstance(value, float | int) else parse_duration(value)  # type: ignore[arg-type]


_PARSERS: Mapping[str, Callable[[object], object]] = {
    "uplink_bandwidth_bytes_per_s": _rate,
    "oversubscription": _ratio,
    "dims": _dims,
}


@dataclass(frozen=True)
class Topology:
    """A named topology: ``build(ranks, bandwidth_bytes_per_s, latency_s, **options)``."""

    name: str
    summary: str
    build: Callable[..., Cluster]

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options it takes, with the defaults that ``build`` gives them."""
        return tuple(inspect.signature(self.build).parameters)[3:]


def _torus(ranks: int, bandwidth_bytes_per_s: float, latency_s: float, *, dims: tuple[int, ...] | None = None):
    return topologies.torus(_shape("torus", ranks, dims), bandwidth_bytes_per_s, latency_s)


def _mesh(ranks: int, bandwidth_bytes_per_s: float, latency_s: float, *, dims: tuple[int, ...] | None = None):
    return topologies.mesh(_shape("mesh", ranks, dims), bandwidth_bytes_per_s, latency_s)


def _shape(name: str, ranks: int, dims: tuple[int, ...] | None) -> tuple[int, ...]:
    if dims is None:
        dims = topologies.squarest(ranks)
        if dims[0] == 1 and ranks > 1:
            mend = f"take a product of two numbers such as {max(4, ranks + 1)}, or give dims such as 1x{ranks}"
            raise InputError(f"{ranks} ranks make no 2-D {name}", mend=mend)
    size = 1
    for dim in dims:
        size *= dim
    if size != ranks:
        shape = "x".join(map(str, dims))
        raise InputError(f"dims {shape} hold {size} devices, not {ranks}", mend="give dims whose product is the ranks")
    return tuple(dims)


TOPOLOGIES: Mapping[str, Topology] = {
    topology.name: topology
    for topology in (
        Topology("ring", "each device cabled to two neighbours", topologies.ring),
        Topology("line", "a ring without its last cable", topologies.line),
        Topology("fully-connected", "a cable between any two devices", topologies.fully_connected),
        Topology("switch", "all devices on one switch", topologies.switch),
        Topology("leaf-spine", "leaf switches, each cabled to every spine", topologies.leaf_spine),
        Topology("two-racks", "two switches and one uplink between them", topologies.two_racks),
        Topology("torus", "a grid with wrap-around, 2-D or 3-D", _torus),
        Topology("mesh", "a grid without wrap-around", _mesh),
    )
}


def build_topology(name: str, ranks: int, bandwidth_bytes_per_s: float, latency_s: float, **options: object) -> Cluster:
    """A cluster of ``ranks`` devices in the topology ``name``; every link has the given bandwidth and latency unless
    an option says otherwise. Options may be strings as people write them (``oversubscription="4:1"``, ``dims="4x4"``).

    Raises:
        InputError: an unknown name or option, or a size for which the topology is not defined.
    """
    topology = TOPOLOGIES.get(name)
    if topology is None:
        close = difflib.get_close_matches(name, TOPOLOGIES, n=1)
        mend = f"did you mean {close[0]}?" if close else f"choose among {', '.join(TOPOLOGIES)}"
        raise InputError(f"there is no topology {name!r}", mend=mend)
    values = {}
    for option, value in options.items():
        if option not in topology.options:
            takes = f"it takes {', '.join(topology.options)}" if topology.options else "it takes no options"
            raise InputError(f"unknown option {option!r}", where=name, mend=takes)
        try:
            values[option] = _PARSERS.get(option, _whole)(value)
        except InputError as error:
            raise error.at(f"{name}: {option}") from None
    return topology.build(ranks, bandwidth_bytes_per_s, latency_s, **values)
