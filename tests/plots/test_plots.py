"""Pictures carry what they show; tests look at that and never at pixels."""

import subprocess
import sys
import threading

import matplotlib as mpl
import numpy as np
import pytest

from llmsim import plots
from llmsim.cluster import build_topology
from llmsim.errors import InputError
from llmsim.timeline import Span, Timeline


def ring_like(ranks, factor=1.0):
    """Sends and receives of a few steps on each rank."""
    rows = []
    for rank in range(ranks):
        for step in range(3):
            rows.append(Span(rank, "send", "send", step * factor, (step + 0.5) * factor))
            rows.append(Span(rank, "recv", "recv", step * factor, (step + 1) * factor))
    return Timeline.from_spans(rows, program="ring")


# timelines -----------------------------------------------------------------------------------------------------------


def test_gantt_draws_every_span_on_the_row_of_its_rank_and_stream():
    timeline = ring_like(4)
    data = plots.gantt(timeline).data
    drawn = {(b["rank"], b["stream"], b["name"], b["start_s"], b["end_s"]) for b in data["rows"]}
    assert drawn == {tuple(span) for span in timeline}
    assert data["makespan_s"] == 3.0
    rows = {(b["rank"], b["stream"]): b["row"] for b in data["rows"]}
    assert sorted(rows.values()) == list(range(8))
    assert sorted(rows, key=lambda key: rows[key])[:3] == [(0, "send"), (0, "recv"), (1, "send")]


def test_gantt_of_many_ranks_shows_some_and_says_so():
    picture = plots.gantt(ring_like(100))
    ranks = {b["rank"] for b in picture.data["rows"]}
    assert len(ranks) == 32
    assert {0, 99} <= ranks
    assert "32 of 100 ranks shown" in picture.axes[0].get_title(loc="left")
    assert {b["rank"] for b in plots.gantt(ring_like(100), ranks=[7, 5]).data["rows"]} == {5, 7}


def test_gantt_merges_bars_too_fine_to_see_without_losing_time():
    count = 100_000
    spans = Timeline(
        rank=np.zeros(count, np.int32),
        stream=np.zeros(count, np.int32),
        name=(np.arange(count) % 20_000 == 0).astype(np.int32),
        start_s=np.arange(count, dtype=float),
        end_s=np.arange(1, count + 1, dtype=float),
        streams=("compute",),
        names=("kernel", "marker"),
    )
    bars = plots.gantt(spans).data["rows"]
    assert len(bars) == 10
    assert sum(b["end_s"] - b["start_s"] for b in bars) == count
    assert sum(b["name"] == "marker" for b in bars) == 5


def test_gantt_refuses_a_rank_that_is_not_there():
    with pytest.raises(InputError, match="no rank 9"):
        plots.gantt(ring_like(2), ranks=[0, 9])


def test_an_empty_timeline_is_drawn_as_nothing():
    assert plots.gantt(Timeline.from_spans([])).data == {"rows": [], "makespan_s": 0.0}


def test_compare_gantt_has_both_and_their_difference():
    data = plots.compare_gantt(ring_like(3), ring_like(3, factor=1.25)).data
    assert len(data["predicted"]) == len(data["measured"]) == 18
    assert data["summary"]["makespan_error"] == pytest.approx(-0.2)
    assert [b["row"] for b in data["predicted"]] == [b["row"] for b in data["measured"]]


# clusters ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ranks", "options", "layout"),
    [
        ("ring", 8, {}, "circle"),
        ("ring", 2, {}, "line"),
        ("line", 5, {}, "line"),
        ("fully-connected", 6, {}, "circle"),
        ("switch", 8, {}, "layers"),
        ("two-racks", 7, {}, "layers"),
        ("leaf-spine", 64, {"oversubscription": 4}, "layers"),
        ("fat-tree", 16, {}, "layers"),
        ("torus", 16, {}, "grid"),
        ("torus", 27, {"dims": "3x3x3"}, "grid"),
        ("mesh", 12, {}, "grid"),
        ("dragonfly", 72, {}, "radial"),
    ],
)
def test_topology_places_every_node_apart_and_draws_every_link(name, ranks, options, layout):
    cluster = build_topology(name, ranks, 50e9, 5e-7, **options)
    data = plots.topology(cluster).data
    assert data["layout"] == layout
    places = data["positions"]
    assert set(places) == set(cluster.graph)
    points = np.array(list(places.values()))
    apart = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    assert apart[~np.eye(len(points), dtype=bool)].min() > 0.2
    drawn = {frozenset((c.a, c.b)) for c in data["cables"]}
    assert drawn == {frozenset(edge) for edge in cluster.graph.edges}
    assert len(data["cables"]) == len(drawn) == len(cluster.links) / 2


