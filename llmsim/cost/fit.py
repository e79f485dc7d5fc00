"""Fits of measured times: a few parameters with a meaning, and every point they were fitted to beside them.

All fits minimise *relative* residuals, since times of 100 µs and of 100 ms are to be met equally well, and take the
median of repeats, since the noise of a machine is one-sided: an interrupt makes a run longer, never shorter.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmsim.errors import InputError

_STRICT = {"extra": "forbid"}  # where it comes from a file


@dataclass(frozen=True)
class FitPoint:
    """One measured point of a fit and what the fitted parameters say there."""

    x: float
    measured: float
    fitted: float
    __pydantic_config__ = _STRICT

    @property
    def residual(self) -> float:
        """fitted / measured − 1."""
        return self.fitted / self.measured - 1


@dataclass(frozen=True)
class Fit:
    """Parameters of ``formula``, and the points they were fitted to."""

    quantity: str  # what was measured, e.g. "one-way time of a message"
    formula: str  # e.g. "latency_s + x / bandwidth_bytes_per_s"
    x: str  # e.g. "message size in bytes"
    parameters: Mapping[str, float]
    points: tuple[FitPoint, ...]
    __pydantic_config__ = _STRICT

    @property
    def median_residual(self) -> float:
        """Median of |residual| over the points."""
        return float(np.median([abs(p.residual) for p in self.points]))

    @property
    def worst_residual(self) -> float:
        """Largest |residual| over the points."""
        return max(abs(p.residual) for p in self.points)


def medians(samples: Mapping[int, ArrayLike]) -> dict[int, float]:
    """The median of the repeats at each x."""
    return {x: float(np.median(np.asarray(repeats))) for x, repeats in samples.items()}


def fit_line(x: ArrayLike, y: ArrayLike, *, through: float | None = None) -> tuple[float, float]:
    """``(intercept, slope)`` of y = intercept + slope·x with the smallest sum of squared relative residuals.

    Neither is negative: where the best would be, that one is 0 and the other is fitted alone.

    Args:
        x, y: shape (n,); y positive.
        through: an intercept that is known; only the slope is fitted then.

    Raises:
        InputError: fewer points than parameters, or a y that is not positive.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.shape != y.shape or len(x) < (1 if through is not None else 2):
        raise InputError(f"{len(x)} points with {len(y)} values are too few for a line")
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y)) and np.all(y > 0)):
        raise InputError("a fit of relative residuals needs finite values above zero")
    if through is not None:
        return through, max(0.0, _project(x / y, 1 - through / y))
    rows = np.stack([1 / y, x / y], axis=1)
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    intercept, slope = np.linalg.lstsq(rows / scale, np.ones(len(y)), rcond=None)[0] / scale
    if intercept < 0:
        return 0.0, max(0.0, _project(x / y, np.ones(len(y))))
    if slope < 0:
        return max(0.0, _project(1 / y, np.ones(len(y)))), 0.0
    return float(intercept), float(slope)


def _project(row: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """The factor that brings ``row`` closest to ``target``."""
    norm = float(row @ row)
    return float(row @ target) / norm if norm > 0 else 0.0


def fit_latency_bandwidth(quantity: str, samples: Mapping[int, ArrayLike]) -> Fit:
    """α–β (Hockney 1994): seconds = latency_s + bytes / bandwidth_bytes_per_s, over the medians of ``samples``.

    Args:
        samples: size in bytes → seconds of each repeat.

    Where noise hides that larger messages take longer, the bandwidth is the one at which the largest would take its
    time, a lower bound; the residuals then show that the fit is none.

    Raises:
        InputError: fewer than two sizes, or only empty messages.
    """
    times = medians(samples)
    x, y = np.array(list(times), dtype=float), np.array(list(times.values()))
    latency_s, s_per_byte = fit_line(x, y)
    if x.max() <= 0:
        raise InputError("empty messages show no bandwidth", where=quantity)
    if s_per_byte <= 0:
        s_per_byte = float(y[x.argmax()] / x.max())
    points = tuple(FitPoint(a, b, latency_s + a * s_per_byte) for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return Fit(
        quantity=quantity,
        formula="latency_s + x / bandwidth_bytes_per_s",
        x="size in bytes",
        parameters={"latency_s": latency_s, "bandwidth_bytes_per_s": 1 / s_per_byte},
        points=points,
    )


def fit_mean(quantity: str, samples: Mapping[int, ArrayLike], parameter: str, x: str) -> Fit:
    """One value for all x, the best in relative terms, and how far each median is from it."""
    values = medians(samples)
    points = np.array(list(values.values()))
    best = float(_project(1 / points, np.ones(len(points))))
    return Fit(quantity, parameter, x, {parameter: best}, tuple(FitPoint(float(a), b, best) for a, b in values.items()))
