"""Collectives as single operations, and the messages that replace them, mean and cost the same."""

import numpy as np
import pytest

from llmsim.cluster import fully_connected
from llmsim.cost import Costs, closed_form_s
from llmsim.engine import simulate
from llmsim.engine.emulate import emulate
from llmsim.errors import ProgramError
from llmsim.program import ALGORITHMS, Builder, Contract, Kernel, Kind, Region, check, lower, verify

CHOICE = {
    "all-reduce": "halving-doubling",
    "reduce-scatter": "ring",
    "all-gather": "bidirectional-ring",
    "broadcast": "tree",
    "reduce": "tree",
    "all-to-all": "direct",
    "point-to-point": "direct",
}


def medley():
    """Collectives of every kind on several groups and streams, with kernels in front, between and behind."""
    builder = Builder("medley", 6)
    data, output = builder.buffer("data", 12), builder.buffer("output", 12)
    everyone, whole = np.arange(6), Region(data, 0, 12)
    ids = builder.compute(everyone, Kernel("produce"), writes=whole)
    with builder.phase("first"):
        ids = builder.collective(Contract("all-reduce", (0, 1, 2, 3, 4, 5), data, 0, 12), after=ids)
    evens = builder.collective(Contract("reduce-scatter", (4, 0, 2), data, 0, 3))
    odds = builder.collective(Contract("all-gather", (1, 5, 3), data, 0, 6), stream="other", after=ids[[1, 5, 3]])
    ids = ids.copy()
    ids[[4, 0, 2]], ids[[1, 5, 3]] = evens, odds
    ids = builder.compute(everyone, Kernel("between"), writes=Region(data, 3, 6), stream="comm", after=ids)
    ids = builder.collective(Contract("broadcast", (0, 1, 2, 3, 4, 5), data, 3, 6, root=4), after=ids)
    builder.collective(Contract("reduce", (2, 3, 5), data, 9, 3, root=5))
    exchanged = builder.collective(Contract("all-to-all", (3, 2, 1, 0), data, 3, 6, output=output), after=ids[3::-1])
    single = builder.collective(Contract("point-to-point", (4, 1), data, 8, 4), after=np.array([ids[4], exchanged[2]]))
    builder.compute(1, Kernel("consume"), reads=whole, after=single[1])
    return builder.build()


def test_the_same_values_in_any_order():
    program, inputs = medley(), {"data": np.random.default_rng(0).integers(0, 9, (6, 12)).astype("float32")}
    lowered = lower(program, CHOICE)
    assert not np.any(lowered.kind == Kind.COLLECTIVE)
    assert lowered.collectives == ()
    check(lowered)

    def between(rank, writes, reads):
        writes += 100 * rank

    expected = emulate(program, inputs, compute={"between": between})
    for seed in range(5):
        result = emulate(
            lowered, inputs, compute={"between": between}, seed=seed, send_mode=("eager", "rendezvous")[seed % 2]
        )
        # What a reduction leaves elsewhere than promised is not defined: partial sums here, the operands there.
        np.testing.assert_array_equal(result["output"], expected["output"])
        for rank, part in (
            *((0, slice(1, 2)), (2, slice(2, 3)), (4, slice(0, 1))),  # reduce-scatter
            *((1, slice(0, 3)), (3, slice(0, 3)), (5, slice(0, 3))),  # all-gather
            *((rank, slice(3, 9)) for rank in range(6)),  # broadcast
            *((5, slice(9, 12)), (1, slice(9, 12))),  # reduce, point-to-point
        ):
            np.testing.assert_array_equal(result["data"][rank, part], expected["data"][rank, part])


def test_phases_are_kept():
    program = lower(medley(), CHOICE)
    named = program.phase == program.phases.index("first")
    assert set(program.kind[named]) <= {Kind.SEND, Kind.RECV, Kind.RECV_REDUCE}
    assert named.any()


def test_a_mapping_lowers_only_what_it_names():
    program = lower(medley(), {"all-to-all": "pairwise"})
    assert {c.collective for c in program.collectives} == set(ALGORITHMS) - {"all-to-all"}
    check(program)
    verify(program, [Contract("broadcast", (0, 4), 0, 3, 6, root=4)])
    assert lower(program, {}).messages == program.messages


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "tree", "double-tree"])
def test_lowered_costs_what_the_closed_form_says(algorithm):
    """Priced by the closed form or run as messages without contention, the whole program takes as long."""
    n, count = 4, 4 * 1024
    builder = Builder("steps", n)
    data = builder.buffer("data", 3 * count)
    rank, ids = np.arange(n), None
    for step in range(3):
        part = Region(data, step * count, count)
        computed = builder.compute(rank, Kernel("layer", duration_s=(3e-6, 5e-5, 1e-6)[step]), writes=part)
        contract = Contract("all-reduce", tuple(range(n)), data, step * count, count)
        ids = builder.collective(contract, after=computed)
    builder.compute(rank, Kernel("optimizer", duration_s=7e-6), after=ids)
    program = builder.build()

    def price(name, ranks, size_bytes):
        return closed_form_s(name, algorithm, ranks, size_bytes, latency_s=2e-6, bandwidth_bytes_per_s=1e9)

    cluster = fully_connected(n, 1e9, 2e-6)
    priced = simulate(program, cluster, Costs(collective_s=price)).makespan_s
    lowered = simulate(lower(program, algorithm), cluster).makespan_s
    assert lowered == pytest.approx(priced, rel=1e-9)


def test_options_reach_the_algorithm():
    builder = Builder("one", 4)
    builder.collective(Contract("all-reduce", (0, 1, 2, 3), builder.buffer("data", 16), 0, 16))
    program = builder.build()
    assert lower(program, "ring", chunks=3).messages == 3 * lower(program, "ring").messages
    with pytest.raises(ProgramError, match="no algorithm in use has an option 'group_size'; used: ring"):
        lower(program, "ring", group_size=2)
    with pytest.raises(ProgramError, match="all-reduce has no algorithm 'direct'"):
        lower(program, "direct")


def test_a_program_of_messages_stays_as_it_is():
    builder = Builder("messages", 2)
    builder.message(0, 1, Region(builder.buffer("data", 4), 0, 4))
    program = builder.build()
    assert str(lower(program).view(0)) == str(program.view(0))
