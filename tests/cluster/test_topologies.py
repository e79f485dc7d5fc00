"""Shapes of topologies against their definitions: cables, path lengths, capacities, and which sizes exist."""

import itertools
from collections import Counter
from math import ceil

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.cluster import (
    TOPOLOGIES,
    Cluster,
    build_topology,
    dragonfly,
    fat_tree,
    hccs,
    leaf_spine,
    nvswitch_node,
    on_one_host,
    one_host,
    pcie_host,
    rail_optimised,
    ring,
    torus,
    two_racks,
)
from llmsim.errors import InputError

B, L = 50e9, 5e-7
SIZES = {
    "two-racks": (2, 9),
    "fat-tree": (16, 54),
    "dragonfly": (6, 72),
    "rail-optimised": (8, 24),
    "torus": (9, 12),
    "mesh": (9, 12),
}


def lengths(cluster: Cluster) -> Counter:
    """How many pairs of devices are how many links apart."""
    return Counter(len(cluster.route(a, b)) for a, b in itertools.permutations(cluster.devices, 2))


def capacity(cluster: Cluster, source: str, destination: str) -> float:
    """Bandwidth of one link."""
    return cluster.graph.edges[source, destination]["bandwidth_bytes_per_s"]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_has_its_ranks_and_works_both_ways(name):
    for ranks in SIZES.get(name, (1, 2, 8)):
        cluster = build_topology(name, ranks, B, L)
        assert len(cluster.devices) == ranks
        assert all(cluster.graph.has_edge(b, a) for a, b in cluster.graph.edges)
        assert all(cluster.graph.edges[b, a] == data for a, b, data in cluster.graph.edges(data=True))
        assert all(link.latency_s == L for link in cluster.links)
        for a, b in itertools.islice(itertools.permutations(cluster.devices, 2), 200):
            assert cluster.route(a, b)


@given(st.integers(1, 30))
@settings(max_examples=20, deadline=None)
def test_ring_and_line(n):
    assert lengths(build_topology("ring", n, B, L)) == Counter(
        min((a - b) % n, (b - a) % n) for a, b in itertools.permutations(range(n), 2)
    )
    assert lengths(build_topology("line", n, B, L)) == Counter(
        abs(a - b) for a, b in itertools.permutations(range(n), 2)
    )
    assert len(ring(n, B, L).links) == {1: 0, 2: 2}.get(n, 2 * n)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_torus_and_mesh_distances(dims):
    places = list(itertools.product(*map(range, dims)))
    around = Counter()
    straight = Counter()
    for a, b in itertools.permutations(places, 2):
        steps = [abs(x - y) for x, y in zip(a, b, strict=True)]
        straight[sum(steps)] += 1
        around[sum(min(s, d - s) for s, d in zip(steps, dims, strict=True))] += 1
    assert lengths(torus(dims, B, L)) == around
    assert lengths(build_topology("mesh", len(places), B, L, dims=tuple(dims))) == straight


def test_a_torus_of_two_has_one_cable_along_that_side():
    assert len(torus((2, 2), B, L).links) == 8
    assert len(torus((4, 2), B, L).links) == 2 * (4 * 2 + 4)
    assert len(torus((4, 4), B, L, wrap=(True, False)).links) == 2 * (16 + 12)


def test_torus_shape_by_name():
    assert torus((3, 4), B, L).links == build_topology("torus", 12, B, L).links
    assert len(build_topology("torus", 8, B, L, dims="2x2x2").links) == 24
    assert len(build_topology("torus", 7, B, L, dims="7").links) == 14


def test_leaf_spine_oversubscription():
    cluster = leaf_spine(64, B, L, leaves=8, spines=4, oversubscription=4)
    assert sum(capacity(cluster, "leaf0", f"spine{i}") for i in range(4)) == pytest.approx(8 * B / 4, rel=1e-12)
    assert lengths(cluster) == {2: 64 * 7, 4: 64 * 56}
    assert capacity(leaf_spine(8, B, L, uplink_bandwidth_bytes_per_s=1e9), "leaf0", "spine0") == 1e9
    # by default as many spines as make an uplink as fast as a host's cable
    assert capacity(leaf_spine(64, B, L, oversubscription=2), "leaf0", "spine3") == B


