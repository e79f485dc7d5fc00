"""Run one rank's share of a program for real.

Each stream of the rank is a thread that waits for the receives, sends and computations of its queue; the waiting is
done outside Python's global lock. Whoever completes an operation starts the sends that waited for it at once, so that
on a ring's critical path (receive, add, send on) no thread has to wake another.
"""

import gc
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

import torch
from llmsim_kernels import system
from llmsim_kernels.inbox import Inbox, slices
from llmsim_kernels.plan import rank_plan
from llmsim_kernels.transport import Transport, run_collective

from llmsim.errors import ExecutionError
from llmsim.program.program import RECEIVES, Kind, Program

_SWITCH_INTERVAL_S = 50e-6  # where kernels are Python at work, other threads get Python's lock after at most this
_SPIN_S = 60e-6  # the end of a paced computation is awaited without sleeping

Compute = Mapping[str, "float | Callable[..., Any]"]


class OperationError(ExecutionError):
    """An operation that failed; ``peer`` is the rank it waited for, -1 for several, None if it failed by itself."""

    peer: int | None = None


class RankRun:
    """All that can be prepared before the clock runs; then :meth:`prepare` and :meth:`run`, as often as wanted.

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
        self.program, self.rank = program, rank
        self.plan = plan = rank_plan(program, rank)
        self._transport, self._tensors, self._compute, self._timeout_s = transport, tensors, compute, timeout_s
        self._lock = threading.Lock()
        ops = plan.ops
        self._peer: list[int] = program.peer[ops].tolist()
        self._tag: list[int] = program.tag[ops].tolist()
        nothing = torch.empty(1, dtype=torch.uint8, device=transport.device)

        def views(buffer: list[int], offset: list[int], count: list[int]) -> list[torch.Tensor]:
            parts = zip(buffer, offset, count, strict=True)
            return [tensors[b][o : o + c] if b >= 0 else nothing[:0] for b, o, c in parts]

        count = program.count[ops].tolist()
        self._region = views(program.buffer[ops].tolist(), program.offset[ops].tolist(), count)
        self._source = views(program.source_buffer[ops].tolist(), program.source_offset[ops].tolist(), count)
        self._inboxes = [
            Inbox(
                [i for i in queue if plan.kind[i] in RECEIVES],
                self._peer, self._tag, self._region, plan.sliced, transport, self._error,
            )
            for queue in plan.queues
        ]  # fmt: skip
        self._message: dict[int, tuple[torch.Tensor, ...]] = {}
        for i, region in enumerate(self._region):
            if plan.kind[i] == Kind.SEND:
                whole = (region,) if len(region) else (nothing,)
                self._message[i] = slices(region) if plan.sliced[i] and len(region) else whole
        self._actions = [self._action(i) for i in range(len(ops))]

    # one operation of each kind ----------------------------------------------------------------------------------

    def _action(self, i: int) -> Callable[[int], object]:
        """What the stream's thread does in the turn of operation ``i``."""
        kind, region, source = self.plan.kind[i], self._region[i], self._source[i]
        if kind == Kind.SEND:
            return self._finish_send
        if kind in RECEIVES:
            return self._inboxes[self.plan.queue_of[i]].receive
        if kind == Kind.COLLECTIVE:
            return self._collective(i)
        if kind == Kind.COMPUTE:
            return self._computation(i)
        if kind == Kind.COPY:
            return lambda _: region.copy_(source)
        return lambda _: region.add_(source)

    def _finish_send(self, i: int) -> None:
        for handle in self._sent.pop(i):
            self._transport.wait(handle)

    def _collective(self, i: int) -> Callable[[int], object]:
        contract = self.program.collectives[self.program.call[self.plan.ops[i]]]
        group = self._transport.group(contract.ranks, self.plan.streams[self.plan.queue_of[i]])
        output = None if contract.output is None else self._tensors[contract.output][contract.offset :]
        return lambda _: run_collective(contract, self._region[i], output, self.rank, group)

    def _computation(self, i: int) -> Callable[[int], object]:
        kernel, compute = self.program.kernels[self.program.call[self.plan.ops[i]]], self._compute
        chosen = kernel.duration_s if isinstance(compute, str) else compute.get(kernel.name, kernel.duration_s)
        if callable(chosen):
            region, source = (t if len(t) else None for t in (self._region[i], self._source[i]))
            return lambda _: chosen(self.rank, region, source)
        assert chosen is not None, kernel
        duration_ns, busy = int(chosen * 1e9), compute == "busy"
        return lambda i: _pace(self._start_ns[i] + duration_ns, busy)

    # what follows when one is complete ---------------------------------------------------------------------------

    def _launch(self, ready: list[int], now_ns: int) -> None:
        """Start operations that wait for nothing any more: sends at once, the rest by waking their streams."""
        plan, send = self.plan, self._transport.send
        for i in ready:  # grows while it is walked
            self._start_ns[i] = now_ns
            if plan.kind[i] != Kind.SEND:
                continue
            peer, tag = self._peer[i], self._tag[i]
            try:
                self._sent[i] = [send(piece, peer, tag) for piece in self._message[i]]
            except RuntimeError as error:
                raise self._error(i, error) from error
            following = plan.chained[i]
            if following >= 0:
                with self._lock:
                    self._waits[following] -= 1
                    if self._waits[following] == 0:
                        ready.append(following)
        for i in ready:
            self._turns[plan.queue_of[i]].put(i)

    def _complete(self, i: int) -> None:
        waits, hazards = self._waits, self._hazards
        ready: list[int] = []
        postable: list[int] = []
        with self._lock:  # with the clock, so that what starts because of this does not start before its end
            now = self._end_ns[i] = time.monotonic_ns()
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
            self._inboxes[queue].post()

    # the run -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Reset all counters, start the threads and post the first receives. The clock does not run yet."""
        plan = self.plan
        self._start_ns, self._end_ns = [0] * len(plan.ops), [0] * len(plan.ops)
        self._sent: dict[int, list[Any]] = {}
        self._waits, self._hazards = list(plan.waits), list(plan.hazards)
        self._turns: list[SimpleQueue[int]] = [SimpleQueue() for _ in plan.queues]
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()
        self._threads = threads = list[threading.Thread]()
        for queue, inbox in enumerate(self._inboxes):
            inbox.reset(self._hazards)
            inbox.post()
            threads.append(threading.Thread(target=self._stream, args=(queue,), daemon=True))
            threads[-1].start()

    def run(self) -> "tuple[list[int], list[int]]":
        """Run what was prepared; start and end of each operation in nanoseconds of this machine's monotonic clock.

        A chained send starts, as far as is known here, when it was handed to the transport.

        Raises:
            OperationError: a message failed or took longer than the time limit.
        """
        interval, collecting = sys.getswitchinterval(), gc.isenabled()
        if self._compute != "paced":
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
        gc.disable()
        try:
            self._launch([i for i, count in enumerate(self.plan.waits) if count == 0], time.monotonic_ns())
            for _ in self.plan.queues:
                error = self._ended.get()
                if error is not None:
                    raise error
            for thread in self._threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
            if collecting:
                gc.enable()
        return self._start_ns, self._end_ns

    def close(self) -> None:
        """Let go of the process group. Its references go in circles, and a group that only the collector of the ending
        interpreter frees aborts the process."""
        self._actions, self._inboxes, self._threads = [], [], []

    def _stream(self, queue: int) -> None:
        plan, turns, inbox, actions = self.plan, self._turns[queue], self._inboxes[queue], self._actions
        try:
            system.precise_sleep()
            self._transport.enter_thread(plan.streams[queue])
            for i in plan.queues[queue]:
                turns.get()
                try:
                    actions[i](i)
                except RuntimeError as error:
                    raise self._error(i, error) from error
                self._transport.finish()
                self._complete(i)
                inbox.post()
            self._ended.put(None)
        except BaseException as error:
            self._ended.put(error)

    def _error(self, i: int, error: Exception) -> OperationError:
        what = self.program.describe(self.plan.ops[i]).removeprefix(f"rank {self.rank} ")
        peer = self._peer[i]
        text = str(error).split("\n")[0]
        if "imed out" in text or "imeout" in text:
            whom = f"rank {peer}" if peer >= 0 else "the other ranks"
            made = OperationError(f"rank {self.rank} waited {self._timeout_s:g} s for {whom} in {what}")
            made.peer = peer
        elif peer >= 0:
            made = OperationError(f"rank {self.rank} lost its connection to rank {peer} in {what}")
            made.peer = peer
        else:
            made = OperationError(f"rank {self.rank} failed in {what}: {text}")
        return made


def _pace(until_ns: int, busy: bool) -> None:
    """Be busy, or sleep as a processor does that waits for its accelerator, until ``until_ns``."""
    while (left_s := (until_ns - time.monotonic_ns()) * 1e-9) > 0:
        if not busy and left_s > _SPIN_S:
            time.sleep(left_s - _SPIN_S)
