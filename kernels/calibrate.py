"""Measure this machine into a profile: what messages, copies, additions and matrix products cost on it.

Messages are calibrated by :mod:`llmsim_kernels.probes`: point-to-point programs, run by the same executor as any other
program. Collectives are never run here; they are what predictions are tested on.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from llmsim_kernels import local_rates, probes
from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.machine import machine_card
from llmsim_kernels.netlab import netlab, netlab_unavailable

from llmsim.cost.fit import fit_latency_bandwidth, fit_mean
from llmsim.cost.profile import Profile, Rate, Transport
from llmsim.errors import InputError
from llmsim.program import Program

Progress = Callable[[str], None]  # told what comes next; `STEPS` says how often

_TRIP_S = 0.15  # a probe lasts about this long, so that repeats even out what the rest of the machine does


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    message_bytes: tuple[int, ...]
    small_bytes: tuple[int, ...]  # of messages whose price is their number
    large_bytes: int  # of messages whose price is their bytes
    operand_bytes: tuple[int, ...]
    matrix: tuple[int, ...]
    repeats: int


FULL = Effort(
    message_bytes=(4, 256, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20),
    small_bytes=(4, 64, 256, 1 << 10),
    large_bytes=4 << 20,
    operand_bytes=tuple(1 << k for k in range(12, 27, 2)),
    matrix=(64, 128, 256, 512, 1024, 2048),
    repeats=9,
)
QUICK = Effort(
    message_bytes=(4, 4 << 10, 64 << 10, 1 << 20, 4 << 20),
    small_bytes=(4, 256),
    large_bytes=1 << 20,
    operand_bytes=(1 << 12, 1 << 16, 1 << 20, 1 << 24),
    matrix=(256, 512),
    repeats=5,
)


def steps(transports: int) -> int:
    """How often :func:`calibrate` reports progress."""
    return 3 + 3 * transports


def calibrate(
    quick: bool = False,
    *,
    backend: str = "gloo",
    device: str = "cpu",
    lab: "bool | None" = None,
    progress: Progress = lambda what: None,
    effort: Effort | None = None,
) -> Profile:
    """Measure this machine; about 20 s where ``quick``, else two minutes.

    Args:
        quick: fewer sizes and repeats.
        backend, device: as for :func:`llmsim_kernels.execute.execute`; ``"nccl"`` needs two GPUs.
        lab: calibrate messages in a netlab too; by default where this machine permits one.
        progress: told what comes next.
        effort: exactly what to measure, instead of ``quick``.

    Raises:
        InputError: a device that is not here.
        ExecutionError: a probe failed, or a lab was asked for and cannot be built.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("there is no GPU here", where="device cuda", mend="use cpu")
    effort = effort or (QUICK if quick else FULL)
    lab = backend == "gloo" and netlab_unavailable() is None if lab is None else lab
    progress("copies and additions")
    with WorkerPool(1, backend=None, device=device) as pool:
        reduce, copy, memory = pool.run(_local, effort.operand_bytes, device)[0]
        progress("matrix products")
        dtypes = ("float32", "bfloat16") if device == "cuda" or not quick else ("float32",)
        matmul = pool.run(local_rates.matmul_rates, effort.matrix, dtypes, device)[0]
        transfers = pool.run(local_rates.transfer_rates, effort.operand_bytes)[0] if device == "cuda" else {}
    progress("the executor")
    transports: dict[str, Transport] = {}
    overhead_s = 0.0
    if backend == "gloo" or torch.cuda.device_count() > 1:
        with WorkerPool(2, backend=backend, device=device) as pool:
            overhead_s = _local_overhead(pool, effort)
        name = "loopback" if backend == "gloo" else "nccl"
        with _loopback(backend, device) as pools:
            transports[name] = _transport(name, pools, effort, progress)
    if lab:
        with _lab_pools() as pools:
            transports["netlab"] = _transport("netlab", pools, effort, progress)
    return Profile(
        machine=machine_card(),
        backend=backend,
        device=device,
        transports=transports,
        reduce=reduce,
        copy=copy,
        matmul=matmul,
        memory_bandwidth_bytes_per_s=memory,
        local_overhead_s=overhead_s,
        transfers=transfers,
        quick=quick,
    )


def _local(sizes: Sequence[int], device: str) -> tuple[tuple[Rate, ...], tuple[Rate, ...], float]:
    return (
        local_rates.reduce_rates(sizes, device),
        local_rates.copy_rates(sizes, device, device),
        local_rates.memory_bandwidth(256 << 20, device),
    )


# messages ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pools:
    """Where messages of a transport are measured."""

    pair: WorkerPool  # two ranks, so far apart as any
    crowd: WorkerPool  # ranks in pairs, enough to keep all cores busy
    shaped: WorkerPool | None = None  # two ranks joined by links of `rate_bytes_per_s`
    rate_bytes_per_s: float = 0.0


_CROWD = 2  # ranks a core: with fewer, cores would idle while ranks wait for each other
_RATE = 25e6  # bytes/s of the shaped link that shows what of a rate reaches the application


