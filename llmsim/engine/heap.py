"""A binary heap of at most one event per item, whose time may be changed; for compiled functions."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.engine.jit import jit


class Heap(NamedTuple):
    """Items in heap order of (key, item): ties are broken by number, so that runs repeat exactly."""

    key: NDArray[np.float64]  # by item
    place: NDArray[np.int32]  # by item; -1 where it is not in the heap
    order: NDArray[np.int32]  # items in heap order
    size: NDArray[np.int64]  # one number


@jit
def new_heap(items):
    """An empty heap for items below ``items``."""
    return Heap(
        np.zeros(items), np.full(items, np.int32(-1)), np.empty(items, dtype=np.int32), np.zeros(1, dtype=np.int64)
    )


@jit
def put(heap, item, key):
    """Add an item, or change the key of one that is there."""
    old = heap.key[item]
    heap.key[item] = key
    if heap.place[item] < 0:
        at = heap.size[0]
        heap.size[0] += 1
        _rise(heap, item, at)
    elif key < old:
        _rise(heap, item, heap.place[item])
    else:
        _sink(heap, item, heap.place[item])


@jit
def pop(heap):
    """Remove and return the first item."""
    first = heap.order[0]
    heap.place[first] = -1
    heap.size[0] -= 1
    if heap.size[0] > 0:
        _sink(heap, heap.order[heap.size[0]], 0)
    return first


@jit
def _before(heap, a, b):
    return heap.key[a] < heap.key[b] or (heap.key[a] == heap.key[b] and a < b)


@jit
def _rise(heap, item, at):
    while at > 0:
        parent = (at - 1) >> 1
        if not _before(heap, item, heap.order[parent]):
            break
        heap.order[at] = heap.order[parent]
        heap.place[heap.order[at]] = at
        at = parent
    heap.order[at] = item
    heap.place[item] = at


@jit
def _sink(heap, item, at):
    size = heap.size[0]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap, heap.order[child + 1], heap.order[child]):
            child += 1
        if not _before(heap, heap.order[child], item):
            break
        heap.order[at] = heap.order[child]
        heap.place[heap.order[at]] = at
        at = child
    heap.order[at] = item
    heap.place[item] = at
