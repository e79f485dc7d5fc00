"""The gist of a report in Markdown, for places that show no web pages."""

from typing import TYPE_CHECKING

from llmsim.validation.statistics import GROUPINGS, by_group

if TYPE_CHECKING:
    from llmsim.validation.report import Report


def gist(report: "Report", picture: str, page: str) -> str:
    """Criteria, errors by group, the picture and what it was made with; ``picture`` and ``page`` are file names."""
    machine, errors = report.profile.machine, report.summary
    lines = [
        f"# {report.title}",
        "",
        f"{errors.points} points, median |error| {errors.median_abs:.1%}, 95th percentile {errors.p95_abs:.1%}, median "
        f"error {errors.bias:+.1%}. Error is predicted / measured − 1.",
        "",
        *(line for note in report.notes for line in (note, "")),
        f"![predicted against measured]({picture})",
        "",
    ]
    if report.findings():
        lines += [_row("criterion", "value", "target", ""), _row(*["---"] * 4)]
        for what, value, target, reached in report.findings():
            lines.append(_row(what, f"{value:.1%}", target, "reached" if reached else "missed"))
        lines.append("")
    lines += [_row("group", "points", "median |error|", "95th percentile", "bias"), _row(*["---"] * 5)]
    for grouping in GROUPINGS:
        for name, s in by_group(report.points, grouping).items():
            lines.append(_row(name, str(s.points), f"{s.median_abs:.1%}", f"{s.p95_abs:.1%}", f"{s.bias:+.1%}"))
    lines += [
        "",
        f"Every point, the timelines of one case, and the calibration with its residuals: [{page}]({page}).",
        "",
        f"{machine.cpu}, {machine.cores} cores, {machine.kernel}, Python {machine.python}, PyTorch {machine.torch}.",
        f"Calibrated {machine.date}, predicted {report.predicted_at}, last measured {report.measured_at}.",
    ]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    """A row of a table; a bar inside a cell would end it."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
