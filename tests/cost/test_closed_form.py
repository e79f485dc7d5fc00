"""Closed forms against the simulated programs, on networks where no two messages share a link."""

import pytest

from llmsim.cluster import fully_connected, ring, torus
from llmsim.cost import CLOSED_FORMS, Costs, busbw_bytes_per_s, busbw_factor, closed_form_s, program_lower_bound_s
from llmsim.engine import simulate
from llmsim.errors import InputError
from llmsim.program import ALGORITHMS, collective

ALPHA_S, BANDWIDTH = 3e-6, 25e9
COUNT = 2 * 3 * 4 * 5 * 7 * 16 * 9 * 11  # elements; divides by twice most world sizes, and into 2, 3 and 4 chunks


def simulated_s(name, algorithm, world_size, cluster, gamma, **options):
    costs = Costs(reduce_bandwidth_bytes_per_s=1 / gamma) if gamma else Costs()
    program = collective(name, algorithm, world_size, COUNT, "float64", **options)
    return simulate(program, cluster, costs).makespan_s


def form_s(name, algorithm, world_size, gamma=0.0, **options):
    return closed_form_s(
        name,
        algorithm,
        world_size,
        COUNT * 8,
        latency_s=ALPHA_S,
        bandwidth_bytes_per_s=BANDWIDTH,
        reduce_s_per_byte=gamma,
        **options,
    )


RINGS = ("ring", "bidirectional-ring")
REDUCING = ("all-reduce", "reduce-scatter", "all-gather")
INTER = ("halving-doubling", "double-tree")
EXACT = [
    *((name, algorithm, n, {}) for name in REDUCING for algorithm in RINGS for n in (1, 2, 3, 8, 11)),
    *((name, "halving-doubling", n, {}) for name in ("reduce-scatter", "all-gather") for n in (1, 2, 4, 16)),
    *(("all-reduce", "halving-doubling", n, {}) for n in (1, 2, 3, 5, 8, 11, 16)),
    *(("all-reduce", "tree", n, {"chunks": c}) for n in (1, 3, 7, 15) for c in (1, 2, 4)),
    *(("all-reduce", "double-tree", n, {}) for n in (1, 2, 4, 8, 16)),
    *(("all-reduce", "hierarchical", n, {"group_size": g}) for n, g in ((8, 4), (12, 3), (6, 1), (6, 6))),
    *(("all-reduce", "hierarchical", 16, {"group_size": 4, "inter": inter}) for inter in INTER),
    *(("all-reduce", "torus", n, {"dims": (d, d)}) for n, d in ((1, 1), (4, 2), (9, 3), (16, 4))),
    *(("all-reduce", "torus", n, {"dims": d}) for n, d in ((2, (1, 2)), (5, (5, 1)))),
    *(("broadcast", "binomial", n, {}) for n in (1, 2, 4, 16)),
    *(("broadcast", "tree", n, {"chunks": c}) for n in (1, 2, 5, 12) for c in (1, 3)),
    *(("reduce", "tree", n, {"chunks": c}) for n in (1, 3, 15) for c in (1, 3)),
    *(("broadcast", "chain", n, {"chunks": c}) for n in (1, 2, 5, 12) for c in (1, 4)),
    *(("all-to-all", alg, n, {}) for alg in ("direct", "pairwise") for n in (1, 2, 3, 8)),
    *(("point-to-point", "direct", 2, {"chunks": c}) for c in (1, 4)),
]  # fmt: skip


@pytest.mark.parametrize("gamma", [0.0, 7e-11])
@pytest.mark.parametrize(("name", "algorithm", "n", "options"), EXACT)
def test_form_equals_simulation_on_a_fully_connected_network(name, algorithm, n, options, gamma):
    cluster = fully_connected(n, BANDWIDTH, ALPHA_S)
    assert simulated_s(name, algorithm, n, cluster, gamma, **options) == pytest.approx(
        form_s(name, algorithm, n, gamma, **options), rel=1e-9
    )


@pytest.mark.parametrize("n", [2, 5, 6, 10, 12])
def test_trees_without_reduction_cost_are_exact_for_any_number_of_ranks(n):
    cluster = fully_connected(n, BANDWIDTH, ALPHA_S)
    for algorithm, chunks in (("tree", 1), ("tree", 4), ("double-tree", 1)):
        simulated = simulated_s("all-reduce", algorithm, n, cluster, 0.0, chunks=chunks)
        assert simulated == pytest.approx(form_s("all-reduce", algorithm, n, chunks=chunks), rel=1e-9)


@pytest.mark.parametrize("n", [2, 5, 6, 10])
def test_forms_said_to_be_upper_bounds_are(n):
    cluster, gamma = fully_connected(n, BANDWIDTH, ALPHA_S), 7e-11
    chunked = [(name, "tree", {"chunks": c}) for name in ("all-reduce", "reduce") for c in (1, 2, 4)]
    for name, algorithm, options in (*chunked, ("all-reduce", "double-tree", {}), ("broadcast", "binomial", {})):
        simulated = simulated_s(name, algorithm, n, cluster, gamma, **options)
        assert simulated <= form_s(name, algorithm, n, gamma, **options) * (1 + 1e-9)


