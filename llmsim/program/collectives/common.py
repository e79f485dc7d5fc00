"""What all collectives share: their signature, and how they cut a region.

Every algorithm is a function that adds operations to a builder::

    algorithm(builder, ranks, region, *, after=None, tag=0, channel="", **options) -> list of ids

* ``ranks`` has shape (..., N): N members in order, and in front of that any number of groups that run side by side;
  ``region.offset`` and ``region.count`` broadcast to the shape of the groups, (...).
* ``after`` is a list of id arrays of the shape of ``ranks``: on each rank, what must be complete before the collective
  touches the region. The returned list has the same form: when they are complete, so is the collective on that rank.
* ``channel`` is appended to the names of the streams, so that several collectives can run at once; each of those needs
  tags of its own. A collective uses fewer than :data:`TAG_SPAN` tags, from ``tag`` on: one for each pair of streams.
* Segments may be empty (fewer elements than ranks, or none at all). Their messages are sent all the same: every rank
  takes the same steps for any count, and a collective of zero bytes still synchronises.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmsim.errors import ProgramError
from llmsim.program.builder import Builder, Ids
from llmsim.program.program import Region

TAG_SPAN = 4096

After = Sequence[NDArray] | None


def members(ranks: ArrayLike) -> NDArray[np.int64]:
    """``ranks`` as an array (..., N) with N ≥ 1, no rank twice in all."""
    array = np.asarray(ranks, dtype=np.int64)
    if array.ndim == 0 or array.size == 0:
        raise ProgramError("a collective needs at least one rank", mend="give ranks as a list such as range(4)")
    if len(np.unique(array)) != array.size:
        values, counts = np.unique(array, return_counts=True)
        raise ProgramError(f"rank {values[counts > 1][0]} is twice among the ranks of a collective")
    return array


def cut(region: Region, parts: int, index: ArrayLike) -> Region:
    """Part ``index`` of ``parts`` of a region, cut as :func:`llmsim.program.segments` does; all arrays broadcast."""
    index = np.asarray(index, dtype=np.int64)
    base, extra = np.divmod(np.asarray(region.count, dtype=np.int64), parts)
    return Region(region.buffer, region.offset + index * base + np.minimum(index, extra), base + (index < extra))


def inner(region: Region) -> Region:
    """The region of each group with an axis appended, to be broadcast against members, steps or chunks."""
    return Region(region.buffer, np.asarray(region.offset)[..., None], np.asarray(region.count)[..., None])


def begin(builder: Builder, after: After, *first: Ids) -> None:
    """The ``first`` operation of each queue, shape (..., N), waits for ``after``; the rest of the queue follows it."""
    for ids in first:
        for earlier in after or ():
            builder.after(ids, earlier)


def positive(value: int, name: str, most: int = TAG_SPAN // 8) -> int:
    """A whole number of at least 1, or an error that names the option."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 1 <= value <= most:
        raise ProgramError(f"{name} is {value!r}", mend=f"give a whole number from 1 to {most}")
    return int(value)
