"""Max-min fair sharing that follows changes: the rates of :mod:`llmsim.engine.network`, found incrementally.

Every resource r has a *level*: the rate of those of its flows that are held back by r itself (inf where r is not used
up). A flow's rate is the lowest level on its path, or its own maximum if that is lower. The levels are right when each
agrees with the others: the level of r is where the demands of its flows, each limited to what the rest of its path
allows, just fill r. Levels that agree so are the max-min fair allocation, since every flow then has a bottleneck: a
used-up resource of whose flows none is faster (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2).

So when flows start or end, only levels that no longer agree are recomputed. A change reaches another resource only
through a flow they share, and only if the flow's rate changes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.engine.heap import put
from llmsim.engine.jit import jit

# Levels this close (relative) count as equal; it stops two that depend on each other's rounding from taking turns.
_SAME = 1e-14

FLOW = np.dtype(  # of the queue with this number
    [
        ("rate", np.float64),  # negative where there is no flow
        ("remaining", np.float64),  # at `since_s`
        ("since_s", np.float64),
        ("max_rate", np.float64),
        ("first", np.int64),  # its crossings are crossing[first:last]
        ("last", np.int64),
        ("stale", np.bool_),  # on the list of those whose rate may have to change
    ]
)
RESOURCE = np.dtype(
    [
        ("capacity", np.float64),
        ("level", np.float64),
        ("room", np.int64),  # it lists its flows from here on
        ("flows", np.int64),
        ("wrong", np.bool_),  # on the list of those whose level may have to change
    ]
)
CROSSING = np.dtype([("resource", np.int64), ("demand", np.float64)])
LISTED = np.dtype([("queue", np.int32), ("hop", np.int32)])  # the flow of a queue, for which this is hop 0, 1, ...


class Sharing(NamedTuple):
    """State of all resources and flows."""

    flow: NDArray  # (queues,) of FLOW
    resource: NDArray  # (resources,) of RESOURCE
    crossing: NDArray  # CROSSING, by path
    listed: NDArray  # LISTED, by resource
    place: NDArray[np.int64]  # (queues, longest path): where a flow is listed
    stale: NDArray[np.int32]  # a list of queues
    wrong: NDArray[np.int32]  # a ring of resources
    counts: NDArray[np.int64]  # of `stale`, of `wrong`, and where the ring starts
    limit: NDArray[np.float64]  # scratch: flows of one resource
    left: NDArray[np.float64]
    amount: NDArray[np.float64]


def new_sharing(
    queues: int, path_start: NDArray, path_resource: NDArray, path_demand: NDArray, capacity: NDArray, most: NDArray
) -> Sharing:
    """No flows yet. Resource r never has more than ``most[r]`` flows."""
    flow = np.zeros(queues, dtype=FLOW)
    flow["rate"] = -1.0
    resource = np.zeros(len(capacity), dtype=RESOURCE)
    resource["capacity"] = capacity
    resource["level"] = np.inf
    resource["room"] = np.cumsum(most) - most
    crossing = np.empty(len(path_resource), dtype=CROSSING)
    crossing["resource"] = path_resource
    crossing["demand"] = path_demand
    scratch = int(most.max())
    return Sharing(
        flow=flow,
        resource=resource,
        crossing=crossing,
        listed=np.empty(int(most.sum()), dtype=LISTED),
        place=np.empty((queues, int(np.diff(path_start).max())), dtype=np.int64),
        stale=np.empty(queues, dtype=np.int32),
        wrong=np.empty(len(capacity), dtype=np.int32),
        counts=np.zeros(3, dtype=np.int64),
        limit=np.empty(scratch),
        left=np.empty(scratch),
        amount=np.empty(scratch),
    )


@jit
def add_flow(net, queue, first, last, max_rate, work, now):
    """A flow over ``crossing[first:last]`` starts."""
    flow = net.flow[queue]
    flow.rate = 0.0
    flow.remaining = work
    flow.since_s = now
    flow.max_rate = max_rate
    flow.first = first
    flow.last = last
    if not flow.stale:
        flow.stale = True
        net.stale[net.counts[0]] = queue
        net.counts[0] += 1
    for hop in range(last - first):
        r = net.crossing[first + hop].resource
        resource = net.resource[r]
        at = resource.room + resource.flows
        resource.flows += 1
        net.listed[at].queue = queue
        net.listed[at].hop = hop
        net.place[queue, hop] = at
        if not resource.wrong:
            _mark(net, r)


@jit
def remove_flow(net, queue):
    """A flow has ended."""
    flow = net.flow[queue]
    for hop in range(flow.last - flow.first):
        r = net.crossing[flow.first + hop].resource
        resource = net.resource[r]
        resource.flows -= 1
        at = net.place[queue, hop]
        moved = net.listed[resource.room + resource.flows]
        net.listed[at].queue = moved.queue
        net.listed[at].hop = moved.hop
        net.place[moved.queue, moved.hop] = at
        # What is not used up with a flow isn't without it either.
        if not resource.wrong and resource.level < np.inf:
            _mark(net, r)
    flow.rate = -1.0


@jit
def _mark(net, r):
    """Put a resource on the ring of those whose level may be wrong."""
    net.resource[r].wrong = True
    at = net.counts[2] + net.counts[1]
    net.wrong[at if at < len(net.wrong) else at - len(net.wrong)] = r
    net.counts[1] += 1


@jit
def share(net, event, order, size, now):
    """Bring levels, rates and the forecasts of completions up to date; returns the number of events."""
    same = _SAME
    steps = 0
    while net.counts[1] > 0:
        r = net.wrong[net.counts[2]]
        net.counts[2] += 1
        if net.counts[2] == len(net.wrong):
            net.counts[2] = 0
        net.counts[1] -= 1
        net.resource[r].wrong = False
        _settle(net, r, same)
        steps += 1
        if steps % (100 * len(net.wrong)) == 0:
            same *= 2.0
    for n in range(net.counts[0]):
        queue = net.stale[n]
        flow = net.flow[queue]
        flow.stale = False
        if flow.rate < 0.0:
            continue
        rate = flow.max_rate
        for k in range(flow.first, flow.last):
            rate = min(rate, net.resource[net.crossing[k].resource].level)
        if rate != flow.rate:
            flow.remaining -= flow.rate * (now - flow.since_s)
            flow.rate = rate
            flow.since_s = now
            size = put(event, order, size, queue, now + max(0.0, flow.remaining) / rate)
    net.counts[0] = 0
    return size


@jit
def _settle(net, r, same):
    """Recompute the level of a resource; where it changes, mark what depends on it."""
    resource = net.resource[r]
    flows = resource.flows
    for n in range(flows):
        listed = net.listed[resource.room + n]
        flow = net.flow[listed.queue]
        limit = flow.max_rate
        for k in range(flow.first, flow.last):
            other = net.crossing[k].resource
            if other == r:
                net.amount[n] = net.crossing[k].demand
            else:
                limit = min(limit, net.resource[other].level)
        net.limit[n] = limit
        net.left[n] = limit
    level = _fill(net.left, net.amount, flows, resource.capacity)
    old = resource.level
    if level == old or abs(level - old) <= same * min(level, old):
        return
    resource.level = level
    lower = min(level, old)
    for n in range(flows):
        if lower < net.limit[n]:  # it is, or was, held back here
            queue = net.listed[resource.room + n].queue
            flow = net.flow[queue]
            if not flow.stale:
                flow.stale = True
                net.stale[net.counts[0]] = queue
                net.counts[0] += 1
            for k in range(flow.first, flow.last):
                other = net.crossing[k].resource
                if other != r and not net.resource[other].wrong:
                    _mark(net, other)


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
