"""Run a program operation by operation on any kind of values: arrays in the emulator, sums of symbols in the proof."""

from collections import deque
from typing import Any, Protocol

import numpy as np

from llmsim.program.graph import SendMode, deadlock_error, in_order_of_first
from llmsim.program.program import RECEIVES, Contract, Kernel, Kind, Program, Region
from llmsim.program.promises import promises


class Memory(Protocol):
    """The buffers of all ranks. What ``read`` returns must not change with the memory."""

    def read(self, rank: int, region: Region) -> Any: ...
    def write(self, rank: int, region: Region, value: Any) -> None: ...
    def add(self, rank: int, region: Region, value: Any) -> None: ...
    def total(self, values: list[Any]) -> Any: ...
    def compute(self, rank: int, kernel: Kernel, writes: Region | None, reads: Region | None) -> None: ...


def interpret(program: Program, memory: Memory, send_mode: SendMode = "eager", seed: int | None = None) -> None:
    """Run ``program`` on ``memory``: in any order that it allows, one drawn at random where there is a ``seed``.

    A SEND reads its region when it completes; in rendezvous mode it waits until its receiver has reached the RECV.

    Raises:
        ProgramError: a deadlock; the message says what waits for what.
    """
    kind, match = program.kind.tolist(), program.match.tolist()
    start, later = in_order_of_first(len(program), program.dependency[:, 0], program.dependency[:, 1])
    starts, laters = start.tolist(), later.tolist()
    last_of_queue = np.zeros(len(program) + 1, dtype=bool)
    last_of_queue[program.queue_start[1:] - 1] = True
    is_last = last_of_queue.tolist()

    # What each operation still waits for: explicit dependencies, its queue, and for messages the other end.
    waits = np.bincount(program.dependency[:, 1], minlength=len(program)) + 1
    waits[program.queue_start[:-1][np.diff(program.queue_start) > 0]] -= 1
    receives = np.isin(program.kind, RECEIVES)
    waits[receives] += 1
    rendezvous = send_mode == "rendezvous"
    if rendezvous:
        waits[program.kind == Kind.SEND] += 1
    waiting = waits.tolist()
    members = [len(contract.ranks) for contract in program.collectives]
    runner = _Runner(program, memory)
    ready: deque[int] = deque()

    def release(op: int) -> None:
        waiting[op] -= 1
        look(op)

    def look(op: int) -> None:
        """Take up an operation whose last wait, or last but the message itself, is over."""
        if waiting[op] == 0:
            ready.append(op)
        elif waiting[op] == 1 and rendezvous and kind[op] in RECEIVES:
            release(match[op])

    ready.extend(np.flatnonzero(waits == 0).tolist())
    if rendezvous:
        for recv in np.flatnonzero(receives & (waits == 1)).tolist():
            release(match[recv])
    random = None if seed is None else np.random.default_rng(seed)
    complete = 0
    while ready:
        if random is not None:
            ready.rotate(-int(random.integers(len(ready))))
        op = ready.popleft()
        if kind[op] == Kind.COLLECTIVE:
            call = int(program.call[op])
            members[call] -= 1
            if members[call]:
                continue
            runner.collective(program.collectives[call])
            done = np.flatnonzero((program.kind == Kind.COLLECTIVE) & (program.call == call)).tolist()
        else:
            runner.run(op)
            done = [op]
        complete += len(done)
        for op in done:
            for after in laters[starts[op] : starts[op + 1]]:
                release(after)
            if kind[op] == Kind.SEND:
                release(match[op])
            if not is_last[op]:
                release(op + 1)
    if complete < len(program):
        raise deadlock_error(program, send_mode)


class _Runner:
    """What each operation does to the memory, and the messages under way."""

    def __init__(self, program: Program, memory: Memory):
        self._memory, self._kernels = memory, program.kernels
        self._messages: dict[int, Any] = {}
        self._rank, self._kind, self._match = program.rank.tolist(), program.kind.tolist(), program.match.tolist()
        self._call = program.call.tolist()
        columns = program.buffer, program.offset, program.count, program.source_buffer, program.source_offset
        self._region = list(zip(*(column.tolist() for column in columns), strict=True))

    def run(self, op: int) -> None:
        memory, rank, kind = self._memory, self._rank[op], self._kind[op]
        buffer, offset, count, source_buffer, source_offset = self._region[op]
        region, source = Region(buffer, offset, count), Region(source_buffer, source_offset, count)
        match kind:
            case Kind.SEND:
                self._messages[op] = memory.read(rank, region)
            case Kind.RECV:
                memory.write(rank, region, self._messages.pop(self._match[op]))
            case Kind.RECV_REDUCE:
                memory.add(rank, region, self._messages.pop(self._match[op]))
            case Kind.COPY:
                memory.write(rank, region, memory.read(rank, source))
            case Kind.REDUCE:
                memory.add(rank, region, memory.read(rank, source))
            case Kind.COMPUTE:
                reads = source if source_buffer >= 0 else None
                memory.compute(rank, self._kernels[self._call[op]], region if buffer >= 0 else None, reads)

    def collective(self, contract: Contract) -> None:
        memory = self._memory
        sums = [(p, memory.total([memory.read(*source) for source in p.sources])) for p in promises(contract)]
        for promise, value in sums:
            for rank in promise.ranks:
                memory.write(rank, promise.region, value)
