"""Broadcasts other than by a binary tree: binomial tree for small data, pipelined chain for large."""

import numpy as np

from llmsim.program.builder import Builder, Ids
from llmsim.program.collectives.common import After, begin, cut, inner, members, positive
from llmsim.program.program import Region


def binomial_broadcast(
    builder: Builder, ranks, region: Region, *, root: int = 0, after: After = None, tag: int = 0, channel: str = ""
) -> list[Ids]:
    """In every round each member that has the data sends it to one that has not: ⌈log2 N⌉ rounds.

    Thakur, Rabenseifner & Gropp 2005. Counted from the root, member i receives from the one without i's lowest
    bit; whoever has several to send to begins with the farthest, which has most to pass on.
    """
    ranks = np.roll(members(ranks), -root, axis=-1)
    world = ranks.shape[-1]
    if world == 1:
        return list(after or ())
    after = [np.roll(ids, -root, axis=-1) for ids in after or ()]
    last_send, recv = (np.full(ranks.shape, -1, dtype=np.int64) for _ in range(2))
    distance = 1 << (world - 1).bit_length()
    while distance := distance // 2:
        source = np.arange(0, world - distance, 2 * distance)
        target = source + distance
        send, received = builder.message(
            ranks[..., source],
            ranks[..., target],
            inner(region),
            tag=tag,
            streams=("send" + channel, "recv" + channel),
            after=recv[..., source],
        )
        begin(builder, [np.where(last_send < 0, a, -1)[..., source] for a in after], send)
        begin(builder, [a[..., target] for a in after], received)
        last_send[..., source] = send
        recv[..., target] = received
    return [np.roll(ids, root, axis=-1) for ids in (last_send, recv)]


def chain_broadcast(
    builder: Builder, ranks, region: Region, *, root: int = 0, after: After = None, tag: int = 0, channel: str = "",
    chunks: int = 1,
) -> list[Ids]:  # fmt: skip
    """From member ``root`` on to the next and so on, a ring that is not closed; ``chunks`` pieces follow each other."""
    ranks = np.roll(members(ranks), -root, axis=-1)
    if ranks.shape[-1] == 1:
        return list(after or ())
    after = [np.roll(ids, -root, axis=-1) for ids in after or ()]
    pieces = cut(inner(region), positive(chunks, "chunks"), np.arange(chunks))
    rows = Region(region.buffer, pieces.offset[..., None, :], pieces.count[..., None, :])
    send, recv = builder.message(
        ranks[..., :-1, None], ranks[..., 1:, None], rows, tag=tag, streams=("send" + channel, "recv" + channel)
    )
    builder.after(send[..., 1:, :], recv[..., :-1, :])
    begin(builder, [a[..., :-1] for a in after], send[..., 0])
    begin(builder, [a[..., 1:] for a in after], recv[..., 0])
    last_send, last_recv = (np.full(ranks.shape, -1, dtype=np.int64) for _ in range(2))
    last_send[..., :-1], last_recv[..., 1:] = send[..., -1], recv[..., -1]
    return [np.roll(ids, root, axis=-1) for ids in (last_send, last_recv)]
