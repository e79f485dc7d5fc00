"""Buffer races: operations of one rank that touch the same elements in an order that depends on timing.

An operation *happens before* another where a path of queues, dependencies and messages leads from one to the other,
also through other ranks (Lamport, "Time, clocks, and the ordering of events in a distributed system", CACM 1978). Each
operation gets a vector clock: for every queue, how many of its operations have happened before.
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import ProgramError
from llmsim.program.graph import in_order_of_first, levels, nodes, rows, waits
from llmsim.program.program import Kind, Program, Region
from llmsim.program.promises import output_count

MOST_CLOCKS = 1 << 28  # operations × queues: a ring all-reduce of 256 ranks has half of that, and takes some seconds
_BLOCK = 1 << 24  # clocks held in memory at a time


def check_races(program: Program, *, most_clocks: int = MOST_CLOCKS) -> None:
    """No two operations of one rank in different queues touch the same elements unordered, one of them writing.

    Buffers in ``program.relaxed`` are left out. The work grows with operations × queues; where that exceeds
    ``most_clocks`` the check is refused rather than skipped.

    Raises:
        ProgramError: both operations of a race; or the program is too large.
    """
    queues = np.flatnonzero(np.diff(program.queue_start))
    if len(program) * len(queues) > most_clocks:
        raise ProgramError(
            f"{len(program):,} operations in {len(queues):,} queues are too many to look for races",
            where=program.name,
            mend="check the same algorithm on fewer ranks, or leave races out: check(program, races=False)",
        )
    owner = queues % program.world_size
    step = max(1, _BLOCK // max(len(program), 1))
    order = np.argsort(owner, kind="stable")
    queues, owner = queues[order], owner[order]
    at = 0
    while at < len(queues):
        # Blocks of queues that hold whole ranks, so that all pairs of a rank are in one block.
        last = owner[min(at + step, len(queues)) - 1]
        if at + step < len(queues) and last > owner[at]:
            last -= 1
        until = int(np.searchsorted(owner, last, side="right"))
        block = queues[at:until]
        clocks = _clocks(program, block)
        for rank in np.unique(owner[at:until]).tolist():
            _check_rank(program, rank, block, clocks)
        at = until


def _clocks(program: Program, queues: NDArray[np.int64]) -> NDArray[np.int32]:
    """For each operation and each of ``queues``: how many operations of that queue are complete when it is.

    Shape (operations, queues); the operation itself counts in its own queue.
    """
    size = len(program)
    node = nodes(program)
    earlier, later = (node[side] for side in waits(program, "eager"))
    start, preceding = in_order_of_first(size, later, earlier)
    own_start, own = in_order_of_first(size, node, np.arange(size))
    column = np.full(len(program.queue_start) - 1, -1)
    column[queues] = np.arange(len(queues))
    clock = np.zeros((size, len(queues)), dtype=np.int32)
    for wave in levels(size, earlier, later):
        wave = wave[node[wave] == wave]
        at, length = rows(start, wave)
        some = length > 0
        if some.any():
            begin = np.cumsum(length[some]) - length[some]
            clock[wave[some]] = np.maximum.reduceat(clock[preceding[at]], begin, axis=0)
        at, length = rows(own_start, wave)
        ops = own[at]
        queue = program.queue[ops]
        known = column[queue] >= 0
        position = ops - program.queue_start[queue] + 1
        clock[np.repeat(wave, length)[known], column[queue[known]]] = position[known]
    merged = np.flatnonzero(node != np.arange(size))
    clock[merged] = clock[node[merged]]
    return clock


def accesses(program: Program, op: int) -> Iterator[tuple[Region, bool]]:
    """The regions that an operation touches, and whether it writes them."""
    item = program.op(op)
    if item.kind == Kind.COLLECTIVE:
        contract = program.collectives[item.call]
        yield Region(contract.buffer, contract.offset, contract.count), contract.output is None
        if contract.output is not None:
            yield Region(contract.output, contract.offset, output_count(contract.count, len(contract.ranks))), True
        return
    if item.region is not None:
        yield item.region, item.kind != Kind.SEND
    if item.source is not None:
        yield item.source, False


def _check_rank(program: Program, rank: int, queues: NDArray[np.int64], clocks: NDArray[np.int32]) -> None:
    """Compare all pairs of queues of one rank."""
    tables = []
    for column in np.flatnonzero(queues % program.world_size == rank).tolist():
        first, last = program.queue_start[queues[column]], program.queue_start[queues[column] + 1]
        touched = [
            (op, region.buffer, region.offset, region.offset + region.count, write)
            for op in range(first, last)
            for region, write in accesses(program, op)
            if region.buffer not in program.relaxed and region.count
        ]
        if touched:
            tables.append((column, int(first), np.array(touched, dtype=np.int64)))
    for (a_column, a_first, a), (b_column, b_first, b) in combinations(tables, 2):
        clash = (
            (a[:, None, 1] == b[:, 1])
            & (a[:, None, 2] < b[:, 3])
            & (b[:, 2] < a[:, None, 3])
            & ((a[:, None, 4] | b[:, 4]) > 0)
        )
        i, j = np.nonzero(clash)
        a_op, b_op = a[i, 0], b[j, 0]
        ordered = (clocks[b_op, a_column] > a_op - a_first) | (clocks[a_op, b_column] > b_op - b_first)
        race = np.flatnonzero(~ordered)
        if race.size:
            one, other = int(a_op[race[0]]), int(b_op[race[0]])
            raise ProgramError(
                f"a race: nothing orders {program.describe(one)} and {program.describe(other)}",
                where=program.name,
                mend="let one wait for the other",
            )