def test_switches_stand_above_what_they_join():
    places = plots.topology(build_topology("leaf-spine", 16, 1e9, 1e-6)).data["positions"]
    heights = {kind: {y for name, (_, y) in places.items() if name.startswith(kind)} for kind in ("d", "leaf", "spine")}
    assert all(len(values) == 1 for values in heights.values())
    assert max(heights["d"]) < max(heights["leaf"]) < max(heights["spine"])


def test_a_cable_with_unequal_directions_is_two():
    cluster = build_topology("line", 2, 1e9, 1e-6)
    cluster.graph.edges["d0", "d1"]["bandwidth_bytes_per_s"] = 2e9
    fresh = type(cluster)(cluster.name, cluster.graph, cluster.devices)
    cables = plots.topology(fresh).data["cables"]
    assert sorted(c.bandwidth_bytes_per_s for c in cables) == [1e9, 2e9]


# curves --------------------------------------------------------------------------------------------------------------


def test_curves_carry_their_lines():
    picture = plots.curves(
        [1, 2, 4], {"ring": [1, 2, 4]}, x_label="ranks", bounds={"bound": [1, 1, 1]}, points={"ring": ([2], [2.1])}
    )
    assert picture.data == {
        "x": [1, 2, 4],
        "series": {"ring": [1, 2, 4]},
        "bounds": {"bound": [1, 1, 1]},
        "points": {"ring": [[2], [2.1]]},
    }
    (axes,) = picture.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ranks", "time")
    assert axes.yaxis.get_major_formatter()(2e-3, 0) == "2 ms"


def test_curves_of_unequal_length_are_refused():
    with pytest.raises(InputError, match="'ring' has 2 points, x has 3"):
        plots.curves([1, 2, 4], {"ring": [1, 2]}, x_label="ranks")


def test_predicted_against_measured_computes_errors():
    data = plots.predicted_against_measured([("a", 1.1, 1.0), ("a", 0.8, 1.0), ("b", 3.0, 3.0)]).data
    assert data["error"] == pytest.approx([0.1, -0.2, 0.0])
    assert data["median_error"] == pytest.approx(0.1)
    assert data["p95_error"] == pytest.approx(np.percentile([0.1, 0.2, 0.0], 95))


@pytest.mark.parametrize("points", [[], [("a", 0.0, 1.0)], [("a", 1.0, float("nan"))]])
def test_points_that_have_no_place_on_a_logarithmic_axis_are_refused(points):
    with pytest.raises(InputError):
        plots.predicted_against_measured(points)


# files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_equal_pictures_are_equal_bytes(tmp_path, suffix):
    for name in ("one", "two"):
        plots.gantt(ring_like(2)).save(tmp_path / f"{name}.{suffix}")
    content = (tmp_path / f"one.{suffix}").read_bytes()
    assert len(content) > 1000
    assert content == (tmp_path / f"two.{suffix}").read_bytes()


@pytest.mark.parametrize("name", ["picture.xyz", "picture", "no folder/picture.png"])
def test_a_file_that_cannot_be_written_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="picture"):
        plots.gantt(ring_like(2)).save(tmp_path / name)


def test_a_notebook_shows_a_picture():
    assert plots.gantt(ring_like(2))._repr_png_().startswith(b"\x89PNG")


def test_the_callers_style_is_left_alone_and_does_not_matter():
    with mpl.rc_context({"font.size": 31, "axes.grid": True}):
        plots.gantt(ring_like(2))
        assert mpl.rcParams["font.size"] == 31
        (axes,) = plots.gantt(ring_like(2)).axes
        assert axes.xaxis.label.get_fontsize() < 15


def test_pyplot_is_not_needed_and_threads_may_draw():
    code = (
        "import sys; from llmsim import plots; from llmsim.timeline import Timeline;"
        "plots.gantt(Timeline.from_spans([])); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    thread = threading.Thread(target=lambda: plots.gantt(ring_like(2))._repr_png_())
    thread.start()
    thread.join()
