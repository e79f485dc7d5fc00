"""What waits for what in a program, as edges between operations; cycles in it are deadlocks.

The operations of one collective complete together, so they are one node here: the first of them stands for all.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import ProgramError
from llmsim.program.builder import stable_order
from llmsim.program.program import RECEIVES, Kind, Program

SendMode = Literal["eager", "rendezvous"]


def nodes(program: Program) -> NDArray[np.int64]:
    """The node of each operation: itself, or the first operation of its collective."""
    node = np.arange(len(program), dtype=np.int64)
    ops = np.flatnonzero(program.kind == Kind.COLLECTIVE)
    if ops.size:
        _, first, inverse = np.unique(program.call[ops], return_index=True, return_inverse=True)
        node[ops] = ops[first[inverse]]
    return node


def waits(program: Program, send_mode: SendMode) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges (earlier, later) between operations: the later one cannot complete before the earlier one has.

    A receive waits for its send; with rendezvous a send also waits for all that its receive has to wait for.
    """
    follows = np.ones(len(program), dtype=bool)
    follows[program.queue_start[:-1][np.diff(program.queue_start) > 0]] = False
    following = np.flatnonzero(follows)
    earlier = np.concatenate([following - 1, program.dependency[:, 0]])
    later = np.concatenate([following, program.dependency[:, 1]])
    recv = np.flatnonzero(np.isin(program.kind, RECEIVES) & (program.match >= 0))
    edges = [(earlier, later), (program.match[recv].astype(np.int64), recv)]
    if send_mode == "rendezvous":
        held = np.isin(program.kind[later], RECEIVES) & (program.match[later] >= 0)
        edges.append((earlier[held], program.match[later[held]].astype(np.int64)))
    return np.concatenate([e for e, _ in edges]), np.concatenate([r for _, r in edges])


def in_order_of_first(size: int, first, second) -> tuple[NDArray[np.int64], NDArray]:
    """Pairs as rows: the partners of i are ``second[start[i]:start[i + 1]]`` of what is returned."""
    start = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(first, minlength=size), out=start[1:])
    return start, second[stable_order(first, max(size, 1))]


def rows(start: NDArray[np.int64], of: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of all entries of the rows ``of``, row after row, and the lengths of these rows."""
    begin, length = start[of], start[of + 1] - start[of]
    shift = np.repeat(begin - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
    return shift + np.arange(len(shift)), length


def levels(size: int, earlier, later) -> Iterator[NDArray[np.int64]]:
    """Nodes in waves, each as soon as all that it waits for has come; nodes on or behind a cycle never come."""
    start, following = in_order_of_first(size, earlier, later)
    missing = np.bincount(later, minlength=size)
    wave = np.flatnonzero(missing == 0)
    while wave.size:
        yield wave
        reached, times = np.unique(following[rows(start, wave)[0]], return_counts=True)
        missing[reached] -= times
        wave = reached[missing[reached] == 0]


def find_cycle(program: Program, send_mode: SendMode) -> list[int]:
    """Operations each of which waits for the next, and the last for the first; empty where there is no cycle."""
    node = nodes(program)
    earlier, later = (node[side] for side in waits(program, send_mode))
    stuck = np.ones(len(program), dtype=bool)
    for wave in levels(len(program), earlier, later):
        stuck[wave] = False
    stuck &= node == np.arange(len(program))
    if not stuck.any():
        return []
    among = stuck[earlier] & stuck[later]
    waits_for = dict(zip(later[among].tolist(), earlier[among].tolist(), strict=True))  # one reason for each is enough
    path: dict[int, None] = {}
    op = int(np.flatnonzero(stuck)[0])
    while op not in path:
        path[op] = None
        op = waits_for[op]
    cycle = list(path)
    return cycle[cycle.index(op) :]


def deadlock(program: Program, send_mode: SendMode) -> ProgramError | None:
    """The error that names the operations which wait for each other, or None where none do."""
    cycle = find_cycle(program, send_mode)
    if not cycle:
        return None
    line: list[str] = []
    for op, cause in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        line.append(program.describe(op))
        if program.kind[op] == Kind.SEND and not _waits_itself(program, op, cause):
            line.append(program.describe(int(program.match[op])))  # the send waits because its receive does
    cut = line if len(line) <= 12 else [*line[:8], f"… {len(line) - 10} more …", *line[-2:]]
    chain = " waits for ".join([*cut, line[0]])
    what = "deadlock with rendezvous sends" if send_mode == "rendezvous" else "deadlock"
    mend = "change the order of the operations, or put them into separate streams"
    return ProgramError(f"{what}: {chain}", where=program.name, mend=mend)


def deadlock_error(program: Program, send_mode: SendMode) -> ProgramError:
    """The error for a run in which nothing can happen any more although operations are left."""
    error = deadlock(program, send_mode)
    assert error is not None, f"{program} came to a stop without a deadlock"
    return error


def _waits_itself(program: Program, op: int, cause: int) -> bool:
    """Whether ``op`` waits for ``cause`` by its queue or a dependency of its own."""
    if cause == op - 1 and program.queue[cause] == program.queue[op]:
        return True
    own = program.predecessors(op)
    return bool(np.isin(nodes(program)[own], cause).any()) if own.size else False
