"""Execute a program for real: the third executor, beside the emulator and the simulators.

:func:`execute` runs it on processes of this machine; :func:`execute_rank` is one rank's part, for processes that
something else has started, such as ``torchrun``.
"""

import atexit
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.plan import chained_sends, check_executable
from numpy.typing import NDArray

from llmsim.errors import ExecutionError, InputError, ProgramError
from llmsim.program.checks import check_deadlock
from llmsim.program.program import Kind, Program
from llmsim.timeline import Timeline

_LEAD_S = 3e-3  # a run starts this long, and a millisecond more per rank, after rank 0 has said when


@dataclass(frozen=True, eq=False)
class Execution:
    """What a real run gave.

    Attributes:
        timelines: one per repeat, seconds since the common start; ``meta["late_s"]`` says how much after it the last
            rank began, which is much only where the machine was busy with something else.
        outputs: by buffer, the elements of all ranks after the last repeat, shape (world_size, count).
        times_s: makespan of each repeat, shape (repeats,).
    """

    timelines: tuple[Timeline, ...]
    outputs: Mapping[str, NDArray]
    times_s: NDArray[np.float64]

    @property
    def time_s(self) -> float:
        """The median makespan."""
        return float(np.median(self.times_s))


@dataclass(frozen=True, eq=False)
class RankResult:
    """One rank's part of an :class:`Execution`; times in ns of rank 0's clock."""

    ops: NDArray[np.int64]  # (n,) into the program
    begin_ns: NDArray[np.int64]  # (repeats,) the common start
    late_ns: NDArray[np.int64]  # (repeats,) how much later this rank began: the machine was busy
    start_ns: NDArray[np.int64]  # (repeats, n)
    end_ns: NDArray[np.int64]  # (repeats, n)
    outputs: Mapping[str, NDArray]  # (count,)


def execute(
    program: Program,
    inputs: "Mapping[str, NDArray] | None" = None,
    *,
    pool: WorkerPool | None = None,
    backend: str = "gloo",
    device: str = "cpu",
    compute: "str | Mapping[str, Any]" = "paced",
    repeats: int = 1,
    warmup: int = 0,
    timeout_s: float = 30.0,
    limit_s: float = 3600.0,
    outputs: "Sequence[str] | None" = None,
) -> Execution:
    """Run ``program`` on ``world_size`` processes over torch.distributed.

    All ranks start at one instant, agreed on beforehand; receives that nothing stands in the way of are posted before
    it. A repeat's time is the end of its last operation on any rank. Buffers are filled anew for every repeat.

    Args:
        inputs: buffer name → initial elements, shape (world_size, count); what is not named is zero.
        pool: processes to use, of any netlab; by default new ones on this machine, for this call.
        backend, device: of the pool that is made where none is given: ``"gloo"`` and ``"cpu"``, or ``"nccl"`` and
            ``"cuda"``.
        compute: what COMPUTE operations do. ``"paced"``: sleep for the kernel's ``duration_s``, as a processor that
            waits for its accelerator; ``"busy"``: the same time at work on a core; a mapping: kernel name → seconds,
            or an importable function of (rank, writes, reads), which gets the tensors of the operation's two regions,
            None where it has none, and changes ``writes`` in place. Kernels left out of a mapping are paced.
        repeats, warmup: number of recorded runs, and of runs before them.
        timeout_s: the longest one rank waits for another in one operation.
        limit_s: the longest the whole may take; then all ranks are ended.
        outputs: names of the buffers to bring back; all by default.

    Raises:
        InputError: inputs of a wrong name, shape or dtype; a kernel without duration.
        ProgramError: what no backend could run; see :func:`llmsim_kernels.plan.check_executable`.
        ExecutionError: a rank died, failed, or waited longer than ``timeout_s``; it names rank, peer and operation.
    """
    _check(program, inputs, compute, repeats, warmup, outputs)
    settings = {
        "compute": compute, "repeats": repeats, "warmup": warmup, "timeout_s": timeout_s, "outputs": outputs
    }  # fmt: skip
    if pool is None:
        with WorkerPool(program.world_size, backend=backend, device=device, timeout_s=timeout_s) as own:
            return execute(program, inputs, pool=own, limit_s=limit_s, **settings)  # type: ignore[arg-type]
    if pool.world_size != program.world_size:
        raise InputError(
            f"the pool has {pool.world_size} ranks", where=str(program), mend="use a pool of the program's world_size"
        )
    rows = [({name: array[rank] for name, array in (inputs or {}).items()},) for rank in range(program.world_size)]
    try:
        ranks = pool.run(_execute_own, program, settings, per_rank=rows, limit_s=limit_s, name=program.name)
    except ExecutionError as error:
        if " waited " not in error.what:
            raise
        try:
            check_deadlock(program, "rendezvous")
        except ProgramError as deadlock:
            hint = f"a send may have to wait for its receiver, and then the program deadlocks: {deadlock.what}"
            raise ExecutionError(error.what, where=error.where, mend=hint) from error
        raise
    return _assemble(program, ranks, backend=pool.backend, device=pool.device)


