"""Build programs: one call adds one operation or, with arrays for ranks and regions, millions.

Every ``rank``, ``peer``, ``tag``, ``offset`` and ``count`` may be a scalar or an array; they are broadcast together and
the call returns the ids of the new operations in that shape. Operations of one queue run in the order in which they
were added (row-major within one call).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmsim.errors import ProgramError
from llmsim.program.program import RECEIVES, Buffer, Contract, Kernel, Kind, Program, Region

Ids = NDArray[np.int64]  # operation ids of a builder, -1 for "none"

_COLUMNS: dict[str, type] = {
    "kind": np.uint8,
    "peer": np.int32,
    "tag": np.int32,
    "call": np.int32,
    "phase": np.int16,
    "buffer": np.int16,
    "offset": np.int64,
    "count": np.int64,
    "source_buffer": np.int16,
    "source_offset": np.int64,
}
_NOTHING = Region(-1, 0, 0)


class Builder:
    """Collects operations, dependencies and contracts, and makes a :class:`Program` of them."""

    def __init__(self, name: str, world_size: int):
        if world_size < 1:
            raise ProgramError(f"world_size is {world_size}", where=name, mend="a program needs at least one rank")
        self.name, self.world_size = name, world_size
        self._streams: list[str] = []
        self._buffers: list[Buffer] = []
        self._kernels: list[Kernel] = []
        self._collectives: list[Contract] = []
        self._contracts: list[Contract] = []
        self._phases: list[str] = []
        self._phase = -1
        self._relaxed: set[int] = set()
        self._size = 0
        self._queues: list[NDArray] = []
        self._blocks: dict[str, list[NDArray]] = {column: [] for column in _COLUMNS}
        self._edges: list[tuple[NDArray, NDArray]] = []
        self._matches: list[tuple[NDArray, NDArray]] = []

    @classmethod
    def from_program(cls, program: Program, keep: NDArray[np.bool_]) -> tuple["Builder", Ids]:
        """A builder that starts with some operations of ``program``, its buffers, streams, kernels and contracts.

        Dependencies and messages between kept operations are kept. Returns also the new id of each operation of
        ``program``, -1 for those left out.
        """
        builder = cls(program.name, program.world_size)
        builder._streams, builder._buffers = list(program.streams), list(program.buffers)
        builder._kernels, builder._contracts = list(program.kernels), list(program.contracts)
        builder._phases, builder._relaxed = list(program.phases), set(program.relaxed)
        ops = np.flatnonzero(keep)
        builder._size = len(ops)
        new = np.full(len(program), -1, dtype=np.int64)
        new[ops] = np.arange(len(ops))
        builder._queues.append(program.queue[ops])
        for column in _COLUMNS:
            builder._blocks[column].append(getattr(program, column)[ops])
        collective = program.kind[ops] == Kind.COLLECTIVE
        calls, call = np.unique(program.call[ops[collective]], return_inverse=True)
        builder._collectives = [program.collectives[i] for i in calls]
        builder._blocks["call"][0][collective] = call
        builder.after(new[program.dependency[:, 1]], new[program.dependency[:, 0]])
        sends = ops[(program.kind[ops] == Kind.SEND) & (program.match[ops] >= 0)]
        sends = sends[new[program.match[sends]] >= 0]
        builder.match(new[sends], new[program.match[sends]])
        return builder, new

    # what operations refer to ------------------------------------------------------------------------------------

    def buffer(self, name: str, count: int, dtype: str = "float32", *, relaxed: bool = False) -> int:
        """Add a buffer of ``count`` elements on every rank; ``relaxed`` declares that races on it are meant."""
        if count < 0:
            raise ProgramError(
                f"buffer {name!r} has {count} elements", where=self.name, mend="give a count of 0 or more"
            )
        self._buffers.append(Buffer(name, count, dtype))
        if relaxed:
            self._relaxed.add(len(self._buffers) - 1)
        return len(self._buffers) - 1

    def kernel(self, kernel: Kernel) -> int:
        """The index of ``kernel``, added if it is new."""
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        return self._kernels.index(kernel)

    def contract(self, contract: Contract) -> None:
        """State a result the program promises; :func:`llmsim.program.verify` proves it."""
        self._contracts.append(contract)

    def stream(self, name: str) -> int:
        """The index of stream ``name``, added if it is new."""
        if name not in self._streams:
            self._streams.append(name)
        return self._streams.index(name)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Operations added inside are labelled ``name``."""
        before = self._phase
        if name not in self._phases:
            self._phases.append(name)
        self._phase = self._phases.index(name)
        try:
            yield
        finally:
            self._phase = before

    # operations --------------------------------------------------------------------------------------------------

    def compute(
        self,
        rank: ArrayLike,
        kernel: Kernel,
        *,
        writes: Region = _NOTHING,
        reads: Region = _NOTHING,
        stream: str = "compute",
        after: "ArrayLike | Sequence[ArrayLike] | None" = None,
    ) -> Ids:
        """Run ``kernel``. Where both are given, ``reads`` must have the count of ``writes``."""
        region = writes if writes.buffer >= 0 else Region(-1, 0, reads.count)
        return self._add(Kind.COMPUTE, rank, stream, after, region=region, source=reads, call=self.kernel(kernel))

    def copy(self, rank: ArrayLike, region: Region, source: Region, *, stream: str = "compute", after=None) -> Ids:
        """Overwrite ``region`` with ``source``."""
        return self._add(Kind.COPY, rank, stream, after, region=region, source=source)

    def reduce(self, rank: ArrayLike, region: Region, source: Region, *, stream: str = "compute", after=None) -> Ids:
        """Add ``source`` to ``region``."""
        return self._add(Kind.REDUCE, rank, stream, after, region=region, source=source)

    def send(
        self, rank: ArrayLike, peer: ArrayLike, region: Region, *, tag: ArrayLike = 0, stream: str = "send", after=None
    ) -> Ids:
        """Send ``region`` to rank ``peer``."""
        return self._add(Kind.SEND, rank, stream, after, region=region, peer=peer, tag=tag)

    def recv(
        self,
        rank: ArrayLike,
        peer: ArrayLike,
        region: Region,
        *,
        reduce: ArrayLike = False,
        tag: ArrayLike = 0,
        stream: str = "recv",
        after=None,
    ) -> Ids:
        """Receive into ``region`` from rank ``peer``: overwrite it, or add to it where ``reduce``."""
        kind = np.where(reduce, Kind.RECV_REDUCE, Kind.RECV)
        return self._add(kind, rank, stream, after, region=region, peer=peer, tag=tag)

    def message(
        self,
        source: ArrayLike,
        destination: ArrayLike,
        region: Region,
        into: Region | None = None,
        *,
        reduce: ArrayLike = False,
        tag: ArrayLike = 0,
        streams: tuple[str, str] = ("send", "recv"),
        after=None,
        recv_after=None,
    ) -> tuple[Ids, Ids]:
        """A SEND and its RECV. ``into`` defaults to ``region``, ``recv_after`` to nothing. Returns both ids."""
        source, destination, tag = np.broadcast_arrays(source, destination, tag)
        into = region if into is None else into
        send = self.send(source, destination, region, tag=tag, stream=streams[0], after=after)
        recv = self.recv(destination, source, into, reduce=reduce, tag=tag, stream=streams[1], after=recv_after)
        self.match(send, recv)
        return send, recv

    def collective(self, contract: Contract, *, stream: str = "comm", after=None) -> Ids:
        """A collective as one operation on each of its ranks; ``after`` has one entry a rank."""
        self._collectives.append(contract)
        region = Region(contract.buffer, contract.offset, contract.count)
        source = _NOTHING if contract.output is None else Region(contract.output, contract.offset, contract.count)
        ranks = np.array(contract.ranks)
        call = len(self._collectives) - 1
        return self._add(Kind.COLLECTIVE, ranks, stream, after, region=region, source=source, call=call)

    def match(self, send: ArrayLike, recv: ArrayLike) -> None:
        """State which RECV meets which SEND. Optional: what is not stated is found by channel and order."""
        self._matches.append((np.ravel(send), np.ravel(recv)))

    def after(self, later: ArrayLike, earlier: ArrayLike) -> None:
        """Operations ``later`` wait for ``earlier`` (broadcast together; -1 in either adds nothing)."""
        later, earlier = np.broadcast_arrays(later, earlier)
        keep = (later >= 0) & (earlier >= 0)
        if keep.all():
            self._edges.append((earlier.ravel(), later.ravel()))
        elif keep.any():
            self._edges.append((earlier[keep], later[keep]))

    def _add(
        self, kind, rank, stream, after, *, region: Region, source: Region = _NOTHING, peer=-1, tag=-1, call=-1
    ) -> Ids:
        offset = np.asarray(region.offset)
        arrays = (kind, rank, peer, tag, offset, region.count, source.offset)
        kind, rank, peer, tag, offset, count, source_offset = np.broadcast_arrays(*arrays)
        self._check(kind, rank, peer, region, offset, count, source, source_offset)
        shape, size = rank.shape, rank.size
        ids = np.arange(self._size, self._size + size, dtype=np.int64).reshape(shape)
        self._size += size
        self._queues.append((rank + self.stream(stream) * self.world_size).ravel())
        values = {
            "kind": kind, "peer": peer, "tag": tag, "call": call, "phase": self._phase, "buffer": region.buffer,
            "offset": offset, "count": count, "source_buffer": source.buffer, "source_offset": source_offset,
        }  # fmt: skip
        for column, dtype in _COLUMNS.items():
            self._blocks[column].append(np.broadcast_to(np.asarray(values[column], dtype), shape))
        for earlier in after if isinstance(after, (list, tuple)) else [after]:
            if earlier is not None:
                self.after(ids, earlier)
        return ids

    def _check(self, kind, rank, peer, region: Region, offset, count, source: Region, source_offset) -> None:
        """Refuse what no executor could run; vectorised, so that it costs little on millions of operations."""
        if rank.size == 0:
            return
        where = f"{self.name}: {Kind(int(kind.flat[0])).name}"
        if rank.min() < 0 or rank.max() >= self.world_size:
            bad = int(rank.min() if rank.min() < 0 else rank.max())
            raise ProgramError(f"rank {bad} is outside the world of {self.world_size}", where=where)
        if kind.flat[0] in (Kind.SEND, *RECEIVES):
            if peer.min() < 0 or peer.max() >= self.world_size:
                bad = int(peer.min() if peer.min() < 0 else peer.max())
                raise ProgramError(f"peer {bad} is outside the world of {self.world_size}", where=where)
            if np.any(rank == peer):
                raise ProgramError(f"rank {int(rank[rank == peer][0])} is its own peer", where=where, mend="use copy")
        for buffer, start in ((region.buffer, offset), (source.buffer, source_offset)):
            if buffer >= len(self._buffers):
                raise ProgramError(f"there is no buffer {buffer}", where=where, mend="add it with Builder.buffer")
            if buffer >= 0 and (
                count.min() < 0 or start.min() < 0 or (start + count).max() > self._buffers[buffer].count
            ):
                name, most = self._buffers[buffer].name, self._buffers[buffer].count
                raise ProgramError(f"a region lies outside buffer {name!r} of {most} elements", where=where)

    # the result --------------------------------------------------------------------------------------------------

    def build(self) -> Program:
        """The program, its operations sorted by queue.

        Raises:
            ProgramError: a message without its counterpart, or a channel whose order depends on timing.
        """
        queues = len(self._streams) * self.world_size
        queue = _joined(self._queues, np.int32)
        edges = [_joined([pair[side] for pair in self._edges], np.int32) for side in (0, 1)]
        match = np.full(self._size, -1, dtype=np.int32)
        for send, recv in self._matches:
            match[send] = recv
            match[recv] = send
        position: NDArray[np.int32] | None = None
        if self._size and np.any(queue[1:] < queue[:-1]):
            order = stable_order(queue, queues)
            position = np.empty(self._size, dtype=np.int32)
            position[order] = np.arange(self._size, dtype=np.int32)
            edges = [position[side] for side in edges]
            match = match[order]
            match = np.where(match >= 0, position[match], np.int32(-1))
        columns = {name: _joined(blocks, _COLUMNS[name], position) for name, blocks in self._blocks.items()}
        start = np.zeros(queues + 1, dtype=np.int64)
        np.cumsum(np.bincount(queue, minlength=queues), out=start[1:])
        program = Program(
            name=self.name,
            world_size=self.world_size,
            streams=tuple(self._streams),
            buffers=tuple(self._buffers),
            kernels=tuple(self._kernels),
            collectives=tuple(self._collectives),
            contracts=tuple(self._contracts),
            phases=tuple(self._phases),
            queue_start=start,
            match=match,
            dependency=np.stack(edges, axis=1),
            relaxed=frozenset(self._relaxed),
            **columns,
        )
        _match_the_rest(program)
        return program


