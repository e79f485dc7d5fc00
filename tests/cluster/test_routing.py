"""Routes: shortest (against networkx), contiguous, deterministic, spread over equal paths, and only where allowed."""

import itertools
import pickle
from collections import Counter

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.cluster import (
    Cluster,
    fat_tree,
    leaf_spine,
    line,
    rail_optimised,
    ring,
    switch,
    torus,
)
from llmsim.cluster.routing import splitmix64
from llmsim.errors import InputError


def hops(cluster: Cluster, source: str, destination: str) -> list[str]:
    """The nodes on a route, checked to be contiguous."""
    nodes = [source]
    for index in cluster.route(source, destination):
        link = cluster.links[index]
        assert link.source == nodes[-1]
        nodes.append(link.destination)
    assert nodes[-1] == destination
    return nodes


@st.composite
def random_clusters(draw):
    """Strongly connected random graphs of devices and switches; some devices do not forward."""
    devices = draw(st.integers(1, 6))
    switches = draw(st.integers(0, 4))
    graph = nx.DiGraph()
    for i in range(devices):
        graph.add_node(f"d{i}", kind="device", forwards=draw(st.booleans()))
    for i in range(switches):
        graph.add_node(f"s{i}", kind="switch")
    names = list(graph)
    pairs = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=25))
    order = draw(st.permutations(names))
    pairs += list(itertools.pairwise([*order, order[0]]))  # a cycle through all keeps it connected
    graph.add_edges_from([(a, b) for a, b in pairs if a != b], bandwidth_bytes_per_s=1e9, latency_s=1e-6)
    return Cluster("random", graph, tuple(f"d{i}" for i in range(devices)), seed=draw(st.integers(0, 2**70)))


@given(random_clusters())
@settings(max_examples=100, deadline=None)
def test_routes_are_as_short_as_networkx_says(cluster):
    for a, b in itertools.product(cluster.devices, repeat=2):
        allowed = [n for n, data in cluster.graph.nodes(data=True) if data.get("forwards", True) or n in (a, b)]
        # an end that does not forward may start and end a path but not lie inside it, which no shortest path does
        view = cluster.graph.subgraph(allowed)
        if nx.has_path(view, a, b):
            assert len(hops(cluster, a, b)) - 1 == nx.shortest_path_length(view, a, b)
        else:
            with pytest.raises(InputError, match=f"no path from {a} to {b}"):
                cluster.route(a, b)


@given(random_clusters())
@settings(max_examples=30, deadline=None)
def test_a_route_never_changes(cluster):
    again = Cluster(cluster.name, cluster.graph, cluster.devices, seed=cluster.seed)
    pairs = list(itertools.product(cluster.devices, repeat=2))
    for (a, b), (c, d) in zip(pairs, reversed(pairs), strict=True):  # in another order, so that caches fill otherwise
        for cut in (a, b), (c, d):
            try:
                route = cluster.route(*cut)
            except InputError:
                continue
            assert route == again.route(*cut)


def test_ecmp_spreads_over_all_spines_and_follows_the_seed():
    cluster = leaf_spine(64, 1e9, 1e-6, leaves=8, spines=4)
    pairs = [(a, b) for a, b in itertools.permutations(cluster.devices, 2)]
    spines = Counter(node for a, b in pairs for node in hops(cluster, a, b) if node.startswith("spine"))
    mean = sum(spines.values()) / 4
    assert len(spines) == 4
    assert all(abs(count - mean) < 0.1 * mean for count in spines.values())  # binomial: 3 % is one standard deviation
    other = leaf_spine(64, 1e9, 1e-6, leaves=8, spines=4, seed=1)
    moved = sum(hops(cluster, a, b) != hops(other, a, b) for a, b in pairs)
    assert 0.5 * len(pairs) < moved < 0.9 * len(pairs)  # 3/4 of the 7/8 that cross a spine


def test_choices_of_consecutive_switches_are_independent():
    """With one hash for both hops of a fat-tree, the second would always take the same of its two ways."""
    cluster = fat_tree(4, 1e9, 1e-6)
    cores = Counter(
        n for a, b in itertools.permutations(cluster.devices, 2) for n in hops(cluster, a, b) if "core" in n
    )
    assert set(cores) == {"core0", "core1", "core2", "core3"}
    assert min(cores.values()) > 0.7 * max(cores.values())


