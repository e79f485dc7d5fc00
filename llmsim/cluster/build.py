"""Topologies by name, for the command line and for cluster files: ``build_topology("ring", 64, 50e9, 500e-9)``."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite, prod

from llmsim.cluster import fabrics, topologies
from llmsim.cluster.cluster import Cluster
from llmsim.errors import InputError
from llmsim.units import parse_bandwidth, parse_duration

# How options are written: by the end of their name.


def _whole(value: object) -> int:
    try:
        if isinstance(value, bool | float):
            raise ValueError
        return int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise InputError(f"{value!r} is not a whole number") from None


def _ratio(value: object) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        ratio = float(value.removesuffix(":1") if isinstance(value, str) else value)  # type: ignore[arg-type]
        if not isfinite(ratio):
            raise ValueError
        return ratio
    except (TypeError, ValueError):
        raise InputError(f"{value!r} is not a ratio", mend="write 4 or 4:1") from None


def _cores(value: object) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        cores = float(value)  # type: ignore[arg-type]
        if not (cores > 0 and isfinite(cores)):
            raise ValueError
        return cores
    except (TypeError, ValueError):
        raise InputError(f"{value!r} is not a number of cores", mend="write 4 or 0.5") from None


def _dims(value: object) -> tuple[int, ...]:
    parts = value.split("x") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise InputError(f"{value!r} is no shape", mend="write sizes such as 4x4 or 4x4x4")
    return tuple(_whole(part) for part in parts)


def _quantity(parse: Callable[[str], float]) -> Callable[[object], float]:
    def quantity(value: object) -> float:
        if isinstance(value, float | int) and not isinstance(value, bool):
            return float(value)
        return parse(value)  # type: ignore[arg-type]

    return quantity


_BY_ENDING: Mapping[str, Callable[[object], object]] = {
    "bandwidth_bytes_per_s": _quantity(parse_bandwidth),
    "latency_s": _quantity(parse_duration),
    "oversubscription": _ratio,
    "dims": _dims,
    "cores": _cores,
}


def parse_option(option: str, value: object) -> object:
    """The value of a topology's option: a number as it is, a string in the unit of the option's name."""
    parse = next((parse for ending, parse in _BY_ENDING.items() if option.endswith(ending)), _whole)
    return parse(value)


@dataclass(frozen=True)
class Topology:
    """A named topology: ``build(ranks, bandwidth_bytes_per_s, latency_s, **options)``."""

    name: str
    summary: str
    build: Callable[..., Cluster]

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options it takes beyond size, bandwidth and latency."""
        return tuple(inspect.signature(self.build).parameters)[3:]

    def option(self, name: str) -> str:
        """The option that ``name`` means, which may leave out the unit: ``uplink_bandwidth``.

        Raises:
            InputError: there is no such option.
        """
        names = {option.removesuffix("_bytes_per_s").removesuffix("_s"): option for option in self.options}
        if name in self.options or name in names:
            return names.get(name, name)
        takes = f"it takes {', '.join(names)}" if names else "it takes no options"
        raise InputError(f"unknown option {name!r}", where=self.name, mend=takes)


def _torus(
    ranks: int, bandwidth_bytes_per_s: float, latency_s: float, *, dims: tuple[int, ...] | None = None
) -> Cluster:
    return topologies.torus(_shape("torus", ranks, dims), bandwidth_bytes_per_s, latency_s)


def _mesh(
    ranks: int, bandwidth_bytes_per_s: float, latency_s: float, *, dims: tuple[int, ...] | None = None
) -> Cluster:
    return topologies.mesh(_shape("mesh", ranks, dims), bandwidth_bytes_per_s, latency_s)


def _shape(name: str, ranks: int, dims: tuple[int, ...] | None) -> tuple[int, ...]:
    _at_least_one(name, ranks)
    if dims is None:
        dims = topologies.squarest(ranks)
        if dims[0] == 1 and ranks > 1:
            mend = f"take a product of two numbers such as {max(4, ranks + 1)}, or give dims such as 1x{ranks}"
            raise InputError(f"{ranks} ranks make no 2-D {name}", mend=mend)
    if prod(dims) != ranks:
        shape = "x".join(map(str, dims))
        raise InputError(
            f"dims {shape} hold {prod(dims)} devices, not {ranks}", mend="give dims whose product is the ranks"
        )
    return tuple(dims)


