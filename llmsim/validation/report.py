"""A validation report: what was predicted and what was measured, as data, as tables, as pictures and as a page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim.cost.profile import Profile
from llmsim.errors import InputError
from llmsim.timeline import Span, Timeline
from llmsim.units import format_duration
from llmsim.validation.records import Case, Pair, Point
from llmsim.validation.statistics import GROUPINGS, Summary, by_group, summarize

if TYPE_CHECKING:
    from rich.table import Table

# What a prediction has to reach to be called good, on points whose links are shaped.
MEDIAN_TARGET, P95_TARGET, RATIO_TARGET = 0.05, 0.15, 0.97


@dataclass(frozen=True)
class Overlay:
    """Both timelines of one case; the measured one is of the repeat whose time is nearest to the median."""

    case: Case
    predicted: Timeline
    measured: Timeline


@dataclass(frozen=True)
class Report:
    """All of one validation.

    Attributes:
        predicted_at, measured_at: when predictions were written down, and when the last measurement ended; UTC.
        settings: how it was run: repeats, warm-up, shape of the links.
        notes: what a reader has to know, such as cases left out and why.
    """

    title: str
    profile: Profile
    points: tuple[Point, ...]
    predicted_at: str
    measured_at: str
    pairs: tuple[Pair, ...] = ()
    overlays: tuple[Overlay, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> Summary:
        """Errors over all points."""
        return summarize(self.points)

    @property
    def shaped(self) -> tuple[Point, ...]:
        """The points on links of a stated rate."""
        return tuple(point for point in self.points if point.case.bandwidth_bytes_per_s is not None)

    def findings(self) -> list[tuple[str, float, str, bool]]:
        """(what, value, target, reached) of each criterion that this report can judge."""
        rows = []
        if self.shaped:
            errors = summarize(self.shaped)
            rows += [
                ("median |error|", errors.median_abs, f"≤ {MEDIAN_TARGET:.0%}", errors.median_abs <= MEDIAN_TARGET),
                ("95th percentile of |error|", errors.p95_abs, f"≤ {P95_TARGET:.0%}", errors.p95_abs <= P95_TARGET),
            ]
        if self.pairs:
            worst = min(self.pairs, key=lambda pair: pair.speed_ratio)
            rows.append(
                (
                    f"our speed / {worst.theirs}'s, lowest of {len(self.pairs)}",
                    worst.speed_ratio,
                    f"≥ {RATIO_TARGET:.0%}",
                    worst.speed_ratio >= RATIO_TARGET,
                )
            )
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: every record, and the statistics that follow from them."""
        return {
            "title": self.title,
            "predicted_at": self.predicted_at,
            "measured_at": self.measured_at,
            "machine": asdict(self.profile.machine),
            "summary": asdict(self.summary),
            "summary_shaped": asdict(summarize(self.shaped)) if self.shaped else None,
            "criteria": [
                {"what": what, "value": value, "target": target, "reached": reached}
                for what, value, target, reached in self.findings()
            ],
            "groups": {
                grouping: {name: asdict(summary) for name, summary in by_group(self.points, grouping).items()}
                for grouping in GROUPINGS
            },
            "points": [
                {
                    "case": point.case.name,
                    **asdict(point.case),
                    "predicted_s": point.predicted_s,
                    "measured_s": point.measured_s,
                    "error": point.error,
                    "spread": point.spread,
                    "rounds": point.rounds,
                    "repeats_s": list(point.repeats_s),
                }
                for point in self.points
            ],
            "pairs": [{"case": pair.case.name, **asdict(pair), "speed_ratio": pair.speed_ratio} for pair in self.pairs],
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "profile": self.profile.to_dict(),
        }

    # for people --------------------------------------------------------------------------------------------------

    def tables(self, *, every_point: bool = True) -> "list[Table]":
        """Rich tables: the points, the errors by group, the criteria."""
        from rich.table import Table

        def table(title: str, *columns: str) -> Table:
            result = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
            for i, column in enumerate(columns):
                result.add_column(column, justify="left" if i == 0 else "right")
            return result

        tables = []
        if every_point:
            points = table("Predicted and measured", "case", "predicted", "measured", "error", "spread")
            for point in self.points:
                points.add_row(
                    point.case.name,
                    format_duration(point.predicted_s),
                    format_duration(point.measured_s),
                    f"{point.error:+.1%}",
                    f"±{point.spread:.1%}",
                )
            tables.append(points)
        groups = table("Errors by group", "", "points", "median |error|", "95th pct.", "bias")
        shown = {"all": self.summary} | by_group(self.points, "network") | by_group(self.points, "rate")
        for name, summary in (shown | by_group(self.points, "ranks") | by_group(self.points, "collective")).items():
            groups.add_row(
                name, str(summary.points), f"{summary.median_abs:.1%}", f"{summary.p95_abs:.1%}", f"{summary.bias:+.1%}"
            )
        tables.append(groups)
        if self.pairs:
            paired = table("Paired with the backend's own", "case", "ours", "theirs", "our speed / theirs")
            for pair in self.pairs:
                ours, theirs = (sorted(times)[len(times) // 2] for times in (pair.ours_s, pair.theirs_s))
                paired.add_row(
                    f"{pair.case.name} / {pair.theirs}",
                    format_duration(ours),
                    format_duration(theirs),
                    f"{pair.speed_ratio:.1%}",
                )
            tables.append(paired)
        if self.findings():
            criteria = table("Criteria", "", "value", "target", "")
            for what, value, target, reached in self.findings():
                criteria.add_row(what, f"{value:.1%}", target, "reached" if reached else "missed")
            tables.append(criteria)
        return tables

    def write(self, directory: str | Path, stem: str = "report") -> dict[str, Path]:
        """Write ``STEM.json``, ``.png``, ``.html``, ``.md`` and, where there is an overlay, ``STEM-trace.json``, which
        Perfetto opens, with both timelines; returns the files by kind.

        Raises:
            InputError: a file cannot be written.
        """
        from llmsim.validation.gist import gist
        from llmsim.validation.page import page, scatter

        folder = Path(directory)
        files = {kind: folder / f"{stem}.{kind}" for kind in ("json", "png", "html", "md")}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
            files["json"].write_text(text + "\n", encoding="utf-8")
            files["html"].write_text(page(self), encoding="utf-8")
            files["md"].write_text(gist(self, files["png"].name, files["html"].name), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write the report: {error.strerror}", where=str(folder)) from error
        scatter(self).save(files["png"])
        if self.overlays:
            files["trace"] = folder / f"{stem}-trace.json"
            overlay = self.overlays[0]
            side_by_side(overlay.predicted, overlay.measured).to_chrome(files["trace"])
        return files


def side_by_side(predicted: Timeline, measured: Timeline) -> Timeline:
    """Both timelines as one, in which each stream of a rank stands twice: ``send (predicted)``, ``send (measured)``."""
    spans = []
    for stream in dict.fromkeys((*predicted.streams, *measured.streams)):
        for timeline, what in ((predicted, "predicted"), (measured, "measured")):
            spans += [
                Span(s.rank, f"{stream} ({what})", s.name, s.start_s, s.end_s) for s in timeline if s.stream == stream
            ]
    return Timeline.from_spans(spans, program=predicted.meta.get("program", ""))
