"""One rank's share of a program, turned into the plain lists that the executor walks while the clock runs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import ProgramError
from llmsim.program.checks import check_collectives, check_deadlock, check_messages
from llmsim.program.program import RECEIVES, Kind, Program


@dataclass(frozen=True)
class RankPlan:
    """Operations of one rank, numbered locally and queue after queue.

    ``waits[i]`` counts what operation i waits for: its predecessor in the queue and its dependencies; ``followers[i]``
    lists what waits for i. Of two consecutive sends of one channel the second, ``chained[i]``, need not wait for the
    end of the first but for its start only: the transport keeps them in order. ``hazards[i]`` counts the earlier
    operations that use the region of receive i: once they are complete the receive may be handed to the transport,
    ahead of its turn; ``unblocks[i]`` lists such receives.
    """

    ops: list[int]  # index into the program
    streams: list[int]  # of each queue
    queues: list[range]  # local operations of each queue
    queue_of: list[int]
    kind: list[int]
    waits: list[int]
    followers: list[list[int]]
    chained: list[int]  # -1 for none
    hazards: list[int]
    unblocks: list[list[int]]
    sliced: list[bool]  # is the message added at its receiver?


def check_executable(program: Program) -> None:
    """Refuse what no backend could run.

    Raises:
        ProgramError: messages or collectives that do not fit, a dependency between ranks, or operations that wait for
            each other.
    """
    check_messages(program)
    check_collectives(program)
    before, after = program.dependency.T
    foreign = np.flatnonzero(program.rank[before] != program.rank[after])
    if len(foreign):
        first, second = program.dependency[foreign[0]].tolist()
        raise ProgramError(
            f"{program.describe(second)} waits for {program.describe(first)}, which is on another rank",
            where=program.name,
            mend="dependencies stand within a rank; between ranks send a message",
        )
    check_deadlock(program, "eager")


def chained_sends(program: Program) -> NDArray[np.bool_]:
    """Which operations are sends that directly follow another of their channel in their queue."""
    columns = np.stack([program.kind, program.queue, program.peer, program.tag])
    chained = np.zeros(len(program), dtype=bool)
    chained[1:] = (columns[0, 1:] == Kind.SEND) & (columns[:, 1:] == columns[:, :-1]).all(axis=0)
    return chained


def rank_plan(program: Program, rank: int) -> RankPlan:
    """Compile the operations of ``rank`` of a program that :func:`check_executable` accepts."""
    spans = [(s, program.queue_ops(rank, s)) for s in range(len(program.streams))]
    spans = [(s, span) for s, span in spans if len(span)]
    ops = np.concatenate([np.arange(span.start, span.stop) for _, span in spans] or [np.zeros(0, np.int64)])
    local = np.full(len(program) + 1, -1, dtype=np.int64)
    local[ops] = np.arange(len(ops))
    queues, queue_of, at = [], [], 0
    for number, (_, span) in enumerate(spans):
        queues.append(range(at, at + len(span)))
        queue_of += [number] * len(span)
        at += len(span)

    earlier, later = local[program.dependency[:, 0]], local[program.dependency[:, 1]]
    mine = later >= 0
    followers: list[list[int]] = [[] for _ in range(len(ops))]
    waits = [0] * len(ops)
    for a, b in zip(earlier[mine].tolist(), later[mine].tolist(), strict=True):
        followers[a].append(b)
        waits[b] += 1
    kind = program.kind[ops]
    same_channel = chained_sends(program)[ops]
    chained = [-1] * len(ops)
    for queue in queues:
        for i in queue[:-1]:
            waits[i + 1] += 1
            if same_channel[i + 1]:
                chained[i] = i + 1
            else:
                followers[i].append(i + 1)
    order = _topological_order(waits, followers, chained)
    assert len(order) == len(ops), program

    receives = np.isin(kind, RECEIVES)
    met = np.where(program.match[ops] >= 0, program.match[ops], 0)
    added = np.where(receives, kind, program.kind[met] if len(program) else 0) == Kind.RECV_REDUCE
    hazards, unblocks = _hazards(program, ops, order)
    return RankPlan(
        ops=ops.tolist(),
        streams=[s for s, _ in spans],
        queues=queues,
        queue_of=queue_of,
        kind=kind.tolist(),
        waits=waits,
        followers=followers,
        chained=chained,
        hazards=hazards,
        unblocks=unblocks,
        sliced=(added & (receives | (kind == Kind.SEND))).tolist(),
    )


def _topological_order(waits: list[int], followers: list[list[int]], chained: list[int]) -> list[int]:
    left = list(waits)
    order = [i for i, count in enumerate(left) if count == 0]
    for i in order:
        for j in (*followers[i], chained[i]) if chained[i] >= 0 else followers[i]:
            left[j] -= 1
            if left[j] == 0:
                order.append(j)
    return order


def _hazards(program: Program, ops: np.ndarray, order: list[int]) -> tuple[list[int], list[list[int]]]:
    """For each plain RECV the operations before it (in one possible order) whose regions overlap its own.

    A RECV_REDUCE has none: its message goes to a buffer of its own first.
    """
    position = np.empty(len(ops), dtype=np.int64)
    position[order] = np.arange(len(ops))
    begin = [program.offset[ops], program.source_offset[ops]]
    count = program.count[ops]
    used = [program.buffer[ops], program.source_buffer[ops]]
    hazards = [0] * len(ops)
    unblocks: list[list[int]] = [[] for _ in range(len(ops))]
    for i in np.flatnonzero(program.kind[ops] == Kind.RECV).tolist():
        low, high = begin[0][i], begin[0][i] + count[i]
        touches = np.zeros(len(ops), dtype=bool)
        for buffer, start in zip(used, begin, strict=True):
            touches |= (buffer == used[0][i]) & (start < high) & (start + count > low)
        before = np.flatnonzero(touches & (position < position[i])).tolist()
        hazards[i] = len(before)
        for j in before:
            unblocks[j].append(i)
    return hazards, unblocks
