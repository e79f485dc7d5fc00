"""Timelines: measures of overlap, export and reading back, comparison span by span."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsim.errors import InputError
from llmsim.timeline import Span, Timeline, compare

times = st.floats(0, 1e3, allow_subnormal=False)


@st.composite
def spans(draw, max_size=30):
    """Spans of a few ranks and streams, at any times."""
    rows = st.tuples(
        st.integers(0, 4), st.sampled_from(["compute", "send", "recv"]), st.sampled_from("ab"), times, times
    )
    return [Span(r, s, n, start, start + d) for r, s, n, start, d in draw(st.lists(rows, max_size=max_size))]


def brute_force_busy_s(rows, rank, streams):
    """Length of the union of spans, by cutting time at every start and end."""
    mine = [s for s in rows if s.rank == rank and s.stream in streams]
    cuts = sorted({t for s in mine for t in (s.start_s, s.end_s)})
    pieces = itertools.pairwise(cuts)
    return sum(b - a for a, b in pieces if any(s.start_s <= a and b <= s.end_s for s in mine))


def test_spans_come_out_as_they_went_in():
    rows = [Span(1, "send", "a", 0.0, 2.0), Span(0, "recv", "b", 1.0, 4.0)]
    timeline = Timeline.from_spans(rows, program="by hand")
    assert list(timeline) == rows
    assert timeline.makespan_s == 4.0
    assert timeline.finish_by_rank_s().tolist() == [4.0, 2.0]
    assert timeline.meta == {"program": "by hand"}


def test_nothing_takes_no_time():
    empty = Timeline.from_spans([])
    assert empty.makespan_s == 0.0
    assert empty.ranks == len(empty) == len(empty.finish_by_rank_s()) == len(empty.busy_by_rank_s()) == 0


@given(spans())
def test_busy_and_exposed_time_equal_brute_force(rows):
    timeline = Timeline.from_spans(rows)
    comm = tuple(s for s in ("send", "recv") if s in timeline.streams)
    compute = tuple(s for s in ("compute",) if s in timeline.streams)
    if not comm or not compute:
        return
    busy, exposed = timeline.busy_by_rank_s(*comm), timeline.exposed_by_rank_s(comm, compute)
    for rank in range(timeline.ranks):
        assert busy[rank] == pytest.approx(brute_force_busy_s(rows, rank, comm), rel=1e-9, abs=1e-9)
        both = brute_force_busy_s(rows, rank, comm + compute)
        alone = brute_force_busy_s(rows, rank, compute)
        assert exposed[rank] == pytest.approx(both - alone, rel=1e-9, abs=1e-9)


def test_an_unknown_stream_is_refused():
    with pytest.raises(InputError, match="no stream 'comm'; choose from send"):
        Timeline.from_spans([Span(0, "send", "a", 0.0, 1.0)]).busy_by_rank_s("comm")


@given(rows=spans())
def test_a_trace_reads_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    timeline = Timeline.from_spans(rows, program="ring", ranks=4, ideal=True)
    timeline.to_chrome(path)
    back = Timeline.from_chrome(path)
    assert back.meta == timeline.meta
    assert [(s.rank, s.stream, s.name) for s in back] == [(s.rank, s.stream, s.name) for s in rows]
    np.testing.assert_allclose(back.start_s, timeline.start_s, rtol=1e-14, atol=0)
    np.testing.assert_allclose(back.end_s, timeline.end_s, rtol=1e-14, atol=0)


def test_the_trace_names_ranks_and_streams_and_draws_messages(tmp_path):
    rows = [Span(0, "send", "send", 1e-6, 3e-6), Span(1, "recv", "recv", 0.0, 4e-6)]
    Timeline.from_spans(rows).to_chrome(tmp_path / "trace.json", messages=[(0, 1)])
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"rank 0", "rank 1"}
    assert {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"} >= {(0, "send"), (1, "recv")}
    slices = {e["pid"]: e for e in events if e["ph"] == "X"}
    arrow = {e["ph"]: e for e in events if e["ph"] in "sf"}
    for phase, rank in (("s", 0), ("f", 1)):
        event, span = arrow[phase], slices[rank]
        assert (event["pid"], event["tid"]) == (span["pid"], span["tid"])
        assert span["ts"] <= event["ts"] < span["ts"] + span["dur"]
    assert arrow["s"]["id"] == arrow["f"]["id"]
    assert arrow["s"]["ts"] <= arrow["f"]["ts"]


def test_equal_timelines_give_equal_bytes(tmp_path):
    rows = [Span(r, s, n, 0.1 * r, 0.3 + r) for r in range(3) for s in ("send", "recv") for n in "ab"]
    for name in ("one", "two"):
        Timeline.from_spans(list(rows), seed=1).to_chrome(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("{", "not JSON"),
        ("3", "no list of traceEvents"),
        ('{"traceEvents": 3}', "no list of traceEvents"),
        ("[3]", r"traceEvents\[0\]: not a trace event"),
        ('[{"ph": "X", "pid": 0, "ts": 1, "dur": 1}]', "needs name, pid, ts and dur"),
        ('[{"ph": "X", "name": "a", "pid": -1, "ts": 1, "dur": 1}]', "pid -1 is not a rank"),
        ('[{"ph": "X", "name": "a", "pid": "x", "ts": 1, "dur": 1}]', "pid 'x' is not a rank"),
        ('[{"ph": "X", "name": "a", "pid": 0, "ts": 1, "dur": -1}]', "dur not negative"),
        ('[{"ph": "X", "name": "a", "pid": 0, "ts": NaN, "dur": 1}]', "finite"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, text, finding):
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=finding) as error:
        Timeline.from_chrome(path)
    assert "trace.json" in error.value.line()


def test_a_trace_that_is_not_there_or_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        Timeline.from_chrome(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot write"):
        Timeline.from_spans([]).to_chrome(tmp_path / "no folder" / "trace.json")


event_keys = st.sampled_from(["ph", "pid", "tid", "ts", "dur", "name", "args", "x"])
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ph", "pid", "tid", "ts", "dur", "name", "args"]) | st.just("x"), inner, max_size=6
        )
    ),
    max_leaves=12,
)


@given(events=st.lists(json_values, max_size=4) | json_values, kind=st.sampled_from(["X", "M"]))
def test_any_json_is_read_or_refused(tmp_path_factory, events, kind):
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict):
            event["ph"] = kind
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    try:
        timeline = Timeline.from_chrome(path)
    except InputError:
        return
    assert np.all(timeline.end_s >= timeline.start_s)


# comparison ----------------------------------------------------------------------------------------------------------


@given(spans(), st.randoms(use_true_random=False))
def test_a_timeline_does_not_differ_from_itself_in_any_order(rows, random):
    distinct = list({(s.rank, s.stream, s.name, s.start_s): s for s in rows}.values())
    shuffled = random.sample(distinct, len(distinct))
    comparison = compare(Timeline.from_spans(distinct), Timeline.from_spans(shuffled))
    assert len(comparison) == len(distinct)
    assert [shuffled[j] for j in comparison.measured_index] == distinct
    assert not comparison.end_difference_s.any()
    assert comparison.makespan_error == 0.0
    assert all(row.worst_end_difference_s == 0 for row in comparison.by_stream())


@given(spans(), spans())
def test_every_span_is_paired_once_or_listed(one, two):
    comparison = compare(Timeline.from_spans(one), Timeline.from_spans(two))
    used = [comparison.predicted_index, comparison.only_predicted]
    assert sorted(np.concatenate(used).tolist()) == list(range(len(one)))
    used = [comparison.measured_index, comparison.only_measured]
    assert sorted(np.concatenate(used).tolist()) == list(range(len(two)))
    for i, j in zip(comparison.predicted_index, comparison.measured_index, strict=True):
        assert one[i][:3] == two[j][:3]


@given(spans(), st.floats(1.1, 10))
def test_a_run_twice_as_slow_shows_as_such(rows, factor):
    slower = [s._replace(start_s=s.start_s * factor, end_s=s.end_s * factor) for s in rows]
    comparison = compare(Timeline.from_spans(rows), Timeline.from_spans(slower))
    makespan_s = max((s.end_s for s in rows), default=0.0)
    if makespan_s:
        assert comparison.makespan_error == pytest.approx(1 / factor - 1)
    assert np.all(comparison.end_difference_s <= 0)
    assert comparison.summary()["worst_end_difference_s"] == pytest.approx(makespan_s * (factor - 1), rel=1e-6)


def test_rows_by_rank_and_stream():
    predicted = [Span(0, "send", "a", 0.0, 1.0), Span(0, "send", "a", 1.0, 2.0), Span(1, "recv", "a", 0.0, 2.0)]
    measured = [Span(0, "send", "a", 0.0, 1.5), Span(0, "send", "a", 1.5, 4.0), Span(2, "recv", "a", 0.0, 3.0)]
    comparison = compare(Timeline.from_spans(predicted), Timeline.from_spans(measured))
    assert comparison.by_rank().tolist() == [-2.0, 2.0, -3.0]
    (row,) = comparison.by_stream()
    assert (row.rank, row.stream, row.spans) == (0, "send", 2)
    assert (row.predicted_finish_s, row.measured_finish_s) == (2.0, 4.0)
    assert (row.predicted_busy_s, row.measured_busy_s) == (2.0, 4.0)
    assert row.worst_end_difference_s == 2.0
    summary = comparison.summary()
    assert (summary["only_predicted"], summary["only_measured"], summary["spans"]) == (1, 1, 2)
    assert summary["makespan_error"] == -0.5


def test_an_error_against_a_run_of_no_time_is_infinite():
    some, none = Timeline.from_spans([Span(0, "a", "a", 0.0, 1.0)]), Timeline.from_spans([])
    assert compare(some, none).makespan_error == float("inf")
    assert compare(none, none).makespan_error == 0.0


def test_an_interrupt_leaves_no_half_a_trace(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("the one before")
    timeline = Timeline.from_spans([Span(0, "send", "a", 0.0, 1.0)])

    def interrupted(self, messages):
        yield {"ph": "M"}
        raise KeyboardInterrupt

    monkeypatch.setattr(Timeline, "_chrome_events", interrupted)
    with pytest.raises(KeyboardInterrupt):
        timeline.to_chrome(path)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    assert path.read_text() == "the one before"
