"""A cluster: devices that hold ranks, switches, and the directed links between them."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from llmsim.cluster.routing import Router
from llmsim.errors import InputError

if TYPE_CHECKING:
    import networkx as nx  # slow to load, so only where a graph is made


@dataclass(frozen=True)
class Host:
    """A machine that devices belong to. ``cores`` is None where the CPU is never what limits."""

    name: str
    cores: float | None = None


class Link(NamedTuple):
    """One direction of a physical link."""

    source: str
    destination: str
    bandwidth_bytes_per_s: float
    latency_s: float
    burst_bytes: float = 0.0  # after a pause so much passes at once: the size of a token bucket that shapes it


@dataclass(frozen=True, eq=False)
class Cluster:
    """A directed graph of devices and switches.

    Edges carry ``bandwidth_bytes_per_s`` and ``latency_s``, ``hops`` where they count as more than one in the choice
    of shortest paths, and ``burst_bytes`` where a token bucket shapes them. Nodes carry ``kind`` (``"device"``,
    ``"switch"``, ``"nic"`` or ``"host"``); devices also ``device``, the catalog's name of what they are, and ``host``,
    the name of the machine they belong to. A node with ``forwards=False`` passes nothing on: messages only start and
    end there. ``devices`` lists the nodes that can hold a rank, in the order of placement.

    Raises:
        InputError: no devices, a device missing in the graph, a link without bandwidth or with negative latency, or
            two devices without a path between them.
    """

    name: str
    graph: "nx.DiGraph"
    devices: tuple[str, ...]
    hosts: Mapping[str, Host] = field(default_factory=dict)
    seed: int = 0  # of the ECMP hash

    def __post_init__(self) -> None:
        if not self.devices:
            raise InputError("there is no device", where=self.name, mend="a cluster needs at least one")
        if len(set(self.devices)) < len(self.devices):
            twice = next(d for i, d in enumerate(self.devices) if d in self.devices[:i])
            raise InputError(f"device {twice!r} is listed twice", where=self.name)
        if missing := [d for d in self.devices if d not in self.graph]:
            raise InputError(f"device {missing[0]!r} is not a node of the graph", where=self.name)
        for link in self.links:
            place = f"{self.name}: link {link.source} → {link.destination}"
            if not (link.bandwidth_bytes_per_s > 0 and isfinite(link.bandwidth_bytes_per_s)):
                raise InputError(
                    f"its bandwidth is {link.bandwidth_bytes_per_s:g} B/s", where=place, mend="give a positive one"
                )
            if not (link.latency_s >= 0 and isfinite(link.latency_s)):
                raise InputError(f"its latency is {link.latency_s:g} s", where=place, mend="give 0 or more")
            if not (link.burst_bytes >= 0 and isfinite(link.burst_bytes)):
                raise InputError(f"its burst is {link.burst_bytes:g} bytes", where=place, mend="give 0 or more")
        self._check_connected()

    def _check_connected(self) -> None:
        import networkx as nx

        first = self.devices[0]
        for ways, there in ((nx.descendants(self.graph, first), True), (nx.ancestors(self.graph, first), False)):
            if cut := [d for d in self.devices[1:] if d not in ways]:
                ends = (first, cut[0]) if there else (cut[0], first)
                raise self._no_path(*ends)

    def _no_path(self, source: str, destination: str) -> InputError:
        return InputError(
            f"no path from {source} to {destination}", where=self.name, mend="every device must reach every other"
        )

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All links; a route is a tuple of indices into this."""
        return tuple(
            Link(
                u,
                v,
                float(data["bandwidth_bytes_per_s"]),
                float(data["latency_s"]),
                float(data.get("burst_bytes", 0.0)),
            )
            for u, v, data in self.graph.edges(data=True)
        )

    @cached_property
    def _link_index(self) -> dict[tuple[str, str], int]:
        return {(link.source, link.destination): i for i, link in enumerate(self.links)}

    @cached_property
    def _node_index(self) -> dict[str, int]:
        """Devices first, in order, so that a cluster read from a file hashes as the one that was written."""
        return {name: i for i, name in enumerate(dict.fromkeys([*self.devices, *self.graph.nodes]))}

    @cached_property
    def _router(self) -> Router:
        index = self._node_index
        return Router(
            nodes=len(index),
            links=[(index[link.source], index[link.destination]) for link in self.links],
            forwards=[bool(self.graph.nodes[name].get("forwards", True)) for name in index],
            seed=self.seed,
            lengths=[int(hops) for _, _, hops in self.graph.edges(data="hops", default=1)],
        )

    def host_of(self, device: str) -> Host:
        """The machine a device belongs to."""
        name = self.graph.nodes[device].get("host", device)
        return self.hosts.get(name, Host(name))

    def describe(self) -> str:
        """The cluster in a few lines: devices, hosts, links by kind, bisection bandwidth."""
        from llmsim.cluster.summary import describe

        return describe(self)

    def route(self, source: str, destination: str) -> tuple[int, ...]:
        """The links that a message from one device to another crosses, in order.

        Shortest path by number of hops, which is one for each link that does not state another. Of several paths one
        is chosen by a hash of (source, destination, seed), as equal-cost multi-path routing does, so that a pair
        always takes the same. Empty from a device to itself.

        Raises:
            InputError: an unknown device, or no path.
        """
        index = self._node_index
        try:
            ends = index[source], index[destination]
        except KeyError as unknown:
            name = str(unknown.args[0])
            close = difflib.get_close_matches(name, index, n=3)
            mend = (
                f"did you mean {' or '.join(close)}?" if close else f"they are {self.devices[0]} … {self.devices[-1]}"
            )
            raise InputError(f"there is no device {name!r}", where=self.name, mend=mend) from None
        path = self._router.route(*ends)
        if path is None:
            raise self._no_path(source, destination)
        return path
