"""Measure this machine into a profile: what messages, copies, additions and matrix products cost on it.

Messages are calibrated by :mod:`llmsim_kernels.probes`: point-to-point programs, run by the same executor as any other
program. Collectives are never run here; they are what predictions are tested on.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import torch
from llmsim_kernels import local_rates, priority, probes
from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.machine import machine_card
from llmsim_kernels.netlab import NetLab, Shape, netlab, netlab_unavailable
from numpy.typing import NDArray

from llmsim.cost.fit import Fit, FitPoint, fit_latency_bandwidth, fit_line, fit_mean
from llmsim.cost.profile import Profile, Rate, Transport
from llmsim.errors import InputError
from llmsim.program import Program

Progress = Callable[[str], None]  # told what comes next; `STEPS` says how often


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    message_bytes: tuple[int, ...]
    small_bytes: tuple[int, ...]  # of messages whose price is their number
    large_bytes: int  # of messages whose price is their bytes
    operand_bytes: tuple[int, ...]
    matrix: tuple[int, ...]
    repeats: int
    memory_bytes: int = 256 << 20  # of a copy that no cache holds
    probe_s: float = 0.15  # a probe lasts about this long, so that it evens out what the rest of the machine does


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


def steps(backend: str = "gloo", lab: "bool | None" = None) -> int:
    """How often :func:`calibrate` reports progress."""
    lab = backend == "gloo" and netlab_unavailable() is None if lab is None else lab
    transports = int(backend == "gloo" or torch.cuda.device_count() > 1) + int(lab)
    return 3 + 3 * transports


def calibrate(
    quick: bool = False,
    *,
    backend: str = "gloo",
    device: str = "cpu",
    lab: "bool | None" = None,
    realtime: "bool | None" = None,
    progress: Progress = lambda what: None,
    effort: Effort | None = None,
) -> Profile:
    """Measure this machine; about 20 s where ``quick``, else two minutes.

    Args:
        quick: fewer sizes and repeats.
        backend, device: as for :func:`llmsim_kernels.execute.execute`; ``"nccl"`` needs two GPUs.
        lab: calibrate messages in a netlab too; by default where this machine permits one.
        realtime: give ranks real-time priority, so that nothing else delays them; by default where that is permitted.
            Predictions are then for ranks that run so too.
        progress: told what comes next.
        effort: exactly what to measure, instead of ``quick``.

    Raises:
        InputError: a device that is not here.
        ExecutionError: a probe failed, or a lab was asked for and cannot be built.
    """
    if (backend, device) not in (("gloo", "cpu"), ("nccl", "cuda")):
        raise InputError(f"{backend!r} on {device!r} cannot be calibrated", mend="use gloo on cpu or nccl on cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("there is no GPU here", where="device cuda", mend="use cpu")
    effort = effort or (QUICK if quick else FULL)
    lab = backend == "gloo" and netlab_unavailable() is None if lab is None else lab
    realtime = backend == "gloo" and priority.permitted() if realtime is None else realtime
    machine = replace(machine_card(), realtime=realtime)
    progress("copies and additions")
    with priority.pool(1, realtime=realtime, backend=None, device=device) as pool:
        reduce, copy, memory = pool.run(_local, effort, device)[0]
        progress("matrix products")
        dtypes = ("float32", "bfloat16") if device == "cuda" or not quick else ("float32",)
        matmul = pool.run(local_rates.matmul_rates, effort.matrix, dtypes, device)[0]
        transfers = pool.run(local_rates.transfer_rates, effort.operand_bytes)[0] if device == "cuda" else {}
    progress("the executor")
    transports: dict[str, Transport] = {}
    overhead_s = 0.0
    if backend == "gloo" or torch.cuda.device_count() > 1:
        with priority.pool(2, realtime=realtime, backend=backend, device=device) as pool:
            overhead_s = _local_overhead(pool, effort)
        name = "loopback" if backend == "gloo" else "nccl"
        with _loopback(backend, device, realtime) as pools:
            transports[name] = _transport(name, pools, effort, progress)
    if lab:
        with _lab_pools(realtime) as pools:
            transports["netlab"] = _transport("netlab", pools, effort, progress)
    return Profile(
        machine=machine,
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


def _local(effort: Effort, device: str) -> tuple[tuple[Rate, ...], tuple[Rate, ...], float]:
    return (
        local_rates.reduce_rates(effort.operand_bytes, device),
        local_rates.copy_rates(effort.operand_bytes, device, device),
        local_rates.memory_bandwidth(effort.memory_bytes, device),
    )


# messages ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pools:
    """Where messages of a transport are measured.

    Attributes:
        pair: two ranks, nothing between them but the processor.
        crowds: by bytes of what the kernel handles as one packet, ranks in pairs that keep all cores busy.
        narrow: two ranks on links whose rate less headers is ``rate_bytes_per_s``.
    """

    pair: WorkerPool
    crowds: Mapping[float, WorkerPool]
    narrow: WorkerPool | None = None
    rate_bytes_per_s: float = 0.0


_CROWD = 4  # ranks a core: with fewer, cores would idle while ranks wait for each other
_WIDE_BYTES_PER_S, _NARROW_BYTES_PER_S = 12.5e9, 25e6
_PACKETS = (7, 3, 1)  # of 9 kB in a bundle, many and few


@contextmanager
def _loopback(backend: str, device: str, realtime: bool) -> Iterator[_Pools]:
    ranks = torch.cuda.device_count() if device == "cuda" else _crowd_size()
    with (
        priority.pool(2, realtime=realtime, backend=backend, device=device) as pair,
        priority.pool(ranks - ranks % 2, realtime=realtime, backend=backend, device=device) as crowd,
    ):
        yield _Pools(pair, {inf: crowd})


@contextmanager
def _lab_pools(realtime: bool) -> Iterator[_Pools]:
    """Hosts joined by links so wide that only the processor limits, and two by links that limit."""
    ranks = _crowd_size()
    with ExitStack() as stack:

        def pool(lab: NetLab, world_size: int) -> WorkerPool:
            return stack.enter_context(priority.pool(world_size, realtime=realtime, hosts=lab.hosts))

        crowds: dict[float, WorkerPool] = {}
        for packets in _PACKETS:
            shape = Shape(mtu=9000, bundle_bytes=packets * 9014)
            wide = stack.enter_context(netlab("switch", ranks, _WIDE_BYTES_PER_S, shape=shape))
            crowds[shape.bundle_bytes] = pool(wide, ranks)
        narrow = stack.enter_context(netlab("switch", 2, _NARROW_BYTES_PER_S))
        rate = _NARROW_BYTES_PER_S * narrow.protocol_efficiency
        yield _Pools(pool(wide, 2), crowds, pool(narrow, 2), rate)


def _crowd_size() -> int:
    return min(16, _CROWD * (os.cpu_count() or 1))


def _transport(name: str, pools: _Pools, effort: Effort, progress: Progress) -> Transport:
    progress(f"{name}: messages back and forth")
    trips = {size: _number(effort, size, most=100) for size in effort.message_bytes}
    there_and_back = {size: probes.ping_pong(size, trips[size]) for size in trips}
    one_way = {size: s / (2 * trips[size]) for size, s in _sample(pools.pair, there_and_back, effort).items()}
    alone = fit_latency_bandwidth("one-way time of a message", one_way)
    progress(f"{name}: small messages all at once")
    crowd = next(iter(pools.crowds.values()))
    each = _message_fit(crowd, effort)
    progress(f"{name}: messages all at once")
    processor = _processor_fit(pools.crowds, effort)
    fits = [alone, each, processor]
    efficiency = 1.0
    if pools.narrow is not None:
        share = _link_fit(pools.narrow, pools.rate_bytes_per_s, effort)
        efficiency = min(1.0, share.parameters["link_efficiency"])
        fits.append(share)
    return Transport(
        alpha_s=alone.parameters["latency_s"],
        cpu_s_per_message=each.parameters["cpu_s_per_message"],
        bandwidth_bytes_per_s=alone.parameters["bandwidth_bytes_per_s"],
        link_efficiency=efficiency,
        cpu_s_per_byte=processor.parameters["cpu_s_per_byte"],
        cpu_s_per_packet=processor.parameters["cpu_s_per_packet"],
        fits=tuple(fits),
    )


def _sample(pool: WorkerPool, programs: Mapping[int, Program], effort: Effort) -> dict[int, NDArray[np.float64]]:
    """Makespans of each program, shape (repeats,). The programs take turns, so that what else the machine does for a
    while spoils one repeat of all of them, which medians ignore, and not all repeats of one."""
    seconds: dict[int, list[float]] = {key: [] for key in programs}
    for program in programs.values():
        execute(program, pool=pool, outputs=[])
    for _ in range(effort.repeats):
        for key, program in programs.items():
            seconds[key].append(execute(program, pool=pool, outputs=[]).time_s)
    return {key: np.array(values) for key, values in seconds.items()}


def _message_fit(crowd: WorkerPool, effort: Effort) -> Fit:
    """Core-seconds of a small message, when many pairs of ranks send some back and forth. Each waits for the one
    before, as in most algorithms: in a row they would be cheaper, as a rank that is awake need not be woken."""
    pairs = crowd.world_size // 2
    trips = _number(effort, 4, most=100)
    programs = {size: probes.ping_pong(size, trips, crowd.world_size) for size in effort.small_bytes}
    core_s = min(os.cpu_count() or 1, pairs) / (2 * trips * pairs)
    samples = {size: seconds * core_s for size, seconds in _sample(crowd, programs, effort).items()}
    return fit_mean("core-seconds of a small message, both ends", samples, "cpu_s_per_message", "size in bytes")


def _processor_fit(crowds: Mapping[float, WorkerPool], effort: Effort) -> Fit:
    """Core-seconds of a byte, when every rank sends and receives and all cores are busy with that."""
    cores = os.cpu_count() or 1
    points = []
    for packet_bytes, pool in crowds.items():
        program = probes.exchange(effort.large_bytes, _number(effort, effort.large_bytes, most=50), pool.world_size)
        seconds = float(np.median(_sample(pool, {0: program}, effort)[0]))
        points.append((1 / packet_bytes, cores * seconds / program.message_bytes))
    x, y = np.array(points).T
    per_byte, per_packet = fit_line(x, y) if len(points) > 1 else (float(y[0]), 0.0)
    return Fit(
        quantity="core-seconds of a byte, both ends",
        formula="cpu_s_per_byte + x · cpu_s_per_packet",
        x="packets in a byte",
        parameters={"cpu_s_per_byte": per_byte, "cpu_s_per_packet": per_packet},
        points=tuple(FitPoint(a, b, per_byte + a * per_packet) for a, b in points),
    )


def _link_fit(pool: WorkerPool, rate_bytes_per_s: float, effort: Effort) -> Fit:
    """What of a shaped link's rate messages reach, headers taken off."""
    number = {size: max(2, round(effort.probe_s * rate_bytes_per_s / size)) for size in (256 << 10, 1 << 20)}
    programs = {size: probes.exchange(size, messages, 2) for size, messages in number.items()}
    seconds = _sample(pool, programs, effort)
    samples = {size: size * number[size] / rate_bytes_per_s / seconds[size] for size in number}
    return fit_mean("share of a link's rate, headers taken off", samples, "link_efficiency", "size in bytes")


def _number(effort: Effort, size_bytes: int, most: int) -> int:
    """Messages in one probe: as many as take about its time, at a guess of 100 µs and 2 GB/s."""
    return int(np.clip(effort.probe_s / (1e-4 + size_bytes / 2e9) / 2, 2, most))


def _local_overhead(pool: WorkerPool, effort: Effort) -> float:
    """Seconds that the executor takes for an operation that does next to nothing."""
    number = 500
    return float(np.median(_sample(pool, {0: probes.copies(4, number)}, effort)[0])) / number
