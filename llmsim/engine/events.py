"""Execution with contention: events in order of time, rates shared anew when flows start or end.

A queue has one activity at a time, so the queue's index names its activity, its flow and its event alike.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.engine import heap
from llmsim.engine.jit import jit
from llmsim.engine.sharing import add_flow, new_sharing, remove_flow, share
from llmsim.program.program import Kind

_SEND, _RECV, _RECV_REDUCE, _COLLECTIVE = int(Kind.SEND), int(Kind.RECV), int(Kind.RECV_REDUCE), int(Kind.COLLECTIVE)
_IDLE, _DELAYED, _FLOWING = 0, 1, 2  # state of a queue


class _Run(NamedTuple):
    """The program, what became of it so far, and the state of each queue."""

    queue_start: NDArray
    kind: NDArray
    match: NDArray
    call: NDArray
    call_step: int
    dependency: NDArray
    path: NDArray
    work: NDArray
    delay_s: NDArray
    latency_s: NDArray
    rate_alone: NDArray
    path_start: NDArray  # into the limiting resources of paths
    rendezvous: bool
    start_s: NDArray
    end_s: NDArray
    missing: NDArray  # members that have not reached a collective
    waits_for_members: NDArray  # head of a list of queues, by collective
    waiting: NDArray  # head of the list of queues that wait for an operation
    next_waiting: NDArray
    head: NDArray  # next operation of each queue
    pending: NDArray  # its next dependency to look at
    state: NDArray
    ready: NDArray  # stack of queues to look at


@jit
def run_events(
    queue_start,
    kind,
    match,
    call,
    call_step,
    members,
    dependency,
    first_dependency,
    path,
    work,
    delay_s,
    latency_s,
    rate_alone,
    rendezvous,
    start_s,
    end_s,
    path_start,
    path_resource,
    path_demand,
    capacity,
    room,
):
    """Fill ``start_s`` and ``end_s`` (negative where an operation never happens) and return how many are complete."""
    queues = len(queue_start) - 1
    start_s[:] = -1.0
    end_s[:] = -1.0
    none = np.int32(-1)
    run = _Run(
        queue_start, kind, match, call, call_step, dependency, path, work, delay_s, latency_s, rate_alone, path_start,
        rendezvous, start_s, end_s, members.copy(), np.full(len(members), none), np.full(len(kind), none),
        np.full(queues, none), queue_start[:-1].copy(), first_dependency.copy(), np.zeros(queues, dtype=np.uint8),
        np.arange(queues, dtype=np.int32)[::-1].copy(),
    )  # fmt: skip
    network = new_sharing(queues, path_start, path_resource, path_demand, rate_alone, capacity, room)
    events = heap.new_heap(queues)
    complete = 0
    depth = queues
    now = 0.0
    while True:
        while depth > 0:
            depth -= 1
            complete, depth = _advance(run, network, events, run.ready[depth], now, complete, depth)
        share(network, events, now)
        if events.size[0] == 0:
            return complete
        now = events.key[events.order[0]]
        while events.size[0] > 0 and events.key[events.order[0]] == now:
            queue = heap.pop(events)
            i = run.head[queue]
            if run.state[queue] == _FLOWING:
                remove_flow(network, queue)
            elif _starts_flow(run, i):
                run.state[queue] = _FLOWING
                add_flow(network, queue, path[i], work[i], now)
                continue
            run.state[queue] = _IDLE
            complete, depth = _complete(run, queue, i, now, complete, depth)
            run.ready[depth] = queue
            depth += 1


@jit
def _starts_flow(run, i):
    """Whether the rate of operation i depends on others."""
    p = run.path[i]
    return run.work[i] > 0.0 and run.path_start[p + 1] > run.path_start[p]


@jit
def _complete(run, queue, i, now, complete, depth):
    run.end_s[i] = now
    run.head[queue] = i + 1
    return complete + 1, _wake(run, i, depth)


@jit
def _wake(run, i, depth):
    """Move the queues that wait for operation i to the stack."""
    waiting = run.waiting[i]
    while waiting >= 0:
        run.ready[depth] = waiting
        depth += 1
        waiting = run.next_waiting[waiting]
    run.waiting[i] = -1
    return depth


@jit
def _advance(run, network, events, queue, now, complete, depth):
    """Let a queue do all that it can at this moment."""
    last = run.queue_start[queue + 1]
    while run.head[queue] < last:
        i = run.head[queue]
        k = run.kind[i]
        waits_for = -1
        if run.start_s[i] < 0.0:
            at = run.pending[queue]
            while at < len(run.dependency) and run.dependency[at, 1] == i:
                if run.end_s[run.dependency[at, 0]] < 0.0:
                    waits_for = run.dependency[at, 0]
                    break
                at += 1
            run.pending[queue] = at
            if waits_for < 0:
                run.start_s[i] = now
                if run.rendezvous and k in (_RECV, _RECV_REDUCE):
                    depth = _wake(run, i, depth)
                elif k == _COLLECTIVE:
                    c = run.call[i * run.call_step]
                    run.missing[c] -= 1
                    if run.missing[c] == 0:
                        waiting = run.waits_for_members[c]
                        while waiting >= 0:
                            run.ready[depth] = waiting
                            depth += 1
                            waiting = run.next_waiting[waiting]
        begin = now
        if waits_for < 0:
            if k in (_RECV, _RECV_REDUCE):
                send = run.match[i]
                if run.end_s[send] < 0.0:
                    waits_for = send
                else:
                    begin = max(now, run.end_s[send] + run.latency_s[run.path[send]])
            elif k == _SEND:
                if run.rendezvous and run.start_s[run.match[i]] < 0.0:
                    waits_for = run.match[i]
            elif k == _COLLECTIVE:
                c = run.call[i * run.call_step]
                if run.missing[c] > 0:
                    run.next_waiting[queue] = run.waits_for_members[c]
                    run.waits_for_members[c] = queue
                    return complete, depth
        if waits_for >= 0:
            run.next_waiting[queue] = run.waiting[waits_for]
            run.waiting[waits_for] = queue
            return complete, depth
        p = run.path[i]
        begin += run.delay_s[p]
        flows = _starts_flow(run, i)
        if not flows and run.work[i] > 0.0:
            begin += run.work[i] / run.rate_alone[p]
        if begin > now:
            run.state[queue] = _DELAYED
            heap.put(events, queue, begin)
            return complete, depth
        if flows:
            run.state[queue] = _FLOWING
            add_flow(network, queue, p, run.work[i], now)
            return complete, depth
        complete, depth = _complete(run, queue, i, now, complete, depth)
    return complete, depth