def _fat_tree(
    ranks: int, bandwidth_bytes_per_s: float, latency_s: float, *, oversubscription: float = 1.0, seed: int = 0
) -> Cluster:
    sizes = {2: 2}
    while max(sizes) < ranks:
        k = 2 * (len(sizes) + 1)
        sizes[k**3 // 4] = k
    if ranks not in sizes:
        near = " or ".join(str(size) for size in sorted(sizes)[-2:])
        raise InputError(f"{ranks} hosts make no fat-tree", mend=f"take k³/4 hosts for an even k, such as {near}")
    return fabrics.fat_tree(
        sizes[ranks], bandwidth_bytes_per_s, latency_s, oversubscription=oversubscription, seed=seed
    )


def _dragonfly(
    ranks: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    routers: int | None = None,
    hosts: int | None = None,
) -> Cluster:
    _at_least_one("dragonfly", ranks)
    if routers is None and hosts is None:
        sizes = fabrics.balanced_dragonfly(ranks)
        match = [size for size in sizes if size[0] == ranks]
        if not match:
            near = " or ".join(str(size[0]) for size in sizes[-2:])
            mend = f"take a balanced size such as {near}, or give routers (per group) and hosts (per router)"
            raise InputError(f"{ranks} hosts make no balanced dragonfly", mend=mend)
        return fabrics.dragonfly(*match[0][1:], bandwidth_bytes_per_s, latency_s)
    routers, hosts = routers or 1, hosts or 1
    topologies.check_positive("dragonfly", routers=routers, hosts=hosts)
    if ranks % (routers * hosts):
        raise InputError(
            f"{ranks} hosts fill no whole number of groups of {routers * hosts}",
            where="dragonfly",
            mend=f"take a multiple of {routers * hosts}",
        )
    groups = ranks // (routers * hosts)
    return fabrics.dragonfly(groups, routers, hosts, bandwidth_bytes_per_s, latency_s)


def _rail_optimised(
    ranks: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    gpus_per_node: int = 8,
    scale_up_bandwidth_bytes_per_s: float | None = None,
    scale_up_latency_s: float | None = None,
    spines: int | None = None,
    oversubscription: float = 1.0,
    seed: int = 0,
) -> Cluster:
    topologies.check_positive("rail-optimised", ranks=ranks, gpus_per_node=gpus_per_node)
    if ranks % gpus_per_node:
        mend = f"take a multiple of {gpus_per_node}, or another gpus_per_node"
        raise InputError(
            f"{ranks} GPUs fill no whole number of nodes of {gpus_per_node}", where="rail-optimised", mend=mend
        )
    if scale_up_bandwidth_bytes_per_s is None:
        scale_up_bandwidth_bytes_per_s = 9 * bandwidth_bytes_per_s  # as in a DGX H100: 450 GB/s inside, 50 GB/s outside
    return fabrics.rail_optimised(
        ranks // gpus_per_node,
        gpus_per_node,
        bandwidth_bytes_per_s,
        latency_s,
        scale_up_bandwidth_bytes_per_s=scale_up_bandwidth_bytes_per_s,
        scale_up_latency_s=latency_s if scale_up_latency_s is None else scale_up_latency_s,
        spines=spines,
        oversubscription=oversubscription,
        seed=seed,
    )


def _hccs(
    ranks: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    npus_per_server: int = 8,
    network_bandwidth_bytes_per_s: float | None = None,
    network_latency_s: float | None = None,
) -> Cluster:
    return fabrics.hccs(
        ranks,
        bandwidth_bytes_per_s,
        latency_s,
        npus_per_server=npus_per_server,
        network_bandwidth_bytes_per_s=network_bandwidth_bytes_per_s,
        network_latency_s=network_latency_s,
    )


def _nvswitch_node(ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> Cluster:
    return fabrics.nvswitch_node(ranks, bandwidth_bytes_per_s, latency_s)


def _pcie_host(
    ranks: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    gpus_per_switch: int = 2,
    sockets: int = 2,
    socket_bandwidth_bytes_per_s: float | None = None,
) -> Cluster:
    return fabrics.pcie_host(
        ranks,
        bandwidth_bytes_per_s,
        latency_s,
        gpus_per_switch=gpus_per_switch,
        sockets=sockets,
        socket_bandwidth_bytes_per_s=socket_bandwidth_bytes_per_s,
    )


def _at_least_one(name: str, ranks: int) -> None:
    if ranks < 1:
        raise InputError(f"{ranks} ranks make no {name}", mend="take 1 or more")


TOPOLOGIES: Mapping[str, Topology] = {
    topology.name: topology
    for topology in (
        Topology("ring", "each device cabled to two neighbours", topologies.ring),
        Topology("line", "a ring without its last cable", topologies.line),
        Topology("fully-connected", "a cable between any two devices", topologies.fully_connected),
        Topology("switch", "all devices on one switch", topologies.switch),
        Topology("leaf-spine", "leaf switches, each cabled to every spine", topologies.leaf_spine),
        Topology("two-racks", "two switches and one uplink between them", topologies.two_racks),
        Topology("fat-tree", "three layers of equal switches, k³/4 hosts", _fat_tree),
        Topology("torus", "a grid with wrap-around, 2-D or 3-D", _torus),
        Topology("mesh", "a grid without wrap-around", _mesh),
        Topology("rail-optimised", "nodes with a switch inside, and a leaf for each rail of NICs", _rail_optimised),
        Topology("dragonfly", "groups of routers, one cable between any two groups", _dragonfly),
        Topology("hccs", "Ascend servers: a full mesh of NPUs in each", _hccs),
        Topology("nvswitch-node", "the GPUs of one node on switches that never limit", _nvswitch_node),
        Topology("pcie-host", "GPUs below PCIe switches and host bridges", _pcie_host),
    )
}


def build_topology(name: str, ranks: int, bandwidth_bytes_per_s: float, latency_s: float, **options: object) -> Cluster:
    """A cluster of ``ranks`` devices in the topology ``name``; every link has the given bandwidth and latency unless
    an option says otherwise. Options may be strings as people write them (``oversubscription="4:1"``, ``dims="4x4"``),
    and their names without the unit (``uplink_bandwidth="10GB/s"``).

    Raises:
        InputError: an unknown name or option, or a size for which the topology is not defined.
    """
    topology = TOPOLOGIES.get(name)
    if topology is None:
        close = difflib.get_close_matches(name, TOPOLOGIES, n=1)
        mend = f"did you mean {close[0]}?" if close else f"choose among {', '.join(TOPOLOGIES)}"
        raise InputError(f"there is no topology {name!r}", mend=mend)
    values: dict[str, object] = {}
    for option, value in options.items():
        full = topology.option(option)
        if full in values:
            raise InputError(f"option {option!r} is given twice", where=name)
        try:
            values[full] = parse_option(full, value)
        except InputError as error:
            raise error.at(f"{name}: {option}") from None
    return topology.build(ranks, bandwidth_bytes_per_s, latency_s, **values)
