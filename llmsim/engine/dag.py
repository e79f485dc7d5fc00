"""Execution without contention: every duration is known, so each operation is visited once, in any order that
respects what it waits for."""

import numpy as np

from llmsim.engine.jit import jit
from llmsim.program.program import Kind

_SEND, _RECV, _RECV_REDUCE, _COLLECTIVE = int(Kind.SEND), int(Kind.RECV), int(Kind.RECV_REDUCE), int(Kind.COLLECTIVE)


@jit
def run_dag(
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
):
    """Fill ``start_s`` and ``end_s`` (negative where an operation never happens) and return how many are complete.

    A queue runs until its next operation waits for one that is not complete; it then joins the list of those that wait
    for it. The list's head lies in ``end_s`` of the operation itself as -2 - queue, since no end is known yet; that
    saves an array as large as the result. A queue waits for one operation at a time, so one link a queue will do.
    """
    queues = len(queue_start) - 1
    next_waiting = np.full(queues, -1, dtype=np.int32)
    head = queue_start[:-1].copy()
    pending = first_dependency.copy()
    time = np.zeros(queues)  # when the queue's last operation was complete, and its dependencies so far
    missing = members.copy()
    begins = np.zeros(len(members))  # of collectives
    waits_for_members = np.full(len(members), -1, dtype=np.int32)
    start_s[:] = -1.0
    end_s[:] = -1.0
    stack = np.empty(queues, dtype=np.int32)
    stack[:] = np.arange(queues - 1, -1, -1)
    depth = queues
    complete = 0

    while depth > 0:
        depth -= 1
        queue = stack[depth]
        last = queue_start[queue + 1]
        i = head[queue]
        while i < last:
            k = kind[i]
            waits_for = -1
            if start_s[i] < 0.0:
                while pending[queue] < len(dependency) and dependency[pending[queue], 1] == i:
                    earlier = dependency[pending[queue], 0]
                    if end_s[earlier] < 0.0:
                        waits_for = earlier
                        break
                    time[queue] = max(time[queue], end_s[earlier])
                    pending[queue] += 1
                if waits_for < 0:
                    start_s[i] = time[queue]
                    if rendezvous and k in (_RECV, _RECV_REDUCE):
                        depth = _wake(i, end_s, next_waiting, stack, depth)
                    elif k == _COLLECTIVE:
                        c = call[i * call_step]
                        missing[c] -= 1
                        begins[c] = max(begins[c], time[queue])
                        if missing[c] == 0:
                            waiting = waits_for_members[c]
                            while waiting >= 0:
                                stack[depth] = waiting
                                depth += 1
                                waiting = next_waiting[waiting]
            if waits_for < 0:
                begin = start_s[i]
                if k in (_RECV, _RECV_REDUCE):
                    send = match[i]
                    if end_s[send] < 0.0:
                        waits_for = send
                    else:
                        begin = max(begin, end_s[send] + latency_s[path[send]])
                elif k == _SEND:
                    if rendezvous:
                        if start_s[match[i]] < 0.0:
                            waits_for = match[i]
                        else:
                            begin = max(begin, start_s[match[i]])
                elif k == _COLLECTIVE:
                    c = call[i * call_step]
                    if missing[c] > 0:
                        next_waiting[queue] = waits_for_members[c]
                        waits_for_members[c] = queue
                        break
                    begin = begins[c]
            if waits_for >= 0:
                next_waiting[queue] = -2 - np.int32(end_s[waits_for])
                end_s[waits_for] = -2.0 - queue
                break
            depth = _wake(i, end_s, next_waiting, stack, depth)
            p = path[i]
            end = begin + delay_s[p]
            if work[i] > 0.0:
                end += work[i] / rate_alone[p]
            end_s[i] = end
            time[queue] = end
            complete += 1
            i += 1
        head[queue] = i
    return complete


@jit
def _wake(i, end_s, next_waiting, stack, depth):
    """Move the queues that wait for operation i to the stack."""
    waiting = -2 - np.int64(end_s[i])
    while waiting >= 0:
        stack[depth] = waiting
        depth += 1
        waiting = next_waiting[waiting]
    end_s[i] = -1.0
    return depth