def test_devices_forward_on_a_ring_but_not_in_a_rail_network():
    assert hops(line(4, 1e9, 0.0), "d0", "d3") == ["d0", "d1", "d2", "d3"]
    assert hops(ring(5, 1e9, 0.0), "d0", "d4") == ["d0", "d4"]
    rails = rail_optimised(2, 4, 1e9, 0.0, scale_up_bandwidth_bytes_per_s=1e10, scale_up_latency_s=0.0)
    for a, b in itertools.permutations(rails.devices, 2):
        assert not set(hops(rails, a, b)[1:-1]) & set(rails.devices)
    assert hops(rails, "d1", "d5") == ["d1", "leaf1", "d5"]  # same rail: one switch
    assert hops(rails, "d0", "d3") == ["d0", "node0.nvswitch", "d3"]


@given(random_clusters(), st.data())
@settings(max_examples=50, deadline=None)
def test_links_may_count_as_several_hops(cluster, data):
    """Against networkx's weighted shortest paths, on clusters all of whose nodes forward."""
    graph = cluster.graph.copy()
    nx.set_node_attributes(graph, True, "forwards")
    for edge in graph.edges:
        graph.edges[edge]["hops"] = data.draw(st.integers(1, 4))
    weighted = Cluster("weighted", graph, cluster.devices, seed=cluster.seed)
    for a, b in itertools.permutations(cluster.devices, 2):
        links = [weighted.links[i] for i in weighted.route(a, b)]
        assert [link.source for link in links[1:]] == [link.destination for link in links[:-1]]
        assert (links[0].source, links[-1].destination) == (a, b)
        hop_count = sum(graph.edges[link.source, link.destination]["hops"] for link in links)
        assert hop_count == nx.shortest_path_length(graph, a, b, weight="hops")


def test_to_itself_the_way_is_empty():
    assert switch(2, 1e9, 0.0).route("d0", "d0") == ()


def test_clusters_travel_to_other_processes():
    cluster = torus((3, 3), 1e9, 1e-6)
    route = cluster.route("d0", "d4")
    assert pickle.loads(pickle.dumps(cluster)).route("d0", "d4") == route


def test_splitmix64_is_the_published_one():
    """First outputs of SplitMix64 seeded with 1234567, as its reference implementation prints them."""
    state, outputs = 1234567, []
    for _ in range(3):
        outputs.append(splitmix64(state))
        state = (state + 0x9E3779B97F4A7C15) % 2**64
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_unknown_device():
    with pytest.raises(InputError, match="there is no device 'd9'; they are d0 … d3"):
        ring(4, 1e9, 0.0).route("d0", "d9")
    with pytest.raises(InputError, match="there is no device 'swich'; did you mean switch"):
        switch(4, 1e9, 0.0).route("d0", "swich")


def broken(**edge) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(["a", "b"], kind="device")
    values = {"bandwidth_bytes_per_s": 1e9, "latency_s": 0.0, **edge}
    graph.add_edge("a", "b", **values)
    graph.add_edge("b", "a", **values)
    return graph


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan"), float("inf")])
def test_a_link_needs_a_bandwidth(bandwidth):
    with pytest.raises(InputError, match=r"x: link a → b: its bandwidth is .* give a positive one"):
        Cluster("x", broken(bandwidth_bytes_per_s=bandwidth), ("a", "b"))


@pytest.mark.parametrize("latency", [-1e-9, float("nan"), float("inf")])
def test_a_link_needs_a_latency(latency):
    with pytest.raises(InputError, match=r"x: link a → b: its latency is"):
        Cluster("x", broken(latency_s=latency), ("a", "b"))


def test_devices_must_be_there_once_and_connected():
    graph = broken()
    graph.add_node("c", kind="device")
    with pytest.raises(InputError, match="no path from a to c"):
        Cluster("x", graph, ("a", "b", "c"))
    graph.add_edge("a", "c", bandwidth_bytes_per_s=1e9, latency_s=0.0)  # there is no way back
    with pytest.raises(InputError, match="no path from c to a"):
        Cluster("x", graph, ("a", "b", "c"))
    with pytest.raises(InputError, match="'z' is not a node"):
        Cluster("x", graph, ("a", "z"))
    with pytest.raises(InputError, match="'a' is listed twice"):
        Cluster("x", graph, ("a", "b", "a"))
    with pytest.raises(InputError, match="there is no device"):
        Cluster("x", graph, ())
