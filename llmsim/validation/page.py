"""The report as one self-contained web page: styles and pictures are inside, nothing is loaded from elsewhere."""

import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from llmsim.units import format_bandwidth, format_duration, format_flop_rate, format_size
from llmsim.validation.statistics import GROUPINGS, by_group

if TYPE_CHECKING:
    from llmsim.plots import Picture
    from llmsim.validation.report import Report

_STYLE = """
:root { --ink: #1d2430; --faint: #6b7482; --line: #e3e7ec;
  --good: #00795a; --bad: #b3401a; --slow: #e69f00; --fast: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 2.5rem 1.5rem 5rem; color: var(--ink); background: #fff;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.6rem 0 .6rem; }
p, li { max-width: 46rem; } .faint { color: var(--faint); }
.cards { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.4rem 0; }
.card { border: 1px solid var(--line); border-radius: .6rem; padding: .8rem 1.1rem; min-width: 11rem; }
.card b { display: block; font-size: 1.6rem; font-weight: 600; } .card.good b { color: var(--good); }
.card.bad b { color: var(--bad); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13.5px; }
th { text-align: right; font-weight: 600; color: var(--faint); border-bottom: 1px solid var(--line); }
td { text-align: right; } th, td { padding: .22rem .8rem; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tbody tr:hover { background: #f6f8fa; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
.bar { display: inline-block; width: 9rem; height: .75rem; position: relative; vertical-align: middle;
  background: linear-gradient(#aab2bc, #aab2bc) center / 1px 100% no-repeat; }
.bar i { position: absolute; top: .1rem; height: .55rem; border-radius: 2px; }
details { margin-top: .6rem; } summary { cursor: pointer; color: var(--fast); }
"""

_EARLY_SENDS = (
    "A measured send ends when the operating system has taken its last byte, up to a socket buffer before that has "
    "left."
)


def scatter(report: "Report") -> "Picture":
    """Predicted against measured, and the errors, coloured by algorithm."""
    from llmsim.plots import predicted_against_measured

    points = [(f"{p.case.collective} {p.case.algorithm}", p.predicted_s, p.measured_s) for p in report.points]
    errors = report.summary
    title = f"{errors.points} points: median |error| {errors.median_abs:.1%}, 95th percentile {errors.p95_abs:.1%}"
    picture = predicted_against_measured(points, title=" ")
    picture.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return picture


def page(report: "Report") -> str:
    """The whole page as HTML."""
    from llmsim.plots import compare_gantt

    machine = report.profile.machine
    body = [
        f"<h1>{escape(report.title)}</h1>",
        f'<p class="faint">{escape(machine.cpu)}, {machine.cores} cores, {escape(machine.kernel)}, PyTorch '
        f"{escape(machine.torch)}, {escape(report.profile.backend)} on {escape(report.profile.device)}. Predictions "
        f"written down {escape(report.predicted_at)}, last measurement {escape(report.measured_at)}.</p>",
        _cards(report),
        *(f"<p>{escape(note)}</p>" for note in report.notes),
        f"<h2>Predicted against measured</h2>{_svg(scatter(report))}",
    ]
    for overlay in report.overlays:
        picture = compare_gantt(overlay.predicted, overlay.measured, title=overlay.case.name)
        body.append(f"<h2>One case in time</h2>{_svg(picture)}")
        if report.profile.backend == "gloo":
            body.append(f'<p class="faint">{_EARLY_SENDS}</p>')
    body += [
        "<h2>Errors by group</h2>",
        _group_tables(report),
        "<h2>All points</h2>",
        "<p>Error is predicted / measured − 1; the measured time is the median of the repeats, and spread half the "
        "distance between their quartiles. Runs of less than 0.1 s are of several collectives in a row, of which the "
        "time of one is given.</p>",
        _points_table(report),
    ]
    if report.pairs:
        body += ["<h2>Beside the backend's own collective</h2>", _pairs_table(report)]
    body += ["<h2>The calibration</h2>", _calibration(report)]
    title = escape(report.title)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _cards(report: "Report") -> str:
    cards = [f'<div class="card">points<b>{len(report.points)}</b></div>']
    findings = report.findings()
    for what, value, target, reached in findings:
        kind = "good" if reached else "bad"
        cards.append(f'<div class="card {kind}">{escape(what)}<b>{value:.1%}</b>target {escape(target)}</div>')
    if not report.shaped:
        summary = report.summary
        cards.append(f'<div class="card">median |error|<b>{summary.median_abs:.1%}</b></div>')
        cards.append(f'<div class="card">95th percentile<b>{summary.p95_abs:.1%}</b></div>')
    return f'<div class="cards">{"".join(cards)}</div>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{column}</th>" for column in columns)
    lines = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody></table></div>'


