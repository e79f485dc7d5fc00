"""Execution with contention: events in order of time, rates shared anew when flows start or end.

A queue has one activity at a time, so the queue's number names its activity, its flow and its event alike.
"""

import numpy as np

from llmsim.engine.heap import pop, put
from llmsim.engine.jit import jit
from llmsim.engine.sharing import add_flow, remove_flow, share
from llmsim.program.program import Kind

_SEND, _RECV, _RECV_REDUCE, _COLLECTIVE = int(Kind.SEND), int(Kind.RECV), int(Kind.RECV_REDUCE), int(Kind.COLLECTIVE)
_IDLE, _DELAYED, _FLOWING, _OVER = 0, 1, 2, 3  # what the next operation of a queue is doing


@jit
def run_events(
    queue_start,  # (queues + 1,)
    kind,
    match,
    call,
    call_step,
    members,  # (collectives,)
    dependency,  # (m, 2), sorted by the later operation
    first_dependency,  # (queues,)
    path,
    work,
    delay_s,  # of paths, like the next two
    latency_s,
    rate_alone,
    rendezvous,
    start_s,  # results
    end_s,
    path_start,  # (paths + 1,) into the crossings of resources that can limit
    net,
    event,
    order,
    waiting,  # (operations,) -1: head of the list of queues that wait for an operation
    waits_for_members,  # (collectives,) -1: the same of a collective
    state,  # (queues,) of zeros
    ready,  # (queues,) all queues: a stack of those to look at
):
    """Fill ``start_s`` and ``end_s`` (negative where an operation never happens) and return how many are complete."""
    queues = len(queue_start) - 1
    next_waiting = np.empty(queues, dtype=np.int32)
    head = queue_start.copy()
    pending = first_dependency.copy()
    missing = members.copy()
    start_s[:] = -1.0
    end_s[:] = -1.0
    depth = queues
    complete = 0
    size = 0
    now = 0.0
    while True:
        # 1. Let queues do all that they can at this moment.
        while depth > 0:
            depth -= 1
            queue = ready[depth]
            i = head[queue]
            last = queue_start[queue + 1]
            while i < last:
                k = kind[i]
                if state[queue] == _OVER:
                    end_s[i] = now
                    waiter = waiting[i]
                    while waiter >= 0:
                        ready[depth] = waiter
                        depth += 1
                        waiter = next_waiting[waiter]
                    complete += 1
                    state[queue] = _IDLE
                    i += 1
                    continue
                waits_for = -1
                if start_s[i] < 0.0:
                    at = pending[queue]
                    while at < len(dependency) and dependency[at, 1] == i:
                        if end_s[dependency[at, 0]] < 0.0:
                            waits_for = dependency[at, 0]
                            break
                        at += 1
                    pending[queue] = at
                    if waits_for < 0:
                        start_s[i] = now
                        if k == _COLLECTIVE:
                            c = call[i * call_step]
                            missing[c] -= 1
                            waiter = waits_for_members[c] if missing[c] == 0 else -1
                        elif rendezvous and k in (_RECV, _RECV_REDUCE):
                            waiter = waiting[i]
                            waiting[i] = -1
                        else:
                            waiter = -1
                        while waiter >= 0:
                            ready[depth] = waiter
                            depth += 1
                            waiter = next_waiting[waiter]
                begin = now
                if waits_for < 0:
                    if k in (_RECV, _RECV_REDUCE):
                        if end_s[match[i]] < 0.0:
                            waits_for = match[i]
                        else:
                            begin = max(now, end_s[match[i]] + latency_s[path[match[i]]])
                    elif k == _SEND:
                        if rendezvous and start_s[match[i]] < 0.0:
                            waits_for = match[i]
                    elif k == _COLLECTIVE:
                        c = call[i * call_step]
                        if missing[c] > 0:
                            next_waiting[queue] = waits_for_members[c]
                            waits_for_members[c] = queue
                            break
                if waits_for >= 0:
                    next_waiting[queue] = waiting[waits_for]
                    waiting[waits_for] = queue
                    break
                p = path[i]
                begin += delay_s[p]
                flows = work[i] > 0.0 and path_start[p + 1] > path_start[p]
                if work[i] > 0.0 and not flows:
                    begin += work[i] / rate_alone[p]
                if begin > now:
                    state[queue] = _DELAYED
                    size = put(event, order, size, queue, begin)
                    break
                if flows:
                    state[queue] = _FLOWING
                    add_flow(net, queue, path_start[p], path_start[p + 1], rate_alone[p], work[i], now)
                    break
                state[queue] = _OVER
            head[queue] = i

        # 2. Share resources anew, now that all of this moment's flows have started and ended.
        if net.counts[0] + net.counts[1] > 0:
            size = share(net, event, order, size, now)
        if size == 0:
            return complete

        # 3. Go to the next moment, and take all events that happen then.
        now = event[order[0]].time_s
        while size > 0 and event[order[0]].time_s == now:
            queue = order[0]
            size = pop(event, order, size)
            i = head[queue]
            p = path[i]
            if state[queue] == _FLOWING:
                remove_flow(net, queue)
            elif work[i] > 0.0 and path_start[p + 1] > path_start[p]:
                state[queue] = _FLOWING
                add_flow(net, queue, path_start[p], path_start[p + 1], rate_alone[p], work[i], now)
                continue
            state[queue] = _OVER
            ready[depth] = queue
            depth += 1
