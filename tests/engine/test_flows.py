"""Files of flows: what they mean, and what is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.cluster.cluster import Link
from llmsim.engine import FlowSet, FlowSpec, load_flows, simulate_flows
from llmsim.engine.flow_file import parse_flows
from llmsim.errors import InputError

YAML = """
links:
  - {from: a, to: b, bandwidth: 8Gb/s, latency: 5us}
  - {from: b, to: c, bandwidth: 500MB/s, latency: 10us, name: uplink}
flows:
  - {name: long, size: 1GB, route: [a, b, c]}
  - {name: short, start: 1s, size: 100MB, route: [uplink]}
"""
TOML = """
links = [{from = "a", to = "b", bandwidth = "1GB/s", latency = "5us"},
         {source = "b", destination = "c", bandwidth = "500MB/s", latency = "10us", name = "uplink"}]
[[flows]]
name = "long"
size = "1GB"
route = ["a", "b", "c"]
[[flows]]
name = "short"
start = "1s"
size = 100_000_000
route = ["b", "c"]
"""
JSON = json.dumps(
    {
        "links": [
            {"name": "first", "bandwidth": "1GB/s", "latency": "5us"},
            {"name": "second", "bandwidth": "500MB/s", "latency": "10us"},
        ],
        "flows": [
            {"name": "long", "start": 0, "size": "1GB", "route": ["first", "second"]},
            {"name": "short", "start": "1s", "size": "100MB", "route": ["second"]},
        ],
    }
)


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize(("suffix", "text"), [(".yaml", YAML), (".toml", TOML), (".json", JSON)])
def test_a_file_in_each_format(tmp_path, suffix, text, engine):
    """The long flow has 500 MB left when the short one comes; both then go at 250 MB/s for 0.4 s."""
    path = tmp_path / f"net{suffix}"
    path.write_text(text)
    long, short = simulate_flows(load_flows(path), engine=engine)
    assert (long.name, short.name) == ("long", "short")
    assert long.completion_s == pytest.approx(2.2 + 15e-6, rel=1e-12)
    assert short.completion_s == pytest.approx(1.4 + 10e-6, rel=1e-12)
    assert short.start_s == 1.0
    assert short.duration_s == pytest.approx(0.4 + 10e-6)
    assert short.mean_rate_bytes_per_s == pytest.approx(100e6 / (0.4 + 10e-6))


def document(**changes):
    base = {
        "links": [{"from": "a", "to": "b", "bandwidth": "1GB/s", "latency": "1us", "name": "ab"}],
        "flows": [{"size": "1MB", "route": ["a", "b"]}],
    }
    return base | changes


def test_defaults():
    flow_set = parse_flows(document(links=[{"from": "a", "to": "b", "bandwidth": "1GB/s"}]))
    assert flow_set.flows == (FlowSpec("flow 0", 1_000_000, (0,), 0.0),)
    assert flow_set.links == (Link("a", "b", 1e9, 0.0), Link("b", "a", 1e9, 0.0))


def test_both_directions_have_the_whole_bandwidth():
    flows = [{"size": "1GB", "route": ["a", "b"]}, {"size": "1GB", "route": ["b", "a"]}]
    assert [r.completion_s for r in simulate_flows(parse_flows(document(flows=flows)))] == pytest.approx(
        [1.0, 1.0], rel=1e-5
    )


LINK = {"from": "a", "to": "b", "bandwidth": "1GB/s"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flows": [{"size": "1MB"}]}, r"net.yaml: flows\[0\].route: is missing"),
        (
            {"flows": [{"size": "1 furlong", "route": ["a", "b"]}]},
            r"flows\[0\].size: 'furlong' in '1 furlong' is not a unit",
        ),
        ({"flows": [{"size": "-1MB", "route": ["a", "b"]}]}, r"flows\[0\].size: '-1MB' is negative"),
        ({"flows": [{"size": "1MB", "route": ["a", "b"], "weight": 2}]}, r"flows\[0\].weight: unknown field"),
        ({"flows": [{"size": "1MB", "route": ["a", "b"], "start": 5}]}, r"flows\[0\].start: 5 is not a duration"),
        ({"flows": [{"size": "1MB", "route": ["a", "b"], "start": "-1s"}]}, r"flows\[0\].start: '-1s' is negative"),
        ({"flows": [{"size": "1MB", "route": ["a", "c"]}]}, r"flows\[0\].route: no link leads from a to c"),
        ({"flows": [{"size": "1MB", "route": ["a"]}]}, r"flows\[0\].route: 'a' is no link"),
        ({"flows": [{"size": "1MB", "route": ["ab", "xy"]}]}, r"flows\[0\].route: there is no link 'xy'"),
        ({"flows": [{"size": "1MB", "route": ["a", "b", "a", "b"]}]}, r"flows\[0\].route: it crosses a link twice"),
        ({"flows": []}, r"flows: "),
        ({"flows": [{"name": "x", "size": 1, "route": ["ab"]}] * 2}, r"flows\[1\]: there are two flows 'x'"),
        ({"links": [LINK | {"bandwidth": "0GB/s"}]}, r"links\[0\].bandwidth: '0GB/s' is no bandwidth"),
        ({"links": [LINK | {"bandwidth": "5us"}]}, r"links\[0\].bandwidth: 'us' in '5us' is not a unit of bandwidth"),
        ({"links": [LINK | {"latency": "1GB/s"}]}, r"links\[0\].latency: "),
        ({"links": [{"from": "a", "bandwidth": "1GB/s"}]}, r"links\[0\]: its ends are not known; give from and to"),
        ({"links": [LINK | {"to": "a"}]}, r"links\[0\]: it leads from a to itself"),
        ({"links": [LINK, LINK]}, r"2 links lead from a to b; give names"),
        ({"links": [LINK | {"name": "x"}] * 2}, r"links\[1\]: there are two links 'x'"),
        ({"links": [LINK | {"name": "a"}]}, r"'a' names a link and a node"),
        ({"nodes": []}, r"nodes: unknown field"),
    ],
)
def test_mistakes_are_named_with_file_and_field(changes, message):
    with pytest.raises(InputError, match=message):
        parse_flows(document(**changes), "net.yaml")


def test_a_route_of_links_must_hang_together():
    links = [LINK | {"name": "ab"}, {"from": "c", "to": "d", "bandwidth": "1GB/s", "name": "cd"}]
    with pytest.raises(InputError, match="link 'cd' starts at c, but 'ab' ends at b"):
        parse_flows(document(links=links, flows=[{"size": 1, "route": ["ab", "cd"]}]))


def test_all_findings_are_reported_at_once():
    with pytest.raises(InputError, match=r"links\[0\].bandwidth: .*flows\[0\].size: "):
        parse_flows(document(links=[LINK | {"bandwidth": "fast"}], flows=[{"size": "big", "route": ["a", "b"]}]))


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["links", "flows", "from", "to", "bandwidth", "size", "route", "name"]), inner
            )
        ),
        max_leaves=12,
    )
)
def test_any_document_is_read_or_refused(content):
    message = ""
    try:
        parse_flows(content)
    except InputError as error:
        message = str(error)
    assert "\n" not in message


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.floats(0, 10), st.integers(1, 4))
def test_a_flow_alone_takes_its_bytes_and_its_latencies(size_bytes, start_s, hops):
    links = tuple(Link(f"n{i}", f"n{i + 1}", 1e6 * (hops + i), 0.001) for i in range(hops))
    flow_set = FlowSet(links, (FlowSpec("f", size_bytes, tuple(range(hops)), start_s),))
    for engine in ("compiled", "simpy"):
        (result,) = simulate_flows(flow_set, engine=engine)
        assert result.completion_s == pytest.approx(start_s + size_bytes / (1e6 * hops) + 0.001 * hops, rel=1e-12)
