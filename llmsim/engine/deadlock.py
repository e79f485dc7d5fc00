"""Say why a run got stuck."""

import numpy as np
from numpy.typing import NDArray

from llmsim.engine.bound import BoundProgram
from llmsim.errors import ProgramError
from llmsim.program.program import RECEIVES, Kind


def deadlock_error(bound: BoundProgram, reached: NDArray[np.bool_], done: NDArray[np.bool_]) -> ProgramError:
    """The error for a run in which nothing can happen any more; it names an operation in the cycle of waiting.

    ``reached`` and ``done`` state for each operation how far the run came.
    """
    program = bound.program
    heads = [_head(bound, done, queue) for queue in range(len(program.queue_start) - 1)]
    blocked = [op for op in heads if op >= 0]
    seen: set[int] = set()
    op = blocked[0]
    while op not in seen:
        seen.add(op)
        waits_for = _waits_for(bound, reached, done, op)
        op = heads[int(program.queue[waits_for])]
    waits_for = _waits_for(bound, reached, done, op)
    return ProgramError(
        f"deadlock with {bound.send_mode} sends: {program.describe(op)} waits for {program.describe(waits_for)}, "
        f"and {len(blocked)} of the program's streams wait for each other",
        where=program.name,
        mend="change the order of the operations, or put them into separate streams",
    )


def _head(bound: BoundProgram, done: NDArray[np.bool_], queue: int) -> int:
    """The first operation of a queue that is not complete, or -1."""
    first, last = bound.program.queue_start[queue : queue + 2]
    todo = np.flatnonzero(~done[first:last])
    return int(first + todo[0]) if todo.size else -1


def _waits_for(bound: BoundProgram, reached: NDArray[np.bool_], done: NDArray[np.bool_], op: int) -> int:
    """The operation that the head of a queue waits for."""
    program = bound.program
    if not reached[op]:
        return next(int(i) for i in program.predecessors(op) if not done[i])
    kind = Kind(int(program.kind[op]))
    if kind in RECEIVES or kind == Kind.SEND:
        return int(program.match[op])
    assert kind == Kind.COLLECTIVE, "any other operation that was reached goes on by itself"
    members = np.flatnonzero((program.kind == Kind.COLLECTIVE) & (program.call == program.call[op]))
    return int(next(i for i in members if not reached[i]))
