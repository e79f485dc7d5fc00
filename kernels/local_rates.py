"""Rates of one device alone: additions, copies, matrix products, and transfers between host and accelerator.

The same functions measure a CPU core and a GPU; only the clock differs.
"""

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch

from llmsim.cost.profile import Rate

_SAMPLE_S = 2e-3  # one sample lasts at least this long, so that the clock's own cost does not show
_SAMPLES = 7


def seconds_of(work: Callable[[], object], device: str, samples: int = _SAMPLES) -> float:
    """The median time of one call of ``work``, each sample of as many calls as make it long enough."""
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None

    def run(calls: int) -> float:
        sync()
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        sync()
        return (time.perf_counter() - begin) / calls

    run(1)  # pages are touched and caches are warm
    once = max(run(1), 1e-7)
    calls = max(1, round(_SAMPLE_S / once))
    return float(np.median([run(calls) for _ in range(samples)]))


def reduce_rates(sizes: Iterable[int], device: str) -> tuple[Rate, ...]:
    """Bytes of the operand added per second, by size in bytes."""
    rates = []
    for size in sizes:
        total, part = torch.zeros(size // 4, device=device), torch.ones(size // 4, device=device)
        rates.append(Rate(size, size / seconds_of(lambda a=total, b=part: a.add_(b), device)))  # type: ignore[misc]
    return tuple(rates)


def copy_rates(sizes: Iterable[int], source: str, target: str, *, pinned: bool = False) -> tuple[Rate, ...]:
    """Bytes copied per second from device ``source`` to ``target``, by size in bytes; ``pinned`` is the host's side."""
    device = "cuda" if "cuda" in (source, target) else "cpu"
    rates = []
    for size in sizes:
        ends = [
            torch.zeros(size // 4, device=end, pin_memory=pinned and end == "cpu") for end in (source, target)
        ]  # fmt: skip
        seconds = seconds_of(lambda a=ends[0], b=ends[1]: b.copy_(a, non_blocking=pinned), device)  # type: ignore[misc]
        rates.append(Rate(size, size / seconds))
    return tuple(rates)


def matmul_rates(sizes: Sequence[int], dtypes: Iterable[str], device: str) -> tuple[Rate, ...]:
    """FLOP per second of products of two n × n matrices, 2·n³ FLOP each."""
    rates = []
    for dtype in dtypes:
        for n in sizes:
            a_nn = torch.randn(n, n, device=device).to(getattr(torch, dtype))
            out_nn = torch.empty_like(a_nn)
            seconds = seconds_of(lambda a=a_nn, out=out_nn: torch.matmul(a, a, out=out), device)  # type: ignore[misc]
            rates.append(Rate(n, 2 * n**3 / seconds, dtype))
    return tuple(rates)


def memory_bandwidth(size_bytes: int, device: str) -> float:
    """Bytes read and written per second by a copy of ``size_bytes``, far larger than any cache."""
    return 2 * copy_rates([size_bytes], device, device)[0].rate_per_s


def transfer_rates(sizes: Sequence[int]) -> dict[str, tuple[Rate, ...]]:
    """Copies inside the accelerator, to it and from it, with pinned and pageable host memory."""
    return {
        "d2d": copy_rates(sizes, "cuda", "cuda"),
        "h2d pinned": copy_rates(sizes, "cpu", "cuda", pinned=True),
        "h2d pageable": copy_rates(sizes, "cpu", "cuda"),
        "d2h pinned": copy_rates(sizes, "cuda", "cpu", pinned=True),
        "d2h pageable": copy_rates(sizes, "cuda", "cpu"),
    }
