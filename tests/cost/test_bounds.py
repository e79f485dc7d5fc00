"""No algorithm, engine, option or placement is faster than the bound, and some reach it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.cluster import Cluster, build_topology
from llmsim.cost import program_lower_bound_s
from llmsim.engine import simulate
from llmsim.errors import InputError, ProgramError
from llmsim.program import ALGORITHMS, Builder, collective

PAIRS = [(name, algorithm) for name, algorithms in ALGORITHMS.items() for algorithm in algorithms]
NETWORKS = ["ring", "line", "fully-connected", "switch", "leaf-spine", "two-racks", "torus", "mesh"]


def unequal(cluster, factors):
    """The same cluster with the bandwidth of each link times one of ``factors``."""
    graph = cluster.graph.copy()
    for i, edge in enumerate(graph.edges):
        graph.edges[edge]["bandwidth_bytes_per_s"] *= factors[i % len(factors)]
    return Cluster(cluster.name, graph, cluster.devices, cluster.hosts, cluster.seed)


@settings(max_examples=150)
@given(
    pair=st.sampled_from(PAIRS),
    network=st.sampled_from(NETWORKS),
    shape=st.sampled_from([(1, 2), (2, 2), (2, 3), (2, 4), (3, 3)]),
    count=st.integers(0, 40) | st.integers(0, 10**6),
    latency_s=st.sampled_from([0.0, 1e-6]),
    factors=st.lists(st.floats(0.2, 5.0), min_size=1, max_size=5),
    engine=st.sampled_from(["compiled", "simpy"]),
    send_mode=st.sampled_from(["eager", "rendezvous"]),
    data=st.data(),
)
def test_nothing_is_below_the_bound(pair, network, shape, count, latency_s, factors, engine, send_mode, data):
    ranks = shape[0] * shape[1]
    options = {"dims": shape} if network in ("torus", "mesh") else {}
    cluster = unequal(build_topology(network, ranks, 1e9, latency_s, **options), factors)
    placement = tuple(data.draw(st.permutations(range(ranks))))
    chunks = data.draw(st.sampled_from([None, 1, 3]))
    try:
        program = collective(*pair, ranks, count, **({} if chunks is None else {"chunks": chunks}))
    except ProgramError:  # an algorithm that is not defined for this world, or takes no chunks
        program = None
    if program is None:
        return
    bound_s = program_lower_bound_s(program, cluster, placement)
    time_s = simulate(program, cluster, engine=engine, send_mode=send_mode, placement=placement).makespan_s
    assert time_s >= bound_s * (1 - 1e-9)
    assert (bound_s > 0) == (ranks > 1 and count > 0)


@pytest.mark.parametrize(
    ("name", "algorithm", "network"),
    [
        ("all-reduce", "bidirectional-ring", "ring"),
        ("all-reduce", "ring", "switch"),
        ("all-reduce", "halving-doubling", "switch"),
        ("reduce-scatter", "ring", "switch"),
        ("all-gather", "ring", "switch"),
        ("all-to-all", "pairwise", "switch"),
        ("all-to-all", "direct", "fully-connected"),
        ("point-to-point", "direct", "switch"),
    ],
)
def test_the_bound_is_reached_where_latency_is_nothing(name, algorithm, network):
    cluster = build_topology(network, 8, 1e9, 0.0)
    program = collective(name, algorithm, 8, 8 * 10**6)
    assert simulate(program, cluster).makespan_s == pytest.approx(program_lower_bound_s(program, cluster), rel=1e-9)


def test_latency_is_that_of_the_nearest_two():
    for network, links in (("ring", 1), ("switch", 2)):
        program = collective("point-to-point", "direct", 2, 1)
        bound_s = program_lower_bound_s(program, build_topology(network, 2, 4e9, 3e-6))
        assert bound_s == pytest.approx(links * 3e-6 + 1e-9)


def test_only_one_contract_on_devices_of_their_own_has_a_bound():
    cluster = build_topology("switch", 2, 1e9, 0.0)
    program = collective("all-reduce", "ring", 2, 8)
    with pytest.raises(InputError, match="3 ranks on 2 devices"):
        program_lower_bound_s(collective("all-reduce", "ring", 3, 8), cluster)
    with pytest.raises(InputError, match="share a device"):
        program_lower_bound_s(program, cluster, (1, 1))
    with pytest.raises(InputError, match="0 contracts"):
        program_lower_bound_s(Builder("nothing promised", 2).build(), cluster)
