"""Topologies by name and by builder.

Latency is per link, and a path through a switch has at least two links. Links are full duplex: each cable is two
directed links. A switch adds nothing of its own. Devices are called ``d0``, ``d1``, … in the order of placement.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from math import ceil, isqrt, prod

from llmsim.cluster.cluster import Cluster
from llmsim.errors import InputError

MOST_DEVICES = 1_000_000
MOST_IN_A_MESH = 2_000  # four million links


class Wiring:
    """A graph under construction: devices first, then switches and cables."""

    def __init__(self, name: str, devices: int, at_least: int = 1, **attributes: object):
        if devices < at_least:
            raise InputError(f"{devices} devices make no {name}", mend=f"take {at_least} or more")
        if devices > MOST_DEVICES:
            raise InputError(f"{devices} devices are too many for a graph", mend=f"take {MOST_DEVICES} or fewer")
        import networkx as nx

        self.name = name
        self.graph: nx.DiGraph = nx.DiGraph()
        self.devices = tuple(f"d{i}" for i in range(devices))
        stated = {key: value for key, value in attributes.items() if value is not None}
        for device in self.devices:
            self.graph.add_node(device, kind="device", **stated)

    def node(self, name: str, kind: str = "switch", **attributes: object) -> str:
        """Add a switch, NIC or host."""
        self.graph.add_node(name, kind=kind, **attributes)
        return name

    def cable(self, a: str, b: str, bandwidth_bytes_per_s: float, latency_s: float, **attributes: object) -> None:
        """Join two nodes in both directions."""
        values = {"bandwidth_bytes_per_s": bandwidth_bytes_per_s, "latency_s": latency_s, **attributes}
        self.graph.add_edge(a, b, **values)
        self.graph.add_edge(b, a, **values)

    def cluster(self, **fields: object) -> Cluster:
        """The finished cluster."""
        return Cluster(self.name, self.graph, self.devices, **fields)  # type: ignore[arg-type]


def ring(n: int, bandwidth_bytes_per_s: float, latency_s: float) -> Cluster:
    """``n`` devices, each cabled to the next and the last to the first; devices forward."""
    wiring = Wiring("ring", n)
    for a, b in _ring_pairs(n):
        wiring.cable(f"d{a}", f"d{b}", bandwidth_bytes_per_s, latency_s)
    return wiring.cluster()


def line(n: int, bandwidth_bytes_per_s: float, latency_s: float) -> Cluster:
    """``n`` devices, each cabled to the next; devices forward."""
    wiring = Wiring("line", n)
    for i in range(n - 1):
        wiring.cable(f"d{i}", f"d{i + 1}", bandwidth_bytes_per_s, latency_s)
    return wiring.cluster()


def fully_connected(n: int, bandwidth_bytes_per_s: float, latency_s: float) -> Cluster:
    """``n`` devices, each cabled to every other."""
    wiring = Wiring("fully-connected", n)
    mesh_all(wiring, wiring.devices, bandwidth_bytes_per_s, latency_s)
    return wiring.cluster()


def switch(n: int, bandwidth_bytes_per_s: float, latency_s: float) -> Cluster:
    """``n`` devices on one switch that never limits (a star); two links from device to device."""
    wiring = Wiring("switch", n)
    hub = wiring.node("switch")
    for device in wiring.devices:
        wiring.cable(device, hub, bandwidth_bytes_per_s, latency_s)
    return wiring.cluster()


def leaf_spine(
    hosts: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    leaves: int | None = None,
    spines: int | None = None,
    oversubscription: float = 1.0,
    uplink_bandwidth_bytes_per_s: float | None = None,
    seed: int = 0,
) -> Cluster:
    """Hosts on leaf switches, every leaf cabled to every spine.

    Args:
        leaves: by default about √hosts; hosts are dealt out in order, as evenly as possible.
        spines: by default so many that an uplink is about as fast as a host's link.
        oversubscription: bandwidth of a full leaf's hosts over bandwidth of its uplinks, e.g. 4 for "4:1".
        uplink_bandwidth_bytes_per_s: of one leaf–spine cable, in place of ``oversubscription``.
        seed: of the ECMP choice among spines.
    """
    wiring = Wiring("leaf-spine", hosts)
    leaves = ceil(hosts / ceil(hosts**0.5)) if leaves is None else leaves
    if not 1 <= leaves <= hosts:
        raise InputError(f"{leaves} leaves for {hosts} hosts", where="leaf-spine", mend=f"take 1 to {hosts} leaves")
    hosts_per_leaf = ceil(hosts / leaves)
    check_ratio("leaf-spine", oversubscription)
    spines = max(1, round(hosts_per_leaf / oversubscription)) if spines is None else spines
    if spines < 1:
        raise InputError(f"{spines} spines", where="leaf-spine", mend="take 1 or more")
    if uplink_bandwidth_bytes_per_s is None:
        uplink_bandwidth_bytes_per_s = hosts_per_leaf * bandwidth_bytes_per_s / (oversubscription * spines)
    leaf_names = [wiring.node(f"leaf{i}") for i in range(leaves)]
    spine_names = [wiring.node(f"spine{i}") for i in range(spines)]
    for device, leaf in zip(wiring.devices, dealt(leaf_names, hosts), strict=True):
        wiring.cable(device, leaf, bandwidth_bytes_per_s, latency_s)
    for leaf, spine in product(leaf_names, spine_names):
        wiring.cable(leaf, spine, uplink_bandwidth_bytes_per_s, latency_s)
    return wiring.cluster(seed=seed)


def two_racks(
    hosts: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    uplink_bandwidth_bytes_per_s: float | None = None,
    oversubscription: float = 4.0,
) -> Cluster:
    """Two racks, a switch in each, one cable between the switches; the first rack has the odd host.

    Args:
        uplink_bandwidth_bytes_per_s: of the cable between the racks; by default that of the first rack's hosts over
            ``oversubscription``.
    """
    wiring = Wiring("two-racks", hosts, at_least=2)
    check_ratio("two-racks", oversubscription)
    if uplink_bandwidth_bytes_per_s is None:
        uplink_bandwidth_bytes_per_s = ceil(hosts / 2) * bandwidth_bytes_per_s / oversubscription
    first, second = wiring.node("rack0"), wiring.node("rack1")
    for device, rack in zip(wiring.devices, dealt([first, second], hosts), strict=True):
        wiring.cable(device, rack, bandwidth_bytes_per_s, latency_s)
    wiring.cable(first, second, uplink_bandwidth_bytes_per_s, latency_s)
    return wiring.cluster()


def torus(
    dims: Sequence[int],
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    wrap: Sequence[bool] | None = None,
    device: str | None = None,
    name: str = "torus",
) -> Cluster:
    """A grid of devices with wrap-around, device index row-major in ``dims``; devices forward.

    Along a dimension of 2 the two neighbours share one cable, as there is nothing to wrap around. ``wrap`` says for
    each dimension whether it wraps around at all, by default all do.
    """
    if not dims or min(dims) < 1:
        shape = "x".join(map(str, dims))
        raise InputError(f"{shape!r} is no shape of a {name}", mend="give positive sizes such as 4x4 or 4x4x4")
    wrap = [True] * len(dims) if wrap is None else wrap
    wiring = Wiring(name, prod(dims), device=device)
    strides = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    for index, coordinates in enumerate(product(*map(range, dims))):
        wiring.graph.nodes[f"d{index}"]["coordinates"] = coordinates
        for c, dim, stride, around in zip(coordinates, dims, strides, wrap, strict=True):
            if c + 1 < dim:
                wiring.cable(f"d{index}", f"d{index + stride}", bandwidth_bytes_per_s, latency_s)
            elif around and dim > 2:
                wiring.cable(f"d{index}", f"d{index - c * stride}", bandwidth_bytes_per_s, latency_s)
    return wiring.cluster()


def mesh(dims: Sequence[int], bandwidth_bytes_per_s: float, latency_s: float) -> Cluster:
    """A grid of devices without wrap-around, device index row-major in ``dims``; devices forward."""
    return torus(dims, bandwidth_bytes_per_s, latency_s, wrap=[False] * len(dims), name="mesh")


def squarest(n: int) -> tuple[int, int]:
    """The two factors of ``n`` that are nearest to each other, the smaller first: 12 → (3, 4)."""
    a = next(a for a in range(isqrt(n), 0, -1) if n % a == 0)
    return a, n // a


def _ring_pairs(n: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(n - 1)] + ([(n - 1, 0)] if n > 2 else [])


def mesh_all(wiring: Wiring, names: Sequence[str], bandwidth_bytes_per_s: float, latency_s: float) -> None:
    """Cable every node to every other."""
    if len(names) > MOST_IN_A_MESH:
        raise InputError(f"{len(names)} devices are too many for a full mesh", mend=f"take {MOST_IN_A_MESH} or fewer")
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            wiring.cable(a, b, bandwidth_bytes_per_s, latency_s)


def dealt(names: Sequence[str], count: int) -> Iterable[str]:
    """``count`` places over ``names`` in order, as evenly as possible: a b over 5 → a a a b b."""
    base, extra = divmod(count, len(names))
    return (name for i, name in enumerate(names) for _ in range(base + (i < extra)))


def check_positive(name: str, **counts: int) -> None:
    """Refuse a count below 1."""
    for what, count in counts.items():
        if count < 1:
            raise InputError(f"{what} is {count}", where=name, mend="take 1 or more")


def check_ratio(name: str, oversubscription: float) -> None:
    """Refuse an oversubscription that is no positive number."""
    if not oversubscription > 0:
        raise InputError(f"oversubscription {oversubscription:g}", where=name, mend="give a positive one, 4 for 4:1")
