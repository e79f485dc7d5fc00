"""The compiled engine means what the readable one means."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import runs

from llmsim.cluster import leaf_spine, ring, switch, torus, two_racks
from llmsim.cost.costs import Costs
from llmsim.engine import bind, run
from llmsim.errors import ProgramError
from llmsim.program.collectives import collective
from llmsim.program.program import Kind


@settings(max_examples=300, deadline=None)
@given(runs(), st.sampled_from(["eager", "rendezvous"]))
def test_both_engines_give_every_operation_the_same_times(random_run, send_mode):
    program, cluster, costs, placement = random_run
    bound = bind(program, cluster, costs, placement=placement, send_mode=send_mode)
    try:
        simpy = run(bound, engine="simpy")
    except ProgramError:
        assert send_mode == "rendezvous"
        with pytest.raises(ProgramError, match="deadlock"):
            run(bound, engine="compiled")
        return
    compiled = run(bound, engine="compiled")
    np.testing.assert_allclose(compiled.start_s, simpy.start_s, rtol=1e-9, atol=0)
    np.testing.assert_allclose(compiled.end_s, simpy.end_s, rtol=1e-9, atol=0)


@pytest.mark.parametrize("send_mode", ["eager", "rendezvous"])
@pytest.mark.parametrize(
    ("name", "algorithm", "cluster"),
    [
        ("all-to-all", "pairwise", leaf_spine(32, 1e9, 1e-6, leaves=4, spines=2, oversubscription=4.0)),
        ("all-to-all", "direct", leaf_spine(16, 1e9, 1e-6, leaves=4, spines=2, oversubscription=2.0)),
        ("all-to-all", "pairwise", torus((4, 4), 1e9, 1e-6)),
        ("all-to-all", "direct", torus((4, 4), 1e9, 1e-6)),
        ("all-reduce", "halving-doubling", ring(32, 1e9, 1e-6)),
        ("all-reduce", "double-tree", two_racks(16, 1e9, 1e-6, uplink_bandwidth_bytes_per_s=1e9)),
        ("all-reduce", "ring", switch(24, 1e9, 1e-6)),
    ],
)
def test_both_engines_agree_on_whole_collectives(name, algorithm, cluster, send_mode):
    """Thousands of messages, with and without contention; ranks in an order that makes their messages cross."""
    ranks = len(cluster.devices)
    program = collective(name, algorithm, ranks, 1000 * ranks + 7)
    costs = Costs(send_overhead_s=3e-7, receive_overhead_s=2e-7, reduce_bandwidth_bytes_per_s=3e9)
    placement = tuple(np.random.default_rng(7).permutation(ranks).tolist())
    bound = bind(program, cluster, costs, placement=placement, send_mode=send_mode)
    compiled, simpy = run(bound, engine="compiled"), run(bound, engine="simpy")
    np.testing.assert_allclose(compiled.start_s, simpy.start_s, rtol=1e-9, atol=0)
    np.testing.assert_allclose(compiled.end_s, simpy.end_s, rtol=1e-9, atol=0)


@settings(max_examples=100, deadline=None)
@given(runs(), st.sampled_from(["eager", "rendezvous"]), st.sampled_from(["compiled", "simpy"]))
def test_no_resource_carries_more_than_its_capacity(random_run, send_mode, engine):
    """Between any two moments, a resource gives at most its capacity times the time between."""
    program, cluster, costs, placement = random_run
    bound = bind(program, cluster, costs, placement=placement, send_mode=send_mode)
    try:
        timeline = run(bound, engine=engine)
    except ProgramError:
        return
    asked = _demand_by_resource(bound)
    begin_s = _earliest_begin(bound, timeline)
    for resource, capacity in enumerate(bound.capacity):
        users = np.flatnonzero(asked[:, resource])
        for first in users:
            # All work that lies wholly between this activity's earliest begin and some later end.
            ends = sorted(timeline.end_s[i] for i in users if begin_s[i] >= begin_s[first])
            for end in ends:
                inside = [i for i in users if begin_s[i] >= begin_s[first] and timeline.end_s[i] <= end]
                rounding_s = 1e-12 * end
                assert asked[inside, resource].sum() <= capacity * (end - begin_s[first] + rounding_s) * (1 + 1e-9)


def _demand_by_resource(bound) -> np.ndarray:
    asked = np.zeros((len(bound.path), len(bound.capacity)))
    for i, (path, work) in enumerate(zip(bound.path, bound.work, strict=True)):
        crossed = slice(bound.paths.start[path], bound.paths.start[path + 1])
        asked[i, bound.paths.resource[crossed]] = work * bound.paths.demand[crossed]
    return asked


def _earliest_begin(bound, timeline) -> np.ndarray:
    """When the work of each operation can begin at the earliest: reached, its message there, its overhead over."""
    program = bound.program
    begin_s = timeline.start_s.copy()
    for i in np.flatnonzero(np.isin(program.kind, (Kind.RECV, Kind.RECV_REDUCE))):
        send = program.match[i]
        begin_s[i] = max(begin_s[i], timeline.end_s[send] + bound.paths.latency_s[bound.path[send]])
    return begin_s + bound.paths.delay_s[bound.path]


@settings(max_examples=100, deadline=None)
@given(runs(), st.sampled_from(["compiled", "simpy"]))
def test_never_faster_than_the_busiest_resource_allows(random_run, engine):
    program, cluster, costs, placement = random_run
    bound = bind(program, cluster, costs, placement=placement)
    timeline = run(bound, engine=engine)
    if len(bound.capacity):
        lower_bound_s = (_demand_by_resource(bound).sum(axis=0) / bound.capacity).max()
        assert timeline.makespan_s >= lower_bound_s * (1 - 1e-9)
