"""Max-min fair sharing that follows changes: the rates of :mod:`llmsim.engine.network`, found incrementally.

Every resource r has a *level*: the rate of those of its flows that are held back by r itself (inf where r is not used
up). A flow's rate is the lowest level on its path, or its own maximum if that is lower. The levels are right when each
agrees with the others: the level of r is where the demands of its flows, each limited to what the rest of its path
allows, just fill r. Levels that agree so are the max-min fair allocation, since every flow then has a bottleneck: a
used-up resource of whose flows none is faster (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2).

So when flows start or end, only levels that no longer agree are recomputed. A change reaches another resource only
through a flow they share, and only upwards: a level depends on lower ones alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.engine import heap
from llmsim.engine.jit import jit

# Levels this close (relative) count as equal; it stops two that depend on each other's rounding from taking turns.
_SAME = 1e-14


class Sharing(NamedTuple):
    """Resources, and the flow of each queue that has one; queue q's flow crosses its path's k-th resource as entry
    ``q * longest + k``."""

    path_start: NDArray[np.int64]
    path_resource: NDArray[np.int32]
    path_demand: NDArray[np.float64]
    max_rate: NDArray[np.float64]  # by path
    capacity: NDArray[np.float64]
    level: NDArray[np.float64]  # by resource
    room: NDArray[np.int64]  # resource r lists its flows in [room[r], room[r] + flows[r])
    flows: NDArray[np.int64]
    listed: NDArray[np.int32]  # entries
    place: NDArray[np.int64]  # by entry: where it is listed
    longest: int
    path: NDArray[np.int32]  # by queue, like all below
    remaining: NDArray[np.float64]
    rate: NDArray[np.float64]
    since_s: NDArray[np.float64]  # when `remaining` was right
    stale: NDArray[np.bool_]  # its rate may have to change
    stale_list: NDArray[np.int32]
    wrong: NDArray[np.bool_]  # by resource: its level may have to change
    wrong_list: NDArray[np.int32]  # a ring
    counts: NDArray[np.int64]  # how many are in stale_list, in wrong_list, and where the ring starts
    limit: NDArray[np.float64]  # scratch for the flows of one resource
    amount: NDArray[np.float64]


@jit
def new_sharing(queues, path_start, path_resource, path_demand, max_rate, capacity, room):
    """No flows yet."""
    longest = 1
    for p in range(len(path_start) - 1):
        longest = max(longest, path_start[p + 1] - path_start[p])
    resources = len(capacity)
    most = 1
    for r in range(resources):
        most = max(most, room[r + 1] - room[r])
    return Sharing(
        path_start, path_resource, path_demand, max_rate, capacity,
        np.full(resources, np.inf), room, np.zeros(resources, dtype=np.int64), np.empty(room[-1], dtype=np.int32),
        np.empty(queues * longest, dtype=np.int64), longest, np.empty(queues, dtype=np.int32), np.empty(queues),
        np.zeros(queues), np.empty(queues), np.zeros(queues, dtype=np.bool_), np.empty(queues, dtype=np.int32),
        np.zeros(resources, dtype=np.bool_), np.empty(resources, dtype=np.int32), np.zeros(3, dtype=np.int64),
        np.empty(most), np.empty(most),
    )  # fmt: skip


@jit
def add_flow(net, queue, path, work, now):
    """A flow starts."""
    net.path[queue] = path
    net.remaining[queue] = work
    net.rate[queue] = 0.0
    net.since_s[queue] = now
    _mark_flow(net, queue)
    for k in range(net.path_start[path + 1] - net.path_start[path]):
        r = net.path_resource[net.path_start[path] + k]
        at = net.room[r] + net.flows[r]
        net.flows[r] += 1
        net.listed[at] = queue * net.longest + k
        net.place[queue * net.longest + k] = at
        _mark_resource(net, r)


@jit
def remove_flow(net, queue):
    """A flow has ended."""
    path = net.path[queue]
    for k in range(net.path_start[path + 1] - net.path_start[path]):
        r = net.path_resource[net.path_start[path] + k]
        net.flows[r] -= 1
        last = net.listed[net.room[r] + net.flows[r]]
        at = net.place[queue * net.longest + k]
        net.listed[at] = last
        net.place[last] = at
        _mark_resource(net, r)
    net.rate[queue] = -1.0  # no flow


@jit
def _mark_flow(net, queue):
    if not net.stale[queue]:
        net.stale[queue] = True
        net.stale_list[net.counts[0]] = queue
        net.counts[0] += 1


@jit
def _mark_resource(net, r):
    if not net.wrong[r]:
        net.wrong[r] = True
        at = net.counts[2] + net.counts[1]
        net.wrong_list[at if at < len(net.wrong_list) else at - len(net.wrong_list)] = r
        net.counts[1] += 1


@jit
def share(net, events, now):
    """Bring levels, rates and the forecasts of completions in ``events`` up to date."""
    same = _SAME
    steps = 0
    while net.counts[1] > 0:
        r = net.wrong_list[net.counts[2]]
        net.counts[2] += 1
        if net.counts[2] == len(net.wrong_list):
            net.counts[2] = 0
        net.counts[1] -= 1
        net.wrong[r] = False
        _settle(net, r, same)
        steps += 1
        if steps % (100 * len(net.wrong_list)) == 0:
            same *= 2.0
    for n in range(net.counts[0]):
        queue = net.stale_list[n]
        net.stale[queue] = False
        if net.rate[queue] < 0.0:
            continue
        p = net.path[queue]
        rate = net.max_rate[p]
        for k in range(net.path_start[p], net.path_start[p + 1]):
            rate = min(rate, net.level[net.path_resource[k]])
        if rate != net.rate[queue]:
            net.remaining[queue] -= net.rate[queue] * (now - net.since_s[queue])
            net.rate[queue] = rate
            net.since_s[queue] = now
            heap.put(events, queue, now + max(0.0, net.remaining[queue]) / rate)
    net.counts[0] = 0


@jit
def _settle(net, r, same):
    """Recompute the level of a resource; where it changes, mark what depends on it."""
    first, last = net.room[r], net.room[r] + net.flows[r]
    n = 0
    for at in range(first, last):
        queue = net.listed[at] // net.longest
        p = net.path[queue]
        limit = net.max_rate[p]
        for k in range(net.path_start[p], net.path_start[p + 1]):
            other = net.path_resource[k]
            if other == r:
                net.amount[n] = net.path_demand[k]
            else:
                limit = min(limit, net.level[other])
        net.limit[n] = limit
        n += 1
    level = _fill(net.limit, net.amount, n, net.capacity[r])
    old = net.level[r]
    if level == old or abs(level - old) <= same * min(level, old):
        return
    net.level[r] = level
    lower = min(level, old)
    for at in range(first, last):
        queue = net.listed[at] // net.longest
        _mark_flow(net, queue)
        p = net.path[queue]
        for k in range(net.path_start[p], net.path_start[p + 1]):
            other = net.path_resource[k]
            if other != r and lower < net.level[other]:
                _mark_resource(net, other)


@jit
def _fill(limit, amount, n, capacity):
    """The level at which n flows, each limited otherwise too, fill a resource; inf where they don't."""
    while n > 0:
        total = 0.0
        for i in range(n):
            total += amount[i]
        level = capacity / total
        kept = 0
        for i in range(n):
            if limit[i] < level:
                capacity -= limit[i] * amount[i]
            else:
                limit[kept] = limit[i]
                amount[kept] = amount[i]
                kept += 1
        if kept == n:
            return level
        n = kept
    return np.inf
