"""Shortest paths with equal-cost multi-path choice, on integer nodes.

Distances to a destination are found by one breadth-first search backwards from it and kept; a route then walks
downhill. Devices on a single cable (hosts of a switch network) are left out of the search: their first and last hop
are forced, so all hosts of a switch share one search.
"""

from collections.abc import Sequence

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
    """

    def __init__(self, nodes: int, links: Sequence[tuple[int, int]], forwards: Sequence[bool], seed: int = 0):
        self.nodes, self.forwards, self.seed = nodes, list(forwards), seed
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
        self._next_hops: dict[int, dict[int, list[tuple[int, int]]]] = {}
        self._distance: dict[int, NDArray[np.int32]] = {}
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
        choice, path, node = None, [], source
        hops_to = self._next_hops.get(target)
        if hops_to is None:
            hops_to = self._remember(target)
        while node != target:
            hops = hops_to.get(node)
            if hops is None:
                hops = hops_to[node] = self._nearer(node, target)
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
        return (*path, *tail)

    def _remember(self, target: int) -> dict[int, list[tuple[int, int]]]:
        if len(self._next_hops) >= self._cache_entries:
            oldest = next(iter(self._next_hops))
            del self._next_hops[oldest], self._distance[oldest]
        self._distance[target] = self.distance_to(target)
        return self._next_hops.setdefault(target, {})

    def _nearer(self, node: int, target: int) -> list[tuple[int, int]]:
        """The links out of ``node`` that lead one hop nearer to ``target``."""
        distance = self._distance[target]
        near = [(d, hop) for hop in self._out[node] if (d := int(distance[hop[1]])) >= 0]
        least = min((d for d, _ in near), default=-1)
        return [hop for d, hop in near if d == least]

    def distance_to(self, target: int) -> NDArray[np.int32]:
        """Links from each node to ``target``, shape (nodes,); -1 where there is no path *through* the node, so a
        node that does not forward has -1 unless it is the target."""
        distance = np.full(self.nodes, -1, dtype=np.int32)
        distance[target] = 0
        frontier = np.array([target], dtype=np.int64)
        level = 0
        while frontier.size:
            level += 1
            first, count = self._in_start[frontier], self._in_start[frontier + 1] - self._in_start[frontier]
            skipped = np.repeat(first - (np.cumsum(count) - count), count)
            reached = self._in[skipped + np.arange(skipped.size)]
            frontier = np.unique(reached[distance[reached] < 0])
            distance[frontier] = level
        return distance