def _execute_own(program: Program, settings: dict[str, Any], inputs: dict[str, NDArray]) -> RankResult:
    return _run(program, inputs, **settings)


def execute_rank(
    program: Program,
    inputs: "Mapping[str, NDArray] | None" = None,
    *,
    compute: "str | Mapping[str, Any]" = "paced",
    repeats: int = 1,
    warmup: int = 0,
    timeout_s: float = 30.0,
    outputs: "Sequence[str] | None" = None,
) -> Execution | None:
    """This process's part of ``program``; every rank of the process group calls it, rank 0 gets the result.

    Started by ``torchrun``, a process joins the group that ``RANK`` and ``WORLD_SIZE`` describe (NCCL where there are
    GPUs, else gloo); where a group is initialised, that is used. On several machines clocks are compared first.
    Arguments and errors are those of :func:`execute`; of ``inputs``, also (world_size, count), a rank uses its row.
    """
    import torch
    import torch.distributed as dist

    _check(program, inputs, compute, repeats, warmup, outputs)
    if not dist.is_initialized():
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            raise InputError(
                "RANK and WORLD_SIZE are not set", mend="start this with torchrun, or use execute() on one machine"
            )
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        if backend == "nccl":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        atexit.register(_leave_group)  # its threads must not outlive the interpreter
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size != program.world_size:
        raise InputError(
            f"{world_size} processes were started", where=str(program), mend="start as many as the program has ranks"
        )
    row = {name: array[rank] for name, array in (inputs or {}).items()}
    result = _run(
        program, row, compute=compute, repeats=repeats, warmup=warmup, timeout_s=timeout_s, outputs=outputs
    )  # fmt: skip
    gathered: list[Any] | None = [None] * world_size if rank == 0 else None
    dist.gather_object(result, gathered)
    if gathered is None:
        return None
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    return _assemble(program, gathered, backend=dist.get_backend(), device=device)


def _leave_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _run(
    program: Program,
    inputs: "Mapping[str, NDArray]",
    *,
    compute: "str | Mapping[str, Any]",
    repeats: int,
    warmup: int,
    timeout_s: float,
    outputs: "Sequence[str] | None",
) -> RankResult:
    import torch
    import torch.distributed as dist
    from llmsim_kernels import clock, system
    from llmsim_kernels.rank_run import RankRun
    from llmsim_kernels.transport import make_transport

    rank = dist.get_rank()
    transport = make_transport(timeout_s)
    tensors = [
        torch.zeros(b.count, dtype=torch.from_numpy(np.empty(0, b.dtype)).dtype, device=transport.device)
        for b in program.buffers
    ]
    transport.open(program, rank)
    run = RankRun(program, rank, tensors, transport, compute=compute, timeout_s=timeout_s)
    system.precise_sleep()
    offset_ns = clock.offset_to_rank_0_ns()
    begin, late, start, end = [], [], [], []
    for repeat in range(warmup + repeats):
        for buffer, tensor in zip(program.buffers, tensors, strict=True):
            if buffer.name in inputs:
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(inputs[buffer.name])))
            else:
                tensor.zero_()
        run.prepare()
        transport.finish()
        begin_ns = clock.agree_on_start_ns(_LEAD_S + 1e-3 * program.world_size) - offset_ns
        clock.sleep_until_ns(begin_ns)
        late_ns = time.monotonic_ns() - begin_ns
        started, ended = run.run()
        if repeat >= warmup:
            begin.append(begin_ns + offset_ns)
            late.append(late_ns)
            start.append(started)
            end.append(ended)
    run.close()
    wanted = [b.name for b in program.buffers] if outputs is None else outputs
    arrays = {b.name: t.cpu().numpy() for b, t in zip(program.buffers, tensors, strict=True) if b.name in wanted}
    return RankResult(
        ops=np.array(run.plan.ops, dtype=np.int64),
        begin_ns=np.array(begin, dtype=np.int64),
        late_ns=np.array(late, dtype=np.int64),
        start_ns=np.array(start, dtype=np.int64).reshape(repeats, -1) + offset_ns,
        end_ns=np.array(end, dtype=np.int64).reshape(repeats, -1) + offset_ns,
        outputs=arrays,
    )


