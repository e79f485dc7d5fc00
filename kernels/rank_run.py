"""Run one rank's share of a program for real.

Each stream of the rank is a thread that waits for the receives, sends and computations of its queue; the waiting is
done outside Python's global lock. Whoever completes an operation starts the sends that waited for it at once, so that
on a ring's critical path (receive, add, send on) no thread has to wake another.
"""

import _thread
import gc
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

import torch
from llmsim_kernels import system
from llmsim_kernels.plan import SLICE_BYTES, rank_plan
from llmsim_kernels.transport import Transport, run_collective

from llmsim.errors import ExecutionError
from llmsim.program.program import RECEIVES, Kind, Program

AHEAD = 2  # receives of one queue that are handed to the transport ahead of their turn
_SWITCH_INTERVAL_S = 50e-6  # a woken thread gets Python's lock after at most this
_SPIN_S = 60e-6  # the end of a paced computation is awaited without sleeping

Compute = Mapping[str, "float | Callable[..., Any]"]


class OperationError(ExecutionError):
    """An operation that failed, with the rank it failed on and the peer it waited for in ``details``."""

    details: dict[str, Any]


class RankRun:
    """All that can be prepared before the clock runs; :meth:`run` can be called again and again.

    Args:
        tensors: one flat tensor a buffer of the program.
        compute: as in :func:`llmsim_kernels.execute.execute`.
    """

    def __init__(
        self,
        program: Program,
        rank: int,
        tensors: list[torch.Tensor],
        transport: Transport,
        *,
        compute: "str | Compute" = "paced",
        timeout_s: float,
    ):
        self.program, self.rank, self.transport = program, rank, transport
        self._tensors = tensors
        self.plan = plan = rank_plan(program, rank)
        self._timeout_s = timeout_s
        self._failures: SimpleQueue[BaseException | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._nothing = torch.zeros(1, dtype=torch.uint8, device=transport.device)  # a message of 0 bytes
        columns = (program.peer, program.tag, program.offset, program.count, program.buffer, program.call)
        peer, tag, offset, count, buffer, call = (column[plan.ops].tolist() for column in columns)
        source_buffer, source_offset = (
            program.source_buffer[plan.ops].tolist(),
            program.source_offset[plan.ops].tolist(),
        )
        self._peer, self._tag = peer, tag

        def view(which: int, start: int, length: int) -> torch.Tensor:
            return tensors[which][start : start + length] if which >= 0 else self._nothing[:0]

        size = range(len(plan.ops))
        self._region = [view(buffer[i], offset[i], count[i]) for i in size]
        self._source = [view(source_buffer[i], source_offset[i], count[i]) for i in size]
        self._pieces = [self._message(i) if plan.kind[i] in (Kind.SEND, *RECEIVES) else [] for i in size]
        self._receives = [[i for i in queue if plan.kind[i] in RECEIVES] for queue in plan.queues]
        self._turn = {i: turn for queue in self._receives for turn, i in enumerate(queue)}
        self._bounce = self._bounce_buffers()
        self._actions: list[Callable[[int], object]] = [self._action(i, call[i], compute) for i in size]

    def _message(self, i: int) -> list[torch.Tensor]:
        """The tensors in which a message travels: slices if it is added at its receiver, and never an empty one."""
        region = self._region[i]
        if len(region) == 0:
            return [self._nothing]
        if not self.plan.sliced[i]:
            return [region]
        return list(region.split(max(1, SLICE_BYTES // region.element_size())))

    def _bounce_buffers(self) -> dict[int, list[torch.Tensor]]:
        """Where the messages that will be added arrive: AHEAD + 1 places a queue, used in turn."""
        bounce: dict[int, list[torch.Tensor]] = {}
        for receives in self._receives:
            added = [i for i in receives if self.plan.sliced[i]]
            longest = max((len(self._region[i]) * self._region[i].element_size() for i in added), default=0)
            places = [torch.empty(max(longest, 1), dtype=torch.uint8, device=self.transport.device)] if added else []
            places += [torch.empty_like(places[0]) for _ in range(AHEAD)] if added else []
            for i in added:
                place, region = places[self._turn[i] % (AHEAD + 1)], self._region[i]
                size = len(region) * region.element_size()
                whole = place[:size].view(region.dtype)
                bounce[i] = [whole] if size == 0 else list(whole.split(max(1, SLICE_BYTES // region.element_size())))
                if size == 0:
                    bounce[i] = [place[:1]]
        return bounce

    # one operation of each kind ----------------------------------------------------------------------------------

    def _action(self, i: int, call: int, compute: "str | Compute") -> Callable[[int], object]:
        kind = self.plan.kind[i]
        if kind == Kind.SEND:
            return self._finish_send
        if kind == Kind.RECV:
            return self._receive
        if kind == Kind.RECV_REDUCE:
            return self._receive_and_add
        if kind == Kind.COLLECTIVE:
            return self._collective(i, call)
        if kind == Kind.COMPUTE:
            return self._computation(i, call, compute)
        region, source = self._region[i], self._source[i]
        if kind == Kind.COPY:
            return lambda _: region.copy_(source)
        return lambda _: region.add_(source)

    def _finish_send(self, i: int) -> None:
        for handle in self._started[i]:
            self.transport.wait(handle)
        self._started[i] = None

    def _receive(self, i: int) -> None:
        self._post(i)
        self.transport.wait(self._started[i][0])
        self._started[i] = None

    def _receive_and_add(self, i: int) -> None:
        self._post(i)
        wait = self.transport.wait
        for handle, piece, into in zip(self._started[i], self._bounce[i], self._pieces[i], strict=True):
            wait(handle)
            into.add_(piece)
        self._started[i] = None

    def _collective(self, i: int, call: int) -> Callable[[int], object]:
        contract = self.program.collectives[call]
        stream = self.plan.streams[self.plan.queue_of[i]]
        group = self.transport.group(contract.ranks, stream)
        output = None if contract.output is None else self._tensors[contract.output][contract.offset :]
        return lambda _: run_collective(contract, self._region[i], output, self.rank, group)

    def _computation(self, i: int, call: int, compute: "str | Compute") -> Callable[[int], object]:
        kernel = self.program.kernels[call]
        chosen = compute.get(kernel.name, kernel.duration_s) if not isinstance(compute, str) else kernel.duration_s
        if callable(chosen):
            region, source = (t if len(t) else None for t in (self._region[i], self._source[i]))
            return lambda _: chosen(self.rank, region, source)
        assert chosen is not None, kernel
        duration_ns = int(chosen * 1e9)
        busy = compute == "busy"
        return lambda i: _pace(self._start_ns[i] + duration_ns, busy)

    # posting -----------------------------------------------------------------------------------------------------

    def _launch(self, ready: list[int], now_ns: int) -> None:
        """Start operations whose last dependency is complete: sends at once, the rest by waking their stream."""
        plan, start = self.plan, self._start_ns
        send, started = self.transport.send, self._started
        for i in ready:
            start[i] = now_ns
            if plan.kind[i] == Kind.SEND:
                peer, tag = self._peer[i], self._tag[i]
                try:
                    started[i] = [send(piece, peer, tag) for piece in self._pieces[i]]
                except RuntimeError as error:
                    raise self._error(i, error) from error
        for i in ready:
            self._gates[plan.queue_of[i]].release()

    def _post(self, wanted: int | None, queue: int = -1) -> None:
        """Hand receives of a queue to the transport, in order: up to ``wanted``, and as far ahead as is allowed."""
        queue = self.plan.queue_of[wanted] if wanted is not None else queue
        receives, hazards = self._receives[queue], self._hazards
        recv, started, bounce = self.transport.recv, self._started, self._bounce
        with self._post_locks[queue]:
            turn = self._posted[queue]
            while turn < len(receives):
                i = receives[turn]
                if (wanted is None or turn > self._turn[wanted]) and (
                    hazards[i] > 0 or turn - self._done[queue] > AHEAD
                ):
                    break
                peer, tag = self._peer[i], self._tag[i]
                try:
                    started[i] = [recv(piece, peer, tag) for piece in bounce.get(i) or self._pieces[i]]
                except RuntimeError as error:
                    raise self._error(i, error) from error
                turn += 1
            self._posted[queue] = turn

    def _complete(self, i: int) -> None:
        now = self._end_ns[i] = time.monotonic_ns()
        waits, hazards = self._waits, self._hazards
        ready: list[int] = []
        postable: list[int] = []
        with self._lock:
            for j in self.plan.followers[i]:
                waits[j] -= 1
                if waits[j] == 0:
                    ready.append(j)
            for j in self.plan.unblocks[i]:
                hazards[j] -= 1
                if hazards[j] == 0:
                    postable.append(self.plan.queue_of[j])
        if ready:
            self._launch(ready, now)
        for queue in postable:
            self._post(None, queue)

    # the run -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Reset all counters, start the threads and post the first receives. The clock does not run yet."""
        plan = self.plan
        size = len(plan.ops)
        self._start_ns, self._end_ns = [0] * size, [0] * size
        self._started: list[Any] = [None] * size
        self._waits, self._hazards = list(plan.waits), list(plan.hazards)
        self._gates = [_thread.allocate_lock() for _ in plan.queues]
        self._post_locks = [threading.Lock() for _ in plan.queues]
        self._posted, self._done = [0] * len(plan.queues), [0] * len(plan.queues)
        for gate in self._gates:
            gate.acquire()
        for queue in range(len(plan.queues)):
            self._post(None, queue)
            threading.Thread(target=self._stream, args=(queue,), daemon=True).start()

    def run(self) -> "tuple[list[int], list[int]]":
        """Run what was prepared; start and end of each operation in nanoseconds of this machine's monotonic clock.

        Raises:
            OperationError: a message failed or took longer than the time limit.
        """
        interval, collecting = sys.getswitchinterval(), gc.isenabled()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        gc.disable()
        try:
            self._launch([i for i, count in enumerate(self.plan.waits) if count == 0], time.monotonic_ns())
            for _ in self.plan.queues:
                error = self._failures.get()
                if error is not None:
                    raise error
        finally:
            sys.setswitchinterval(interval)
            if collecting:
                gc.enable()
        return self._start_ns, self._end_ns

    def _stream(self, queue: int) -> None:
        plan, gate, actions, done = self.plan, self._gates[queue], self._actions, self._done
        try:
            system.precise_sleep()
            self.transport.enter_thread(plan.streams[queue])
            for i in plan.queues[queue]:
                gate.acquire()
                try:
                    actions[i](i)
                except RuntimeError as error:
                    raise self._error(i, error) from error
                if plan.kind[i] in RECEIVES:
                    done[queue] += 1
                self.transport.finish()
                self._complete(i)
                if plan.kind[i] in RECEIVES:
                    self._post(None, queue)
            self._failures.put(None)
        except BaseException as error:
            self._failures.put(error)

    def _error(self, i: int, error: Exception) -> OperationError:
        what = self.program.describe(self.plan.ops[i]).removeprefix(f"rank {self.rank} ")
        peer = self._peer[i] if self._peer[i] >= 0 else None
        text = str(error).split("\n")[0]
        if "imed out" in text or "imeout" in text:
            whom = f"rank {peer}" if peer is not None else "the other ranks"
            line = f"rank {self.rank} waited {self._timeout_s:g} s for {whom} in {what}"
        elif peer is not None:
            line = f"rank {self.rank} lost its connection to rank {peer} in {what}"
        else:
            line = f"rank {self.rank} failed in {what}: {text}"
        made = OperationError(line)
        made.details = {"rank": self.rank, "peer": peer, "operation": what}
        return made


def _pace(until_ns: int, busy: bool) -> None:
    """Be busy, or sleep as a processor does that waits for its accelerator, until ``until_ns``."""
    while (left_s := (until_ns - time.monotonic_ns()) * 1e-9) > 0:
        if not busy and left_s > _SPIN_S:
            time.sleep(left_s - _SPIN_S)
