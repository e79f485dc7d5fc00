"""Is a program well formed? Messages that meet, no deadlock, no race: faults found before anything runs."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from llmsim.errors import ProgramError
from llmsim.program.graph import SendMode, deadlock
from llmsim.program.program import RECEIVES, Kind, Program
from llmsim.program.races import check_races


def check(program: Program, send_modes: Sequence[str] = ("eager", "rendezvous"), *, races: bool = True) -> None:
    """All checks of this module.

    Args:
        send_modes: the modes in which the program must not deadlock.
        races: False leaves out the search for races, which is refused on large programs: see :func:`check_races`.

    Raises:
        ProgramError: the first fault found; the message names the operations.
    """
    check_messages(program)
    check_collectives(program)
    check_overlaps(program)
    for mode in send_modes:
        check_deadlock(program, cast(SendMode, mode))
    if races:
        check_races(program)


def check_messages(program: Program) -> None:
    """Every SEND has its RECV: the k-th of a channel the k-th, of equal size and type, whatever the timing.

    Raises:
        ProgramError: a message without counterpart, paired against the order of its channel, or received as something
            else than was sent; or a channel whose order depends on timing, as it spreads over several streams.
    """
    ends = []
    for name, is_end in (("sends", program.kind == Kind.SEND), ("receives", np.isin(program.kind, RECEIVES))):
        ops = np.flatnonzero(is_end)
        pair = (program.rank[ops], program.peer[ops]) if name == "sends" else (program.peer[ops], program.rank[ops])
        order = np.lexsort((ops, program.tag[ops], pair[1], pair[0]))
        channel = np.stack([pair[0], pair[1], program.tag[ops]], axis=1)[order]
        ops = ops[order]
        same = (channel[1:] == channel[:-1]).all(axis=1)
        spread = np.flatnonzero(same & (program.queue[ops[1:]] != program.queue[ops[:-1]]))
        if spread.size:
            first, second = ops[spread[0]], ops[spread[0] + 1]
            raise ProgramError(
                f"two {name} of one channel stand in different streams, so their order depends on timing: "
                f"{program.describe(first)} and {program.describe(second)}",
                where=program.name,
                mend="use one stream, or a tag for each",
            )
        ends.append((ops, channel))
    (sends, send_channel), (recvs, recv_channel) = ends
    _check_counterparts(program, sends, send_channel, recvs, recv_channel)
    wrong = np.flatnonzero((program.match[sends] != recvs) | (program.match[recvs] != sends))
    if wrong.size:
        send, recv = int(sends[wrong[0]]), int(recvs[wrong[0]])
        raise ProgramError(
            f"{program.describe(send)} is the counterpart of {program.describe(recv)} by the order of their channel, "
            "but the program pairs them with others",
            where=program.name,
            mend="add the ends of a channel in the same order on both sides",
        )
    dtypes = np.array([_number(b.dtype) for b in program.buffers] + [-1])
    for what, column in (("size", program.count), ("type", dtypes[program.buffer])):
        unequal = np.flatnonzero(column[sends] != column[recvs])
        if unequal.size:
            send, recv = int(sends[unequal[0]]), int(recvs[unequal[0]])
            kind = [program.buffers[program.buffer[op]].dtype for op in (send, recv)]
            types = f" ({kind[0]} as {kind[1]})" if what == "type" else ""
            raise ProgramError(
                f"a message is received with another {what} than it was sent{types}: "
                f"{program.describe(send)} meets {program.describe(recv)}",
                where=program.name,
            )


def _number(dtype: str) -> int:
    return np.dtype(dtype).num


def _check_counterparts(program: Program, sends, send_channel, recvs, recv_channel) -> None:
    """Every channel has as many sends as receives."""
    if len(sends) == len(recvs) and np.array_equal(send_channel, recv_channel):
        return
    channels = np.concatenate([send_channel, recv_channel])
    names, inverse = np.unique(channels, axis=0, return_inverse=True)
    inverse = inverse.ravel()
    counts = [np.bincount(part, minlength=len(names)) for part in (inverse[: len(sends)], inverse[len(sends) :])]
    bad = int(np.flatnonzero(counts[0] != counts[1])[0])
    n_sends, n_recvs = int(counts[0][bad]), int(counts[1][bad])
    ops, channel = (sends, send_channel) if n_sends > n_recvs else (recvs, recv_channel)
    lonely = ops[(channel == names[bad]).all(axis=1)][min(n_sends, n_recvs)]
    source, destination, tag = names[bad].tolist()
    raise ProgramError(
        f"{n_sends} sends but {n_recvs} receives from rank {source} to rank {destination} with tag {tag}: "
        f"no counterpart for {program.describe(int(lonely))}",
        where=program.name,
    )


def check_collectives(program: Program) -> None:
    """Every rank of a collective takes part in it, once.

    Raises:
        ProgramError: a member without its operation, or an operation of a rank that is no member.
    """
    ops = np.flatnonzero(program.kind == Kind.COLLECTIVE)
    callers: list[list[int]] = [[] for _ in program.collectives]
    for call, rank in zip(program.call[ops].tolist(), program.rank[ops].tolist(), strict=True):
        callers[call].append(rank)
    for contract, ranks in zip(program.collectives, callers, strict=True):
        if sorted(ranks) != sorted(contract.ranks):
            odd = sorted(set(ranks) ^ set(contract.ranks)) or [r for r in ranks if ranks.count(r) > 1]
            role = (
                "takes part more than once"
                if odd[0] in contract.ranks and odd[0] in ranks
                else ("never takes part" if odd[0] in contract.ranks else "takes part but is no member")
            )
            raise ProgramError(
                f"{contract.collective} over {len(contract.ranks)} ranks: rank {odd[0]} {role}", where=program.name
            )


def check_overlaps(program: Program) -> None:
    """No copy or reduction reads elements that it also writes elsewhere: what it gives would depend on the executor.

    Raises:
        ProgramError: one whose source is shifted against its region by less than their count.
    """
    ops = np.flatnonzero(np.isin(program.kind, (Kind.COPY, Kind.REDUCE)) & (program.buffer == program.source_buffer))
    shift = np.abs(program.offset[ops] - program.source_offset[ops])
    bad = ops[(shift > 0) & (shift < program.count[ops])]
    if bad.size:
        raise ProgramError(
            f"source and region overlap: {program.describe(int(bad[0]))}",
            where=program.name,
            mend="go through another buffer",
        )


def check_deadlock(program: Program, send_mode: SendMode) -> None:
    """No operations wait for each other in a circle.

    Raises:
        ProgramError: the circle, operation by operation.
    """
    if send_mode not in ("eager", "rendezvous"):
        raise ProgramError(f"{send_mode!r} is not a send mode", mend="use 'eager' or 'rendezvous'")
    error = deadlock(program, send_mode)
    if error is not None:
        raise error
