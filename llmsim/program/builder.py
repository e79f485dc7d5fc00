"""Build programs: one call adds one operation or, with arrays for ranks and regions, millions.

Every ``rank``, ``peer``, ``tag``, ``offset`` and ``count`` may be a scalar or an array; they are broadcast together and
the call returns the ids of the new operations in that shape. Operations of one queue run in the order in which they
were added (row-major within one call). Arrays of ranks and regions are not copied: leave them as they are until the
program is built.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmsim.errors import ProgramError
from llmsim.program.program import RECEIVES, Buffer, Contract, Kernel, Kind, Program, Region
from llmsim.program.promises import check_contract

Ids = NDArray[np.int32]  # operation ids of a builder, -1 for "none"

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
        if not isinstance(world_size, (int, np.integer)) or world_size < 1:
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
        self._queues: list[tuple[NDArray, int]] = []  # of a block: queues, each for so many consecutive operations
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
        new = np.full(len(program), -1, dtype=np.int32)
        new[ops] = np.arange(len(ops), dtype=np.int32)
        builder._queues.append((program.queue[ops], 1))
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
        """Add a buffer of ``count`` elements on every rank; ``relaxed`` declares that races on it are meant.

        Raises:
            ProgramError: the name is taken, the count no whole number of 0 or more, or the type not one of numbers.
        """
        if any(buffer.name == name for buffer in self._buffers):
            raise ProgramError(f"there is a buffer {name!r} already", where=self.name, mend="give it another name")
        if not isinstance(count, (int, np.integer)) or count < 0:
            raise ProgramError(
                f"buffer {name!r} has {count} elements", where=self.name, mend="give a whole number of 0 or more"
            )
        try:
            number = np.dtype(dtype).kind in "biufc"
        except TypeError:
            number = False
        if not number:
            raise ProgramError(f"{dtype!r} is not an element type", where=self.name, mend="e.g. 'float32'")
        self._buffers.append(Buffer(name, int(count), dtype))
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
        check_contract(contract, self.world_size, self._buffers, self.name)
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
        if writes.buffer >= 0 and reads.buffer >= 0:
            self._check_counts(Kind.COMPUTE, writes, reads)
        region = writes if writes.buffer >= 0 else Region(-1, 0, reads.count)
        return self._add(Kind.COMPUTE, rank, stream, after, region=region, source=reads, call=self.kernel(kernel))

    def copy(self, rank: ArrayLike, region: Region, source: Region, *, stream: str = "compute", after=None) -> Ids:
        """Overwrite ``region`` with ``source``, of the same count and type: what converts is a kernel."""
        self._check_counts(Kind.COPY, region, source, same_type=True)
        return self._add(Kind.COPY, rank, stream, after, region=region, source=source)

    def reduce(self, rank: ArrayLike, region: Region, source: Region, *, stream: str = "compute", after=None) -> Ids:
        """Add ``source`` to ``region``, of the same count and type."""
        self._check_counts(Kind.REDUCE, region, source, same_type=True)
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
        check_contract(contract, self.world_size, self._buffers, self.name)
        if contract.root is not None and contract.root not in contract.ranks:
            raise ProgramError(f"its root {contract.root} takes no part in {contract.collective}", where=self.name)
        self._collectives.append(contract)
        region = Region(contract.buffer, contract.offset, contract.count)
        source = _NOTHING if contract.output is None else Region(contract.output, contract.offset, contract.count)
        ranks = np.array(contract.ranks)
        call = len(self._collectives) - 1
        return self._add(Kind.COLLECTIVE, ranks, stream, after, region=region, source=source, call=call)

    def match(self, send: ArrayLike, recv: ArrayLike) -> None:
        """State which RECV meets which SEND. Optional: what is not stated is found by channel and order."""
        send, recv = _kept(send), _kept(recv)
        self._check_ids(send, recv)
        self._matches.append((send, recv))

    def after(self, later: ArrayLike, earlier: ArrayLike) -> None:
        """Operations ``later`` wait for ``earlier`` (broadcast together; -1 in either adds nothing)."""
        later, earlier = np.broadcast_arrays(_kept(later), _kept(earlier))
        if later.size == 0:
            return
        self._check_ids(later, earlier)
        if later.min() < 0 or earlier.min() < 0:
            keep = (later >= 0) & (earlier >= 0)
            later, earlier = later[keep], earlier[keep]
        self._edges.append((earlier, later))

    def _add(
        self, kind, rank, stream, after, *, region: Region, source: Region = _NOTHING, peer=-1, tag=-1, call=-1
    ) -> Ids:
        values = {
            "kind": kind, "peer": peer, "tag": tag, "call": call, "phase": self._phase, "buffer": region.buffer,
            "offset": region.offset, "count": region.count, "source_buffer": source.buffer,
            "source_offset": source.offset,
        }  # fmt: skip
        arrays = [np.asarray(value) for value in values.values()]
        shape = np.broadcast_shapes(np.shape(rank), *[array.shape for array in arrays])
        # Cast and checked before they are broadcast: columns often vary along one axis only, and are small then.
        rank = self._whole("rank", np.asarray(rank), np.int32)
        columns: dict[str, NDArray] = {
            name: self._whole(name, array, _COLUMNS[name]) for name, array in zip(values, arrays, strict=True)
        }
        self._check(columns, rank, region.buffer, source.buffer)
        for name, column in columns.items():
            self._blocks[name].append(np.broadcast_to(column, shape))
        if self._size + prod(shape) > np.iinfo(np.int32).max:
            raise ProgramError("the program is too large for ids of 32 bits", where=self.name)
        ids = np.arange(self._size, self._size + prod(shape), dtype=np.int32).reshape(shape)
        ids.flags.writeable = False  # so that edges can refer to them without copies
        self._size += ids.size
        self._queues.append(_runs(rank + self.stream(stream) * self.world_size, shape))
        for earlier in after if isinstance(after, (list, tuple)) else [after]:
            if earlier is not None:
                self.after(ids, earlier)
        return ids

    def _check_ids(self, *ids: NDArray) -> None:
        """Refuse what is no operation: a dependency on it would be lost."""
        for each in ids:
            if each.size and (each.dtype.kind not in "iu" or each.max() >= self._size):
                what = each.max() if each.dtype.kind in "iu" else each.flat[0]
                mend = "give ids that this builder has returned"
                raise ProgramError(f"there is no operation {what}", where=self.name, mend=mend)

    def _whole(self, name: str, array: NDArray, dtype: type) -> NDArray:
        """The array as ``dtype``; a cast alone would cut fractions off, and make other numbers of large ones."""
        if array.size and array.dtype.kind not in "iub":
            raise ProgramError(f"{name} {array.flat[0]} is no whole number", where=self.name)
        array = _narrow(array)
        if array.size and array.dtype != dtype:
            limits = np.iinfo(dtype)
            if array.dtype.itemsize >= limits.bits // 8 and not limits.min <= array.min() <= array.max() <= limits.max:
                raise ProgramError(f"{name} {array.flat[np.abs(array).argmax()]} is too large", where=self.name)
        return array.astype(dtype, copy=False)

    def _check_counts(self, kind: Kind, region: Region, source: Region, *, same_type: bool = False) -> None:
        """Refuse a source of another size, or of another type: no executor would mean the same by it."""
        where = f"{self.name}: {kind.name}"
        if np.any(np.asarray(region.count) != np.asarray(source.count)):
            raise ProgramError("its source and its region have different counts", where=where)
        used = [self._buffers[r.buffer] for r in (region, source) if 0 <= r.buffer < len(self._buffers)]
        if same_type and len({np.dtype(buffer.dtype) for buffer in used}) > 1:
            types = " to ".join(f"{buffer.name!r} ({buffer.dtype})" for buffer in used[::-1])
            raise ProgramError(f"from {types}", where=where, mend="convert with a kernel")

    def _check(self, columns: dict[str, NDArray], rank: NDArray, *buffers: int) -> None:
        """Refuse what no executor could run; vectorised, so that it costs little on millions of operations."""
        kind, peer, count = columns["kind"], columns["peer"], columns["count"]
        starts = columns["offset"], columns["source_offset"]
        if any(array.size == 0 for array in (kind, peer, count, rank, *starts)):
            return
        where = f"{self.name}: {Kind(int(kind.flat[0])).name}"
        if rank.min() < 0 or rank.max() >= self.world_size:
            bad = int(rank.min() if rank.min() < 0 else rank.max())
            raise ProgramError(f"rank {bad} is outside the world of {self.world_size}", where=where)
        if kind.flat[0] in (Kind.SEND, *RECEIVES):
            if peer.min() < 0 or peer.max() >= self.world_size:
                bad = int(peer.min() if peer.min() < 0 else peer.max())
                raise ProgramError(f"peer {bad} is outside the world of {self.world_size}", where=where)
            rank, peer = np.broadcast_arrays(rank, peer)
            if np.any(rank == peer):
                raise ProgramError(f"rank {int(rank[rank == peer][0])} is its own peer", where=where, mend="use copy")
        if buffers[0] < 0 and kind.flat[0] not in (Kind.COMPUTE, Kind.COLLECTIVE):
            raise ProgramError("there is no buffer in its region", where=where, mend="add one with Builder.buffer")
        for buffer, start in zip(buffers, starts, strict=True):
            if buffer >= len(self._buffers):
                raise ProgramError(f"there is no buffer {buffer}", where=where, mend="add it with Builder.buffer")
            if buffer < 0:
                continue
            name, most = self._buffers[buffer].name, self._buffers[buffer].count
            # The ends of millions of regions are only summed where the largest offset and count do not settle it.
            inside = start.max() + count.max() <= most or (start + count).max() <= most
            if count.min() < 0 or start.min() < 0 or not inside:
                raise ProgramError(f"a region lies outside buffer {name!r} of {most} elements", where=where)

    # the result --------------------------------------------------------------------------------------------------

    def _sorted_by_queue(self) -> bool:
        """Whether operations were added queue by queue."""
        last = -1
        for queue, _ in self._queues:
            if queue.size and (queue[0] < last or np.any(queue[1:] < queue[:-1])):
                return False
            last = queue[-1] if queue.size else last
        return True

    def build(self) -> Program:
        """The program, its operations sorted by queue.

        Raises:
            ProgramError: a message without its counterpart, or a channel whose order depends on timing.
        """
        queues = len(self._streams) * self.world_size
        edges = np.empty((sum(later.size for _, later in self._edges), 2), dtype=np.int32)
        _fill(edges[:, 0], [earlier for earlier, _ in self._edges])
        _fill(edges[:, 1], [later for _, later in self._edges])
        self._edges = [(edges[:, 0], edges[:, 1])]
        match = np.full(self._size, -1, dtype=np.int32)
        for send, recv in self._matches:
            match[send] = recv
            match[recv] = send
        start = np.zeros(queues + 1, dtype=np.int64)
        for queue, length in self._queues:
            start[1:] += length * np.bincount(queue, minlength=queues)
        np.cumsum(start, out=start)
        position: NDArray[np.int32] | None = None
        if not self._sorted_by_queue():
            order = stable_order(np.concatenate([np.repeat(queue, length) for queue, length in self._queues]), queues)
            position = np.empty(self._size, dtype=np.int32)
            position[order] = np.arange(self._size, dtype=np.int32)
            edges = position[edges]
            match = match[order]
            match = np.where(match >= 0, position[match], np.int32(-1))
        columns = {}
        for name, dtype in _COLUMNS.items():
            columns[name] = _joined(self._blocks[name], dtype, position)
            if position is None:  # the same in one piece, so that the pieces need not be kept beside it
                self._blocks[name] = [columns[name]]
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
            dependency=edges,
            relaxed=frozenset(self._relaxed),
            **columns,
        )
        _match_the_rest(program)
        return program


def _narrow(array: NDArray) -> NDArray:
    """The array with one entry only along axes on which it is broadcast."""
    return array[tuple(slice(1) if stride == 0 else slice(None) for stride in array.strides)]


def _runs(queue: NDArray, shape: tuple[int, ...]) -> tuple[NDArray, int]:
    """The queue of each operation of a block as (queues, length): each stands for that many consecutive operations.

    Ranks seldom vary along the last axes, which are steps; so this is far smaller than a queue for each operation.
    """
    queue = queue.reshape((1,) * (len(shape) - queue.ndim) + queue.shape)
    axes = len(shape)
    while axes > 0 and queue.shape[axes - 1] == 1:
        axes -= 1
    return np.broadcast_to(queue.reshape(queue.shape[:axes]), shape[:axes]).ravel(), prod(shape[axes:])


def _joined(blocks: list[NDArray], dtype: type, position: NDArray[np.int32] | None) -> NDArray:
    """All blocks as one flat column, element i of them at ``position[i]``.

    A column that is the same constant throughout stays one element broadcast, which takes no memory.
    """
    size = sum(block.size for block in blocks)
    blocks = [block for block in blocks if block.size]
    if blocks and all(not any(block.strides) and block.flat[0] == blocks[0].flat[0] for block in blocks):
        return np.broadcast_to(np.array(blocks[0].flat[0], dtype=dtype), size)
    flat: NDArray = np.empty(size, dtype=dtype)
    _fill(flat, blocks, position)
    return flat


def _fill(flat: NDArray, blocks: list[NDArray], position: NDArray[np.int32] | None = None) -> None:
    """Write blocks one after the other, element i of them to ``position[i]``."""
    at = 0
    for block in blocks:
        part = slice(at, at + block.size)
        if position is None:
            flat[part].reshape(block.shape)[...] = block
        else:
            flat[position[part].reshape(block.shape)] = block
        at += block.size


def _kept(array: ArrayLike) -> NDArray:
    """Ids that stay as they are, whatever the caller does with the array later."""
    array = np.asarray(array)
    return array.copy() if array.flags.writeable else array


def stable_order(key: NDArray, bound: int) -> NDArray:
    """``argsort(key, kind="stable")`` for keys in ``[0, bound)``; NumPy has a radix sort for each 16-bit digit."""
    order = np.argsort((key & 0xFFFF).astype(np.uint16), kind="stable")
    if bound > 1 << 16:
        high = (key >> 16)[order]
        order = order[stable_order(high, (bound - 1 >> 16) + 1)]
    return order


def _match_the_rest(program: Program) -> None:
    """Pair sends and receives that the builder was not told about: k-th with k-th of the same channel."""
    messages = (program.kind >= Kind.SEND) & (program.kind <= Kind.RECV_REDUCE)
    alone = np.flatnonzero(messages & (program.match < 0))
    if not alone.size:
        return
    is_send = program.kind[alone] == Kind.SEND
    rank, peer = program.queue[alone] % np.int32(program.world_size), program.peer[alone]
    channel = np.stack([np.where(is_send, rank, peer), np.where(is_send, peer, rank), program.tag[alone]])
    sides = []
    for side, name in ((is_send, "sends"), (~is_send, "receives")):
        ops, ends = alone[side], channel[:, side]
        order = np.lexsort(ends[::-1])
        ops, ends = ops[order], ends[:, order]
        queue = program.queue[ops]
        torn = np.flatnonzero((ends[:, 1:] == ends[:, :-1]).all(axis=0) & (queue[1:] != queue[:-1]))
        if torn.size:
            raise ProgramError(
                f"the {name} of {_channel(ends[:, torn[0]])} stand in several streams: their order depends on timing",
                where=program.name,
                mend="use one stream or a tag for each",
            )
        sides.append((ops, ends))
    (sends, send_ends), (recvs, recv_ends) = sides
    if send_ends.shape != recv_ends.shape or np.any(send_ends != recv_ends):
        _refuse_lonely(program, sends, send_ends, recvs, recv_ends)
    program.match[sends] = recvs
    program.match[recvs] = sends


def _channel(ends: NDArray) -> str:
    source, destination, tag = ends.tolist()
    return f"rank {source} → rank {destination} tag {tag}"


def _refuse_lonely(program: Program, sends: NDArray, send_ends: NDArray, recvs: NDArray, recv_ends: NDArray) -> None:
    """Name the first message without its counterpart; the columns of both ends are in the order of channels."""
    common = min(len(sends), len(recvs))
    first = int(np.argmax(np.append((send_ends[:, :common] != recv_ends[:, :common]).any(axis=0), True)))
    of_send = first < len(sends) and (
        first >= len(recvs) or send_ends[:, first].tolist() < recv_ends[:, first].tolist()
    )
    ends = (send_ends if of_send else recv_ends)[:, first]
    counts = [int((side == ends[:, None]).all(axis=0).sum()) for side in (send_ends, recv_ends)]
    lonely = program.describe(int((sends if of_send else recvs)[first]))
    raise ProgramError(
        f"{counts[0]} sends but {counts[1]} receives on {_channel(ends)}: no counterpart for {lonely}",
        where=program.name,
    )
