"""Shortest paths with equal-cost multi-path choice, on integer nodes.

Distances to a destination are found by a breadth-first search backwards from it, which goes no farther than asked and
is kept; a route then walks downhill. Devices on a single cable (hosts of a switch network) are left out of the search:
their first and last hop are forced, so all hosts of a switch share one search. A link may count as several hops, so
that routing avoids crossing two of its kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_CACHE_BYTES = 64 << 20  # of distances; a 4,096-node torus needs 64 MiB for all destinations


def splitmix64(value: int) -> int:
    """A well-mixed 64-bit hash of an integer (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
    generators", the finaliser of SplitMix64)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Router:
    """Routes between nodes ``0 … nodes - 1`` joined by directed links.

    Args:
        nodes: number of nodes.
        links: (source, destination) of each link.
        forwards: whether a message may pass through a node on its way to another.
        seed: of the equal-cost choice.
        lengths: of each link, in hops, by default 1 each.
    """

    def __init__(
        self,
        nodes: int,
        links: Sequence[tuple[int, int]],
        forwards: Sequence[bool],
        seed: int = 0,
        lengths: Sequence[int] | None = None,
    ):
        self._links = len(links)
        links, unnamed = _unit_links(nodes, links, lengths)
        self.forwards, self.seed = [*forwards, *[True] * unnamed], seed
        self.nodes = nodes = nodes + unnamed
        self._out: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]  # (link, next node), by next node
        into: list[list[int]] = [[] for _ in range(nodes)]
        for link, (u, v) in sorted(enumerate(links), key=lambda item: item[1]):
            self._out[u].append((link, v))
            into[v].append(u)
        self._link = {pair: link for link, pair in enumerate(links)}
        self._only_way_in = [sources[0] if len(sources) == 1 else -1 for sources in into]
        inner = [[u for u in sources if self.forwards[u]] for sources in into]
        self._in_start = np.zeros(nodes + 1, dtype=np.int64)
        np.cumsum([len(sources) for sources in inner], out=self._in_start[1:])
        self._in = np.array([u for sources in inner for u in sources], dtype=np.int64)
        self._searches: dict[int, _Search] = {}
        self._cache_entries = max(16, _CACHE_BYTES // (4 * max(nodes, 1)))

    def route(self, source: int, destination: int) -> tuple[int, ...] | None:
        """Link indices from ``source`` to ``destination``, None where there is no path.

        At each node one of the equally near next nodes is taken, by a hash of (source, destination, seed) that is
        mixed anew at each hop: with one and the same value the choices of consecutive switches would coincide.
        """
        if source == destination:
            return ()
        direct = self._link.get((source, destination))
        if direct is not None:
            return (direct,)
        target = destination
        tail: tuple[int, ...] = ()
        while (before := self._only_way_in[target]) >= 0 and self.forwards[before] and before != source:
            tail = (self._link[before, target], *tail)
            target = before
            if len(tail) > self.nodes:
                return None  # a cycle that the source has no way into
        search = self._searches.get(target) or self._start(target)
        choice, path, node, hops_to = None, [], source, search.hops
        while node != target:
            hops = hops_to.get(node)
            if hops is None:
                hops = hops_to[node] = self._nearer(node, search)
            if not hops:
                return None
            if len(hops) == 1:
                link, node = hops[0]
            else:
                if choice is None:
                    choice = splitmix64(splitmix64(splitmix64(self.seed & _MASK) ^ source) ^ destination)
                else:
                    choice = splitmix64(choice)
                link, node = hops[choice % len(hops)]
            path.append(link)
        return tuple(link for link in (*path, *tail) if link < self._links)

    def _start(self, target: int) -> "_Search":
        if len(self._searches) >= self._cache_entries:
            del self._searches[next(iter(self._searches))]
        distance = np.full(self.nodes, -1, dtype=np.int32)
        distance[target] = 0
        return self._searches.setdefault(target, _Search(distance, np.array([target], dtype=np.int64)))

    def _nearer(self, node: int, search: "_Search") -> list[tuple[int, int]]:
        """The links out of ``node`` that lead one hop nearer to the target of ``search``."""
        next_nodes = [v for _, v in self._out[node]]
        while search.frontier.size and (search.distance[next_nodes] < 0).all():
            self._one_level(search)
        near = [(d, hop) for hop in self._out[node] if (d := int(search.distance[hop[1]])) >= 0]
        least = min((d for d, _ in near), default=-1)
        return [hop for d, hop in near if d == least]

    def _one_level(self, search: "_Search") -> None:
        """Find the nodes that are one link farther from the target. A node that does not forward is not found: no
        path goes through it."""
        frontier = search.frontier
        first, count = self._in_start[frontier], self._in_start[frontier + 1] - self._in_start[frontier]
        skipped = np.repeat(first - (np.cumsum(count) - count), count)
        reached = self._in[skipped + np.arange(skipped.size)]
        search.level += 1
        search.frontier = np.unique(reached[search.distance[reached] < 0])
        search.distance[search.frontier] = search.level


def _unit_links(
    nodes: int, links: Sequence[tuple[int, int]], lengths: Sequence[int] | None
) -> tuple[list[tuple[int, int]], int]:
    """Links of one hop each, and how many nodes they need beyond ``nodes``.

    A link of several hops becomes a chain: its first hop keeps its number, the others come after all links.
    """
    first, further = list(links), []
    unnamed = 0
    for link, length in enumerate(lengths or ()):
        source, destination = links[link]
        for hop in range(1, length):
            middle = nodes + unnamed
            unnamed += 1
            if hop == 1:
                first[link] = (source, middle)
            further.append((middle, middle + 1 if hop + 1 < length else destination))
    return first + further, unnamed


@dataclass
class _Search:
    """How far a search backwards from a target has come."""

    distance: NDArray[np.int32]  # (nodes,), links to the target, -1 where not yet known
    frontier: NDArray[np.int64]  # the farthest nodes found
    level: int = 0  # their distance
    hops: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # (link, next node) by node, where asked