def _group_tables(report: "Report") -> str:
    rows = []
    for grouping in GROUPINGS:
        rows.append([f'<b class="faint">by {escape(grouping)}</b>', "", "", "", ""])
        for name, s in by_group(report.points, grouping).items():
            rows.append([escape(name), str(s.points), f"{s.median_abs:.1%}", f"{s.p95_abs:.1%}", f"{s.bias:+.1%}"])
    return _table(["", "points", "median |error|", "95th percentile", "bias"], rows)


def _points_table(report: "Report") -> str:
    widest = max(0.2, *(abs(point.error) for point in report.points))
    rows = [
        [
            escape(point.case.name),
            format_duration(point.predicted_s),
            format_duration(point.measured_s),
            f"{point.error:+.1%}",
            _bar(point.error / widest),
            f"±{point.spread:.1%}",
        ]
        for point in report.points
    ]
    return _table(["case", "predicted", "measured", "error", "too fast | too slow", "spread"], rows)


def _bar(share: float) -> str:
    """A bar from the middle to the left (−1) or the right (1)."""
    left, width = (50, share * 50) if share >= 0 else (50 + share * 50, -share * 50)
    colour = "var(--slow)" if share >= 0 else "var(--fast)"
    return f'<span class="bar"><i style="left:{left:.1f}%;width:{width:.1f}%;background:{colour}"></i></span>'


def _pairs_table(report: "Report") -> str:
    rows = []
    for pair in report.pairs:
        ours, theirs = (sorted(times)[len(times) // 2] for times in (pair.ours_s, pair.theirs_s))
        rows.append([
            escape(pair.case.name), escape(pair.theirs), format_duration(ours), format_duration(theirs),
            f"{pair.speed_ratio:.1%}", str(len(pair.ours_s)),
        ])  # fmt: skip
    return _table(["case", "theirs", "our time", "their time", "our speed / theirs", "pairs"], rows)


def _calibration(report: "Report") -> str:
    profile = report.profile
    rows = []
    for name, t in profile.transports.items():
        rows.append([
            escape(name), format_duration(t.alpha_s), format_duration(t.cpu_s_per_message),
            format_bandwidth(t.bandwidth_bytes_per_s), f"{t.link_efficiency:.1%}",
            f"{t.cpu_s_per_byte * 1e9:.3g} ns", format_duration(t.cpu_s_per_packet),
        ])  # fmt: skip
    columns = [
        "messages over",
        "α",
        "of it core time",
        "bandwidth",
        "share of a link's rate",
        "core time a byte",
    ]
    rates = [[f"add {format_size(r.size)}", format_bandwidth(r.rate_per_s)] for r in profile.reduce] + [
        [f"copy {format_size(r.size)}", format_bandwidth(r.rate_per_s)] for r in profile.copy
    ]
    rates += [[f"product {r.size} × {r.size}, {r.dtype}", format_flop_rate(r.rate_per_s)] for r in profile.matmul]
    fits = [
        [
            escape(f"{name}: {fit.quantity}"), escape(f"{fit.formula}"), str(len(fit.points)),
            f"{fit.median_residual:.1%}", f"{fit.worst_residual:.1%}",
        ]
        for name, fit in profile.fits()
    ]  # fmt: skip
    return (
        f"<p>One calibration, {escape(profile.machine.date)}, of point-to-point messages only; no case is tuned.</p>"
        + _table(columns, rows)
        + "<details><summary>Fits and their residuals</summary>"
        + _table(["fit", "form", "points", "median |residual|", "worst"], fits)
        + "</details><details><summary>Rates of the device</summary>"
        + _table(["operation", "rate"], rates)
        + "</details>"
    )


def _svg(picture: "Picture") -> str:
    """A picture as an SVG element."""
    import matplotlib as mpl

    from llmsim.plots.picture import STYLE

    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        picture.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
