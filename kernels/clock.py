"""One clock for all ranks.

On one machine ``time.monotonic_ns`` is common to all processes. Between machines each rank estimates by how much rank
0's clock is ahead of its own: it asks for the time, takes the answer to be of the middle of the round trip, and
believes the shortest of many trips (F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989),
so the error is at most half that trip.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

_TRIPS = 32


def offset_ns(trips: Sequence[tuple[int, int, int]]) -> int:
    """What to add to the own clock, from (own time before, the other's time, own time after) of each round trip."""
    before, other, after = min(trips, key=lambda trip: trip[2] - trip[0])
    return other - (before + after) // 2


def offset_to_rank_0_ns(*, measure: bool | None = None) -> int:
    """How far rank 0's clock is ahead of this rank's; every rank calls this.

    Args:
        measure: compare the clocks, even on one machine; by default where ranks are on several.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if measure is None:
        boots: list[str | None] = [None] * world_size
        dist.all_gather_object(boots, Path("/proc/sys/kernel/random/boot_id").read_text())
        measure = len(set(boots)) > 1
    if not measure:
        return 0
    word = _word()
    trips = []
    for client in range(1, world_size):
        for _ in range(_TRIPS):
            if rank == client:
                before = time.monotonic_ns()
                dist.send(word, 0)
                dist.recv(word, 0)
                trips.append((before, int(word), time.monotonic_ns()))
            elif rank == 0:
                dist.recv(word, client)
                word.fill_(time.monotonic_ns())
                dist.send(word, client)
    return offset_ns(trips) if rank else 0


def agree_on_start_ns(lead_s: float) -> int:
    """An instant ``lead_s`` from now, in rank 0's clock, that all ranks know before it comes."""
    word = _word()
    dist.barrier()
    word.fill_(time.monotonic_ns() + int(lead_s * 1e9))
    dist.broadcast(word, 0)
    return int(word)


def sleep_until_ns(instant_ns: int) -> None:
    """Sleep until ``instant_ns`` of the own clock; returns at once if it has passed."""
    while (left_ns := instant_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns * 1e-9)


def _word() -> torch.Tensor:
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    return torch.zeros(1, dtype=torch.int64, device=device)
