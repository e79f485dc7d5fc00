"""A cluster: devices that hold ranks, switches, and the directed links between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import networkx as nx


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


@dataclass(frozen=True, eq=False)
class Cluster:
    """A directed graph of devices and switches.

    Edges carry ``bandwidth_bytes_per_s`` and ``latency_s``. Nodes carry ``kind`` (``"device"``, ``"switch"``,
    ``"nic"`` or ``"host"``); devices also ``device``, the catalog's name of what they are, and ``host``, the name of
    the machine they belong to. ``devices`` lists the nodes that can hold a rank, in the order of placement.
    """

    name: str
    graph: nx.DiGraph
    devices: tuple[str, ...]
    hosts: Mapping[str, Host] = field(default_factory=dict)
    seed: int = 0  # of the ECMP hash

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All links; a route is a tuple of indices into this."""
        return tuple(
            Link(u, v, float(data["bandwidth_bytes_per_s"]), float(data["latency_s"]))
            for u, v, data in self.graph.edges(data=True)
        )

    @cached_property
    def _link_index(self) -> dict[tuple[str, str], int]:
        return {(link.source, link.destination): i for i, link in enumerate(self.links)}

    def host_of(self, device: str) -> Host:
        """The machine a device belongs to."""
        name = self.graph.nodes[device].get("host", device)
        return self.hosts.get(name, Host(name))

    def route(self, source: str, destination: str) -> tuple[int, ...]:
        """The links that a message from one device to another crosses, in order.

        Shortest path by number of links; of several, one is chosen by a hash of (source, destination, seed), as
        equal-cost multi-path routing does, so that a pair always takes the same path.
        """
        raise NotImplementedError
