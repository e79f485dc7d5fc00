"""Small programs whose times reveal one figure each: a ping-pong, a stream, an exchange, a chain of copies.

They are programs like any other, executed by the same executor, so what is calibrated is what programs will meet. None
is a collective: those are what predictions are tested on.
"""

import numpy as np

from llmsim.program import Builder, Program, Region

_PLACES = 4  # where messages arrive in turn: with one, a receive could not be posted before the last is complete


def _builder(name: str, world_size: int, size_bytes: int) -> tuple[Builder, Region]:
    builder = Builder(name, world_size)
    count = size_bytes // 4
    return builder, Region(builder.buffer("data", max(count, 1)), 0, count)


def ping_pong(size_bytes: int, trips: int, world_size: int = 2) -> Program:
    """``trips`` round trips between the two ranks of each pair (0, 1), (2, 3), …, all pairs at once.

    A one-way time is the makespan over 2·trips.
    """
    builder, region = _builder(f"ping-pong of {size_bytes} B", world_size, size_bytes)
    even = np.arange(0, world_size - 1, 2)
    arrived = np.full(len(even), -1)
    for _ in range(trips):
        for source, destination in ((even, even + 1), (even + 1, even)):
            _, arrived = builder.message(source, destination, region, after=arrived)
    return builder.build()


def stream(size_bytes: int, messages: int, world_size: int = 2) -> Program:
    """``messages`` in a row from the first to the second rank of each pair; the gap is the makespan over messages."""
    builder, region = _builder(f"stream of {size_bytes} B", world_size, size_bytes)
    into = builder.buffer("in", max(_PLACES * region.count, 1))
    even = np.arange(0, world_size - 1, 2)
    for k in range(messages):
        builder.message(even, even + 1, region, Region(into, k % _PLACES * region.count, region.count))
    return builder.build()


def exchange(size_bytes: int, messages: int, world_size: int) -> Program:
    """``messages`` in a row from every rank to its partner, in both directions of all pairs at once."""
    builder = Builder(f"exchange of {size_bytes} B", world_size)
    count = size_bytes // 4
    out = Region(builder.buffer("out", max(count, 1)), 0, count)
    into = builder.buffer("in", max(_PLACES * count, 1))
    ranks = np.arange(world_size - world_size % 2)
    for k in range(messages):
        builder.message(ranks, ranks ^ 1, out, Region(into, k % _PLACES * count, count))
    return builder.build()


def copies(size_bytes: int, number: int, world_size: int = 2) -> Program:
    """A chain of ``number`` copies on every rank."""
    builder = Builder(f"copies of {size_bytes} B", world_size)
    count = size_bytes // 4
    source = Region(builder.buffer("source", max(count, 1)), 0, count)
    target = Region(builder.buffer("target", max(count, 1)), 0, count)
    for _ in range(number):
        builder.copy(np.arange(world_size), target, source)
    return builder.build()
