"""What binding finds, and what it refuses."""

import numpy as np
import pytest

from llmsim.cluster import leaf_spine, ring
from llmsim.cost.costs import Costs
from llmsim.engine import bind, run, simulate
from llmsim.engine.compiled import contention
from llmsim.errors import InputError
from llmsim.program.builder import Builder
from llmsim.program.collectives import collective
from llmsim.program.program import Contract

CLUSTER = ring(4, 1e9, 1e-6)
PROGRAM = collective("all-reduce", "ring", 4, 1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"placement": (0, 1, 2)}, "the placement has 3 entries for a world of 4 ranks"),
        ({"placement": (0, 1, 2, 4)}, "puts rank 3 on device 4, but cluster ring has 4"),
        ({"placement": (0, 1, -1, 3)}, "puts rank 2 on device -1"),
        ({"send_mode": "buffered"}, "'buffered' is not a send mode"),
        ({"engine": "fast"}, "'fast' is not an engine; use 'compiled' or 'simpy'"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        simulate(PROGRAM, CLUSTER, **options)


def test_a_world_larger_than_the_cluster_is_refused_naming_both():
    with pytest.raises(InputError, match="all-reduce ring has 5 ranks but cluster ring has 4 devices"):
        bind(collective("all-reduce", "ring", 5, 1000), CLUSTER)


def test_a_collective_without_a_price_is_refused():
    new = Builder("priced", 2)
    new.buffer("data", 10)
    new.collective(Contract("all-gather", (0, 1), 0, 0, 10))
    with pytest.raises(InputError, match=r"all-gather as one operation, which has no price; give Costs\(collective_s"):
        bind(new.build(), CLUSTER)


def test_messages_cross_the_links_of_their_route():
    bound = bind(PROGRAM, CLUSTER)
    sends = np.flatnonzero(PROGRAM.kind == 1)
    for i in sends:
        path = bound.path[i]
        crossed = bound.paths.resource[bound.paths.start[path] : bound.paths.start[path + 1]]
        expected = CLUSTER.route(CLUSTER.devices[PROGRAM.rank[i]], CLUSTER.devices[PROGRAM.peer[i]])
        assert tuple(crossed) == expected
        assert bound.work[i] == PROGRAM.size_bytes[i]
    assert bound.resource_names[0] == "d0 → d1"


def test_a_bound_program_runs_again():
    bound = bind(PROGRAM, CLUSTER, Costs(latency_s=1e-5))
    first, second = run(bound), run(bound)
    assert first.end_s.tobytes() == second.end_s.tobytes()
    assert first.meta["engine"] == "compiled"


def test_only_links_that_can_be_asked_for_too_much_count_as_contended():
    """Each link of a ring serves one sender; a leaf's uplinks at 4:1 serve four each, and its hosts' links none."""
    assert len(contention(bind(PROGRAM, CLUSTER)).resources) == 0
    fabric = leaf_spine(16, 1e9, 1e-6, leaves=2, spines=2, oversubscription=4.0)
    bound = bind(collective("all-to-all", "pairwise", 16, 1600), fabric)
    limiting = [bound.resource_names[r] for r in contention(bound).resources]
    assert any(name.startswith("leaf0 → spine") for name in limiting)
    assert not any(name.startswith("d") for name in limiting)  # a device sends one message at a time


def test_no_operations_no_time():
    assert simulate(Builder("empty", 2).build(), CLUSTER).makespan_s == 0.0
    assert len(simulate(Builder("empty", 2).build(), CLUSTER, engine="simpy")) == 0