def _joined(blocks: list[NDArray], dtype: type, position: NDArray[np.int32] | None = None) -> NDArray:
    """All blocks as one flat array of ``dtype``, element i of them at ``position[i]``.

    Blocks are often one value for all operations; a column of nothing else is filled rather than collected.
    """
    size = sum(block.size for block in blocks)
    values = {block.flat[0].item() for block in blocks if block.size and not any(block.strides)}
    if len(values) == 1 and not any(any(block.strides) for block in blocks if block.size):
        value = values.pop()
        return np.full(size, value, dtype) if value else np.zeros(size, dtype)
    flat: NDArray = np.empty(size, dtype=dtype)
    at = 0
    for block in blocks:
        part = slice(at, at + block.size)
        if position is None:
            flat[part].reshape(block.shape)[...] = block
        else:
            flat[position[part].reshape(block.shape)] = block
        at += block.size
    return flat


def stable_order(key: NDArray, bound: int) -> NDArray:
    """``argsort(key, kind="stable")`` for keys in ``[0, bound)``; NumPy has a radix sort for each 16-bit digit."""
    order = np.argsort((key & 0xFFFF).astype(np.uint16), kind="stable")
    if bound > 1 << 16:
        high = (key >> 16)[order]
        order = order[stable_order(high, (bound - 1 >> 16) + 1)]
    return order


