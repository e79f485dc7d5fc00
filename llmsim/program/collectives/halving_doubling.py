"""Recursive halving and doubling: log2 N exchanges with partners ever nearer, then ever farther.

Rabenseifner's all-reduce, as in Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
MPICH", IJHPCA 2005. Where N is a power of two the data sent are those of a ring, in 2·log2 N steps rather than
2(N−1). Where it is none, the first 2(N−2^⌊log2 N⌋) members fold in pairs: the even one gives all its data to the odd
one, which then takes part for both, and in the end gives the result back.
"""

import numpy as np
from numpy.typing import NDArray

from llmsim.program.builder import Builder, Ids
from llmsim.program.collectives.common import After, begin, cut, inner, members
from llmsim.program.program import Region


def halving_doubling_all_reduce(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = ""
) -> list[Ids]:
    """Reduce-scatter by recursive halving among the participants, then all-gather by recursive doubling."""
    run = _Run(builder, ranks, region, after, tag, channel)
    pieces = cut(inner(region), run.power, np.arange(run.power))
    run.bound = np.append(pieces.offset, (pieces.offset + pieces.count)[..., -1:], axis=-1)
    run.fold_in(inner(region), reduce=True)
    run.halve()
    run.double()
    run.fold_out(inner(region))
    return run.done()


def halving_reduce_scatter(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = ""
) -> list[Ids]:
    """Recursive halving; member i ends with the sum of segment i."""
    run = _Run(builder, ranks, region, after, tag, channel)
    run.bound_by_segments()
    run.fold_in(inner(region), reduce=True)
    run.halve()
    run.fold_out(run.segments_of(run.even))
    return run.done()


def doubling_all_gather(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = ""
) -> list[Ids]:
    """Recursive doubling; every member ends with segment i of member i, for every i."""
    run = _Run(builder, ranks, region, after, tag, channel)
    run.bound_by_segments()
    run.fold_in(run.segments_of(run.even), reduce=False)
    run.double()
    run.fold_out(inner(region))
    return run.done()


class _Run:
    """The state of one collective while it is built.

    ``part`` lists the members that take part in the exchanges, ``power`` of them; participant j is responsible for the
    elements from ``bound[..., j]`` to ``bound[..., j + 1]``.
    """

    def __init__(self, builder: Builder, ranks, region: Region, after: After, tag: int, channel: str):
        self.builder, self.region, self.after = builder, region, list(after or ())
        self.ranks = members(ranks)
        self.tag, self.streams = tag, ("send" + channel, "recv" + channel)
        world = self.ranks.shape[-1]
        self.power = 1 << (world.bit_length() - 1)
        self.folded = world - self.power
        self.even, self.odd = np.arange(self.folded) * 2, np.arange(self.folded) * 2 + 1
        self.part = np.append(self.odd, np.arange(2 * self.folded, world))
        self.bound: NDArray[np.int64]
        self.last_send: Ids = np.full(self.ranks.shape, -1, dtype=np.int64)
        self.last_recv: Ids = self.last_send.copy()

    def segments_of(self, member) -> Region:
        """Segments of the members ``member``, shape (..., len(member))."""
        return cut(inner(self.region), self.ranks.shape[-1], member)

    def bound_by_segments(self) -> None:
        """Each participant answers for its own segment and that of the member folded into it, which lies before."""
        first = self.segments_of(np.append(self.even, self.part[self.folded :]))
        end = np.asarray(self.region.offset + self.region.count)[..., None]
        self.bound = np.append(first.offset, np.broadcast_to(end, (*first.offset.shape[:-1], 1)), axis=-1)

    def fold_in(self, region: Region, *, reduce: bool) -> None:
        self._message(self.even, self.odd, region, reduce=reduce)

    def fold_out(self, region: Region) -> None:
        self._message(self.odd, self.even, region)

    def halve(self) -> None:
        """Send the half that the partner answers for, and add up the other."""
        mask = self.power // 2
        while mask:
            self._exchange(mask, reduce=True)
            mask //= 2

    def double(self) -> None:
        """Swap all that both hold so far."""
        mask = 1
        while mask < self.power:
            self._exchange(mask, reduce=False)
            mask *= 2

    def _exchange(self, mask: int, *, reduce: bool) -> None:
        """Participants that differ in bit ``mask`` send each other what the receiver answers for, or else the sender.

        A participant answers for ``mask`` pieces, its own among them.
        """
        participant = np.arange(self.power)
        answering = participant ^ mask if reduce else participant
        first = answering - answering % mask
        start, end = self.bound[..., first], self.bound[..., first + mask]
        region = Region(self.region.buffer, start, end - start)
        self._message(self.part, self.part[participant ^ mask], region, reduce=reduce)

    def _message(self, source, destination, region: Region, *, reduce: bool = False) -> None:
        """Members ``source`` send to ``destination``, each once it has all that it was sent before."""
        if len(source) == 0:
            return
        send, recv = self.builder.message(
            self.ranks[..., source],
            self.ranks[..., destination],
            region,
            reduce=reduce,
            tag=self.tag,
            streams=self.streams,
            after=self.last_recv[..., source],
        )
        for ids, member, last in ((send, source, self.last_send), (recv, destination, self.last_recv)):
            is_first = last[..., member] < 0
            begin(self.builder, [np.where(is_first, a[..., member], -1) for a in self.after], ids)
            last[..., member] = ids

    def done(self) -> list[Ids]:
        return [self.last_send, self.last_recv] if self.ranks.shape[-1] > 1 else self.after
