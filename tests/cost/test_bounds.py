"""No algorithm, engine, option or placement is faster than the bound, and some reach it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim import catalog
from llmsim.cluster import Cluster, build_topology, hccs, leaf_spine, line, rail_optimised, ring, torus, two_racks
from llmsim.cost import Costs, cluster_lower_bound_s, program_lower_bound_s
from llmsim.engine import simulate
from llmsim.errors import InputError, ProgramError
from llmsim.program import ALGORITHMS, Builder, Contract, Region, collective

PAIRS = [(name, algorithm) for name, algorithms in ALGORITHMS.items() for algorithm in algorithms]
NETWORKS = {
    **{
        name: lambda a, b, rate, latency, name=name: build_topology(name, a * b, rate, latency)
        for name in ("ring", "line", "fully-connected", "switch", "leaf-spine", "two-racks", "pcie-host")
    },
    "torus": lambda a, b, rate, latency: torus((a, b), rate, latency),
    "servers": lambda a, b, rate, latency: hccs(a * b, rate, latency, npus_per_server=b),
    "nodes": lambda a, b, rate, latency: rail_optimised(
        a, b, rate, latency, scale_up_bandwidth_bytes_per_s=5 * rate, scale_up_latency_s=latency / 2
    ),
}


def unequal(cluster: Cluster, factors: list[float]) -> Cluster:
    """The same cluster with bandwidth and latency of each link times one of ``factors``."""
    graph = cluster.graph.copy()
    for i, edge in enumerate(graph.edges):
        graph.edges[edge]["bandwidth_bytes_per_s"] *= factors[i % len(factors)]
        graph.edges[edge]["latency_s"] *= factors[(i + 1) % len(factors)]
    return Cluster(cluster.name, graph, cluster.devices, cluster.hosts, cluster.seed)


costs = st.builds(
    Costs,
    send_overhead_s=st.sampled_from([0.0, 3e-6]),
    receive_overhead_s=st.sampled_from([0.0, 2e-6]),
    latency_s=st.sampled_from([0.0, 5e-6]),
    protocol_efficiency=st.sampled_from([1.0, 0.8]),
)


@settings(max_examples=150, deadline=None)
@given(
    pair=st.sampled_from(PAIRS),
    network=st.sampled_from(sorted(NETWORKS)),
    shape=st.sampled_from([(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (2, 4), (3, 3)]),
    count=st.integers(0, 40) | st.integers(0, 10**6),
    latency_s=st.sampled_from([0.0, 1e-6, 1e-4]),
    factors=st.lists(st.floats(0.2, 5.0), min_size=1, max_size=5),
    costs=costs,
    engine=st.sampled_from(["compiled", "simpy"]),
    send_mode=st.sampled_from(["eager", "rendezvous"]),
    data=st.data(),
)
def test_nothing_is_below_the_bound(pair, network, shape, count, latency_s, factors, costs, engine, send_mode, data):
    ranks = shape[0] * shape[1]
    cluster = unequal(NETWORKS[network](*shape, 1e9, latency_s), factors)
    shared = st.tuples(*[st.integers(0, ranks - 1)] * ranks)  # several ranks on a device
    placement = tuple(data.draw(st.permutations(range(ranks)) | shared))
    chunks = data.draw(st.sampled_from([None, 1, 3]))
    try:
        program = collective(*pair, ranks, count, **({} if chunks is None else {"chunks": chunks}))
    except ProgramError:  # an algorithm that is not defined for this world, or takes no chunks
        return
    bound_s = program_lower_bound_s(program, cluster, placement, costs)
    run = simulate(program, cluster, costs, engine=engine, send_mode=send_mode, placement=placement)
    assert run.makespan_s >= bound_s * (1 - 1e-12)
    together = {placement[rank] for rank in program.contracts[0].ranks}
    assert (bound_s > 0) == (len(together) > 1 and count > 0)


@settings(max_examples=60, deadline=None)
@given(
    pair=st.sampled_from(PAIRS),
    network=st.sampled_from(["ring", "switch", "two-racks"]),
    count=st.integers(0, 10**5),
    burst_bytes=st.sampled_from([1e2, 1e4, 1e6]),
    engine=st.sampled_from(["compiled", "simpy"]),
)
def test_nor_where_token_buckets_let_more_pass_at_first(pair, network, count, burst_bytes, engine):
    cluster = NETWORKS[network](2, 2, 1e9, 1e-6)
    for edge in cluster.graph.edges:
        cluster.graph.edges[edge]["burst_bytes"] = burst_bytes
    cluster = Cluster(cluster.name, cluster.graph, cluster.devices)
    program = collective(*pair, 4, count)
    bound_s = program_lower_bound_s(program, cluster)
    assert simulate(program, cluster, engine=engine).makespan_s >= bound_s * (1 - 1e-12)


@settings(max_examples=50, deadline=None)
@given(
    network=st.sampled_from(sorted(NETWORKS)),
    name=st.sampled_from(sorted(ALGORITHMS)),
    shape=st.sampled_from([(2, 2), (2, 3), (3, 3)]),
    factors=st.lists(st.floats(0.2, 5.0), min_size=1, max_size=5),
    data=st.data(),
)
def test_by_size_and_by_program_is_the_same_where_segments_are_even(network, name, shape, factors, data):
    ranks = 2 if name == "point-to-point" else shape[0] * shape[1]
    cluster = unequal(NETWORKS[network](*shape, 1e9, 1e-6), factors)
    placement = data.draw(st.permutations(range(len(cluster.devices))))[:ranks]
    program = collective(name, next(iter(ALGORITHMS[name])), ranks, ranks * 1000)
    assert cluster_lower_bound_s(name, ranks * 4000, cluster, placement=placement) == pytest.approx(
        program_lower_bound_s(program, cluster, placement), rel=1e-12
    )


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


def test_a_hierarchical_all_reduce_meets_the_bound_between_nodes():
    """As good as no time inside the nodes, 2(G−1)/G of S over each node's NICs between them."""
    cluster = rail_optimised(4, 4, 1e9, 0.0, scale_up_bandwidth_bytes_per_s=1e15, scale_up_latency_s=0.0)
    size = 16 * 10**6
    bound_s = cluster_lower_bound_s("all-reduce", size * 4, cluster)
    assert bound_s == pytest.approx(2 * 3 / 4 * size * 4 / (4 * 1e9))
    program = collective("all-reduce", "hierarchical", 16, size, group_size=4)
    assert simulate(program, cluster).makespan_s == pytest.approx(bound_s, rel=1e-3)


