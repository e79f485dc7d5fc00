"""What `llmsim validate` tries: collectives by networks by sizes. None of it is used to calibrate."""

from collections.abc import Iterable

from llmsim.validation import Case

KiB, MiB = 1 << 10, 1 << 20
MBIT = 125e3  # bytes per second

NETWORKS = ("star", "two-racks")
ALL_REDUCES = ("ring", "halving-doubling", "tree")


def full_cases() -> tuple[Case, ...]:
    """Ring all-reduce everywhere, other algorithms at a few points of every network; sizes so that none takes long."""
    cases = []
    for network in NETWORKS:
        for rate in (100 * MBIT, 200 * MBIT, 500 * MBIT, 1000 * MBIT):
            for world_size in (2, 4, 8):
                if network == "two-racks" and world_size == 2:
                    continue  # with one host a rack it is a line
                sizes = [64 * KiB, 256 * KiB, MiB, 4 * MiB, 16 * MiB, 64 * MiB]
                longest = rate * 1.6  # bytes
                cases += [
                    Case("all-reduce", "ring", world_size, size, network, rate) for size in sizes if size <= longest
                ]
                if world_size == 2:
                    continue
                size = 4 * MiB if rate > 300 * MBIT else MiB
                cases += [
                    Case("all-reduce", "halving-doubling", world_size, size, network, rate),
                    Case("all-reduce", "double-tree", world_size, size, network, rate),
                    Case("all-gather", "ring", world_size, size, network, rate),
                    Case("broadcast", "binomial", world_size, size, network, rate),
                    Case("all-to-all", "pairwise", world_size, size, network, rate),
                ]
    return tuple(cases)


def quick_cases() -> tuple[Case, ...]:
    """A dozen, for a demonstration."""
    cases = [Case("all-reduce", "ring", 4, size, "star", 200 * MBIT) for size in (64 * KiB, 256 * KiB, MiB, 4 * MiB)]
    cases += [
        Case("all-reduce", "halving-doubling", 4, MiB, "star", 200 * MBIT),
        Case("all-reduce", "double-tree", 4, MiB, "star", 200 * MBIT),
        Case("broadcast", "binomial", 4, MiB, "star", 200 * MBIT),
        Case("all-to-all", "pairwise", 4, MiB, "star", 200 * MBIT),
    ]
    cases += [Case("all-reduce", "ring", 2, size, "star", 1000 * MBIT) for size in (MiB, 16 * MiB)]
    cases += [Case("all-reduce", "ring", 4, size, "two-racks", 200 * MBIT) for size in (256 * KiB, MiB)]
    return tuple(cases)


def loopback_cases(cores: int) -> tuple[Case, ...]:
    """Where no lab can be built: processes that talk through the loopback interface, two and as many as cores."""
    sizes = (64 * KiB, MiB, 16 * MiB)
    return tuple(
        Case("all-reduce", algorithm, world_size, size, "loopback")
        for world_size in sorted({2, max(2, min(8, cores))})
        for algorithm in ("ring", "tree")
        for size in sizes
    )


def pair_cases(quick: bool) -> tuple[Case, ...]:
    """Where our ring all-reduce runs beside the backend's own."""
    if quick:
        return (Case("all-reduce", "ring", 4, 4 * MiB, "star", 200 * MBIT),)
    points: Iterable[tuple[int, float, int]] = (
        (world_size, rate, size)
        for world_size in (2, 4, 8)
        for rate in (200 * MBIT, 1000 * MBIT)
        for size in (MiB, 4 * MiB, 16 * MiB)
    )
    return tuple(Case("all-reduce", "ring", world_size, size, "star", rate) for world_size, rate, size in points)


def gpu_cases(gpus: int) -> tuple[Case, ...]:
    """All-reduces between the GPUs of this machine."""
    sizes = (MiB, 16 * MiB, 64 * MiB)
    return tuple(
        Case("all-reduce", algorithm, world_size, size, "nccl")
        for world_size in sorted({2, gpus})
        for algorithm in ("ring", "tree")
        for size in sizes
    )