@pytest.mark.parametrize("n", [3, 8, 12])
def test_rings_take_as_long_on_a_ring_of_links(n):
    cluster = ring(n, BANDWIDTH, ALPHA_S)
    for name in REDUCING:
        for algorithm in RINGS:
            simulated = simulated_s(name, algorithm, n, cluster, 0.0)
            assert simulated == pytest.approx(form_s(name, algorithm, n), rel=1e-9)


def test_ring_form_as_written_in_the_literature():
    assert form_s("all-reduce", "ring", 8) == pytest.approx(2 * 7 * (ALPHA_S + COUNT * 8 / (8 * BANDWIDTH)), rel=1e-14)


def test_torus_takes_as_long_on_a_torus_of_links():
    cluster = torus((4, 4), BANDWIDTH, ALPHA_S)
    assert simulated_s("all-reduce", "torus", 16, cluster, 0.0) == pytest.approx(form_s("all-reduce", "torus", 16))


def test_oblong_torus_is_at_least_its_form():
    cluster = torus((3, 8), BANDWIDTH, ALPHA_S)
    assert simulated_s("all-reduce", "torus", 24, cluster, 0.0) >= form_s("all-reduce", "torus", 24, dims=(3, 8))


def test_slow_links_between_groups_enter_the_hierarchical_form():
    same = form_s("all-reduce", "hierarchical", 16, group_size=4)
    slow = form_s(
        "all-reduce", "hierarchical", 16, group_size=4, inter_bandwidth_bytes_per_s=BANDWIDTH / 10, inter_latency_s=1e-5
    )
    extra = 2 * 3 * (1e-5 - ALPHA_S + COUNT * 8 / 16 * 9 / BANDWIDTH)
    assert slow - same == pytest.approx(extra)


def test_no_form_is_below_the_lower_bound():
    for name, forms in CLOSED_FORMS.items():
        for algorithm in forms:
            for n in (2, 4, 8):
                cluster, program = (
                    fully_connected(n, BANDWIDTH, ALPHA_S),
                    collective(name, algorithm, n, COUNT, "float64"),
                )
                assert form_s(name, algorithm, n) >= program_lower_bound_s(program, cluster) * (1 - 1e-12)


def test_every_algorithm_with_a_form_exists():
    for name, forms in CLOSED_FORMS.items():
        assert set(forms) <= set(ALGORITHMS[name])


def test_bus_bandwidth_is_that_of_the_links_for_a_long_ring():
    for name in REDUCING:
        time_s = closed_form_s(name, "ring", 16, 1e9, latency_s=0.0, bandwidth_bytes_per_s=BANDWIDTH)
        assert busbw_bytes_per_s(name, 16, 1e9, time_s) == pytest.approx(BANDWIDTH)
    assert busbw_factor("broadcast", 16) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all-reduce", "rings", 4, 8), "no closed form of all-reduce by 'rings'; choose one of ring,"),
        (("sum", "ring", 4, 8), "no collective 'sum'"),
        (("all-reduce", "ring", 0, 8), "world_size is 0"),
        (("all-reduce", "ring", 4, -8), "size_bytes is -8"),
        (("all-gather", "halving-doubling", 6, 8), "no closed form for 6 ranks"),
        (("all-reduce", "ring", 4, float("nan")), "size_bytes is nan"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        closed_form_s(*arguments, latency_s=0.0, bandwidth_bytes_per_s=1.0)


def test_bad_options_are_refused():
    for options, message in (
        ({"chunks": 2}, "no option 'chunks'"),
        ({"latency_s": -1.0}, "latency_s is -1"),
        ({"bandwidth_bytes_per_s": 0.0}, "bandwidth_bytes_per_s is 0"),
        ({"reduce_s_per_byte": -1.0}, "reduce_s_per_byte is -1"),
    ):
        with pytest.raises(InputError, match=message):
            closed_form_s("all-reduce", "ring", 4, 8, **{"latency_s": 0.0, "bandwidth_bytes_per_s": 1.0} | options)
    with pytest.raises(InputError, match="groups of 3 do not divide 8"):
        form_s("all-reduce", "hierarchical", 8, group_size=3)
    with pytest.raises(InputError, match="inter is 'torus'; choose one of ring"):  # no program has it either
        form_s("all-reduce", "hierarchical", 8, inter="torus")
    with pytest.raises(InputError, match="do not make 8"):
        form_s("all-reduce", "torus", 8, dims=(3, 3))
    with pytest.raises(InputError, match="chunks is 0"):
        form_s("broadcast", "chain", 8, chunks=0)