def _match_the_rest(program: Program) -> None:
    """Pair sends and receives that the builder was not told about: k-th with k-th of the same channel."""
    is_send = program.kind == Kind.SEND
    open_ends = np.flatnonzero((is_send | np.isin(program.kind, RECEIVES)) & (program.match < 0))
    channels: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    for i in open_ends.tolist():
        rank, peer = int(program.rank[i]), int(program.peer[i])
        ends = (rank, peer) if is_send[i] else (peer, rank)
        channels.setdefault((*ends, int(program.tag[i])), ([], []))[0 if is_send[i] else 1].append(i)
    for (source, destination, tag), (sends, recvs) in channels.items():
        channel = f"rank {source} → rank {destination} tag {tag}"
        for ops, name in ((sends, "sends"), (recvs, "receives")):
            if len(set(program.queue[ops].tolist())) > 1:
                raise ProgramError(
                    f"the {name} of {channel} stand in several streams, so their order depends on timing",
                    where=program.name,
                    mend="use one stream or a tag for each",
                )
        if len(sends) != len(recvs):
            lonely = program.describe((sends[len(recvs) :] or recvs[len(sends) :])[0])
            raise ProgramError(
                f"{len(sends)} sends but {len(recvs)} receives on {channel}: no counterpart for {lonely}",
                where=program.name,
            )
        program.match[sends] = recvs
        program.match[recvs] = sends
