"""Ring algorithms: N−1 steps in each of which every rank passes one segment to its neighbour.

Reduce-scatter, then all-gather: each rank sends 2(N−1)/N of the data, the least any all-reduce can (Patarasuk & Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009).
"""

import numpy as np

from llmsim.program.builder import Builder, Ids
from llmsim.program.collectives.common import After, begin, cut, inner, members, positive
from llmsim.program.program import Region


def ring_reduce_scatter(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """Member i ends with the sum of segment i. ``chunks`` parts of every segment go round at once, on own streams."""
    return _lanes(builder, ranks, region, (1,), chunks, False, after, tag, channel, reduce=True)


def ring_all_gather(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """Every member ends with segment i of member i, for every i; ``chunks`` as in :func:`ring_reduce_scatter`."""
    return _lanes(builder, ranks, region, (1,), chunks, True, after, tag, channel, reduce=False)


def ring_all_reduce(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """Reduce-scatter, then all-gather; ``chunks`` as in :func:`ring_reduce_scatter`."""
    return _lanes(builder, ranks, region, (1,), chunks, True, after, tag, channel, reduce=True)


def bidirectional_ring_reduce_scatter(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """As :func:`ring_reduce_scatter`, one half of every segment in each direction, on streams of its own."""
    return _lanes(builder, ranks, region, (1, -1), chunks, False, after, tag, channel, reduce=True)


def bidirectional_ring_all_gather(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """As :func:`ring_all_gather`, one half of every segment in each direction, on streams of its own."""
    return _lanes(builder, ranks, region, (1, -1), chunks, True, after, tag, channel, reduce=False)


def bidirectional_ring_all_reduce(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """As :func:`ring_all_reduce`, one half of every segment in each direction, on streams of its own."""
    return _lanes(builder, ranks, region, (1, -1), chunks, True, after, tag, channel, reduce=True)


def _lanes(
    builder: Builder,
    ranks,
    region: Region,
    directions: tuple[int, ...],
    chunks: int,
    gather: bool,
    after: After,
    tag: int,
    channel: str,
    *,
    reduce: bool,
) -> list[Ids]:
    """One ring for each direction and chunk, each over its own part of every segment."""
    ranks = members(ranks)
    world = ranks.shape[-1]
    lanes = len(directions) * positive(chunks, "chunks")
    if world == 1:
        return list(after or ())
    segment = cut(inner(inner(region)), world, np.arange(world)[:, None])
    done: list[Ids] = []
    for lane in range(lanes):
        own = channel if lanes == 1 else f"{channel}.{lane}"
        part = cut(segment, lanes, lane)
        direction = directions[lane % len(directions)]
        done += pass_round(builder, ranks, part, reduce, gather, direction, after, tag + lane, own)
    return done


def pass_round(
    builder: Builder,
    ranks,
    segment: Region,
    reduce: bool,
    gather: bool,
    direction: int,
    after: After,
    tag: int,
    channel: str,
) -> list[Ids]:
    """The steps of one ring over ``ranks``, shape (..., N) with N ≥ 2: those that reduce, those that gather, or both.

    ``segment`` has the shape (..., N, pieces): a segment may consist of pieces that lie apart, each a message. At step
    k member i sends segment i−k−1 and receives segment i−k−2, so that after N−1 steps of reduction it holds its own
    segment, with which the N−1 steps of gathering begin. One block of operations, member by member, is already in the
    order of the queues: millions of operations need no sorting.
    """
    world = ranks.shape[-1]
    steps = np.arange(0 if reduce else world - 1, 2 * (world - 1) if gather else world - 1)
    sent = (np.arange(world)[:, None] - direction * (steps + 1)) % world
    received = (sent - direction) % world
    offset, count = np.asarray(segment.offset), np.asarray(segment.count)
    rank, following, preceding = (np.roll(ranks, to, axis=-1)[..., None, None] for to in (0, -direction, direction))
    send = builder.send(
        rank,
        following,
        Region(segment.buffer, offset[..., sent, :], count[..., sent, :]),
        tag=tag,
        stream="send" + channel,
    )
    recv = builder.recv(
        rank,
        preceding,
        Region(segment.buffer, offset[..., received, :], count[..., received, :]),
        reduce=steps[:, None] < world - 1,
        tag=tag,
        stream="recv" + channel,
    )
    builder.match(send, np.roll(recv, -direction, axis=-3))
    builder.after(send[..., 1:, :], recv[..., :-1, :])
    begin(builder, after, send[..., 0, 0], recv[..., 0, 0])
    return [send[..., -1, -1], recv[..., -1, -1]]
