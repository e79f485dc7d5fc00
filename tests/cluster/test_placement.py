"""Ranks to devices, and a cluster in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsim import catalog
from llmsim.cluster import build_topology, load_cluster, place, ring
from llmsim.cluster.summary import bisection_bandwidth, longest_path
from llmsim.errors import InputError

TWO_NODES = catalog.cluster("dgx-h100", nodes=2)


def test_linear_fills_hosts_and_round_robin_deals_them_out():
    assert place(TWO_NODES, 4) == (0, 1, 2, 3)
    assert place(TWO_NODES, 5, "round-robin") == (0, 8, 1, 9, 2)
    assert sorted(place(TWO_NODES, 16, "round-robin")) == list(range(16))
    assert place(ring(4, 1e9, 0.0), 3, "round-robin") == (0, 1, 2)  # each device its own host


@given(st.integers(1, 16), st.integers())
def test_random_is_a_placement_that_the_seed_decides(ranks, seed):
    placement = place(TWO_NODES, ranks, "random", seed=seed)
    assert len(set(placement)) == ranks
    assert set(placement) <= set(range(16))
    assert placement == place(TWO_NODES, ranks, "random", seed=seed)


def test_random_differs_by_seed():
    assert len({place(TWO_NODES, 16, "random", seed=seed) for seed in range(20)}) == 20


def test_explicit():
    assert place(TWO_NODES, 3, ["d5", 0, "d15"]) == (5, 0, 15)
    assert place(TWO_NODES, 3, "d5, d0,d15") == (5, 0, 15)
    assert place(TWO_NODES, 1, "d5") == (5,)


@pytest.mark.parametrize(
    ("ranks", "policy", "message"),
    [
        (17, "linear", "17 ranks do not fit on 16 devices"),
        (0, "linear", "place 1 or more"),
        (4, "liner", "there is no placement 'liner'; did you mean linear"),
        (4, "zigzag", "choose among linear, round-robin, random"),
        (2, ["d0"], "1 devices are listed for 2 ranks"),
        (2, ["d0", "d16"], "rank 1: there is no device 'd16'; did you mean d"),
        (2, ["d0", 16], "rank 1: there is no device 16"),
        (2, ["d0", -1], "rank 1: there is no device -1"),
        (2, ["d0", True], "rank 1: there is no device True"),
        (2, [3, "d3"], "rank 1: d3 already holds rank 0"),
    ],
)
def test_bad_placements(ranks, policy, message):
    with pytest.raises(InputError, match=message):
        place(TWO_NODES, ranks, policy)


def test_bisection_bandwidth_by_hand():
    assert bisection_bandwidth(ring(8, 1e9, 0.0)) == 2e9
    assert bisection_bandwidth(build_topology("line", 8, 1e9, 0.0)) == 1e9
    assert bisection_bandwidth(build_topology("fully-connected", 6, 1e9, 0.0)) == 9e9
    assert bisection_bandwidth(build_topology("torus", 16, 1e9, 0.0)) == 8e9
    assert bisection_bandwidth(build_topology("two-racks", 8, 1e9, 0.0)) == pytest.approx(1e9)
    assert bisection_bandwidth(build_topology("fat-tree", 16, 1e9, 0.0)) == pytest.approx(8e9)


def test_longest_path():
    assert longest_path(TWO_NODES) == (4, pytest.approx(2 * 365e-9 + 2 * 130e-9))


def test_describe():
    text = TWO_NODES.describe()
    assert "dgx-h100: 16 × h100-sxm" in text
    assert "hosts      2" in text
    assert "450 GB/s, 300 ns" in text
    assert "bisection  400 GB/s" in text
    assert "hosts      1 × 4 cores" in load_cluster("laptop").describe()
    assert "bisection" not in build_topology("ring", 301, 1e9, 0.0).describe()
