"""A binary heap of at most one event per queue, whose time may be changed; for compiled functions.

``event`` has one record a queue, ``order`` the queues in heap order, and the caller keeps the size. Ties are broken by
the number of the queue, so that runs repeat exactly.
"""

import numpy as np

from llmsim.engine.jit import jit

EVENT = np.dtype([("time_s", np.float64), ("place", np.int64)])  # place in `order`, -1 where there is no event


def new_heap(queues: int):
    """No events: ``event`` and ``order``."""
    event = np.zeros(queues, dtype=EVENT)
    event["place"] = -1
    return event, np.empty(queues, dtype=np.int32)


@jit
def put(event, order, size, queue, time_s):
    """Add an event, or change the time of the one that is there; returns the size."""
    at = event[queue].place
    rises = True
    if at < 0:
        at = size
        size += 1
    else:
        rises = time_s < event[queue].time_s
    event[queue].time_s = time_s
    if rises:
        while at > 0:
            parent = (at - 1) >> 1
            above = order[parent]
            if event[above].time_s < time_s or (event[above].time_s == time_s and above < queue):
                break
            order[at] = above
            event[above].place = at
            at = parent
        order[at] = queue
        event[queue].place = at
    else:
        _sink(event, order, size, queue, at)
    return size


@jit
def pop(event, order, size):
    """Remove the first event; returns the size."""
    event[order[0]].place = -1
    size -= 1
    if size > 0:
        _sink(event, order, size, order[size], 0)
    return size


@jit
def _sink(event, order, size, queue, at):
    """Find the place for a queue at ``at`` or below."""
    time_s = event[queue].time_s
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        below = order[child]
        if child + 1 < size:
            other = order[child + 1]
            if event[other].time_s < event[below].time_s or (
                event[other].time_s == event[below].time_s and other < below
            ):
                child += 1
                below = other
        if time_s < event[below].time_s or (time_s == event[below].time_s and queue < below):
            break
        order[at] = below
        event[below].place = at
        at = child
    order[at] = queue
    event[queue].place = at
