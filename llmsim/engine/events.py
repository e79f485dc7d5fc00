"""Execution with contention: events in order of time, rates shared anew when flows start or end.

A queue has one activity at a time, so the queue's number names its activity, its flow and its event alike.

Rates are those of :mod:`llmsim.engine.network`, found incrementally. Every resource has a *level*: the rate of those of
its flows that are held back by itself (inf where it is not used up). A flow's rate is the lowest level on its path, or
its own maximum if that is lower. The levels are right when each agrees with the others: the level of a resource is
where the demands of its flows, each limited to what the rest of its path allows, just fill it. Levels that agree so are
the max-min fair allocation, since every flow then has a bottleneck: a used-up resource of whose flows none is faster
(Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2). So when flows start or end, only levels that no longer
agree are recomputed; a change reaches another resource only through a flow whose rate it changes, and only if that
resource is, or may now be, used up.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.engine.jit import jit
from llmsim.program.program import Kind

_SEND, _RECV, _RECV_REDUCE, _COLLECTIVE = int(Kind.SEND), int(Kind.RECV), int(Kind.RECV_REDUCE), int(Kind.COLLECTIVE)
_IDLE, _DELAYED, _FLOWING, _OVER = 0, 1, 2, 3  # what the next operation of a queue is doing

# a binary heap of at most one event a queue ---------------------------------------------------------------------------

# Each entry has its time beside the item it belongs to, so that comparisons stay in one place of memory; `place` finds
# the entry of an item. Four entries share a parent, and a cache line. The caller keeps the size. Ties are broken by the
# number of the item, so that runs repeat exactly.

ENTRY = np.dtype([("time_s", np.float64), ("item", np.int64)])


def new_heap(items: int) -> tuple[NDArray, NDArray[np.int32]]:
    """No entries: ``heap``, and ``place`` by item, -1 where it has no entry."""
    return np.empty(items, dtype=ENTRY), np.full(items, -1, dtype=np.int32)


@jit
def _put(heap, place, size, item, time_s):
    """Add an entry, or change the time of the one that is there; returns the size."""
    at = place[item]
    if at < 0:
        at = size
        size += 1
    elif heap[at].time_s < time_s:
        _sink(heap, place, size, item, time_s, at)
        return size
    while at > 0:
        parent = (at - 1) >> 2
        above = heap[parent]
        if above.time_s < time_s or (above.time_s == time_s and above.item < item):
            break
        heap[at].time_s = above.time_s
        heap[at].item = above.item
        place[above.item] = at
        at = parent
    heap[at].time_s = time_s
    heap[at].item = item
    place[item] = at
    return size


@jit
def _pop(heap, place, size):
    """Remove the first entry; returns the size."""
    place[heap[0].item] = -1
    size -= 1
    if size > 0:
        _sink(heap, place, size, heap[size].item, heap[size].time_s, 0)
    return size


@jit
def _sink(heap, place, size, item, time_s, at):
    """Find the place of an entry at ``at`` or below."""
    while True:
        first = 4 * at + 1
        if first >= size:
            break
        least = first
        for child in range(first + 1, min(first + 4, size)):
            if heap[child].time_s < heap[least].time_s or (
                heap[child].time_s == heap[least].time_s and heap[child].item < heap[least].item
            ):
                least = child
        below = heap[least]
        if time_s < below.time_s or (time_s == below.time_s and item < below.item):
            break
        heap[at].time_s = below.time_s
        heap[at].item = below.item
        place[below.item] = at
        at = least
    heap[at].time_s = time_s
    heap[at].item = item
    place[item] = at


# levels and rates -----------------------------------------------------------------------------------------------------

# Levels this close (relative) count as equal; it stops two that depend on each other's rounding from taking turns.
_SAME = 1e-14
# A resource of which less than this share is asked is surely not used up, whatever rounding did to the sum.
_SURELY = 1 - 1e-9

FLOW = np.dtype(  # of the queue with this number
    [
        ("rate", np.float64),  # negative where there is no flow
        ("remaining", np.float64),  # at `since_s`
        ("since_s", np.float64),
        ("max_rate", np.float64),
        ("first", np.int64),  # its crossings are crossing[first:last]
        ("last", np.int64),
        ("stale", np.bool_),  # on the list of those whose rate may have to change
        ("fixed", np.bool_),  # scratch of `fill_all`
    ]
)
RESOURCE = np.dtype(
    [
        ("capacity", np.float64),
        ("level", np.float64),
        ("asked", np.float64),  # where the level is inf: total demand, or more, of its flows at their rates
        ("room", np.int64),  # it lists its flows from here on
        ("flows", np.int64),
        ("rising", np.int64),  # scratch of `fill_all`: its flows that are not fixed yet, and their demand
        ("rising_demand", np.float64),
        ("wrong", np.bool_),  # on the list of those whose level may have to change
        ("burst", np.float64),  # tokens of its bucket when full, 0 where it has none, and the next three mean nothing
        ("fill_rate", np.float64),  # capacity without tokens; with, `capacity` is `open_rate`
        ("open_rate", np.float64),
        ("tokens", np.float64),  # at `filled_s`
        ("filled_s", np.float64),
        ("used", np.float64),  # since then
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
    counts: NDArray[np.int64]  # of `stale`, of `wrong`, and of flows
    bucket: NDArray[np.int64]  # resources that have one; their events have numbers behind those of queues
    limit: NDArray[np.float64]  # scratch: flows of one resource
    left: NDArray[np.float64]
    amount: NDArray[np.float64]
    turn: NDArray  # scratch of `fill_all`: a heap of resources and, behind them, flows
    turn_place: NDArray[np.int32]


def new_sharing(
    queues: int,
    path_start: NDArray,
    path_resource: NDArray,
    path_demand: NDArray,
    capacity: NDArray,
    most: NDArray,
    burst: "NDArray | None" = None,
    open_rate: "NDArray | None" = None,
) -> Sharing:
    """No flows yet, and all buckets full. Resource r never has more than ``most[r]`` flows."""
    burst = np.zeros(len(capacity)) if burst is None else burst
    open_rate = capacity if open_rate is None else open_rate
    flow = np.zeros(queues, dtype=FLOW)
    flow["rate"] = -1.0
    resource = np.zeros(len(capacity), dtype=RESOURCE)
    resource["capacity"] = np.where(burst > 0, open_rate, capacity)
    resource["burst"] = resource["tokens"] = burst
    resource["fill_rate"] = capacity
    resource["open_rate"] = open_rate
    resource["level"] = np.inf
    resource["room"] = np.cumsum(most) - most
    crossing = np.empty(len(path_resource), dtype=CROSSING)
    crossing["resource"] = path_resource
    crossing["demand"] = path_demand
    scratch = int(most.max())
    turn, turn_place = new_heap(len(capacity) + queues)
    return Sharing(
        flow=flow,
        resource=resource,
        crossing=crossing,
        listed=np.empty(int(most.sum()), dtype=LISTED),
        place=np.empty((queues, int(np.diff(path_start).max())), dtype=np.int64),
        stale=np.empty(queues, dtype=np.int32),
        wrong=np.empty(len(capacity), dtype=np.int32),
        counts=np.zeros(3, dtype=np.int64),
        bucket=np.flatnonzero(burst),
        limit=np.empty(scratch),
        left=np.empty(scratch),
        amount=np.empty(scratch),
        turn=turn,
        turn_place=turn_place,
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
    net.counts[2] += 1
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
        net.counts[1] = _ask(resource, net.crossing[first + hop].demand * max_rate, net.wrong, 0, net.counts[1], r)


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
        net.counts[1] = _ask(
            resource, -net.crossing[flow.first + hop].demand * flow.rate, net.wrong, 0, net.counts[1], r
        )
    flow.rate = -1.0
    net.counts[2] -= 1


@jit
def _ask(resource, more, wrong, begin, count, r):
    """Of a resource more is asked, or less. Unless it was not used up and surely still isn't, its level may be wrong:
    put it on the ring of those. Returns how many they are."""
    if resource.wrong:
        return count
    if resource.level == np.inf:
        resource.asked += more
        if resource.asked <= resource.capacity * _SURELY:
            return count
    resource.wrong = True
    at = begin + count
    wrong[at if at < len(wrong) else at - len(wrong)] = r
    return count + 1


@jit
def share(net, heap, place, size, now):
    """Bring levels, rates and the forecasts of completions up to date; returns the number of events."""
    crossing, limit = net.crossing, net.limit
    stale, begin, wrong = net.counts[0], 0, net.counts[1]
    patience = 100 + len(net.resource) + 4 * net.counts[2]
    while wrong > 0:
        if patience < 0:  # levels depend on each other so much that it is quicker to start from nothing
            stale = fill_all(net, stale)
            break
        # 1. Recompute the level of the next resource that may be wrong.
        r = net.wrong[begin]
        begin = begin + 1 if begin + 1 < len(net.wrong) else 0
        wrong -= 1
        resource = net.resource[r]
        resource.wrong = False
        flows = resource.flows
        patience -= 1 + flows
        asked = 0.0
        for n in range(flows):
            flow = net.flow[net.listed[resource.room + n].queue]
            otherwise = flow.max_rate
            for k in range(flow.first, flow.last):
                other = crossing[k].resource
                if other == r:
                    net.amount[n] = crossing[k].demand
                else:
                    otherwise = min(otherwise, net.resource[other].level)
            limit[n] = otherwise
            net.left[n] = otherwise
            asked += net.amount[n] * otherwise
        resource.asked = asked
        level = np.inf if asked <= resource.capacity else _fill(net.left, net.amount, flows, resource.capacity)
        old = resource.level
        if level == old or abs(level - old) <= _SAME * min(level, old):
            continue
        resource.level = level

        # 2. Mark what depends on it: the flows that it holds back, or did, and what else these cross.
        lower = min(level, old)
        for n in range(flows):
            if lower < limit[n]:
                queue = net.listed[resource.room + n].queue
                flow = net.flow[queue]
                if not flow.stale:
                    flow.stale = True
                    net.stale[stale] = queue
                    stale += 1
                faster = min(limit[n], level) - min(limit[n], old)
                for k in range(flow.first, flow.last):
                    other = crossing[k].resource
                    if other != r:
                        more = crossing[k].demand * faster
                        wrong = _ask(net.resource[other], more, net.wrong, begin, wrong, other)

    # 3. Give flows their rates.
    for n in range(stale):
        queue = net.stale[n]
        flow = net.flow[queue]
        flow.stale = False
        if flow.rate < 0.0:
            continue
        rate = flow.max_rate
        for k in range(flow.first, flow.last):
            rate = min(rate, net.resource[crossing[k].resource].level)
        if rate != flow.rate:
            flow.remaining -= flow.rate * (now - flow.since_s)
            flow.rate = rate
            flow.since_s = now
            size = _put(heap, place, size, queue, now + max(0.0, flow.remaining) / rate)
    net.counts[0] = 0
    net.counts[1] = 0
    return size


@jit
def fill_all(net, stale):
    """Find all levels by progressive filling, in rising order; marks all flows as stale and returns how many are."""
    turn, turn_place, resources = net.turn, net.turn_place, len(net.resource)
    size = 0
    for r in range(resources):
        resource = net.resource[r]
        resource.wrong = False
        resource.level = np.inf
        resource.asked = 0.0
        resource.rising = resource.flows
        resource.rising_demand = 0.0
        for at in range(resource.room, resource.room + resource.flows):
            queue, hop = net.listed[at].queue, net.listed[at].hop
            flow = net.flow[queue]
            resource.rising_demand += net.crossing[flow.first + hop].demand
            if hop == 0:  # once for each flow
                flow.fixed = False
                size = _put(turn, turn_place, size, resources + queue, flow.max_rate)
                if not flow.stale:
                    flow.stale = True
                    net.stale[stale] = queue
                    stale += 1
        if resource.flows > 0:
            size = _put(turn, turn_place, size, r, resource.capacity / resource.rising_demand)
    level = 0.0
    rising = net.counts[2]
    while rising > 0:
        item = turn[0].item
        level = max(level, turn[0].time_s)
        size = _pop(turn, turn_place, size)
        if item >= resources:
            if not net.flow[item - resources].fixed:
                size = _fix(net, item - resources, level, size)
                rising -= 1
        elif net.resource[item].rising > 0:
            resource = net.resource[item]
            resource.level = level
            rising -= resource.rising
            for at in range(resource.room, resource.room + resource.flows):
                queue = net.listed[at].queue
                if not net.flow[queue].fixed:
                    size = _fix(net, queue, level, size)
    for at in range(size):
        turn_place[turn[at].item] = -1
    return stale


@jit
def _fix(net, queue, level, size):
    """A flow rises no further than ``level``: the rest of what it crosses is for others."""
    flow = net.flow[queue]
    flow.fixed = True
    for k in range(flow.first, flow.last):
        r = net.crossing[k].resource
        resource = net.resource[r]
        resource.asked += level * net.crossing[k].demand
        resource.rising -= 1
        resource.rising_demand -= net.crossing[k].demand
        if resource.rising > 0 and resource.level == np.inf:
            used_up_at = (resource.capacity - resource.asked) / resource.rising_demand
            size = _put(net.turn, net.turn_place, size, r, max(level, used_up_at))
    return size


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


# buckets --------------------------------------------------------------------------------------------------------------

# A resource is used more, or less, than its bucket fills where it is by this share.
_SLACK = 1e-9


@jit
def fill_buckets(net, now):
    """Bring the tokens of all buckets up to date."""
    for r in net.bucket:
        resource = net.resource[r]
        tokens = resource.tokens + (resource.fill_rate - resource.used) * (now - resource.filled_s)
        resource.tokens = min(resource.burst, max(0.0, tokens))
        resource.filled_s = now


@jit
def use_buckets(net, heap, place, size, now):
    """Note how much resources with a bucket are used, forecast when it is empty; returns the number of events."""
    queues = len(net.flow)
    for r in net.bucket:
        resource = net.resource[r]
        used = 0.0
        for at in range(resource.room, resource.room + resource.flows):
            flow = net.flow[net.listed[at].queue]
            used += flow.rate * net.crossing[flow.first + net.listed[at].hop].demand
        resource.used = used
        if used < resource.fill_rate * (1 - _SLACK):
            resource.capacity = resource.open_rate
        empty_s = np.inf  # in place of a forecast that is void
        if resource.capacity == resource.open_rate and used > resource.fill_rate * (1 + _SLACK):
            empty_s = now + resource.tokens / (used - resource.fill_rate)
        if empty_s < np.inf or place[queues + r] >= 0:
            size = _put(heap, place, size, queues + r, empty_s)
    return size


@jit
def close_bucket(net, r, now):
    """A bucket is empty: its resource gives what comes."""
    resource = net.resource[r]
    resource.tokens = 0.0
    resource.used = resource.fill_rate
    resource.filled_s = now
    resource.capacity = resource.fill_rate
    if not resource.wrong:
        resource.wrong = True
        net.wrong[net.counts[1]] = r
        net.counts[1] += 1


# the run --------------------------------------------------------------------------------------------------------------


@jit
def run_events(run, path_start, net, heap, place, waiting, state):
    """Run all that can be run, and return how many operations are complete.

    ``path_start`` (paths + 1,) points into the crossings of ``net``; ``waiting`` (operations,) of -1 is the head of the
    list of queues that wait for an operation; ``state`` (queues,) starts as zeros.
    """
    dependency, start_s, end_s = run.dependency, run.start_s, run.end_s
    path, work, ready, next_waiting = run.path, run.work, run.ready, run.next_waiting
    depth = len(ready)
    complete = 0
    size = 0
    now = 0.0
    while True:
        # 1. Let queues do all that they can at this moment.
        while depth > 0:
            depth -= 1
            queue = ready[depth]
            i = run.head[queue]
            last = run.queue_start[queue + 1]
            while i < last:
                k = run.kind[i]
                if state[queue] == _OVER:
                    end_s[i] = now
                    depth = _wake(waiting[i], next_waiting, ready, depth)
                    complete += 1
                    state[queue] = _IDLE
                    i += 1
                    continue
                waits_for = -1
                if start_s[i] < 0.0:
                    at = run.pending[queue]
                    while at < len(dependency) and dependency[at, 1] == i:
                        if end_s[dependency[at, 0]] < 0.0:
                            waits_for = dependency[at, 0]
                            break
                        at += 1
                    run.pending[queue] = at
                    if waits_for < 0:
                        start_s[i] = now
                        if k == _COLLECTIVE:
                            c = run.call[i * run.call_step]
                            run.missing[c] -= 1
                            if run.missing[c] == 0:
                                depth = _wake(run.waits_for_members[c], next_waiting, ready, depth)
                        elif run.rendezvous and k in (_RECV, _RECV_REDUCE):
                            depth = _wake(waiting[i], next_waiting, ready, depth)
                            waiting[i] = -1
                begin = now
                if waits_for < 0:
                    if k in (_RECV, _RECV_REDUCE):
                        send = run.match[i]
                        if end_s[send] < 0.0:
                            waits_for = send
                        else:
                            begin = max(now, end_s[send] + run.latency_s[path[send]])
                    elif k == _SEND:
                        if run.rendezvous and start_s[run.match[i]] < 0.0:
                            waits_for = run.match[i]
                    elif k == _COLLECTIVE:
                        c = run.call[i * run.call_step]
                        if run.missing[c] > 0:
                            next_waiting[queue] = run.waits_for_members[c]
                            run.waits_for_members[c] = queue
                            break
                if waits_for >= 0:
                    next_waiting[queue] = waiting[waits_for]
                    waiting[waits_for] = queue
                    break
                p = path[i]
                begin += run.delay_s[p]
                flows = work[i] > 0.0 and path_start[p + 1] > path_start[p]
                if work[i] > 0.0 and not flows:
                    begin += work[i] / run.rate_alone[p]
                if begin > now:
                    state[queue] = _DELAYED
                    size = _put(heap, place, size, queue, begin)
                    break
                if flows:
                    state[queue] = _FLOWING
                    add_flow(net, queue, path_start[p], path_start[p + 1], run.rate_alone[p], work[i], now)
                    break
                state[queue] = _OVER
            run.head[queue] = i

        # 2. Share resources anew, now that all of this moment's flows have started and ended.
        if len(net.bucket) > 0:
            fill_buckets(net, now)
        if net.counts[0] + net.counts[1] > 0:
            size = share(net, heap, place, size, now)
        if len(net.bucket) > 0:
            size = use_buckets(net, heap, place, size, now)
        if size == 0 or heap[0].time_s == np.inf:
            return complete

        # 3. Go to the next moment, and take all events that happen then.
        now = heap[0].time_s
        while size > 0 and heap[0].time_s == now:
            queue = heap[0].item
            size = _pop(heap, place, size)
            if queue >= len(state):
                close_bucket(net, queue - len(state), now)
                continue
            i = run.head[queue]
            p = path[i]
            if state[queue] == _FLOWING:
                remove_flow(net, queue)
            elif work[i] > 0.0 and path_start[p + 1] > path_start[p]:
                state[queue] = _FLOWING
                add_flow(net, queue, path_start[p], path_start[p + 1], run.rate_alone[p], work[i], now)
                continue
            state[queue] = _OVER
            ready[depth] = queue
            depth += 1


@jit
def _wake(queue, next_waiting, ready, depth):
    """Move a list of waiting queues to the stack; returns its depth."""
    while queue >= 0:
        ready[depth] = queue
        depth += 1
        queue = next_waiting[queue]
    return depth
