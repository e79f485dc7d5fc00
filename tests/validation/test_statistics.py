"""Errors, percentiles and groups against brute force."""

from math import ceil, floor

import pytest
from example_report import case
from hypothesis import given
from hypothesis import strategies as st

from llmsim.errors import InputError
from llmsim.validation import Case, Pair, Point, by_group, summarize
from llmsim.validation.statistics import GROUPINGS

seconds = st.floats(1e-6, 1e3)


@st.composite
def points(draw):
    repeats = st.lists(seconds, min_size=1, max_size=5)
    one = st.builds(
        lambda n, size, network, predicted, repeats: Point(case(n, size, network=network), predicted, tuple(repeats)),
        st.sampled_from([2, 4, 8]),
        st.sampled_from([1 << 10, 1 << 20]),
        st.sampled_from(["star", "two-racks", "loopback"]),
        seconds,
        repeats,
    )
    return draw(st.lists(one, min_size=1, max_size=20))


def percentile(values, share: float) -> float:
    """The value at a share of the way through the sorted values, on the line between its neighbours."""
    values = sorted(values)
    at = share * (len(values) - 1)
    low, high = values[floor(at)], values[ceil(at)]
    return low + (high - low) * (at - floor(at))


@given(points())
def test_a_summary_is_what_counting_says(points):
    summary = summarize(points)
    errors = [p.predicted_s / percentile(p.repeats_s, 0.5) - 1 for p in points]
    sizes = [abs(e) for e in errors]
    assert summary.points == len(points)
    assert summary.median_abs == pytest.approx(percentile(sizes, 0.5), rel=1e-9, abs=1e-12)
    assert summary.p95_abs == pytest.approx(percentile(sizes, 0.95), rel=1e-9, abs=1e-12)
    assert summary.worst_abs == pytest.approx(max(sizes), rel=1e-9, abs=1e-12)
    assert summary.bias == pytest.approx(percentile(errors, 0.5), rel=1e-9, abs=1e-12)


@given(points())
def test_the_spread_is_half_the_distance_of_the_quartiles(points):
    for point in points:
        low, middle, high = (percentile(point.repeats_s, share) for share in (0.25, 0.5, 0.75))
        assert point.spread == pytest.approx((high - low) / 2 / middle, rel=1e-9, abs=1e-12)


@given(points(), st.sampled_from(sorted(GROUPINGS)))
def test_every_point_is_in_one_group(points, grouping):
    groups = by_group(points, grouping)
    assert sum(summary.points for summary in groups.values()) == len(points)
    assert max(summary.worst_abs for summary in groups.values()) == summarize(points).worst_abs
    for name, summary in groups.items():
        members = [point for point in points if GROUPINGS[grouping](point) == name]
        assert summary == summarize(members)


def test_groups_are_named_for_people():
    point = Point(Case("all-reduce", "ring", 4, 1 << 20, "star", 25e6), 1.0, (1.0,))
    names = {grouping: name(point) for grouping, name in GROUPINGS.items()}
    assert names == {
        "network": "star", "rate": "200 Mb/s", "collective": "all-reduce ring", "ranks": "4 ranks", "size": "1 MiB"
    }  # fmt: skip
    assert point.case.name == "all-reduce ring n4 1 MiB star 200 Mb/s"


def test_a_prediction_that_is_too_fast_has_a_negative_error():
    assert Point(case(), 0.9, (1.0, 1.0, 5.0)).error == pytest.approx(-0.1)


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=9))
def test_a_pair_compares_neighbours(times):
    ours, theirs = zip(*times, strict=True)
    assert Pair(case(), "gloo", ours, theirs).speed_ratio == pytest.approx(
        percentile([t / o for o, t in times], 0.5), rel=1e-9
    )


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_duration_is_refused(wrong):
    with pytest.raises(InputError, match="is no duration"):
        Point(case(), wrong, (1.0,))
    with pytest.raises(InputError, match="is no duration"):
        Point(case(), 1.0, (1.0, wrong))


def test_nothing_is_nothing_to_judge():
    with pytest.raises(InputError, match="no points"):
        summarize([])
    with pytest.raises(InputError, match="no measurement"):
        Point(case(), 1.0, ())
    with pytest.raises(InputError, match="as many"):
        Pair(case(), "gloo", (1.0,), (1.0, 2.0))
