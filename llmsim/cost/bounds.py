"""The time that no algorithm can beat on a given cluster: bytes that must pass the ranks' own links."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from llmsim.cluster.cluster import Cluster
from llmsim.errors import InputError
from llmsim.program.program import Program, segments


def program_lower_bound_s(program: Program, cluster: Cluster, placement: Sequence[int] | None = None) -> float:
    """The least time on ``cluster`` of whatever keeps the one contract of ``program``.

    With S bytes on each of N ranks, over all links of a rank together:

    * all-reduce: every rank sends and receives S, and all ranks together send 2(N−1)·S (Patarasuk & Yuan 2009,
      Theorem 1, per element N−1 additions and N−1 copies);
    * reduce-scatter: every rank sends all but its own segment; all-gather: receives it; all-to-all: sends it, and
      receives its segment of everybody else;
    * broadcast: the root sends S and everybody else receives S; point-to-point: the same of two ranks.

    One message has to arrive, too, so the shortest latency between two ranks is added. Switches, overheads and host
    processors are left out: it is a bound, not an estimate.

    Args:
        placement: indices into ``cluster.devices``, by default in rank order.

    Raises:
        InputError: the program has not exactly one contract, or does not fit on the cluster.
    """
    if len(program.contracts) != 1:
        raise InputError(f"{len(program.contracts)} contracts have no common bound", where=program.name)
    (contract,) = program.contracts
    places = range(len(cluster.devices)) if placement is None else placement
    if len(places) < program.world_size:
        mend = "take a larger cluster"
        raise InputError(f"{program.world_size} ranks on {len(places)} devices", where=program.name, mend=mend)
    devices = [cluster.devices[places[rank]] for rank in contract.ranks]
    if len(set(devices)) < len(devices):
        raise InputError("several ranks share a device, whose links then bound nothing", where=program.name)
    ranks, itemsize = len(devices), program.buffers[contract.buffer].itemsize
    if ranks == 1 or contract.count == 0:
        return 0.0
    out, into = _bandwidths(cluster, devices)
    size = float(contract.count * itemsize)
    own = segments(contract.count, ranks)[1] * float(itemsize)
    root = np.arange(ranks) == (0 if contract.root is None else contract.ranks.index(contract.root))
    sends, receives = {
        "all-reduce": (np.full(ranks, size), np.full(ranks, size)),
        "reduce-scatter": (size - own, own),
        "all-gather": (own, size - own),
        "all-to-all": (size - own, (ranks - 1) * own),
        "broadcast": (size * root, size * ~root),
        "point-to-point": (size * root, size * ~root),
    }[contract.collective]
    transfer_s = max(float((sends / out).max()), float((receives / into).max()))
    if contract.collective == "all-reduce":
        transfer_s = max(transfer_s, 2 * (ranks - 1) * size / min(float(out.sum()), float(into.sum())))
    return transfer_s + _least_latency_s(cluster, devices)


def _bandwidths(cluster: Cluster, devices: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes per second that each device can send and receive over all its links together."""
    out, into = dict.fromkeys(devices, 0.0), dict.fromkeys(devices, 0.0)
    for link in cluster.links:
        if link.source in out:
            out[link.source] += link.bandwidth_bytes_per_s
        if link.destination in into:
            into[link.destination] += link.bandwidth_bytes_per_s
    return np.array(list(out.values())), np.array(list(into.values()))


def _least_latency_s(cluster: Cluster, devices: Sequence[str]) -> float:
    """At most the latency of the fastest path between two of the devices: one link, or a first and a last one."""
    members = set(devices)
    direct = [link.latency_s for link in cluster.links if {link.source, link.destination} <= members]
    first = [link.latency_s for link in cluster.links if link.source in members and link.destination not in members]
    last = [link.latency_s for link in cluster.links if link.destination in members and link.source not in members]
    return min([*direct, min(first) + min(last)] if first and last else direct)