S, B = 1e6, 1e9


@pytest.mark.parametrize(
    ("name", "cluster", "expected_s"),
    [
        # one cable between the racks carries everything once each way
        ("all-reduce", two_racks(8, B, 0.0, uplink_bandwidth_bytes_per_s=B / 10), S / (B / 10)),
        ("broadcast", two_racks(8, B, 0.0, uplink_bandwidth_bytes_per_s=B / 10), S / (B / 10)),
        ("reduce-scatter", two_racks(8, B, 0.0, uplink_bandwidth_bytes_per_s=B / 10), S / 2 / (B / 10)),
        ("all-gather", two_racks(8, B, 0.0, uplink_bandwidth_bytes_per_s=B / 10), S / 2 / (B / 10)),
        ("all-to-all", two_racks(8, B, 0.0, uplink_bandwidth_bytes_per_s=B / 10), 4 * S / 2 / (B / 10)),
        # a leaf of 4 hosts has to send all but its own quarter of 4 S over 4 B / 4
        ("all-to-all", leaf_spine(16, B, 0.0, leaves=4, spines=2, oversubscription=4), 4 * S * 3 / 4 / B),
        # half of a ring sends half of everything over its two ends
        ("all-to-all", ring(8, B, 0.0), 4 * S / 2 / (2 * B)),
        ("all-to-all", torus((4, 4), B, 0.0), 8 * S / 2 / (8 * B)),
        ("all-to-all", torus((2, 8), B, 0.0), 8 * S / 2 / (4 * B)),
        # a line's end has one cable, all together have two each but for the ends
        ("all-reduce", line(8, B, 0.0), S / B),
        ("all-reduce", ring(8, B, 0.0), 2 * 7 / 8 * S / (2 * B)),
        # all links of all GPUs, 450 and 50 GB/s; where the NICs are slower, the 8 of each node
        ("all-reduce", catalog.cluster("dgx-h100", nodes=4), 2 * 31 / 32 * S / 500e9 + 2 * 300e-9),
        ("all-gather", catalog.cluster("dgx-a100", nodes=4), 3 / 4 * S / (8 * 25e9) + 2 * 300e-9),
        ("all-reduce", catalog.cluster("dgx-a100", nodes=4), 2 * 3 / 4 * S / (8 * 25e9) + 2 * 300e-9),
        ("reduce", two_racks(8, B, 0.0, uplink_bandwidth_bytes_per_s=B / 10), S / (B / 10)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_bounds_by_hand(name, cluster, expected_s):
    assert cluster_lower_bound_s(name, S, cluster) == pytest.approx(expected_s, rel=1e-9)


def test_latency_is_that_of_the_longest_way_or_of_the_nearest_after_the_bytes():
    for network, links in (("ring", 1), ("switch", 2)):
        program = collective("point-to-point", "direct", 2, 1)
        bound_s = program_lower_bound_s(program, build_topology(network, 2, 4e9, 3e-6))
        assert bound_s == pytest.approx(links * 3e-6 + 1e-9)
    ends = line(5, 4e9, 1e-3)
    assert cluster_lower_bound_s("all-reduce", 4, ends) == pytest.approx(4e-3)
    assert cluster_lower_bound_s("broadcast", 4, ends, root=1) == pytest.approx(3e-3)
    assert cluster_lower_bound_s("all-gather", 4e9, ends) == pytest.approx(4 / 5 + 1e-3)
    # with many devices the longest way is looked for from some of them only
    assert cluster_lower_bound_s("all-reduce", 4, torus((12, 12), 4e9, 1e-3)) == pytest.approx(12e-3)
    assert cluster_lower_bound_s("all-reduce", 4, line(200, 4e9, 1e-3)) == pytest.approx(199e-3)


def test_costs_count():
    cluster = build_topology("switch", 4, 1e9, 1e-6)
    ideal_s = cluster_lower_bound_s("all-reduce", 4e6, cluster)
    slow = Costs(send_overhead_s=1e-5, receive_overhead_s=2e-5, latency_s=3e-5, protocol_efficiency=0.5)
    assert cluster_lower_bound_s("all-reduce", 4e6, cluster, costs=slow) == pytest.approx(
        2 * (ideal_s - 2e-6) + 2e-6 + 6e-5
    )


def test_a_parameter_server_is_held_to_what_holds_for_it():
    """With a server that is no member, the workers together send less than 2(N−1)·S: their sum is not bounded by it."""
    workers, count, parts = 6, 64_000, 16
    builder = Builder("parameter server", workers + 1)
    gradient = builder.buffer("gradient", count)
    for part in range(parts):
        piece = Region(gradient, part * (count // parts), count // parts)
        pushed = [
            builder.message(w, workers, piece, reduce=True, streams=("push", f"from {w}"))[1] for w in range(workers)
        ]
        for w in range(workers):
            builder.message(workers, w, piece, streams=(f"to {w}", "pull"), after=pushed)
    builder.contract(Contract("all-reduce", tuple(range(workers)), gradient, 0, count))
    program = builder.build()
    graph = build_topology("switch", workers + 1, B, 0.0).graph.copy()
    for ends in ((f"d{workers}", "switch"), ("switch", f"d{workers}")):
        graph.edges[ends]["bandwidth_bytes_per_s"] = workers * B
    cluster = Cluster("a server with a wide link", graph, tuple(f"d{i}" for i in range(workers + 1)))
    time_s = simulate(program, cluster).makespan_s
    alone_s = 4 * count / B
    assert time_s == pytest.approx((1 + 1 / parts) * alone_s)
    assert program_lower_bound_s(program, cluster) == pytest.approx(alone_s)
    assert time_s < 2 * (workers - 1) / workers * alone_s


def test_the_root_of_a_reduce_may_be_no_member():
    builder = Builder("reduce elsewhere", 3)
    everything = Region(builder.buffer("x", 1000), 0, 1000)
    builder.message(0, 2, everything, reduce=True, streams=("send", "from 0"))
    builder.message(1, 2, everything, reduce=True, streams=("send", "from 1"))
    builder.contract(Contract("reduce", (0, 1), 0, 0, 1000, root=2))
    cluster = line(3, 1e9, 0.0)
    assert program_lower_bound_s(builder.build(), cluster) == pytest.approx(4e-6)
    assert simulate(builder.build(), cluster).makespan_s >= 4e-6


def test_ranks_on_one_device_talk_for_free():
    program = collective("all-reduce", "ring", 4, 4000)
    cluster = build_topology("switch", 2, 1e9, 0.0)
    assert program_lower_bound_s(program, cluster, (0, 1, 0, 1)) == pytest.approx(16000 / 1e9)
    assert program_lower_bound_s(program, cluster, (1, 1, 1, 1)) == 0.0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c: program_lower_bound_s(collective("all-reduce", "ring", 3, 8), c), "3 ranks on 2 devices"),
        (lambda c: program_lower_bound_s(Builder("nothing promised", 2).build(), c), "0 contracts"),
        (lambda c: program_lower_bound_s(collective("all-reduce", "ring", 2, 8), c, (0, 2)), "there is no device 2"),
        (
            lambda c: cluster_lower_bound_s("all-redcue", 8, c),
            "there is no collective 'all-redcue'; choose among all-r",
        ),
        (lambda c: cluster_lower_bound_s("all-reduce", -1, c), "a size of -1 bytes"),
        (lambda c: cluster_lower_bound_s("all-reduce", float("nan"), c), "a size of nan bytes"),
        (lambda c: cluster_lower_bound_s("broadcast", 8, c, root=2), "root 2 is outside the world of 2"),
        (lambda c: cluster_lower_bound_s("all-reduce", 8, c, placement=(0, 5)), "there is no device 5"),
    ],
)
def test_what_has_no_bound(ask, message):
    with pytest.raises(InputError, match=message):
        ask(build_topology("switch", 2, 1e9, 0.0))


def test_nothing_to_do_takes_no_time():
    cluster = build_topology("switch", 4, 1e9, 1e-6)
    assert cluster_lower_bound_s("all-reduce", 0, cluster) == 0.0
    assert cluster_lower_bound_s("all-reduce", 8, cluster, placement=(2,)) == 0.0
