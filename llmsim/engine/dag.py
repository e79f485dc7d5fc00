"""Execution without contention: every duration is known, so each operation is visited once, in any order that
respects what it waits for."""

from llmsim.engine.jit import jit
from llmsim.program.program import Kind

_SEND, _RECV, _RECV_REDUCE, _COLLECTIVE = int(Kind.SEND), int(Kind.RECV), int(Kind.RECV_REDUCE), int(Kind.COLLECTIVE)


@jit
def run_dag(run, time, begins):
    """Run all that can be run, and return how many operations are complete.

    ``time`` (queues,) and ``begins`` (collectives,) start as zeros: when the last operation of a queue was complete,
    and when the last member came. A queue runs until its next operation waits for another, or for its members.

    The head of the list of queues that wait for an operation lies in ``end_s`` of that operation as -2 - queue, since
    no end is known yet; that saves an array as large as the result.
    """
    dependency, start_s, end_s = run.dependency, run.start_s, run.end_s
    depth = len(run.ready)
    complete = 0
    while depth > 0:
        depth -= 1
        queue = run.ready[depth]
        last = run.queue_start[queue + 1]
        i = run.head[queue]
        while i < last:
            k = run.kind[i]
            waits_for = -1
            if start_s[i] < 0.0:
                at = run.pending[queue]
                while at < len(dependency) and dependency[at, 1] == i:
                    earlier = dependency[at, 0]
                    if end_s[earlier] < 0.0:
                        waits_for = earlier
                        break
                    time[queue] = max(time[queue], end_s[earlier])
                    at += 1
                run.pending[queue] = at
                if waits_for < 0:
                    start_s[i] = time[queue]
                    if run.rendezvous and k in (_RECV, _RECV_REDUCE):
                        depth = _wake_for(i, end_s, run.next_waiting, run.ready, depth)
                    elif k == _COLLECTIVE:
                        c = run.call[i * run.call_step]
                        run.missing[c] -= 1
                        begins[c] = max(begins[c], time[queue])
                        if run.missing[c] == 0:
                            depth = _wake(run.waits_for_members[c], run.next_waiting, run.ready, depth)
            if waits_for < 0:
                begin = start_s[i]
                if k in (_RECV, _RECV_REDUCE):
                    send = run.match[i]
                    if end_s[send] < 0.0:
                        waits_for = send
                    else:
                        begin = max(begin, end_s[send] + run.latency_s[run.path[send]])
                elif k == _SEND:
                    if run.rendezvous:
                        recv = run.match[i]
                        if start_s[recv] < 0.0:
                            waits_for = recv
                        else:
                            begin = max(begin, start_s[recv])
                elif k == _COLLECTIVE:
                    c = run.call[i * run.call_step]
                    if run.missing[c] > 0:
                        run.next_waiting[queue] = run.waits_for_members[c]
                        run.waits_for_members[c] = queue
                        break
                    begin = begins[c]
            if waits_for >= 0:
                run.next_waiting[queue] = -2 - int(end_s[waits_for])
                end_s[waits_for] = -2.0 - queue
                break
            depth = _wake_for(i, end_s, run.next_waiting, run.ready, depth)
            p = run.path[i]
            end = begin + run.delay_s[p]
            if run.work[i] > 0.0:
                end += run.work[i] / run.rate_alone[p]
            end_s[i] = end
            time[queue] = end
            complete += 1
            i += 1
        run.head[queue] = i
    return complete


@jit
def _wake_for(i, end_s, next_waiting, ready, depth):
    """Wake the queues that wait for operation i."""
    waiting = -2 - int(end_s[i])
    end_s[i] = -1.0
    return _wake(waiting, next_waiting, ready, depth)


@jit
def _wake(waiting, next_waiting, ready, depth):
    """Move a list of waiting queues to the stack; returns its depth."""
    while waiting >= 0:
        ready[depth] = waiting
        depth += 1
        waiting = next_waiting[waiting]
    return depth
