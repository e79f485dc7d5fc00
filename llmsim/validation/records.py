"""Predictions and measurements as plain records; every figure of a report is a pure function of them."""

from dataclasses import dataclass
from math import isfinite

import numpy as np

from llmsim.errors import InputError


@dataclass(frozen=True)
class Case:
    """One experiment: a collective on a network.

    Attributes:
        network: what connects the ranks, e.g. ``"star"``, ``"two-racks"`` or ``"loopback"``.
        bandwidth_bytes_per_s: of its links, None where nothing shapes them.
        size_bytes: of the collective's buffer on each rank.
    """

    collective: str
    algorithm: str
    world_size: int
    size_bytes: int
    network: str
    bandwidth_bytes_per_s: float | None = None

    @property
    def name(self) -> str:
        """Short and unique: ``all-reduce ring n4 1 MiB star 200 Mb/s``."""
        from llmsim.units import format_size

        rate = self.bandwidth_bytes_per_s
        link = "" if rate is None else f" {format_rate(rate)}"
        return (
            f"{self.collective} {self.algorithm} n{self.world_size} {format_size(self.size_bytes)} {self.network}{link}"
        )


def format_rate(bandwidth_bytes_per_s: float) -> str:
    """A link's rate in bits, as network people write it: 2.5e7 → ``"200 Mb/s"``."""
    from llmsim.units import format_bandwidth

    return format_bandwidth(bandwidth_bytes_per_s * 8).replace("B/s", "b/s")


@dataclass(frozen=True)
class Point:
    """What was predicted for a case, and what each repeat then took.

    A repeat is a run of ``rounds`` collectives in a row, where one alone is too short to be timed; all times are those
    of one.
    """

    case: Case
    predicted_s: float
    repeats_s: tuple[float, ...]
    rounds: int = 1

    def __post_init__(self) -> None:
        for seconds in (self.predicted_s, *self.repeats_s):
            if not (isfinite(seconds) and seconds > 0):
                raise InputError(f"{seconds} s is no duration", where=self.case.name)
        if not self.repeats_s:
            raise InputError("there is no measurement", where=self.case.name)

    @property
    def measured_s(self) -> float:
        """The median of the repeats."""
        return float(np.median(self.repeats_s))

    @property
    def error(self) -> float:
        """predicted / measured − 1: positive where the prediction is too slow."""
        return self.predicted_s / self.measured_s - 1

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles of the repeats over their median: what repeating changes."""
        low, high = np.percentile(self.repeats_s, [25, 75])
        return float(high - low) / 2 / self.measured_s


@dataclass(frozen=True)
class Pair:
    """The same collective by two implementations, run in turn: ``ours_s[i]`` and ``theirs_s[i]`` are neighbours in
    time, so that what the machine does meanwhile meets both."""

    case: Case
    theirs: str  # e.g. "gloo"
    ours_s: tuple[float, ...]
    theirs_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.ours_s or len(self.ours_s) != len(self.theirs_s):
            raise InputError("a paired comparison needs as many of the one as of the other", where=self.case.name)

    @property
    def speed_ratio(self) -> float:
        """Median over the pairs of their time / our time: above 1 where ours is faster."""
        return float(np.median(np.divide(self.theirs_s, self.ours_s)))