def _assemble(program: Program, ranks: Sequence[RankResult], **meta: Any) -> Execution:
    timelines = []
    chained = np.flatnonzero(chained_sends(program))
    for repeat in range(len(ranks[0].begin_ns)):
        start_s, end_s = np.zeros(len(program)), np.zeros(len(program))
        for rank in ranks:
            start_s[rank.ops] = (rank.start_ns[repeat] - rank.begin_ns[repeat]) * 1e-9
            end_s[rank.ops] = (rank.end_ns[repeat] - rank.begin_ns[repeat]) * 1e-9
        _tidy_sends(program, chained, start_s, end_s)
        late_s = max(int(rank.late_ns[repeat]) for rank in ranks) * 1e-9
        timelines.append(program.timeline(start_s, end_s, executor="execute", repeat=repeat, late_s=late_s, **meta))
    outputs = {name: np.stack([rank.outputs[name] for rank in ranks]) for name in ranks[0].outputs}
    return Execution(tuple(timelines), outputs, np.array([t.makespan_s for t in timelines]))


def _tidy_sends(program: Program, chained: NDArray, start_s: NDArray, end_s: NDArray) -> None:
    """What is known about sends beyond what their thread saw, which may have been woken late.

    A message that has arrived has left, and one that follows another of its channel starts when that has left.
    """
    sends = np.flatnonzero(program.kind == Kind.SEND)
    arrived = end_s[program.match[sends]]
    end_s[sends] = np.maximum(start_s[sends], np.minimum(end_s[sends], arrived))
    start_s[chained] = np.maximum(start_s[chained], end_s[chained - 1])
    end_s[chained] = np.maximum(start_s[chained], end_s[chained])  # clocks of two machines differ by a little


def _check(program: Program, inputs, compute, repeats: int, warmup: int, outputs) -> None:
    check_executable(program)
    names = {buffer.name: buffer for buffer in program.buffers}
    for name, array in (inputs or {}).items():
        if name not in names:
            raise InputError(
                f"there is no buffer {name!r}", where=f"{program.name}: inputs", mend=f"use one of {', '.join(names)}"
            )
        expected = (program.world_size, names[name].count)
        if np.shape(array) != expected or np.asarray(array).dtype != np.dtype(names[name].dtype):
            raise InputError(
                f"{name!r} has shape {np.shape(array)} and dtype {np.asarray(array).dtype}",
                where=f"{program.name}: inputs",
                mend=f"give shape {expected} of {names[name].dtype}",
            )
    for name in outputs or ():
        if name not in names:
            raise InputError(f"there is no buffer {name!r}", where=f"{program.name}: outputs")
    for index in np.unique(program.call[program.kind == Kind.COMPUTE]).tolist():
        kernel = program.kernels[index]
        if kernel.duration_s is None and (isinstance(compute, str) or kernel.name not in compute):
            raise InputError(
                f"kernel {kernel.name!r} states no duration_s",
                where=program.name,
                mend=f"give compute={{{kernel.name!r}: seconds or a function}}",
            )
    if repeats < 1 or warmup < 0:
        raise InputError(f"repeats is {repeats} and warmup {warmup}", mend="run at least one repeat")
    if isinstance(compute, str) and compute not in ("paced", "busy"):
        raise InputError(f"compute is {compute!r}", mend="use 'paced', 'busy' or a mapping of kernel names")
