"""How far predictions are from measurements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from llmsim.errors import InputError
from llmsim.validation.records import Point, format_rate


@dataclass(frozen=True)
class Summary:
    """Errors of a set of points, all relative: predicted / measured − 1."""

    points: int
    median_abs: float
    p95_abs: float  # 95th percentile, interpolated between neighbours
    worst_abs: float
    bias: float  # the median error with its sign: positive where predictions are too slow
    median_spread: float  # of the measurements themselves


def summarize(points: Sequence[Point]) -> Summary:
    """The errors of ``points``.

    Raises:
        InputError: there are none.
    """
    if not points:
        raise InputError("there are no points to summarise")
    error = np.array([point.error for point in points])
    median, p95 = np.percentile(np.abs(error), [50, 95])
    return Summary(
        points=len(points),
        median_abs=float(median),
        p95_abs=float(p95),
        worst_abs=float(np.abs(error).max()),
        bias=float(np.median(error)),
        median_spread=float(np.median([point.spread for point in points])),
    )


GROUPINGS: Mapping[str, Callable[[Point], str]] = {
    "network": lambda p: p.case.network,
    "rate": lambda p: "unshaped" if p.case.bandwidth_bytes_per_s is None else format_rate(p.case.bandwidth_bytes_per_s),
    "collective": lambda p: f"{p.case.collective} {p.case.algorithm}",
    "ranks": lambda p: f"{p.case.world_size} ranks",
    "size": lambda p: _size(p.case.size_bytes),
}


def _size(size_bytes: int) -> str:
    from llmsim.units import format_size

    return format_size(size_bytes)


def by_group(points: Sequence[Point], grouping: str) -> dict[str, Summary]:
    """The errors of each group of points, groups in order of first appearance; ``grouping`` is one of GROUPINGS."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(GROUPINGS[grouping](point), []).append(point)
    return {name: summarize(group) for name, group in groups.items()}
