"""Curves of time against size or ranks, and predictions against measurements."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from llmsim.errors import InputError
from llmsim.plots.picture import FAINT, INK, Picture, colour_of, label_axis, styled

Unit = Literal["", "s", "bytes", "bytes/s"]


class Point(NamedTuple):
    """One prediction with its measurement; points of one ``group`` share a colour."""

    group: str
    predicted_s: float
    measured_s: float


@styled
def curves(
    x: ArrayLike,
    series: Mapping[str, ArrayLike],
    *,
    x_label: str,
    y_label: str = "time",
    x_unit: Unit = "",
    y_unit: Unit = "s",
    bounds: Mapping[str, ArrayLike] | None = None,
    points: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    log: tuple[bool, bool] = (True, True),
    title: str = "",
) -> Picture:
    """Lines over a common x.

    Args:
        x: shape (n,), e.g. sizes in bytes or numbers of ranks.
        series: lines by label, each of shape (n,).
        x_label, y_label: what the axes show; ticks are printed in ``x_unit`` and ``y_unit``.
        bounds: lines that nothing can be below, drawn dashed.
        points: measurements by label as (x, y), drawn as dots.
        log: whether the x and the y axis are logarithmic.
        title: of the picture.

    Returns:
        The picture; ``data`` holds ``x``, ``series``, ``bounds`` and ``points`` as lists.

    Raises:
        InputError: a line whose length is not that of ``x``.
    """
    x = np.asarray(x, dtype=float)
    lines = {label: np.asarray(y, dtype=float) for label, y in series.items()}
    limits = {label: np.asarray(y, dtype=float) for label, y in (bounds or {}).items()}
    for label, y in (lines | limits).items():
        if y.shape != x.shape:
            raise InputError(f"line {label!r} has {y.size} points, x has {x.size}")
    dots = {k: (np.asarray(a, dtype=float), np.asarray(b, dtype=float)) for k, (a, b) in (points or {}).items()}
    picture = Picture(6.8, 4.2)
    axes = picture.add_subplot()
    colour = colour_of(list(dict.fromkeys([*lines, *dots])))
    for label, y in lines.items():
        marker = "" if len(x) > 16 or label in dots else "."
        axes.plot(x, y, color=colour[label], label=label, linewidth=1.6, marker=marker)
    for label, (at, y) in dots.items():
        axes.scatter(at, y, color=colour[label], s=22, zorder=3, label=None if label in lines else label)
    for label, y in limits.items():
        axes.plot(x, y, color=INK, linestyle="--", linewidth=1.0, label=label)
    label_axis(axes, "x", x_label, x_unit, log=log[0])
    label_axis(axes, "y", y_label, y_unit, log=log[1])
    axes.grid(True)
    axes.legend()
    axes.set_title(title)
    picture.data = {
        "x": x.tolist(),
        "series": {k: y.tolist() for k, y in lines.items()},
        "bounds": {k: y.tolist() for k, y in limits.items()},
        "points": {k: [a.tolist(), b.tolist()] for k, (a, b) in dots.items()},
    }
    return picture


@styled
def predicted_against_measured(points: Iterable[Sequence[object] | Point], *, title: str = "") -> Picture:
    """Predictions against measurements on logarithmic axes, and beside it the errors; bands show ±5 % and ±15 %.

    Args:
        points: (group, predicted_s, measured_s) each; all times positive.
        title: by default the number of points with the median and 95th percentile of |error|.

    Returns:
        The picture; ``data`` holds ``points``, ``error`` (predicted / measured − 1, by point), ``median_error`` and
        ``p95_error`` of |error|.

    Raises:
        InputError: no points, or a time that is not positive.
    """
    rows = [Point(str(p[0]), float(p[1]), float(p[2])) for p in points]  # type: ignore[arg-type]
    if not rows:
        raise InputError("there are no points to draw")
    predicted, measured = np.array([[p.predicted_s, p.measured_s] for p in rows]).T
    if not (np.all(np.isfinite(predicted) & np.isfinite(measured)) and min(predicted.min(), measured.min()) > 0):
        raise InputError("a logarithmic axis needs times above zero")
    error = predicted / measured - 1
    median, p95 = np.percentile(np.abs(error), [50, 95])
    picture = Picture(10.0, 4.6)
    level, relative = picture.subplots(1, 2)
    low, high = min(predicted.min(), measured.min()) / 1.5, max(predicted.max(), measured.max()) * 1.5
    ends = np.array([low, high])
    for share, shade in ((0.15, 0.25), (0.05, 0.5)):
        level.fill_between(ends, ends * (1 - share), ends * (1 + share), color=FAINT, alpha=shade, linewidth=0)
        relative.axhspan(-share, share, color=FAINT, alpha=shade, linewidth=0, label=f"±{share:.0%}")
    level.plot(ends, ends, color=INK, linewidth=0.8)
    relative.axhline(0, color=INK, linewidth=0.8)
    for group, fill in colour_of(sorted({p.group for p in rows})).items():
        mine = [i for i, p in enumerate(rows) if p.group == group]
        for axes, y in ((level, predicted[mine]), (relative, error[mine])):
            axes.scatter(measured[mine], y, s=24, color=fill, edgecolors="white", linewidths=0.4, label=group)
    label_axis(level, "y", "predicted", "s", log=True)
    level.set_ylim(low, high)
    level.set_aspect("equal")
    level.set_title(title or f"{len(rows)} points: median |error| {median:.1%}, 95th percentile {p95:.1%}")
    label_axis(relative, "y", "error: predicted / measured - 1", "%")
    widest = max(0.17, float(np.abs(error).max()) * 1.1)
    relative.set_ylim(-widest, widest)
    for axes in (level, relative):
        label_axis(axes, "x", "measured", "s", log=True)
        axes.set_xlim(low, high)
        axes.grid(True)
    relative.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    picture.data = {
        "points": [list(p) for p in rows],
        "error": error.tolist(),
        "median_error": float(median),
        "p95_error": float(p95),
    }
    return picture
