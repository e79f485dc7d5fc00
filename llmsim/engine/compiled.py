"""The fast engine: the meaning of :mod:`llmsim.engine.simpy_engine`, compiled with Numba.

Two executions, both exact. Where no resource can ever limit two activities at once, an operation's duration is known
beforehand, and a run is one pass over the operations in order of dependency (:mod:`llmsim.engine.dag`). Otherwise
events are processed in order of time, and rates are shared anew when flows start or end
(:mod:`llmsim.engine.events`).

How far rounding can carry: a flow that starts a little later ends later by that, times the ratio of its rates at its
start and at its end. Long chains of strongly contended messages can therefore magnify the last digit of a double: in a
pairwise all-to-all of 256 hosts at 4:1 oversubscription, one part in 10^15 more of a single message moves others by
2 % of the whole, in either engine. In such runs the two engines agree no closer than that.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmsim.engine.bound import BoundProgram
from llmsim.engine.dag import run_dag
from llmsim.engine.events import Sharing, new_heap, new_sharing, run_events
from llmsim.engine.jit import jit
from llmsim.engine.state import new_run
from llmsim.program.graph import deadlock_error


@dataclass(frozen=True, eq=False)
class Contention:
    """What is left of the paths when resources that can never limit are left out.

    A resource can limit only if the queues that use it could together ask for more than its capacity, each of them for
    the most that its fastest path takes alone; a queue has one activity at a time. One with a bucket can limit a single
    activity, as what it gives depends on what was before.
    """

    rate_alone: NDArray[np.float64]  # (paths,) work per second of an activity that has its path for itself
    resources: NDArray[np.int32]  # those that can limit
    queues: NDArray[np.int64]  # how many queues use each of them


def contention(bound: BoundProgram) -> Contention:
    """Find the resources that can limit."""
    paths = bound.paths
    rate_alone = paths.max_rate.copy()
    capacity = bound.most_capacity
    if len(paths.resource):
        owner = np.repeat(np.arange(len(paths)), np.diff(paths.start))
        np.minimum.at(rate_alone, owner, capacity[paths.resource] / paths.demand)
    resources = len(capacity)
    total, queues = np.zeros(resources), np.zeros(resources, dtype=np.int64)
    _most_asked(
        bound.program.queue_start,
        bound.path,
        bound.work,
        rate_alone,
        paths.start,
        paths.resource,
        paths.demand,
        np.full(len(paths), -1, dtype=np.int32),
        np.zeros(resources),
        np.empty(resources, dtype=np.int32),
        total,
        queues,
    )
    limiting = np.flatnonzero((total > capacity * (1 + 1e-12)) | ((bound.burst > 0) & (queues > 0)))
    return Contention(rate_alone, limiting.astype(np.int32), queues[limiting])


@jit
def _most_asked(
    queue_start,
    path,
    work,
    rate_alone,
    start,
    resource,
    demand,
    seen_path,  # (paths,) of -1: the queue that was last seen to take a path
    most,  # (resources,) of zeros: the most that the queue at hand asks
    touched,  # (resources,) scratch
    total,  # results, (resources,) of zeros
    queues,
):
    """Sum over queues of the most that each asks of each resource, and how many ask."""
    for queue in range(len(queue_start) - 1):
        n = 0
        for i in range(queue_start[queue], queue_start[queue + 1]):
            p = path[i]
            if seen_path[p] == queue or work[i] == 0.0:
                continue
            seen_path[p] = queue
            for k in range(start[p], start[p + 1]):
                r = resource[k]
                if most[r] == 0.0:
                    touched[n] = r
                    n += 1
                most[r] = max(most[r], demand[k] * rate_alone[p])
        for k in range(n):
            r = touched[k]
            total[r] += most[r]
            queues[r] += 1
            most[r] = 0.0


def run_compiled(bound: BoundProgram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start and end of each operation, in seconds.

    Raises:
        ProgramError: the program deadlocks.
    """
    found = contention(bound)
    run = new_run(bound, found.rate_alone)
    queues = len(run.head)
    if len(found.resources):
        path_start, net = _sharing(bound, found)
        waiting = np.full(len(bound.path), -1, dtype=np.int32)
        heap = new_heap(queues + len(net.resource))
        complete = run_events(run, path_start, net, *heap, waiting, np.zeros(queues, dtype=np.uint8))
    else:
        complete = run_dag(run, np.zeros(queues), np.zeros(len(run.missing)))
    if complete < len(bound.path):
        raise deadlock_error(bound.program, bound.send_mode)
    return run.start_s, run.end_s


def _sharing(bound: BoundProgram, found: Contention) -> tuple[NDArray[np.int64], Sharing]:
    """The limiting resources, numbered anew, and where each path's crossings of them start."""
    paths = bound.paths
    number = np.full(len(bound.capacity), -1, dtype=np.int32)
    number[found.resources] = np.arange(len(found.resources), dtype=np.int32)
    keep = number[paths.resource] >= 0
    start = np.concatenate([[0], np.cumsum(keep)])[paths.start]
    resource, demand = number[paths.resource[keep]], paths.demand[keep]
    queues = len(bound.program.queue_start) - 1
    of = found.resources
    return start, new_sharing(
        queues, start, resource, demand, bound.capacity[of], found.queues, bound.burst[of], bound.most_capacity[of]
    )