def test_two_racks_share_one_uplink():
    cluster = two_racks(8, B, L)
    assert capacity(cluster, "rack0", "rack1") == 4 * B / 4
    assert lengths(cluster) == {2: 24, 3: 32}
    assert capacity(two_racks(9, B, L, oversubscription=2), "rack0", "rack1") == 5 * B / 2
    assert [len(cluster.route("d0", d)) for d in cluster.devices[1:]] == [2, 2, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("k", [2, 4, 6])
def test_fat_tree(k):
    cluster = fat_tree(k, B, L)
    hosts = k**3 // 4
    half = k // 2
    assert lengths(cluster) == {
        length: count
        for length, count in {
            2: hosts * (half - 1),
            4: hosts * (half * half - half),
            6: hosts * (hosts - half * half),
        }.items()
        if count
    }
    assert Counter(dict(cluster.graph.out_degree())[n] for n in cluster.graph if not n.startswith("d")) == {
        k: 5 * k * k // 4  # every switch has k ports
    }
    assert nx.maximum_flow_value(cluster.graph, "edge0.0", "edge1.0", capacity="bandwidth_bytes_per_s") == half * B
    thin = fat_tree(k, B, L, oversubscription=2)
    assert capacity(thin, "edge0.0", "aggregation0.0") == B / 2


@pytest.mark.parametrize("h", [1, 2])
def test_balanced_dragonfly(h):
    cluster = dragonfly(2 * h * h + 1, 2 * h, h, B, L)
    assert max(lengths(cluster)) == 5  # host, local, global, local, host
    routers = [n for n in cluster.graph if n.startswith("router")]
    assert {cluster.graph.out_degree(r) for r in routers} == {h + (2 * h - 1) + h}
    glob = [(a, b) for a, b in cluster.graph.edges if "router" in a and "router" in b and a[6:8] != b[6:8]]
    groups = Counter((a.split(".")[0], b.split(".")[0]) for a, b in glob)
    assert set(groups.values()) == {1}
    assert len(groups) == (2 * h * h + 1) * 2 * h * h
    for a, b in itertools.permutations(cluster.devices, 2):  # minimal routing: never by way of a third group
        route = [cluster.links[i] for i in cluster.route(a, b)]
        assert sum((link.source, link.destination) in glob for link in route) <= 1


def test_dragonfly_by_name_with_its_own_shape():
    cluster = build_topology("dragonfly", 24, B, L, routers=4, hosts=2)
    assert sum(n.startswith("router") for n in cluster.graph) == 12


def test_rail_optimised():
    cluster = rail_optimised(4, 8, B, L, scale_up_bandwidth_bytes_per_s=9 * B, scale_up_latency_s=2 * L, spines=2)
    assert lengths(cluster) == {2: 4 * 8 * 7 + 32 * 3, 4: 32 * 3 * 7}
    assert capacity(cluster, "d9", "node1.nvswitch") == 9 * B
    assert capacity(cluster, "d9", "leaf1") == B
    assert sum(capacity(cluster, "leaf0", f"spine{i}") for i in range(2)) == pytest.approx(4 * B)
    assert cluster.host_of("d9").name == "node1"
    assert "leaf0" not in build_topology("rail-optimised", 8, B, L).graph  # one node needs no network


def test_hccs_servers():
    assert lengths(hccs(8, B, L)) == {1: 56}
    two = hccs(16, B, L, network_bandwidth_bytes_per_s=25e9, network_latency_s=2e-6)
    assert lengths(two) == {1: 2 * 56, 2: 128}
    assert capacity(two, "d3", "network") == 25e9
    assert two.graph.edges["d3", "network"]["latency_s"] == 2e-6
    assert two.host_of("d8").name == "server1"


def test_pcie_host():
    cluster = pcie_host(8, B, L)
    assert lengths(cluster) == {2: 8, 4: 16, 5: 32}  # same switch, same socket, across
    assert capacity(pcie_host(8, B, L, socket_bandwidth_bytes_per_s=1e9), "bridge0", "bridge1") == 1e9
    assert lengths(pcie_host(8, B, L, gpus_per_switch=4, sockets=1)) == {2: 24, 4: 32}


def test_one_host_shares_its_cores():
    cluster = one_host(4, B, L, cores=2)
    assert {cluster.host_of(d).cores for d in cluster.devices} == {2}
    assert lengths(cluster) == {2: 12}
    moved = on_one_host(ring(4, B, L), cores=2, host="laptop")
    assert {(cluster_host.name, cluster_host.cores) for cluster_host in map(moved.host_of, moved.devices)} == {
        ("laptop", 2)
    }
    assert moved.links == ring(4, B, L).links


def test_nvswitch_node():
    cluster = nvswitch_node(8, B, L, device="a100-sxm-80gb", host="n")
    assert lengths(cluster) == {2: 56}
    assert cluster.graph.nodes["d0"]["device"] == "a100-sxm-80gb"
    assert cluster.host_of("d3").name == "n"


@pytest.mark.parametrize(
    ("name", "ranks", "options", "message"),
    [
        ("ring", 0, {}, "0 devices make no ring; take 1 or more"),
        ("two-racks", 1, {}, "take 2 or more"),
        (
            "torus",
            7,
            {},
            "7 ranks make no 2-D torus; take a product of two numbers such as 8, or give dims such as 1x7",
        ),
        ("torus", 8, {"dims": "3x3"}, "dims 3x3 hold 9 devices, not 8"),
        ("torus", 8, {"dims": "0x8"}, "dims 0x8 hold 0 devices, not 8"),
        ("fat-tree", 17, {}, "such as 16 or 54"),
        ("dragonfly", 10, {}, "such as 6 or 72"),
        ("dragonfly", 10, {"routers": 4}, "take a multiple of 4"),
        ("rail-optimised", 12, {}, "take a multiple of 8"),
        ("hccs", 12, {}, "take up to 8 or a multiple of 8"),
        ("leaf-spine", 4, {"leaves": 5}, "take 1 to 4 leaves"),
        ("leaf-spine", 4, {"spines": 0}, "0 spines"),
        ("leaf-spine", 4, {"oversubscription": 0}, "oversubscription 0"),
        ("leaf-spine", 4, {"oversubscription": "nan"}, "'nan' is not a ratio"),
        ("leaf-spine", 4, {"leaves": "two"}, "leaf-spine: leaves: 'two' is not a whole number"),
        ("leaf-spine", 4, {"leaves": 2.5}, "2.5 is not a whole number"),
        ("leaf-spine", 4, {"uplink_bandwidth_bytes_per_s": "4 parsec"}, "is not a unit of bandwidth"),
        ("ring", 4, {"spines": 2}, "ring: unknown option 'spines'; it takes no options"),
        ("leaf-spine", 4, {"spine": 2}, "it takes leaves, spines, oversubscription"),
        ("leafspine", 4, {}, "there is no topology 'leafspine'; did you mean leaf-spine"),
        ("möbius", 4, {}, "choose among ring, line"),
    ],
)
def test_sizes_and_options_that_do_not_exist(name, ranks, options, message):
    with pytest.raises(InputError, match=message):
        build_topology(name, ranks, B, L, **options)


def test_options_may_leave_out_their_unit():
    short = build_topology("leaf-spine", 4, B, L, uplink_bandwidth="3GB/s")
    assert short.links == leaf_spine(4, B, L, uplink_bandwidth_bytes_per_s=3e9).links
    assert build_topology("hccs", 16, B, L, network_latency="3us").graph.edges["d0", "network"]["latency_s"] == 3e-6
    with pytest.raises(InputError, match="leaf-spine: option 'uplink_bandwidth_bytes_per_s' is given twice"):
        build_topology("leaf-spine", 4, B, L, uplink_bandwidth=1e9, uplink_bandwidth_bytes_per_s=1e9)


@pytest.mark.parametrize(
    ("name", "ranks", "option", "one", "other"),
    [
        ("leaf-spine", 16, "leaves", 2, 4),
        ("leaf-spine", 16, "spines", 2, "4"),
        ("leaf-spine", 16, "oversubscription", 1, "4:1"),
        ("leaf-spine", 16, "uplink_bandwidth_bytes_per_s", "1GB/s", 2e9),
        ("leaf-spine", 64, "seed", 0, 1),
        ("two-racks", 4, "uplink_bandwidth_bytes_per_s", "1GB/s", "2GB/s"),
        ("two-racks", 4, "oversubscription", 1, 2),
        ("fat-tree", 16, "oversubscription", 1, 2),
        ("fat-tree", 16, "seed", 0, 1),
        ("torus", 16, "dims", "4x4", "2x8"),
        ("mesh", 16, "dims", "4x4", "2x8"),
        ("rail-optimised", 16, "gpus_per_node", 4, 8),
        ("rail-optimised", 16, "scale_up_bandwidth_bytes_per_s", "1GB/s", "2GB/s"),
        ("rail-optimised", 16, "scale_up_latency_s", "1us", "2us"),
        ("rail-optimised", 16, "spines", 1, 2),
        ("rail-optimised", 16, "oversubscription", 1, 2),
        ("rail-optimised", 32, "seed", 0, 1),
        ("dragonfly", 24, "routers", 2, 4),
        ("dragonfly", 24, "hosts", 2, 4),
        ("hccs", 8, "npus_per_server", 4, 8),
        ("hccs", 16, "network_bandwidth_bytes_per_s", "1GB/s", "2GB/s"),
        ("hccs", 16, "network_latency_s", "1us", "2us"),
        ("pcie-host", 8, "gpus_per_switch", 2, 4),
        ("pcie-host", 8, "sockets", 1, 2),
        ("pcie-host", 8, "socket_bandwidth_bytes_per_s", "1GB/s", "2GB/s"),
    ],
)
def test_every_option_changes_something(name, ranks, option, one, other):
    def meaning(value):
        cluster = build_topology(name, ranks, B, L, **{option: value})
        paths = [cluster.route(a, b) for a, b in itertools.permutations(cluster.devices, 2)]
        return [[cluster.links[i] for i in path] for path in paths]

    assert meaning(one) != meaning(other)


def test_every_option_of_every_topology_is_tried_above():
    tried = {
        (name, option)
        for name, _, option, *_ in test_every_option_changes_something.pytestmark[0].args[1]  # type: ignore[attr-defined]
    }
    assert tried == {(name, option) for name, topology in TOPOLOGIES.items() for option in topology.options}


@given(hosts=st.integers(1, 40), leaves=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_hosts_are_dealt_out_evenly(hosts, leaves):
    if leaves > hosts:
        return
    cluster = leaf_spine(hosts, B, L, leaves=leaves, spines=1)
    sizes = [sum(f"d{h}" in cluster.graph[f"leaf{i}"] for h in range(hosts)) for i in range(leaves)]
    assert sorted(sizes, reverse=True) == sizes
    assert sum(sizes) == hosts
    assert max(sizes) == ceil(hosts / leaves)
    assert max(sizes) - min(sizes) <= 1
