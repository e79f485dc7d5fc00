"""Timelines as bars: one row for each stream of each rank."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from numpy.typing import NDArray

from llmsim.errors import InputError
from llmsim.plots.picture import FAINT, INK, Picture, colour_of, styled, time_unit
from llmsim.timeline import Timeline, compare
from llmsim.units import format_duration

MOST_RANKS = 32  # in one picture, where the caller names none
_PIXELS = 4000  # bars nearer than the makespan over this run together


@styled
def gantt(timeline: Timeline, *, ranks: Sequence[int] | None = None, title: str = "") -> Picture:
    """A timeline as a Gantt chart.

    Args:
        timeline: what to draw.
        ranks: which ranks, by default all, or 32 evenly spaced ones where there are more.
        title: by default the program's name and the makespan.

    Returns:
        The picture; ``data`` holds ``rows``, a list of ``{rank, stream, name, start_s, end_s}`` in drawing order, with
        touching bars of one name as one, and ``makespan_s``.

    Raises:
        InputError: a rank that the timeline does not have.
    """
    shown, note = _chosen([timeline], ranks)
    rows = _rows([timeline], shown)
    picture, axes = _canvas(rows)
    unit, seconds = time_unit(timeline.makespan_s)
    bars = _bars(timeline, rows, timeline.makespan_s)
    colour = colour_of(_by_appearance([bars]))
    _draw(axes, bars, colour, seconds, bottom=-0.4, height=0.8)
    _finish(axes, rows, timeline.makespan_s, unit, seconds)
    _legend(axes, colour)
    name = title or f"{timeline.meta.get('program', 'timeline')}: {format_duration(timeline.makespan_s)}"
    axes.set_title(f"{name}{note}")
    picture.data = {"rows": bars, "makespan_s": timeline.makespan_s}
    return picture


@styled
def compare_gantt(
    predicted: Timeline, measured: Timeline, *, ranks: Sequence[int] | None = None, title: str = ""
) -> Picture:
    """Two timelines overlaid: in each row the prediction above and the measurement below, on one time axis.

    Returns:
        The picture; ``data`` holds ``predicted`` and ``measured`` rows as of :func:`gantt`, and ``summary``, that of
        :func:`llmsim.timeline.compare`.

    Raises:
        InputError: a rank that neither timeline has.
    """
    both = [predicted, measured]
    shown, note = _chosen(both, ranks)
    rows = _rows(both, shown)
    longest_s = max(t.makespan_s for t in both)
    picture, axes = _canvas(rows, row_in=0.3)
    unit, seconds = time_unit(longest_s)
    bars = [_bars(timeline, rows, longest_s) for timeline in both]
    colour = colour_of(_by_appearance(bars))
    _draw(axes, bars[0], colour, seconds, bottom=-0.42, height=0.4)
    _draw(axes, bars[1], colour, seconds, bottom=0.02, height=0.4, alpha=0.45)
    for timeline, line in ((predicted, "-"), (measured, "--")):
        axes.axvline(timeline.makespan_s / seconds, color=INK, linewidth=0.8, linestyle=line)
    _finish(axes, rows, longest_s, unit, seconds)
    summary = compare(predicted, measured).summary()
    extra = [
        Patch(facecolor=FAINT, label=f"upper: predicted, {format_duration(predicted.makespan_s)}"),
        Patch(facecolor=FAINT, alpha=0.45, label=f"lower: measured, {format_duration(measured.makespan_s)}"),
    ]
    _legend(axes, colour, extra)
    name = title or str(predicted.meta.get("program", "timelines"))
    axes.set_title(f"{name}: error {summary['makespan_error']:+.1%}{note}")
    picture.data = {"predicted": bars[0], "measured": bars[1], "summary": summary}
    return picture


def _chosen(timelines: Sequence[Timeline], ranks: Sequence[int] | None) -> tuple[list[int], str]:
    """The ranks to draw, and a remark where that is not all."""
    there = sorted({int(r) for timeline in timelines for r in np.unique(timeline.rank)})
    if ranks is not None:
        missing = sorted(set(ranks) - set(there))
        if missing:
            raise InputError(f"the timeline has no rank {missing[0]}", mend=f"it has {len(there)} ranks")
        return list(dict.fromkeys(ranks)), ""
    if len(there) <= MOST_RANKS:
        return there, ""
    picked = np.unique(np.linspace(0, len(there) - 1, MOST_RANKS).round().astype(int))
    return [there[i] for i in picked], f"   ({len(picked)} of {len(there)} ranks shown)"


def _rows(timelines: Sequence[Timeline], ranks: list[int]) -> dict[tuple[int, str], int]:
    """The row of each (rank, stream) that has spans: rank by rank, streams in the order of the timelines."""
    streams = list(dict.fromkeys(stream for timeline in timelines for stream in timeline.streams))
    used = {
        (rank, timeline.streams[stream])
        for timeline in timelines
        for rank, stream in {*zip(timeline.rank.tolist(), timeline.stream.tolist(), strict=True)}
    }
    keys = [(rank, stream) for rank in ranks for stream in streams if (rank, stream) in used]
    return {key: i for i, key in enumerate(keys)}


def _bars(timeline: Timeline, rows: dict[tuple[int, str], int], longest_s: float) -> list[dict[str, Any]]:
    """Spans of the rows, those of one name that touch at the picture's resolution merged, by row and start."""
    row_of = np.full((timeline.ranks, len(timeline.streams)), -1)
    for (rank, stream), line in rows.items():
        if rank < timeline.ranks and stream in timeline.streams:
            row_of[rank, timeline.streams.index(stream)] = line
    place = row_of[timeline.rank, timeline.stream] if len(timeline) else np.zeros(0, dtype=np.int64)
    keep = np.flatnonzero(place >= 0)
    keep = keep[np.lexsort((keep, timeline.start_s[keep], place[keep]))]
    row, name, start, end = place[keep], timeline.name[keep], timeline.start_s[keep], timeline.end_s[keep]
    gap = longest_s / _PIXELS if len(keep) > 20 * _PIXELS else 0.0
    joined = np.zeros(len(keep), dtype=bool)
    joined[1:] = (row[1:] == row[:-1]) & (name[1:] == name[:-1]) & (start[1:] <= end[:-1] + gap) & (gap > 0)
    first = np.flatnonzero(~joined)
    keys = list(rows)
    ends = np.maximum.reduceat(end, first) if len(first) else end
    return [
        {
            "rank": keys[row[i]][0],
            "stream": keys[row[i]][1],
            "name": timeline.names[name[i]],
            "start_s": float(start[i]),
            "end_s": float(last),
            "row": int(row[i]),
        }
        for i, last in zip(first.tolist(), ends.tolist(), strict=True)
    ]


