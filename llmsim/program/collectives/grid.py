"""Collectives on a grid of ranks: rings along one axis, then along the other.

*Hierarchical*: the last axis is a group with fast links inside, such as the GPUs of one node. *Torus*: both axes are
rings of links, and each half of the data goes first along another axis, so that the links of both carry data at the
same time, one way round (Ying et al., "Image Classification at Supercomputer Scale", 2018; Mikami et al., "Massively
Distributed SGD", 2018, who send all of it in one order of the axes).
"""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import ProgramError
from llmsim.program.builder import Builder, Ids
from llmsim.program.collectives.common import After, cut, inner, members, positive
from llmsim.program.collectives.halving_doubling import halving_doubling_all_reduce
from llmsim.program.collectives.ring import (
    bidirectional_ring_all_reduce,
    pass_round,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from llmsim.program.collectives.tree import double_tree_all_reduce, tree_all_reduce
from llmsim.program.program import Region

INTER = {
    "ring": ring_all_reduce,
    "bidirectional-ring": bidirectional_ring_all_reduce,
    "halving-doubling": halving_doubling_all_reduce,
    "tree": tree_all_reduce,
    "double-tree": double_tree_all_reduce,
}


def hierarchical_all_reduce(
    builder: Builder,
    ranks,
    region: Region,
    *,
    group_size: int | None = None,
    inter: str = "ring",
    after: After = None,
    tag: int = 0,
    channel: str = "",
) -> list[Ids]:
    """Reduce-scatter inside each group, all-reduce of each shard across groups, all-gather inside each group.

    Args:
        group_size: consecutive members that form a group; it divides their number. By default the largest divisor
            that is at most 8.
        inter: the algorithm across groups, a key of :data:`INTER`.
    """
    if inter not in INTER:
        raise ProgramError(f"inter is {inter!r}", mend=f"choose one of {', '.join(INTER)}")
    grid = _groups(members(ranks), group_size)
    return _flat(_all_reduce(builder, grid, region, INTER[inter], _as(grid, after), tag, channel))


def hierarchical_reduce_scatter(
    builder: Builder,
    ranks,
    region: Region,
    *,
    group_size: int | None = None,
    after: After = None,
    tag: int = 0,
    channel: str = "",
) -> list[Ids]:
    """Inside each group, then across: only 1/``group_size`` of the data leaves it. Each of a group's steps takes one
    message for every group, as the segments that a member sums up lie apart."""
    grid = _groups(members(ranks), group_size)
    table = _segments(grid, region)
    return _flat(_reduce_scatter(builder, grid, table, _as(grid, after), tag, channel))


def hierarchical_all_gather(
    builder: Builder,
    ranks,
    region: Region,
    *,
    group_size: int | None = None,
    after: After = None,
    tag: int = 0,
    channel: str = "",
) -> list[Ids]:
    """Across groups, then inside each: the reverse of :func:`hierarchical_reduce_scatter`."""
    grid = _groups(members(ranks), group_size)
    table = _segments(grid, region)
    return _flat(_all_gather(builder, grid, table, _as(grid, after), tag, channel))


def torus_all_reduce(
    builder: Builder,
    ranks,
    region: Region,
    *,
    dims: tuple[int, int] | None = None,
    after: After = None,
    tag: int = 0,
    channel: str = "",
) -> list[Ids]:
    """Half of the data along the rows, across the columns and back, the other half the other way round, at once.

    Args:
        dims: rows and columns, whose product is the number of members; by default as square as it can be.
    """
    grid = _torus(members(ranks), dims)
    after = _as(grid, after)
    first = _all_reduce(builder, grid, cut(region, 2, 0), ring_all_reduce, after, tag, channel + ".0")
    other = _all_reduce(builder, _t(grid), cut(region, 2, 1), ring_all_reduce, _ts(after), tag + 1, channel + ".1")
    return _flat(first + _ts(other))


def torus_reduce_scatter(
    builder: Builder,
    ranks,
    region: Region,
    *,
    dims: tuple[int, int] | None = None,
    after: After = None,
    tag: int = 0,
    channel: str = "",
) -> list[Ids]:
    """One half of every segment along the rows and then the columns, the other half the other way round, at once.

    ``dims`` as in :func:`torus_all_reduce`.
    """
    grid = _torus(members(ranks), dims)
    table, after = _segments(grid, region), _as(grid, after)
    first = _reduce_scatter(builder, grid, cut(table, 2, 0), after, tag, channel + ".0")
    other = _reduce_scatter(builder, _t(grid), _turned(cut(table, 2, 1)), _ts(after), tag + 1, channel + ".1")
    return _flat(first + _ts(other))


def torus_all_gather(
    builder: Builder,
    ranks,
    region: Region,
    *,
    dims: tuple[int, int] | None = None,
    after: After = None,
    tag: int = 0,
    channel: str = "",
) -> list[Ids]:
    """The reverse of :func:`torus_reduce_scatter`; ``dims`` as in :func:`torus_all_reduce`."""
    grid = _torus(members(ranks), dims)
    table, after = _segments(grid, region), _as(grid, after)
    first = _all_gather(builder, grid, cut(table, 2, 0), after, tag, channel + ".0")
    other = _all_gather(builder, _t(grid), _turned(cut(table, 2, 1)), _ts(after), tag + 1, channel + ".1")
    return _flat(first + _ts(other))


def default_group_size(world_size: int) -> int:
    """The largest divisor of ``world_size`` that is at most 8, the GPUs of a usual node."""
    return max(size for size in range(1, 9) if world_size % size == 0)


def default_dims(world_size: int) -> tuple[int, int]:
    """Rows and columns of the most square grid of ``world_size`` ranks; rows ≤ columns."""
    rows = max(size for size in range(1, isqrt(world_size) + 1) if world_size % size == 0)
    return rows, world_size // rows


def _groups(ranks: NDArray, group_size: int | None) -> NDArray:
    world = ranks.shape[-1]
    size = default_group_size(world) if group_size is None else positive(group_size, "group_size", most=world)
    if world % size:
        raise ProgramError(f"groups of {size} do not divide {world} ranks", mend="choose a divisor as group_size")
    return ranks.reshape(*ranks.shape[:-1], world // size, size)


def _torus(ranks: NDArray, dims: tuple[int, int] | None) -> NDArray:
    world = ranks.shape[-1]
    shape = default_dims(world) if dims is None else tuple(dims)
    if len(shape) != 2 or shape[0] < 1 or shape[0] * shape[1] != world:
        raise ProgramError(f"dims {shape} do not make {world} ranks", mend="give rows and columns such as (2, 4)")
    return ranks.reshape(*ranks.shape[:-1], *shape)


# Arrays over a grid have the shape (..., groups, members).


def _t(array: NDArray) -> NDArray:
    """The grid with its axes swapped."""
    return np.swapaxes(array, -1, -2)


def _ts(arrays: After) -> list[Ids]:
    return [_t(array) for array in arrays or ()]


def _as(grid: NDArray, after: After) -> list[Ids]:
    return [np.reshape(array, grid.shape) for array in after or ()]


def _flat(arrays: list[Ids]) -> list[Ids]:
    return [array.reshape(*array.shape[:-2], -1) for array in arrays]


def _segments(grid: NDArray, region: Region) -> Region:
    """The segment of each rank of the grid."""
    index = np.arange(grid.shape[-2] * grid.shape[-1]).reshape(grid.shape[-2:])
    return cut(inner(inner(region)), index.size, index)


def _turned(table: Region) -> Region:
    return Region(table.buffer, _t(table.offset), _t(table.count))


def _all_reduce(
    builder: Builder, grid: NDArray, region: Region, across, after: list[Ids], tag: int, channel: str
) -> list[Ids]:
    """Reduce-scatter along the last axis, all-reduce of each shard along the other, all-gather along the last."""
    if grid.size == 1:
        return after
    done = ring_reduce_scatter(builder, grid, inner(region), after=after, tag=tag, channel=channel)
    size = grid.shape[-1]
    shard = cut(inner(region), size, np.arange(size))
    done = _ts(across(builder, _t(grid), shard, after=_ts(done), tag=tag, channel=channel))
    return ring_all_gather(builder, grid, inner(region), after=done, tag=tag, channel=channel)


def _reduce_scatter(
    builder: Builder, grid: NDArray, table: Region, after: list[Ids], tag: int, channel: str
) -> list[Ids]:
    """Along the last axis in pieces, one for each group, then along the other."""
    return _both(builder, grid, table, True, after, tag, channel)


def _all_gather(builder: Builder, grid: NDArray, table: Region, after: list[Ids], tag: int, channel: str) -> list[Ids]:
    """Along the first axis, then along the last in pieces, one for each group."""
    return _both(builder, grid, table, False, after, tag, channel)


def _both(
    builder: Builder, grid: NDArray, table: Region, reduce: bool, after: list[Ids], tag: int, channel: str
) -> list[Ids]:
    turned = _turned(table)
    # Along the last axis, member j passes on the segments of all j-th members; across, those of one rank at a time.
    along = Region(table.buffer, turned.offset[..., None, :, :], turned.count[..., None, :, :])
    across = Region(table.buffer, turned.offset[..., None], turned.count[..., None])
    done = after
    for is_along in (True, False) if reduce else (False, True):
        if grid.shape[-1 if is_along else -2] == 1:
            continue
        if is_along:
            done = pass_round(builder, grid, along, reduce, not reduce, 1, done, tag, channel)
        else:
            done = _ts(pass_round(builder, _t(grid), across, reduce, not reduce, 1, _ts(done), tag, channel))
    return done
