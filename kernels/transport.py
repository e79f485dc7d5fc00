"""How messages, collectives and clocks are done on each backend: the only file that knows gloo from NCCL.

What holds on each, and on neither is a choice:

* gloo (CPU): a message leaves when its receive has been posted on the other side, of whatever size it is; a send is
  complete when the kernel has taken its last byte, which may be a socket buffer before it has left the machine. There
  is no switch between eager and rendezvous. As receives are posted ahead of their turn where nothing stands in the way
  (:mod:`llmsim_kernels.inbox`), a send usually finds its receive and behaves as an eager one, but nothing promises it.
* NCCL (CUDA): a send occupies its CUDA stream until the receiver has reached its receive, and small ones may be
  buffered.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from llmsim_kernels import system

from llmsim.program.program import Contract, Kind, Program, segments

Handle = Any


class Transport(Protocol):
    """Messages between ranks: :meth:`send` and :meth:`recv` start one at once, :meth:`wait` blocks until it is done."""

    device: torch.device

    def open(self, program: Program, rank: int) -> None:
        """Make the process groups that ``program`` needs; every rank calls this with the same program."""

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Handle: ...

    def recv(self, tensor: torch.Tensor, peer: int, tag: int) -> Handle: ...

    def wait(self, handle: Handle) -> None:
        """Block until the message is complete; raises RuntimeError when it fails or takes too long."""

    def group(self, ranks: tuple[int, ...], stream: int) -> dist.ProcessGroup:
        """The process group of a collective."""

    def enter_thread(self, stream: int) -> None:
        """Called first in the thread that runs a stream."""

    def finish(self) -> None:
        """Block until all that the calling thread has started on the device is done."""


class GlooTransport:
    """TCP between processes, tensors in main memory."""

    device = torch.device("cpu")

    def __init__(self, timeout_s: float):
        self._world = dist.distributed_c10d._get_default_group()
        self._timeout = timedelta(seconds=timeout_s)
        self._groups: dict[tuple[tuple[int, ...], int], dist.ProcessGroup] = {}

    def open(self, program: Program, rank: int) -> None:
        # A group for each stream that uses it: gloo pairs the collectives of a group by their order on each rank, and
        # between streams there is none.
        for ranks, stream in collective_groups(program):
            if (ranks, stream) not in self._groups:
                self._groups[ranks, stream] = dist.new_group(list(ranks), timeout=self._timeout)
        # gloo's event loop only tries the lock of a connection, and polls again at once while another thread has it. If
        # the loop of one process takes the core from a thread of another that is just sending, the loop of that one
        # spins until the scheduler's next turn, milliseconds later: with more ranks than cores five times the time.
        system.never_preempt("gloo_tcp_loop")

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Handle:
        return self._world.send([tensor], peer, tag)

    def recv(self, tensor: torch.Tensor, peer: int, tag: int) -> Handle:
        return self._world.recv([tensor], peer, tag)

    def wait(self, handle: Handle) -> None:
        handle.wait(self._timeout)

    def group(self, ranks: tuple[int, ...], stream: int) -> dist.ProcessGroup:
        return self._groups[ranks, stream]

    def enter_thread(self, stream: int) -> None:
        pass

    def finish(self) -> None:
        pass


class NcclTransport:
    """GPUs: each stream of the program is a CUDA stream, driven by its thread.

    A communicator per channel (sender, receiver, tag): NCCL runs what shares a communicator in order, so two
    directions or two tags on one would wait for each other.
    """

    def __init__(self, timeout_s: float):
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._timeout_s = timeout_s
        self._groups: dict[tuple[tuple[int, ...], int], dist.ProcessGroup] = {}
        self._channels: dict[tuple[int, int, int], dist.ProcessGroup] = {}
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._rank = dist.get_rank()

    def open(self, program: Program, rank: int) -> None:
        for ranks, stream in collective_groups(program):
            if (ranks, stream) not in self._groups:
                self._groups[ranks, stream] = dist.new_group(list(ranks))
        for channel in channels(program):
            if channel not in self._channels:
                self._channels[channel] = dist.new_group(list(channel[:2]))

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Handle:
        return self._start(dist.isend, tensor, (self._rank, peer, tag), peer)

    def recv(self, tensor: torch.Tensor, peer: int, tag: int) -> Handle:
        return self._start(dist.irecv, tensor, (peer, self._rank, tag), peer)

    def _start(self, call: Callable, tensor: torch.Tensor, channel: tuple[int, int, int], peer: int) -> Handle:
        # On a stream of its own, so that it depends on nothing but what its operation waited for.
        with torch.cuda.stream(torch.cuda.Stream()):
            call(tensor, peer, group=self._channels[channel]).wait()  # makes the stream wait, not this thread
            done = torch.cuda.Event()
            done.record()
        return done

    def wait(self, handle: Handle) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not handle.query():
            if time.monotonic() > deadline:
                raise RuntimeError("Timed out waiting for a message")
            time.sleep(5e-6)

    def group(self, ranks: tuple[int, ...], stream: int) -> dist.ProcessGroup:
        return self._groups[ranks, stream]

    def enter_thread(self, stream: int) -> None:
        torch.cuda.set_device(self.device)
        torch.cuda.set_stream(self._streams.setdefault(stream, torch.cuda.Stream()))

    def finish(self) -> None:
        torch.cuda.current_stream().synchronize()


def make_transport(timeout_s: float) -> Transport:
    """The transport of the process group that is initialised."""
    backend = dist.get_backend()
    if backend == "nccl":
        return NcclTransport(timeout_s)
    return GlooTransport(timeout_s)


def collective_groups(program: Program) -> list[tuple[tuple[int, ...], int]]:
    """The (ranks, stream) of all COLLECTIVE operations, in an order that all ranks agree on."""
    calls = [int(i) for i in (program.kind == Kind.COLLECTIVE).nonzero()[0]]
    found = {(program.collectives[program.call[i]].ranks, int(program.stream[i])) for i in calls}
    return sorted(found)


def channels(program: Program) -> list[tuple[int, int, int]]:
    """All (sender, receiver, tag), in an order that all ranks agree on."""
    sends = program.kind == Kind.SEND
    columns = (program.rank[sends], program.peer[sends], program.tag[sends])
    return sorted(set(zip(*(column.tolist() for column in columns), strict=True)))


def run_collective(
    contract: Contract, buffer: torch.Tensor, output: torch.Tensor | None, rank: int, group: dist.ProcessGroup
) -> None:
    """The backend's own collective over ``buffer`` (the contract's elements), in place or into the start of ``output``.

    Reduce-scatter and all-gather need parts of equal length on most backends: uneven ones are padded.
    """
    ranks, size = contract.ranks, len(contract.ranks)
    me = ranks.index(rank)
    offsets, counts = (part.tolist() for part in segments(contract.count, size))
    parts = [buffer[o : o + c] for o, c in zip(offsets, counts, strict=True)]
    widest = max(counts)
    if contract.count == 0:
        dist.barrier(group)
    elif contract.collective == "all-reduce":
        dist.all_reduce(buffer, group=group)
    elif contract.collective == "broadcast":
        assert contract.root is not None
        dist.broadcast(buffer, contract.root, group=group)
    elif contract.collective == "reduce":
        assert contract.root is not None
        total = buffer if rank == contract.root else buffer.clone()  # backends may use the others' as scratch
        dist.reduce(total, contract.root, group=group)
    elif contract.collective == "reduce-scatter":
        source = buffer if widest * size == contract.count else _padded(parts, widest)
        result = buffer.new_empty(widest)
        dist.reduce_scatter_tensor(result, source, group=group)
        parts[me].copy_(result[: counts[me]])
    elif contract.collective == "all-gather":
        mine = buffer.new_zeros(widest)
        mine[: counts[me]] = parts[me]
        if widest * size == contract.count:
            dist.all_gather_into_tensor(buffer, mine, group=group)
        else:
            gathered = buffer.new_empty(widest * size)
            dist.all_gather_into_tensor(gathered, mine, group=group)
            for part, got in zip(parts, gathered.view(size, widest), strict=True):
                part.copy_(got[: len(part)])
    elif contract.collective == "all-to-all":
        assert output is not None
        slots = output[: size * counts[me]]  # as long as this rank's own segment, one from each sender
        dist.all_to_all_single(slots, buffer, [counts[me]] * size, counts, group=group)
    elif contract.collective == "point-to-point":
        if me == 0:
            dist.send(buffer, ranks[1], group=group)
        else:
            dist.recv(buffer, ranks[0], group=group)
    else:
        raise AssertionError(contract.collective)


def _padded(parts: list[torch.Tensor], widest: int) -> torch.Tensor:
    padded = parts[0].new_zeros(len(parts) * widest)
    for row, part in zip(padded.view(len(parts), widest), parts, strict=True):
        row[: len(part)] = part
    return padded
