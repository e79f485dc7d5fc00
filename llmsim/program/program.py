"""The program: for each rank and stream an ordered list of operations, as plain columns.

A distributed algorithm is written once, as a :class:`Program`; the emulator, the simulators and the real executor all
take the same object. It holds no loops, conditions or expressions: an algorithm that needs them generates more
operations in Python, with :class:`llmsim.program.builder.Builder`.

Meaning, the same for every executor:

* Operations of one *queue* (one stream of one rank) run in order, one at a time.
* An operation starts when its predecessor in the queue and all operations it depends on (``dependency``) are complete.
* The k-th SEND from rank a to rank b with tag t meets the k-th RECV on b from a with tag t. All sends of one such
  channel stand in one queue, and so do all receives, so "k-th" is never a matter of timing.
* A SEND is complete when its bytes have left (its region may be written again). In *eager* mode it starts whether or
  not the receiver is ready; in *rendezvous* mode it starts only when the receiver has reached its RECV.
* A RECV is complete when the message has arrived and its bytes stand in the region; RECV_REDUCE adds them to it.
* A COPY or REDUCE has a source that lies apart from its region, or is exactly it.
* A COLLECTIVE starts when every member has reached it and is complete on all of them at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmsim.timeline import Timeline
from llmsim.units import format_size


class Kind(IntEnum):
    """What an operation does."""

    COMPUTE = 0  # run kernel `call`; writes `region`, reads `source`
    SEND = 1  # read `region`, to rank `peer` with `tag`
    RECV = 2  # overwrite `region` with the message from `peer` with `tag`
    RECV_REDUCE = 3  # add the message to `region`
    COPY = 4  # overwrite `region` with `source`
    REDUCE = 5  # add `source` to `region`
    COLLECTIVE = 6  # take part in collective `call`, priced and executed as a unit


RECEIVES = (Kind.RECV, Kind.RECV_REDUCE)


@dataclass(frozen=True, slots=True)
class Region:
    """Elements ``[offset, offset + count)`` of a buffer; both may be arrays where the builder takes many."""

    buffer: int
    offset: Any
    count: Any


@dataclass(frozen=True)
class Buffer:
    """A named array of ``count`` elements that every rank has."""

    name: str
    count: int
    dtype: str = "float32"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return np.dtype(self.dtype).itemsize

    @property
    def size_bytes(self) -> int:
        return self.count * self.itemsize


@dataclass(frozen=True)
class Kernel:
    """A computation as the cost model sees it: ``flop`` floating-point operations and ``memory_bytes`` of traffic.

    ``duration_s`` states the time directly, for algorithms studied apart from any device.
    """

    name: str
    flop: float = 0.0
    memory_bytes: float = 0.0
    duration_s: float | None = None


@dataclass(frozen=True)
class Contract:
    """What a collective promises, over ``count`` elements at ``offset`` of ``buffer`` on ``ranks``.

    ``collective`` is one of the names in :data:`COLLECTIVES`. *Segment* i below is the i-th of ``len(ranks)`` parts as
    :func:`segments` cuts them. ``output`` is the receiving buffer of an all-to-all, used from ``offset`` on: rank j's
    slots there follow each other and have the size of segment j.
    """

    collective: str
    ranks: tuple[int, ...]
    buffer: int
    offset: int
    count: int
    root: int | None = None
    output: int | None = None


COLLECTIVES = {
    "all-reduce": "every rank holds the sum over ranks of every element",
    "reduce-scatter": "the i-th rank holds the sum over ranks of segment i",
    "all-gather": "every rank holds segment i of the i-th rank, for every i",
    "broadcast": "every rank holds the root's elements",
    "reduce": "the root, which need not be one of the ranks, holds the sum over ranks of every element",
    "all-to-all": "segment j of the i-th rank's input stands in slot i of the j-th rank's output",
    "point-to-point": "the second rank holds the first rank's elements",
}


def segments(count: int, parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and counts of ``parts`` consecutive segments of ``count`` elements, as even as possible.

    The first ``count % parts`` segments have one element more; with fewer elements than parts some are empty.
    """
    index = np.arange(parts, dtype=np.int64)
    base, extra = divmod(count, parts)
    return index * base + np.minimum(index, extra), base + (index < extra)


