"""The time that no algorithm can beat on a given cluster, without reduction inside the network.

Three arguments, each a proof, of which the strongest counts:

* **Cuts.** Whatever the ranks on one side of a cut owe the other side has to cross it. With S bytes on each of N ranks,
  of which rank i keeps or gives a segment of s_i: an all-reduce needs S over every cut each way; a reduce-scatter the
  segments of the far side, an all-gather those of the near side, an all-to-all those of the far side for each rank of
  the near side, a broadcast S away from the root and a reduce S towards it. One device against the rest is a cut, so
  are a host, a leaf and half of a torus.
* **Gossip.** Per element, an all-reduce takes 2(G−1) messages between G parties. Let v be the first that knows the
  sum. Everybody else has sent a message before, that is G−1 messages. Everybody else u then learns the sum by a
  message that v's knowledge does not depend on, else u had been first: G−1 more. (Patarasuk & Yuan 2009, Theorem 1,
  count N−1 additions and N−1 copies.) Parties are the devices or, with all that passes inside them for free, hosts or
  leaves. A message uses the links that leave its sender's party and those that enter its receiver's.
* **Latency.** What starts at a has to arrive at b, over links, in no less than the shortest path's latency.

Processors, reductions and equal-cost routing that collides are left out: it is a bound, not an estimate.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from llmsim.cluster.cluster import Cluster
from llmsim.cost.costs import Costs
from llmsim.errors import InputError
from llmsim.program.program import COLLECTIVES, Program, segments

_PREFIXES = 64  # cuts that are tried along the order of devices
_SOURCES = 8  # devices from which latencies are measured in a large cluster
_LINKS_TO_WALK = 200_000  # beyond which latencies of whole paths are left out

Mask = NDArray[np.bool_]


def program_lower_bound_s(
    program: Program, cluster: Cluster, placement: "Sequence[int] | None" = None, costs: "Costs | None" = None
) -> float:
    """The least time on ``cluster`` of whatever keeps the one contract of ``program``; 0 if there is nothing to move.

    Args:
        placement: indices into ``cluster.devices``, by default in rank order.
        costs: overheads, latency and protocol efficiency to count as well; by default those of an ideal machine.

    Raises:
        InputError: the program has not exactly one contract, or does not fit on the cluster.
    """
    if len(program.contracts) != 1:
        raise InputError(f"{len(program.contracts)} contracts have no common bound", where=program.name)
    (contract,) = program.contracts
    places = range(len(cluster.devices)) if placement is None else placement
    devices = _placed(cluster, places, program.world_size, program.name)
    itemsize = program.buffers[contract.buffer].itemsize
    own = segments(contract.count, len(contract.ranks))[1].astype(np.float64) * itemsize
    ranks = contract.ranks
    if contract.root is not None and contract.root not in ranks:  # it takes part without giving anything
        ranks, own = (*ranks, contract.root), np.append(own, 0.0)
    root = 0 if contract.root is None else ranks.index(contract.root)
    task = _Task(contract.collective, float(contract.count * itemsize), own, root)
    members = [devices[rank] for rank in ranks]
    return _bound_s(task, _Network(cluster, members, devices), costs or Costs())


def cluster_lower_bound_s(
    collective: str,
    size_bytes: float,
    cluster: Cluster,
    *,
    placement: "Sequence[int] | None" = None,
    root: int = 0,
    costs: "Costs | None" = None,
) -> float:
    """The least time of a collective on ``cluster``, whose segments are as even as real numbers can be.

    Args:
        size_bytes: of the buffer that each rank has: for a reduce-scatter before, for an all-gather after it.
        placement: indices into ``cluster.devices``, one a rank; by default a rank on every device. Of a
            point-to-point the first entry that is not ``root`` is the receiver.

    Raises:
        InputError: an unknown collective, a negative size, or a placement or root that does not exist.
    """
    if collective not in COLLECTIVES:
        raise InputError(f"there is no collective {collective!r}", mend=f"choose among {', '.join(COLLECTIVES)}")
    if not size_bytes >= 0:
        raise InputError(f"a size of {size_bytes} bytes", where=collective, mend="give 0 or more")
    places = range(len(cluster.devices)) if placement is None else placement
    devices = _placed(cluster, places, len(places), collective)
    if not 0 <= root < len(devices):
        raise InputError(f"root {root} is outside the world of {len(devices)}", where=collective)
    if collective == "point-to-point":
        devices = [devices[root], *(d for rank, d in enumerate(devices) if rank != root)][:2]
        root = 0
    own = np.full(len(devices), size_bytes / len(devices))
    task = _Task(collective, float(size_bytes), own, root)
    return _bound_s(task, _Network(cluster, devices, devices), costs or Costs())


def _placed(cluster: Cluster, places: Sequence[int], ranks: int, where: str) -> list[str]:
    if len(places) < ranks:
        raise InputError(f"{ranks} ranks on {len(places)} devices", where=where, mend="take a larger cluster")
    for place in places:
        if not 0 <= place < len(cluster.devices):
            raise InputError(f"there is no device {place}", where=where, mend=f"it has {len(cluster.devices)}")
    return [cluster.devices[place] for place in places[:ranks]]


@dataclass(frozen=True)
class _Task:
    """What has to move: ``own`` is the segment of each rank in bytes, ``size`` the whole."""

    collective: str
    size: float
    own: NDArray[np.float64]
    root: int

    def crossing(self, near: Mask) -> tuple[float, float]:
        """Bytes that must get out of, and into, the set of ranks ``near``, of which some are not members."""
        inside, outside = float(self.own[near].sum()), float(self.own[~near].sum())
        match self.collective:
            case "all-reduce":
                return self.size, self.size
            case "reduce-scatter":
                return outside, inside
            case "all-gather":
                return inside, outside
            case "all-to-all":
                return int(near.sum()) * outside, int((~near).sum()) * inside
            case "reduce":
                return (0.0, self.size) if near[self.root] else (self.size, 0.0)
            case "broadcast" | "point-to-point":
                return (self.size, 0.0) if near[self.root] else (0.0, self.size)
            case _:
                raise InputError(f"no bound is known for {self.collective}")

    def flows(self) -> tuple[Mask, Mask]:
        """Ranks with something that others need, and ranks that need something of others."""
        everybody = np.ones(len(self.own), dtype=np.bool_)
        root = np.arange(len(self.own)) == self.root
        match self.collective:
            case "all-reduce":
                return everybody, everybody
            case "all-gather":
                return self.own > 0, everybody
            case "reduce":
                return everybody, root
            case "broadcast" | "point-to-point":
                return root, ~root
            case _:
                return everybody, self.own > 0


def _bound_s(task: _Task, network: "_Network", costs: Costs) -> float:
    if network.parties < 2 or not task.size > 0:
        return 0.0
    transfer_s = 0.0
    for near, capacity_out, capacity_in in network.cuts():
        bytes_out, bytes_in = task.crossing(near)
        out_s, in_s = (bytes_out - network.burst) / capacity_out, (bytes_in - network.burst) / capacity_in
        transfer_s = max(transfer_s, out_s, in_s)
    if task.collective == "all-reduce":
        for parties, capacity in network.partitions():
            transfer_s = max(transfer_s, (2 * (parties - 1) * task.size - network.burst) / capacity)
    transfer_s /= costs.protocol_efficiency
    least_s, largest_s = network.latencies(*task.flows())
    overhead_s = costs.send_overhead_s + costs.latency_s + costs.receive_overhead_s
    return overhead_s + max(transfer_s + least_s, largest_s)


class _Network:
    """The cluster as arrays, for members of a collective on ``devices``.

    ``world`` are the devices of all ranks there are, members or not: any of them may pass bytes on.
    """

    def __init__(self, cluster: Cluster, devices: Sequence[str], world: Sequence[str]):
        self.cluster, self.devices, self.world = cluster, devices, list(dict.fromkeys(world))
        self.nodes = {name: i for i, name in enumerate(cluster.graph.nodes)}
        links = cluster.links
        self.source = np.array([self.nodes[link.source] for link in links], dtype=np.int64)
        self.destination = np.array([self.nodes[link.destination] for link in links], dtype=np.int64)
        self.bandwidth = np.array([link.bandwidth_bytes_per_s for link in links], dtype=np.float64)
        self.burst = sum(link.burst_bytes for link in links)  # what token buckets let pass beyond it, at most
        self.at = np.array([self.nodes[device] for device in devices], dtype=np.int64)  # the node of each rank
        self.is_device = set(cluster.devices)

    @cached_property
    def parties(self) -> int:
        """Devices with a member: those on one device talk for free."""
        return len(set(self.at.tolist()))

    # capacities --------------------------------------------------------------------------------------------------

    def _capacity(self, near: Mask) -> tuple[float, float]:
        """Bytes per second out of and into a set of nodes that has the members ``near`` and no others.

        Every other node is put on the side that it has the wider links to, which makes the cut narrow; wherever it
        is put, it is a cut.
        """
        side = np.zeros(len(self.nodes))  # -1 outside, 1 inside, 0 not yet known
        side[self.at] = np.where(near, 1.0, -1.0)
        fixed = side != 0
        for _ in range(4 if len(self.nodes) > self.parties else 0):  # leaves know after one round, spines after two
            pull = np.bincount(self.source, side[self.destination] * self.bandwidth, len(side))
            pull += np.bincount(self.destination, side[self.source] * self.bandwidth, len(side))
            side = np.where(fixed, side, np.sign(pull))
        inside = side > 0
        out = inside[self.source] & ~inside[self.destination]
        into = ~inside[self.source] & inside[self.destination]
        return float(self.bandwidth[out].sum()), float(self.bandwidth[into].sum())

    @cached_property
    def _by_device(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bytes per second out of and into each node over all its links together."""
        out = np.bincount(self.source, self.bandwidth, len(self.nodes)).astype(np.float64)
        return out, np.bincount(self.destination, self.bandwidth, len(self.nodes)).astype(np.float64)

    def cuts(self) -> Iterator[tuple[Mask, float, float]]:
        """Members worth a cut, with its capacities: each device, host and leaf, the first k, slabs of a torus."""
        out, into = self._by_device
        for node in dict.fromkeys(self.at.tolist()):
            yield self.at == node, float(out[node]), float(into[node])
        for labels, ways in self._hosts_and_leaves:
            yield from ((labels == party, *ways[party].tolist()) for party in range(len(ways)))
        for near in self._sets():
            if near.any() and not near.all() and not np.isin(self.at[near], self.at[~near]).any():
                yield near, *self._capacity(near)

    def _sets(self) -> Iterator[Mask]:
        for neighbours in self._below_switches():
            yield np.array([device in neighbours for device in self.devices])
        ranks = len(self.devices)
        place = np.argsort(np.argsort(self.at, kind="stable"), kind="stable")
        yield from (place < k for k in sorted({round(i * ranks / _PREFIXES) for i in range(1, _PREFIXES)}))
        yield from self._slabs()

    def _below_switches(self) -> list[set[str]]:
        graph = self.cluster.graph
        return [set(graph.predecessors(node)) for node in graph if node not in self.is_device]

    def _slabs(self) -> Iterator[Mask]:
        places = [self.cluster.graph.nodes[device].get("coordinates") for device in self.devices]
        if any(place is None for place in places):
            return
        coordinates = np.array(places)
        for axis in range(coordinates.shape[1]):
            yield from (coordinates[:, axis] < bound for bound in range(1, int(coordinates[:, axis].max()) + 1))

    @cached_property
    def _hosts_and_leaves(self) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """The party of each member, where parties are hosts, or what stands on the same switch, and the capacities out
        of and into each party. A party is left out where it is one device, or everything."""
        graph = self.cluster.graph
        found: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        hosts = {device: self.cluster.host_of(device).name for device in self.devices}
        widest = {d: max(graph[d], key=lambda n: graph[d][n]["bandwidth_bytes_per_s"], default=d) for d in hosts}
        wired = {device: device if node in self.is_device else node for device, node in widest.items()}
        for party in (hosts, wired):
            number = {name: i for i, name in enumerate(dict.fromkeys(party[device] for device in self.devices))}
            labels = np.array([number[party[device]] for device in self.devices], dtype=np.int64)
            if 1 < len(number) < self.parties and not any(np.array_equal(labels, known) for known, _ in found):
                found.append((labels, np.array([self._capacity(labels == i) for i in range(len(number))])))
        return found

    def partitions(self) -> Iterator[tuple[int, float]]:
        """Ways to see the members as parties: how many, and what all can send or all can receive, bytes per second.

        Ranks that are no members can sum and pass on, as a parameter server does: their links count as well.
        """
        nodes = sorted({self.nodes[device] for device in self.world})
        yield self.parties, min(float(way[nodes].sum()) for way in self._by_device)
        if len(nodes) > self.parties:
            return
        yield from ((len(ways), float(ways.sum(axis=0).min())) for _, ways in self._hosts_and_leaves)

    # latencies ---------------------------------------------------------------------------------------------------

    def latencies(self, senders: Mask, receivers: Mask) -> tuple[float, float]:
        """At most the least latency of any message between two devices, and at most the largest that something of a
        sender needs to a receiver, seconds. In a large network not all pairs are tried."""
        import networkx as nx

        if not any(link.latency_s > 0 for link in self.cluster.links):
            return 0.0, 0.0
        quickest_s = self._quickest_s()
        if len(self.cluster.links) > _LINKS_TO_WALK:
            return quickest_s, quickest_s
        froms = list(dict.fromkeys(d for d, sends in zip(self.devices, senders, strict=True) if sends))
        to = {d for d, needs in zip(self.devices, receivers, strict=True) if needs}
        small = len(self.world) <= 8 * _SOURCES
        least_s, largest_s = np.inf, 0.0
        sources = list(self.world) if small else froms[:1]
        for source in sources:
            reached = nx.single_source_dijkstra_path_length(self.cluster.graph, source, weight="latency_s")
            if small:
                least_s = min([least_s, *(reached[d] for d in self.world if d != source)])
            if source in froms:
                largest_s = max([largest_s, *(reached[d] for d in to if d != source)])
            if not small and len(sources) < min(_SOURCES, len(froms)):  # go on from the farthest, likely an end
                sources.append(max((d for d in froms if d not in sources), key=lambda d: reached[d]))
        return (float(least_s) if small else quickest_s), float(largest_s)

    def _quickest_s(self) -> float:
        """The latency of one link between two of the devices, or of a first and a last link, whichever is less."""
        members, links = set(self.world), self.cluster.links
        direct = [link.latency_s for link in links if {link.source, link.destination} <= members]
        first = [link.latency_s for link in links if link.source in members and link.destination not in members]
        last = [link.latency_s for link in links if link.destination in members and link.source not in members]
        return min([*direct, min(first) + min(last)] if first and last else direct)
