"""All-to-all, in which every rank has something else for every other, and the single message."""

import numpy as np

from llmsim.errors import ProgramError
from llmsim.program.builder import Builder, Ids
from llmsim.program.collectives.common import After, begin, cut, inner, members, positive
from llmsim.program.program import Region


def direct_all_to_all(
    builder: Builder,
    ranks,
    region: Region,
    output: Region,
    *,
    after: After = None,
    tag: int = 0,
    channel: str = "",
) -> list[Ids]:
    """All messages under way at once: what a member sends to the d-th after it has a stream of its own for each d.

    Segment j of member i's ``region`` goes to slot i of member j's ``output``, where the slots have the size of
    segment j: see :class:`llmsim.program.Contract`. Only the offset of ``output`` counts.
    """
    ranks = members(ranks)
    done = [_keep(builder, ranks, region, output, after, channel)]
    for distance in range(1, ranks.shape[-1]):
        streams = (f"send{channel}.{distance}", f"recv{channel}.{distance}")
        send, recv = _messages(builder, ranks, region, output, distance, tag, streams)
        begin(builder, after, send, recv)
        done += [send, recv]
    return done


def pairwise_all_to_all(
    builder: Builder,
    ranks,
    region: Region,
    output: Region,
    *,
    after: After = None,
    tag: int = 0,
    channel: str = "",
) -> list[Ids]:
    """One partner after the other: in step d a member sends to the d-th after it and receives from the d-th before.

    Arguments as for :func:`direct_all_to_all`. Thakur, Rabenseifner & Gropp 2005, for long messages.
    """
    ranks = members(ranks)
    done = [_keep(builder, ranks, region, output, after, channel)]
    before: list[Ids] = list(after or ())
    for distance in range(1, ranks.shape[-1]):
        streams = ("send" + channel, "recv" + channel)
        send, recv = _messages(builder, ranks, region, output, distance, tag, streams)
        begin(builder, before, send, recv)
        before = [send, recv]
    return done + before if ranks.shape[-1] > 1 else done


def _messages(
    builder: Builder, ranks, region: Region, output: Region, distance: int, tag: int, streams: tuple[str, str]
) -> tuple[Ids, Ids]:
    """What each member sends to the one ``distance`` after it, and what it receives from the one before; (..., N)."""
    world = ranks.shape[-1]
    member = np.arange(world)
    after, before = (member + distance) % world, (member - distance) % world
    send = builder.send(ranks, ranks[..., after], cut(inner(region), world, after), tag=tag, stream=streams[0])
    recv = builder.recv(
        ranks, ranks[..., before], _slot(region, output, world, before, member), tag=tag, stream=streams[1]
    )
    builder.match(send, recv[..., after])
    return send, recv


def _slot(region: Region, output: Region, world: int, sender, receiver) -> Region:
    count = cut(inner(region), world, receiver).count
    return Region(output.buffer, np.asarray(output.offset)[..., None] + sender * count, count)


def _keep(builder: Builder, ranks, region: Region, output: Region, after: After, channel: str) -> Ids:
    """Copy what stays on its rank."""
    world = ranks.shape[-1]
    member = np.arange(world)
    source = cut(inner(region), world, member)
    copy = builder.copy(ranks, _slot(region, output, world, member, member), source, stream="copy" + channel)
    begin(builder, after, copy)
    return copy


def point_to_point(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """The first of two members sends to the second, ``chunks`` messages one after the other."""
    ranks = members(ranks)
    if ranks.shape[-1] != 2:
        raise ProgramError(f"there are {ranks.shape[-1]} ranks", mend="a message has two: source and destination")
    pieces = cut(inner(region), positive(chunks, "chunks"), np.arange(chunks))
    send, recv = builder.message(
        ranks[..., 0, None], ranks[..., 1, None], pieces, tag=tag, streams=("send" + channel, "recv" + channel)
    )
    begin(builder, [a[..., 0] for a in after or ()], send[..., 0])
    begin(builder, [a[..., 1] for a in after or ()], recv[..., 0])
    return [np.stack([send[..., -1], recv[..., -1]], axis=-1)]