@dataclass(frozen=True, slots=True)
class Op:
    """One operation, for people."""

    index: int
    rank: int
    stream: str
    kind: Kind
    peer: int
    tag: int
    region: Region | None
    source: Region | None
    call: int
    phase: str
    after: tuple[int, ...]  # operations of other queues that it waits for


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """Operations of all ranks, sorted by queue; queue ``stream * world_size + rank`` owns
    ``queue_start[queue]:queue_start[queue + 1]``.

    Columns have one entry an operation; -1 means "none" in ``peer``, ``tag``, ``call``, ``match`` and the buffers.
    """

    name: str
    world_size: int
    streams: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    collectives: tuple[Contract, ...]
    contracts: tuple[Contract, ...]
    phases: tuple[str, ...]
    queue_start: NDArray[np.int64]  # (streams * world_size + 1,)
    kind: NDArray[np.uint8]
    peer: NDArray[np.int32]
    tag: NDArray[np.int32]
    call: NDArray[np.int32]  # into `kernels` or `collectives`
    phase: NDArray[np.int16]
    buffer: NDArray[np.int16]
    offset: NDArray[np.int64]
    count: NDArray[np.int64]
    source_buffer: NDArray[np.int16]
    source_offset: NDArray[np.int64]
    match: NDArray[np.int32]  # the SEND's RECV and the RECV's SEND
    dependency: NDArray[np.int32]  # (m, 2): operation `dependency[i, 1]` waits for `dependency[i, 0]`
    relaxed: frozenset[int] = field(default=frozenset())  # buffers whose races are meant (asynchronous algorithms)

    def __len__(self) -> int:
        return len(self.kind)

    def _by_queue(self, values: NDArray) -> NDArray[np.int32]:
        """The value of its queue for each operation."""
        return np.repeat(values.astype(np.int32), np.diff(self.queue_start))

    @cached_property
    def queue(self) -> NDArray[np.int32]:
        """The queue of each operation."""
        return self._by_queue(np.arange(len(self.queue_start) - 1))

    @cached_property
    def rank(self) -> NDArray[np.int32]:
        """The rank of each operation."""
        return self._by_queue(np.arange(len(self.queue_start) - 1) % self.world_size)

    @cached_property
    def stream(self) -> NDArray[np.int32]:
        """The stream of each operation, an index into ``streams``."""
        return self._by_queue(np.arange(len(self.queue_start) - 1) // self.world_size)

    @cached_property
    def size_bytes(self) -> NDArray[np.int64]:
        """Bytes of each operation's region (0 where it has none)."""
        itemsize = np.array([b.itemsize for b in self.buffers] + [0], dtype=np.int64)
        if len(self.buffers) == 1 and self.buffer.size and self.buffer.min() == 0:
            return self.count * itemsize[0]
        return self.count * itemsize[self.buffer]

    @property
    def messages(self) -> int:
        """Number of messages sent."""
        return int(np.count_nonzero(self.kind == Kind.SEND))

    @property
    def message_bytes(self) -> int:
        """Bytes sent over all messages."""
        return int(self.size_bytes[self.kind == Kind.SEND].sum())

    def bytes_sent_by_rank(self) -> NDArray[np.int64]:
        """Bytes that each rank sends, shape (world_size,)."""
        sends = self.kind == Kind.SEND
        return np.bincount(self.rank[sends], self.size_bytes[sends], self.world_size).astype(np.int64)

    def _region(self, buffer: int, offset: int, count: int) -> Region | None:
        return Region(int(buffer), int(offset), int(count)) if buffer >= 0 else None

    @cached_property
    def _dependency_by_op(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        order = np.argsort(self.dependency[:, 1], kind="stable")
        start = np.searchsorted(self.dependency[order, 1], np.arange(len(self) + 1))
        return start, self.dependency[order, 0]

    def predecessors(self, index: int) -> NDArray[np.int32]:
        """The operations that operation ``index`` waits for by explicit dependency."""
        start, before = self._dependency_by_op
        return before[start[index] : start[index + 1]]

    def op(self, index: int) -> Op:
        """One operation in readable form."""
        return Op(
            index=index,
            rank=int(self.rank[index]),
            stream=self.streams[self.stream[index]],
            kind=Kind(int(self.kind[index])),
            peer=int(self.peer[index]),
            tag=int(self.tag[index]),
            region=self._region(self.buffer[index], self.offset[index], self.count[index]),
            source=self._region(self.source_buffer[index], self.source_offset[index], self.count[index]),
            call=int(self.call[index]),
            phase=self.phases[self.phase[index]] if self.phase[index] >= 0 else "",
            after=tuple(int(i) for i in self.predecessors(index)),
        )

    def queue_ops(self, rank: int, stream: int | str) -> range:
        """Indices of the operations of one queue, in order."""
        stream = self.streams.index(stream) if isinstance(stream, str) else stream
        queue = stream * self.world_size + rank
        return range(int(self.queue_start[queue]), int(self.queue_start[queue + 1]))

    def describe(self, index: int) -> str:
        """One operation as one short line: ``rank 3 send #5: SEND 64 KiB grad[0:16384] → rank 4``."""
        op = self.op(index)
        position = index - self.queue_ops(op.rank, op.stream).start
        return f"rank {op.rank} {op.stream} #{position}: {self.action(op)}"

    def region_text(self, region: Region) -> str:
        """``grad[0:16384]``."""
        return f"{self.buffers[region.buffer].name}[{region.offset}:{region.offset + region.count}]"

    def action(self, op: Op) -> str:
        """What an operation does, without where it stands."""
        at = self.region_text(op.region) if op.region else ""
        source = self.region_text(op.source) if op.source else ""
        size = format_size(op.region.count * self.buffers[op.region.buffer].itemsize) if op.region else ""
        tag = f" tag {op.tag}" if op.tag > 0 else ""
        match op.kind:
            case Kind.SEND:
                return f"SEND {size} {at} → rank {op.peer}{tag}"
            case Kind.RECV | Kind.RECV_REDUCE:
                return f"{op.kind.name} {size} {at} ← rank {op.peer}{tag}"
            case Kind.COPY | Kind.REDUCE:
                return f"{op.kind.name} {size} {source} → {at}"
            case Kind.COMPUTE:
                return f"COMPUTE {self.kernels[op.call].name} {source}{' → ' if at else ''}{at}".rstrip()
            case _:
                contract = self.collectives[op.call]
                return f"COLLECTIVE {contract.collective} {size} {at} over {len(contract.ranks)} ranks"

    @cached_property
    def _span_names(self) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """The distinct names of spans, and the name of each operation."""
        calls = max(len(self.kernels), len(self.collectives)) + 1
        bound = (len(self.phases) + 1) * calls * len(Kind)
        # Piece by piece: millions of 64-bit codes at once would be larger than the result.
        pieces = [slice(at, at + (1 << 16)) for at in range(0, len(self), 1 << 16)]

        def code(piece: slice) -> NDArray[np.int64]:
            phase, call = self.phase[piece].astype(np.int64) + 1, self.call[piece].astype(np.int64) + 1
            return (phase * calls + call) * len(Kind) + self.kind[piece]

        occurs = np.zeros(bound, dtype=bool)
        for piece in pieces:
            occurs[code(piece)] = True
        number = (np.cumsum(occurs) - 1).astype(np.int32)
        name = np.empty(len(self), dtype=np.int32)
        for piece in pieces:
            name[piece] = number[code(piece)]
        names = []
        for value in np.flatnonzero(occurs).tolist():
            rest, kind = divmod(value, len(Kind))
            phase, call = (index - 1 for index in divmod(rest, calls))
            action = Kind(kind).name.lower()
            if call >= 0:
                action = self.collectives[call].collective if kind == Kind.COLLECTIVE else self.kernels[call].name
            names.append(f"{self.phases[phase]}: {action}" if phase >= 0 else action)
        return tuple(names), name

    def timeline(self, start_s: NDArray[np.float64], end_s: NDArray[np.float64], **meta: object) -> Timeline:
        """The spans of a run of this program, simulated or real; one entry an operation in both arrays.

        A span is named after its phase (if any) and its kernel, collective or kind.
        """
        names, name = self._span_names
        return Timeline(
            rank=self.rank,
            stream=self.stream,
            name=name,
            start_s=start_s,
            end_s=end_s,
            streams=self.streams,
            names=names,
            meta={"program": self.name, **meta},
        )

    def view(self, rank: int) -> "RankView":
        """The operations of one rank, printable: ``print(program.view(3))``."""
        return RankView(self, rank)

    def __str__(self) -> str:
        size = format_size(self.message_bytes)
        counts = f"{len(self):,} operations, {self.messages:,} messages of {size} in all"
        return f"{self.name}: {self.world_size} ranks, {counts}"

    __repr__ = __str__


class RankView(Sequence[Op]):
    """The operations of one rank, stream by stream."""

    def __init__(self, program: Program, rank: int):
        self._program, self._rank = program, rank
        self._indices = [i for s in range(len(program.streams)) for i in program.queue_ops(rank, s)]

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, item):
        if isinstance(item, slice):
            return [self._program.op(i) for i in self._indices[item]]
        return self._program.op(self._indices[item])

    def __iter__(self) -> Iterator[Op]:
        return (self._program.op(i) for i in self._indices)

    def __str__(self) -> str:
        program = self._program
        lines = [f"rank {self._rank} of {program.world_size}: {program.name}"]
        for stream in program.streams:
            ops = program.queue_ops(self._rank, stream)
            if ops:
                lines.append(f"  stream {stream}")
            for position, index in enumerate(ops):
                op = program.op(index)
                after = ", ".join(program.describe(i).split(":")[0] for i in op.after)
                phase = f"  [{op.phase}]" if op.phase else ""
                lines.append(f"    #{position:<3} {program.action(op)}{phase}{f'  after {after}' if after else ''}")
        return "\n".join(lines)