@contextmanager
def _loopback(backend: str, device: str) -> Iterator[_Pools]:
    ranks = torch.cuda.device_count() if device == "cuda" else _crowd_size()
    with (
        WorkerPool(2, backend=backend, device=device) as pair,
        WorkerPool(ranks - ranks % 2, backend=backend, device=device) as crowd,
    ):
        yield _Pools(pair, crowd)


@contextmanager
def _lab_pools() -> Iterator[_Pools]:
    """Hosts joined by links so wide that only the processor limits, and two by links that limit."""
    ranks = _crowd_size()
    wide = netlab("switch", ranks, 12.5e9)
    with (
        wide,
        netlab("switch", 2, _RATE) as narrow,
        WorkerPool(2, hosts=wide.hosts) as pair,
        WorkerPool(ranks, hosts=wide.hosts) as crowd,
        WorkerPool(2, hosts=narrow.hosts) as shaped,
    ):
        yield _Pools(pair, crowd, shaped, _RATE)


def _crowd_size() -> int:
    return min(16, _CROWD * (os.cpu_count() or 1))


def _transport(name: str, pools: _Pools, effort: Effort, progress: Progress) -> Transport:
    progress(f"{name}: messages back and forth")
    one_way = {size: _one_way_s(pools.pair, size, effort) for size in effort.message_bytes}
    alone = fit_latency_bandwidth("one-way time of a message", one_way)
    progress(f"{name}: messages in a row")
    gaps = {size: _gap_s(pools.pair, size, effort) for size in effort.small_bytes}
    gap = fit_mean("time from one small message to the next", gaps, "gap_s", "size in bytes")
    progress(f"{name}: messages all at once")
    cores = os.cpu_count() or 1
    crowded = {effort.large_bytes: [t * cores for t in _crowded_s_per_byte(pools.crowd, effort)]}
    processor = fit_mean("core-seconds of a byte, both ends", crowded, "cpu_s_per_byte", "size in bytes")
    fits = [alone, gap, processor]
    efficiency = 1.0
    if pools.shaped is not None:
        size = effort.large_bytes
        exchanged = probes.exchange(size, 2, 2)
        seconds = execute(exchanged, pool=pools.shaped, repeats=effort.repeats, warmup=1, outputs=[]).times_s / 2
        share = fit_mean(
            "bytes of messages in a byte of a link's rate",
            {size: [size / (t * pools.rate_bytes_per_s) for t in seconds.tolist()]},
            "protocol_efficiency",
            "size in bytes",
        )
        efficiency = min(1.0, share.parameters["protocol_efficiency"])
        fits.append(share)
    alpha_s, gap_s = alone.parameters["latency_s"], gap.parameters["gap_s"]
    # LogP (Culler et al. 1993): in a row, messages follow each other at the larger of the two overheads, which the
    # time of one message contains beside the latency. Which of the two it is does not show; they are taken as equal.
    overhead_s = min(gap_s, alpha_s / 2)
    per_byte = processor.parameters["cpu_s_per_byte"] / 2
    return Transport(
        send_overhead_s=overhead_s,
        receive_overhead_s=overhead_s,
        latency_s=alpha_s - 2 * overhead_s,
        bandwidth_bytes_per_s=alone.parameters["bandwidth_bytes_per_s"],
        protocol_efficiency=efficiency,
        cpu_send_s_per_byte=per_byte,
        cpu_receive_s_per_byte=per_byte,
        fits=tuple(fits),
    )


def _run(program: Program, pool: WorkerPool, effort: Effort) -> np.ndarray:
    return execute(program, pool=pool, repeats=effort.repeats, warmup=1, outputs=[]).times_s


def _one_way_s(pool: WorkerPool, size_bytes: int, effort: Effort) -> list[float]:
    trips = _number(size_bytes, most=100)
    return (_run(probes.ping_pong(size_bytes, trips), pool, effort) / (2 * trips)).tolist()


def _gap_s(pool: WorkerPool, size_bytes: int, effort: Effort) -> list[float]:
    messages = _number(size_bytes, most=200)
    return (_run(probes.stream(size_bytes, messages), pool, effort) / messages).tolist()


def _crowded_s_per_byte(pool: WorkerPool, effort: Effort) -> list[float]:
    """Seconds a byte of all messages together, when every rank sends and receives."""
    messages = _number(effort.large_bytes, most=50)
    program = probes.exchange(effort.large_bytes, messages, pool.world_size)
    return (_run(program, pool, effort) / program.message_bytes).tolist()


def _number(size_bytes: int, most: int) -> int:
    """Messages in one probe: as many as take about `_TRIP_S`, at a guess of 100 µs and 2 GB/s."""
    return int(np.clip(_TRIP_S / (1e-4 + size_bytes / 2e9) / 2, 2, most))


def _local_overhead(pool: WorkerPool, effort: Effort) -> float:
    """Seconds that the executor takes for an operation that does next to nothing."""
    number = 500
    return float(np.median(_run(probes.copies(4, number), pool, effort)) / number)
