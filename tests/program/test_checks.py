"""Faulty programs are caught, and the message says what is wrong where."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutate import changed, without, without_dependency

from llmsim.engine.emulate import emulate
from llmsim.errors import ProgramError
from llmsim.program import ALGORITHMS, Builder, Contract, Kernel, Kind, Region, check, collective, verify
from llmsim.program.checks import check_collectives, check_deadlock, check_messages
from llmsim.program.graph import waits
from llmsim.program.races import check_races


def pair(count=8):
    builder = Builder("pair", 2)
    return builder, Region(builder.buffer("data", count), 0, count)


# messages -----------------------------------------------------------------------------------------------------------


def test_a_send_without_receive():
    program = collective("all-reduce", "ring", 3, 9)
    recv = program.queue_ops(2, "recv")[-1]
    with pytest.raises(ProgramError, match=r"4 sends but 3 receives from rank 1 to rank 2.*rank 1 send #3: SEND"):
        check_messages(without(program, [recv]))


def test_a_receive_from_someone_else():
    program = collective("all-reduce", "ring", 3, 9)
    recv = program.queue_ops(2, "recv")[0]
    with pytest.raises(ProgramError, match=r"from rank 0 to rank 2.*no counterpart for rank 2 recv #0"):
        check_messages(changed(program, "peer", recv, 0))


def test_a_pairing_against_the_order_of_the_channel():
    program = collective("all-reduce", "ring", 3, 9)
    a, b = program.queue_ops(0, "send")[:2]
    match = program.match.copy()
    match[[a, b]] = match[[b, a]]
    match[match[[a, b]]] = [a, b]
    with pytest.raises(ProgramError, match=r"rank 0 send #0.* is the counterpart of rank 1 recv #0.* by the order"):
        check_messages(replace(program, match=match))


def test_a_size_that_differs():
    builder, data = pair()
    builder.message(0, 1, data, Region(data.buffer, 0, 7))
    with pytest.raises(ProgramError, match=r"another size than it was sent: rank 0 send #0.*meets rank 1 recv #0"):
        check_messages(builder.build())


def test_a_type_that_differs():
    builder, data = pair()
    other = builder.buffer("other", 8, "int32")
    builder.message(0, 1, data, Region(other, 0, 8))
    with pytest.raises(ProgramError, match=r"another type than it was sent \(float32 as int32\)"):
        check_messages(builder.build())


def test_a_channel_in_two_streams():
    builder, data = pair()
    builder.message(0, 1, data, streams=("a", "r"))
    builder.message(0, 1, data, streams=("b", "r"))
    with pytest.raises(ProgramError, match=r"two sends of one channel.*rank 0 a #0.*rank 0 b #0.*a tag for each"):
        check_messages(builder.build())


def test_a_copy_onto_itself_shifted():
    """A copy from front to back and one from back to front give different elements."""
    for add in ("copy", "reduce"):
        builder = Builder("shift", 1)
        data = builder.buffer("data", 12)
        getattr(builder, add)(0, Region(data, 0, 4), Region(data, 4, 4))  # side by side
        getattr(builder, add)(0, Region(data, 0, 4), Region(data, 0, 4))  # the same elements
        check(builder.build())
        getattr(builder, add)(0, Region(data, 2, 4), Region(data, 5, 4))
        with pytest.raises(
            ProgramError, match=r"source and region overlap: rank 0 compute #2: .* data\[5:9\] → data\[2:6\]"
        ):
            check(builder.build())


def test_a_collective_someone_leaves_out():
    builder = Builder("three", 3)
    data = builder.buffer("data", 8)
    builder.collective(Contract("all-reduce", (0, 1, 2), data, 0, 8))
    program = builder.build()
    check_collectives(program)
    with pytest.raises(ProgramError, match="all-reduce over 3 ranks: rank 1 never takes part"):
        check_collectives(without(program, [1]))
    with pytest.raises(ProgramError, match="rank 2 takes part but is no member"):
        check_collectives(replace(program, collectives=(Contract("all-reduce", (0, 1), data, 0, 8),)))


# deadlocks ----------------------------------------------------------------------------------------------------------


def naive_1f1b(stages, micro_batches):
    """One forward, one backward; each stage has one stream for all that it does."""
    builder = Builder("naive 1F1B", stages)
    data = Region(builder.buffer("activations", 4), 0, 4)
    for stage in range(stages):

        def forward(stage=stage):
            if stage > 0:
                builder.recv(stage, stage - 1, data, stream="all")
            builder.compute(stage, Kernel("forward"), stream="all")
            if stage < stages - 1:
                builder.send(stage, stage + 1, data, stream="all")

        def backward(stage=stage):
            if stage < stages - 1:
                builder.recv(stage, stage + 1, data, tag=1, stream="all")
            builder.compute(stage, Kernel("backward"), stream="all")
            if stage > 0:
                builder.send(stage, stage - 1, data, tag=1, stream="all")

        warm_up = min(stages - 1 - stage, micro_batches)
        for _ in range(warm_up):
            forward()
        for _ in range(micro_batches - warm_up):
            forward()
            backward()
        for _ in range(warm_up):
            backward()
    return builder.build()


def test_naive_1f1b_deadlocks_only_with_rendezvous():
    program = naive_1f1b(4, 8)
    check(program, ("eager",))
    emulate(program, {})
    for run in (lambda: check(program), lambda: emulate(program, {}, send_mode="rendezvous")):
        with pytest.raises(ProgramError, match="deadlock with rendezvous sends") as caught:
            run()
        # The circle: a forward send meets a backward send between neighbours.
        chain = re.findall(r"rank (\d) all #\d+: (SEND|RECV)", str(caught.value))
        assert chain[0] == chain[-1]
        assert {kind for _, kind in chain} == {"SEND", "RECV"}
        assert len({rank for rank, _ in chain}) == 2


def test_a_circle_of_receives():
    builder = Builder("circle", 3)
    data = Region(builder.buffer("data", 4), 0, 4)
    ranks = np.arange(3)
    recv = builder.recv(ranks, (ranks - 1) % 3, data)
    builder.send(ranks, (ranks + 1) % 3, data, after=recv)
    program = builder.build()
    expected = "circle: deadlock: " + " waits for ".join(
        [
            "rank 0 recv #0: RECV 16 B data[0:4] ← rank 2",
            "rank 2 send #0: SEND 16 B data[0:4] → rank 0",
            "rank 2 recv #0: RECV 16 B data[0:4] ← rank 1",
            "rank 1 send #0: SEND 16 B data[0:4] → rank 2",
            "rank 1 recv #0: RECV 16 B data[0:4] ← rank 0",
            "rank 0 send #0: SEND 16 B data[0:4] → rank 1",
            "rank 0 recv #0: RECV 16 B data[0:4] ← rank 2",
        ]
    )
    for run in (lambda: check_deadlock(program, "eager"), lambda: emulate(program, {})):
        with pytest.raises(ProgramError) as caught:
            run()
        assert str(caught.value) == expected + "; change the order of the operations, or put them into separate streams"


def test_a_circle_of_dependencies():
    builder = Builder("kernels", 1)
    first, second = (builder.compute(0, Kernel(name), stream=name) for name in ("a", "b"))
    builder.after(first, second)
    builder.after(second, first)
    with pytest.raises(ProgramError, match=r"rank 0 a #0: COMPUTE a waits for rank 0 b #0: COMPUTE b waits for"):
        check(builder.build())


def test_collectives_in_another_order_on_each_rank():
    builder = Builder("crossed", 2)
    data = builder.buffer("data", 8)
    first = builder.collective(Contract("all-reduce", (0, 1), data, 0, 4), stream="a")
    second = builder.collective(Contract("all-reduce", (0, 1), data, 4, 4), stream="b")
    builder.after(second[0], first[0])
    check_deadlock(builder.build(), "eager")
    builder.after(first[1], second[1])
    program = builder.build()
    with pytest.raises(ProgramError, match=r"deadlock: .*COLLECTIVE all-reduce.* waits for .*COLLECTIVE all-reduce"):
        check_deadlock(program, "eager")
    with pytest.raises(ProgramError, match="deadlock"):
        emulate(program, {})


@settings(max_examples=60)
@given(st.data())
def test_deadlock_check_agrees_with_the_emulator(data):
    """Random messages in random streams: the search for circles and the run agree in both modes."""
    n = data.draw(st.integers(2, 4))
    builder = Builder("random", n)
    region = Region(builder.buffer("data", 1), 0, 1)
    ops = []
    for tag in range(data.draw(st.integers(1, 8))):
        source = data.draw(st.integers(0, n - 1))
        target = (source + data.draw(st.integers(1, n - 1))) % n
        ops += [(source, target, tag, True), (target, source, tag, False)]
    ids = []
    for rank, peer, tag, is_send in data.draw(st.permutations(ops)):
        add = builder.send if is_send else builder.recv
        ids.append(add(rank, peer, region, tag=tag, stream=f"s{data.draw(st.integers(0, 1))}"))
    for _ in range(data.draw(st.integers(0, 2))):
        later, earlier = (ids[data.draw(st.integers(0, len(ids) - 1))] for _ in range(2))
        if later != earlier:
            builder.after(later, earlier)
    program = builder.build()
    for mode in ("eager", "rendezvous"):
        outcomes = []
        for run in (lambda: check_deadlock(program, mode), lambda: emulate(program, {}, send_mode=mode, seed=1)):  # noqa: B023
            try:
                run()
                outcomes.append(None)
            except ProgramError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


# races --------------------------------------------------------------------------------------------------------------


def test_a_race_names_both_operations():
    builder = Builder("race", 2)
    data = builder.buffer("data", 10)
    builder.compute(0, Kernel("gradient"), writes=Region(data, 2, 5))
    builder.message(0, 1, Region(data, 6, 4))
    with pytest.raises(
        ProgramError, match=r"rank 0 compute #0: COMPUTE gradient.* and rank 0 send #0: SEND 16 B data\[6"
    ):
        check(builder.build())


def test_no_race_between_readers_neighbours_or_what_is_ordered():
    builder = Builder("fine", 2)
    data = builder.buffer("data", 10)
    written = builder.compute(0, Kernel("gradient"), writes=Region(data, 0, 5))
    builder.compute(0, Kernel("norm"), reads=Region(data, 0, 5), after=written, stream="other")  # two readers
    builder.message(0, 1, Region(data, 0, 5), after=written)
    builder.compute(0, Kernel("rest"), writes=Region(data, 5, 5), stream="third")  # other elements
    builder.compute(1, Kernel("nothing"), writes=Region(data, 3, 0), stream="third")  # no elements
    check(builder.build())


def test_order_may_lead_through_another_rank():
    def program(with_reply):
        builder = Builder("through", 2)
        data = builder.buffer("data", 4)
        whole = Region(data, 0, 4)
        builder.send(0, 1, whole, stream="out")
        there = builder.recv(1, 0, whole, stream="in")
        if with_reply:
            token = Region(builder.buffer("token", 1), 0, 1)
            builder.send(1, 0, token, stream="out", after=there)
            back = builder.recv(0, 1, token, stream="in")
            builder.compute(0, Kernel("overwrite"), writes=whole, after=back)
        else:
            builder.compute(0, Kernel("overwrite"), writes=whole)
        return builder.build()

    check(program(True))
    with pytest.raises(ProgramError, match="a race: nothing orders"):
        check(program(False))


def test_collectives_order_what_comes_after_on_all_ranks():
    builder = Builder("barrier", 2)
    data, flag = builder.buffer("data", 4), builder.buffer("flag", 1)
    write = builder.compute(0, Kernel("write"), writes=Region(data, 0, 4), stream="a")
    barrier = builder.collective(Contract("all-reduce", (0, 1), flag, 0, 1), after=np.array([write, -1]))
    builder.send(1, 0, Region(data, 0, 4), after=barrier[1])
    builder.recv(0, 1, Region(data, 0, 4))  # ordered after the write through rank 1's part in the barrier
    check(builder.build())


def test_races_on_relaxed_buffers_are_meant():
    for relaxed in (False, True):
        builder = Builder("hogwild", 1)
        weights = builder.buffer("weights", 4, relaxed=relaxed)
        for stream in ("a", "b"):
            builder.compute(0, Kernel("update"), writes=Region(weights, 0, 4), stream=stream)
        if relaxed:
            check(builder.build())
        else:
            with pytest.raises(ProgramError, match="a race"):
                check(builder.build())


def test_blocks_of_ranks_find_the_same_race(monkeypatch):
    program = collective("all-reduce", "ring", 7, 20)
    wrong = without_dependency(program, int(np.flatnonzero(program.rank[program.dependency[:, 0]] == 5)[3]))
    lines = []
    for block in (1, 1 << 24):
        monkeypatch.setattr("llmsim.program.races._BLOCK", block)
        check_races(program)
        with pytest.raises(ProgramError) as caught:
            check_races(wrong)
        lines.append(str(caught.value))
    assert lines[0] == lines[1]


def test_too_large_for_races_is_refused_not_skipped():
    program = collective("all-reduce", "ring", 5, 20)
    with pytest.raises(ProgramError, match=r"80 operations in 10 queues.*fewer ranks.*races=False"):
        check_races(program, most_clocks=799)
    check_races(program, most_clocks=800)


def happens_before(program):
    """Reachability by brute force: operations × operations."""
    reach = np.zeros((len(program), len(program)), dtype=bool)
    reach[waits(program, "eager")] = True
    for middle in range(len(program)):
        reach |= reach[:, middle, None] & reach[middle]
    return reach


@settings(max_examples=60)
@given(st.data())
def test_races_agree_with_brute_force(data):
    """Random programs on two ranks: a race is found exactly where two accesses clash without a path between them."""
    builder = Builder("random", 2)
    buffer = builder.buffer("data", 6)
    ids = []
    for tag in range(data.draw(st.integers(2, 7))):
        rank, offset = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 4))
        region = Region(buffer, offset, data.draw(st.integers(0, 6 - offset)))
        streams = f"s{data.draw(st.integers(0, 2))}", f"s{data.draw(st.integers(0, 2))}"
        after = ids[data.draw(st.integers(0, len(ids) - 1))] if ids and data.draw(st.booleans()) else None
        match data.draw(st.integers(0, 2)):
            case 0:
                ids.append(builder.compute(rank, Kernel("k"), writes=region, stream=streams[0], after=after))
            case 1:
                ids.append(builder.compute(rank, Kernel("k"), reads=region, stream=streams[0], after=after))
            case _:
                ids += builder.message(rank, 1 - rank, region, tag=tag, streams=streams, after=after)
    program = builder.build()
    reach = happens_before(program)
    expected = False
    for a in range(len(program)):
        for b in range(a):
            one, other = program.op(a), program.op(b)
            if one.rank != other.rank or reach[a, b] or reach[b, a]:
                continue
            regions = [op.region or op.source for op in (one, other)]
            writes = [
                op.kind == Kind.RECV or (op.kind == Kind.COMPUTE and op.region is not None) for op in (one, other)
            ]
            elements = [set(range(r.offset, r.offset + r.count)) for r in regions]
            expected |= bool(elements[0] & elements[1]) and any(writes)
    if expected:
        with pytest.raises(ProgramError, match="a race"):
            check_races(program)
    else:
        check_races(program)


# mutations ----------------------------------------------------------------------------------------------------------

PAIRS = [(name, algorithm) for name, algorithms in ALGORITHMS.items() for algorithm in algorithms]


def fault(program):
    """What checks and proof say, or None."""
    try:
        check(program)
        verify(program)
    except ProgramError as error:
        return str(error)
    return None


def draw_program(data):
    name, algorithm = data.draw(st.sampled_from(PAIRS))
    n = data.draw(st.integers(2, 9))
    return collective(name, algorithm, n, data.draw(st.integers(2 * n, 5 * n)))


def draw_op(data, program, kinds):
    """An operation of one of the kinds that moves something."""
    ops = np.flatnonzero(np.isin(program.kind, kinds) & (program.count > 0))
    return int(ops[data.draw(st.integers(0, len(ops) - 1))]) if len(ops) else None


@settings(max_examples=80)
@given(st.data())
def test_a_dropped_message_is_caught(data):
    program = draw_program(data)
    send = draw_op(data, program, [Kind.SEND])
    assert fault(program) is None
    found = fault(without(program, [send, program.match[send]]))
    assert found is not None
    assert "lacks the contribution" in found or "does not belong there" in found or "race" in found


@settings(max_examples=60)
@given(st.data())
def test_half_a_message_is_caught(data):
    program = draw_program(data)
    op = draw_op(data, program, [Kind.SEND, Kind.RECV, Kind.RECV_REDUCE])
    assert "no counterpart" in fault(without(program, [op]))


@settings(max_examples=60)
@given(st.data())
def test_a_redirected_message_is_caught(data):
    program = draw_program(data)
    op = draw_op(data, program, [Kind.SEND, Kind.RECV, Kind.RECV_REDUCE])
    others = [r for r in range(program.world_size) if r not in (program.peer[op], program.rank[op])]
    if others:
        found = fault(changed(program, "peer", op, data.draw(st.sampled_from(others))))
        assert "no counterpart" in found or "of one channel stand in different streams" in found


@settings(max_examples=60)
@given(st.data())
def test_a_message_into_the_wrong_segment_is_caught(data):
    program = draw_program(data)
    op = draw_op(data, program, [Kind.RECV, Kind.RECV_REDUCE])
    most = program.buffers[program.buffer[op]].count - program.count[op]
    offset = data.draw(st.integers(0, int(most)))
    if offset != program.offset[op]:
        found = fault(changed(program, "offset", op, offset))
        assert found is not None
        assert "contribution" in found or "does not belong there" in found or "race" in found or "has rank" in found


@settings(max_examples=60)
@given(st.data())
def test_a_forgotten_addition_is_caught(data):
    program = draw_program(data)
    op = draw_op(data, program, [Kind.RECV_REDUCE])
    if op is not None:
        assert "lacks the contribution" in fault(changed(program, "kind", op, Kind.RECV))


@settings(max_examples=40)
@given(st.data())
def test_a_forgotten_dependency_is_caught_unless_it_was_not_needed(data):
    """Either a check complains, or the result is still right in every order that is tried."""
    program = draw_program(data)
    if not len(program.dependency):
        return
    mutant = without_dependency(program, data.draw(st.integers(0, len(program.dependency) - 1)))
    if fault(mutant) is None:
        name = program.buffers[0].name
        shape = (program.world_size, program.buffers[0].count)
        inputs = {name: np.random.default_rng(0).integers(0, 99, shape).astype("float32")}
        expected = emulate(program, inputs)
        for seed in range(3):
            result = emulate(mutant, inputs, seed=seed)
            for contract in program.contracts:
                out = program.buffers[contract.buffer if contract.output is None else contract.output].name
                if contract.collective in ("all-reduce", "all-gather", "broadcast"):
                    np.testing.assert_array_equal(result[out], expected[out])


def test_a_wrong_send_mode_is_refused():
    with pytest.raises(ProgramError, match="'lazy' is not a send mode"):
        check(collective("all-reduce", "ring", 2, 4), ("lazy",))
