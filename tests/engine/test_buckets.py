"""Links shaped by token buckets: after a pause, a bucketful passes at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import runs

from llmsim.cluster import Cluster, build_topology
from llmsim.cost.costs import Costs
from llmsim.engine import bind, run, simulate
from llmsim.errors import InputError
from llmsim.program import Builder, Kernel, Region

ENGINES = pytest.mark.parametrize("engine", ["compiled", "simpy"])


def shaped(cluster: Cluster, burst_bytes) -> Cluster:
    graph = cluster.graph.copy()
    for number, (_, _, data) in enumerate(graph.edges(data=True)):
        data["burst_bytes"] = burst_bytes(number)
    return Cluster(cluster.name, graph, cluster.devices, cluster.hosts, cluster.seed)


def pair(burst_bytes: float = 100.0) -> Cluster:
    """Two devices on links of 1000 bytes/s."""
    return shaped(build_topology("line", 2, 1000.0, 0.0), lambda number: burst_bytes)


def messages(*plan: tuple[float, int]):
    """From rank 0 to rank 1: (pause before it in seconds, size in bytes) of each."""
    builder = Builder("messages", 2)
    data = builder.buffer("data", max(size for _, size in plan), "uint8")
    earlier = None
    for pause_s, size in plan:
        if pause_s:
            earlier = builder.compute(0, Kernel(f"pause {pause_s}", duration_s=pause_s), after=earlier)
        earlier, _ = builder.message(0, 1, Region(data, 0, size), after=earlier)
    return builder.build()


def ends_s(program, cluster, engine, **costs):
    timeline = simulate(program, cluster, Costs(**costs), engine=engine)
    return [span.end_s for span in timeline if span.stream == "send"]


@ENGINES
def test_a_bucketful_passes_at_once_and_the_rest_at_the_rate(engine):
    (end_s,) = ends_s(messages((0, 600)), pair(), engine)
    assert end_s == pytest.approx((600 - 100) / 1000, rel=1e-5)
    (end_s,) = ends_s(messages((0, 80)), pair(), engine)
    assert end_s == pytest.approx(0.0, abs=1e-6)


@ENGINES
def test_no_faster_than_a_message_can_be(engine):
    """At 5000 bytes/s the bucket loses 4000 tokens a second: it lasts 0.025 s, in which 125 bytes pass."""
    costs = {"message_bandwidth_bytes_per_s": 5000.0}
    assert ends_s(messages((0, 600)), pair(), engine, **costs)[0] == pytest.approx(0.025 + (600 - 125) / 1000)
    assert ends_s(messages((0, 100)), pair(), engine, **costs)[0] == pytest.approx(100 / 5000)


@ENGINES
def test_tokens_come_back_in_a_pause(engine):
    """The first message leaves the bucket empty; a pause of 0.03 s brings 30 bytes back, one of a second all 100."""
    ends = ends_s(messages((0, 500), (0.03, 500), (1.0, 500)), pair(), engine)
    assert ends[0] == pytest.approx(0.4, rel=1e-5)
    assert ends[1] - ends[0] - 0.03 == pytest.approx(0.47, rel=1e-5)
    assert ends[2] - ends[1] - 1.0 == pytest.approx(0.4, rel=1e-5)


@ENGINES
def test_overheads_hide_behind_the_bucket(engine):
    """Messages with pauses shorter than the bucket take no longer than without: (bytes − burst) / rate."""
    plan = [(0.02, 200)] * 20
    ends = ends_s(messages(*plan), pair(), engine)
    assert ends[-1] == pytest.approx(0.02 + (20 * 200 - 100) / 1000, rel=1e-5)


@ENGINES
def test_what_does_not_use_a_link_up_never_finds_it_empty(engine):
    costs = {"message_bandwidth_bytes_per_s": 900.0}
    assert ends_s(messages((0, 9000)), pair(), engine, **costs)[0] == pytest.approx(10.0)


@ENGINES
def test_two_flows_share_the_tokens(engine):
    """Both send 300 bytes at once over links of their own into one of 1000 bytes/s with a bucket of 100."""
    builder = Builder("two", 3)
    data = Region(builder.buffer("data", 300, "uint8"), 0, 300)
    for rank in (0, 1):
        builder.message(rank, 2, data, streams=("send", f"recv {rank}"))
    star = build_topology("switch", 3, 1e7, 0.0)
    star.graph.edges["switch", "d2"].update(bandwidth_bytes_per_s=1000.0, burst_bytes=100.0)
    cluster = Cluster("star", star.graph, star.devices)
    ends = ends_s(builder.build(), cluster, engine)
    assert ends == pytest.approx([0.5, 0.5], rel=1e-3)


@settings(max_examples=200, deadline=None)
@given(runs(), st.sampled_from(["eager", "rendezvous"]), st.lists(st.sampled_from([0.0, 50.0, 700.0]), min_size=20))
def test_both_engines_agree(random_run, send_mode, bursts):
    program, cluster, costs, placement = random_run
    cluster = shaped(cluster, lambda number: bursts[number % len(bursts)])
    bound = bind(program, cluster, costs, placement=placement, send_mode=send_mode)
    try:
        simpy = run(bound, engine="simpy")
    except ValueError:
        with pytest.raises(ValueError, match="deadlock"):
            run(bound, engine="compiled")
        return
    compiled = run(bound, engine="compiled")
    np.testing.assert_allclose(compiled.start_s, simpy.start_s, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(compiled.end_s, simpy.end_s, rtol=1e-9, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(runs())
def test_a_tiny_bucket_is_next_to_none(random_run):
    program, cluster, costs, placement = random_run
    plain = simulate(program, cluster, costs, placement=placement)
    tiny = simulate(program, shaped(cluster, lambda number: 1e-7), costs, placement=placement)
    assert tiny.makespan_s == pytest.approx(plain.makespan_s, rel=1e-6)


def test_a_bucket_of_less_than_nothing_is_refused():
    with pytest.raises(InputError, match="burst is -1"):
        pair(-1.0)