def _by_appearance(groups: Sequence[list[dict[str, Any]]]) -> list[str]:
    return list(dict.fromkeys(bar["name"] for bars in groups for bar in bars))


def _canvas(rows: dict[tuple[int, str], int], row_in: float = 0.2) -> tuple[Picture, Axes]:
    height = min(14.0, 1.3 + row_in * max(1, len(rows)))
    picture = Picture(9.0, height)
    return picture, picture.add_subplot()


def _draw(
    axes: Axes,
    bars: list[dict[str, Any]],
    colour: dict[str, str],
    seconds: float,
    *,
    bottom: float,
    height: float,
    alpha: float = 1.0,
) -> None:
    edge = 0.3 if len(bars) < 60 * len({bar["row"] for bar in bars}) else 0.0  # else edges hide the bars
    for name, fill in colour.items():
        mine = [bar for bar in bars if bar["name"] == name]
        corners = np.array([[bar["start_s"] / seconds, bar["end_s"] / seconds, bar["row"]] for bar in mine])
        if not len(mine):
            continue
        boxes = _boxes(corners, bottom, height)
        axes.add_collection(
            PolyCollection(list(boxes), facecolors=fill, edgecolors="white", linewidths=edge, alpha=alpha)
        )


def _boxes(corners: NDArray[np.float64], bottom: float, height: float) -> NDArray[np.float64]:
    """Rectangles (n, 4, 2) of (start, end, row)."""
    start, end, row = corners.T
    low, high = row + bottom, row + bottom + height
    return np.stack([np.stack([start, end, end, start], 1), np.stack([low, low, high, high], 1)], axis=2)


def _finish(axes: Axes, rows: dict[tuple[int, str], int], longest_s: float, unit: str, seconds: float) -> None:
    keys = list(rows)
    several = len({stream for _, stream in keys}) > 1
    labels = [f"rank {rank} {stream}" if several else f"rank {rank}" for rank, stream in keys]
    step = max(1, -(-len(keys) // 70))
    axes.set_yticks(range(0, len(keys), step), labels[::step], fontsize=7 if len(keys) > 12 else 8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(1, len(keys)) - 0.5, -0.5)
    axes.set_xlim(0, longest_s / seconds * 1.01 or 1.0)
    axes.set_xlabel(f"time ({unit})")
    axes.grid(axis="x")
    for i in range(1, len(keys)):
        if several and keys[i][0] != keys[i - 1][0]:
            axes.axhline(i - 0.5, color="#D0D0D0", linewidth=0.6)


def _legend(axes: Axes, colour: dict[str, str], extra: Sequence[Patch] = ()) -> None:
    handles = [*extra, *(Patch(facecolor=fill, label=name) for name, fill in list(colour.items())[:12])]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.3, handlelength=1.0)
