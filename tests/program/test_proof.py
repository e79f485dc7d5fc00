"""The symbolic proof: what it says of programs that compute something else than they claim."""

from dataclasses import replace

import numpy as np
import pytest
from mutate import changed, without

from llmsim.errors import ProgramError
from llmsim.program import Builder, Contract, Kernel, Kind, Region, check_collective, collective, segments, verify


def line_of(program, *arguments, **options):
    with pytest.raises(ProgramError) as caught:
        verify(program, *arguments, **options)
    return str(caught.value)


def test_names_the_missing_contribution():
    program = collective("all-reduce", "ring", 4, 16)
    # Rank 3 does not add what rank 2 sends in the first step, the segment that rank 2 begins with.
    recv = program.queue_ops(3, "recv")[0]
    assert program.op(recv).kind == Kind.RECV_REDUCE
    dropped = without(program, [recv, program.match[recv]])
    assert line_of(dropped) == ("all-reduce ring: all-reduce: rank 0 data[4:8]: lacks the contribution of rank 2")


def test_names_the_double_contribution():
    builder = Builder("twice", 3)
    data = builder.buffer("data", 15)
    builder.message([1, 2, 2], 0, Region(data, 0, 15), reduce=True)
    assert line_of(builder.build(), [Contract("reduce", (0, 1, 2), data, 0, 15, root=0)]) == (
        "twice: reduce: rank 0 data[0:15]: has rank 2 twice"
    )
    assert line_of(builder.build(), [Contract("reduce", (0, 1), data, 10, 5, root=0)]) == (
        "twice: reduce: rank 0 data[10:15]: has data[10:15] of rank 2, which does not belong there"
    )


def test_names_missing_and_double_together():
    builder = Builder("both", 4)
    data = builder.buffer("data", 15)
    builder.message(2, 3, Region(data, 10, 5), reduce=True)
    builder.message(2, 3, Region(data, 0, 15), reduce=True)
    builder.message(0, 3, Region(data, 0, 15), reduce=True)
    line = line_of(builder.build(), [Contract("reduce", (0, 1, 2, 3), data, 10, 5, root=3)])
    assert line == "both: reduce: rank 3 data[10:15]: lacks the contribution of rank 1; has rank 2 twice"


def test_names_elements_out_of_place():
    program = collective("all-gather", "ring", 3, 9)
    recv = program.queue_ops(1, "recv")[0]
    line = line_of(changed(program, "offset", recv, 6))
    assert "rank 1 data[0:3]: lacks the contribution of rank 0; has data[0:3] of rank 1" in line


def test_a_sum_that_was_computed_over_again_is_outdated():
    """The gradient is computed anew after it was sent: what the others hold is no longer the rank's contribution."""
    builder = Builder("stale", 2)
    data = builder.buffer("data", 6)
    whole = Region(data, 0, 6)
    first = builder.compute([0, 1], Kernel("gradient"), writes=whole)
    sent, _ = builder.message(0, 1, whole, reduce=True, after=first[0], recv_after=first[1])
    builder.compute(0, Kernel("gradient"), writes=Region(data, 2, 2), after=sent)
    line = line_of(builder.build(), [Contract("reduce", (0, 1), data, 0, 6, root=1)])
    assert line.endswith("rank 1 data[2:4]: lacks the contribution of rank 0; has an outdated contribution of rank 0")


def test_many_ranks_are_listed_in_short():
    builder = Builder("lonely", 12)
    data = builder.buffer("data", 4)
    builder.message([3, 5], 0, Region(data, 0, 4), reduce=True)
    line = line_of(builder.build(), [Contract("all-reduce", tuple(range(12)), data, 0, 4)])
    assert line.endswith("rank 0 data[0:4]: lacks the contribution of ranks 1, 2, 4 and 6 to 11")


def test_copies_and_reductions_move_symbols():
    builder = Builder("local", 1)
    a, b = builder.buffer("a", 8), builder.buffer("b", 8)
    builder.copy(0, Region(b, 4, 4), Region(a, 0, 4))
    builder.reduce(0, Region(b, 4, 2), Region(a, 6, 2))
    line = line_of(builder.build(), [Contract("all-reduce", (0,), b, 4, 4)])
    assert "b[4:6]: lacks the contribution of rank 0; has a[0:2] of rank 0" in line
    assert "has a[6:8] of rank 0, which does not belong there" in line


def test_collectives_as_operations_keep_their_promise():
    for name, options in (
        ("all-reduce", {}),
        ("reduce-scatter", {}),
        ("all-gather", {}),
        ("broadcast", {"root": 2}),
        ("reduce", {"root": 1}),
        ("all-to-all", {"output": 1}),
    ):
        builder = Builder("as one", 3)
        builder.buffer("data", 10)
        builder.buffer("output", 12)
        contract = Contract(name, (0, 1, 2), 0, 0, 10, **options)
        builder.collective(contract)
        builder.contract(contract)
        verify(builder.build())


def test_a_program_without_contract_has_nothing_to_prove():
    assert "there is nothing to prove" in line_of(Builder("bare", 2).build())


# programs written by learners ----------------------------------------------------------------------------------------


def learners_ring(n, count, steps):
    """A ring all-reduce as a lesson asks for it, of which the learner has got some steps right."""
    builder = Builder("my ring", n)
    data = builder.buffer("data", count)
    offset, size = segments(count, n)
    rank = np.arange(n)
    before = None
    for step in range(steps):
        segment = (rank - step) % n
        region = Region(data, offset[segment], size[segment])
        into = Region(data, offset[(segment - 1) % n], size[(segment - 1) % n])
        send = builder.send(rank, (rank + 1) % n, region, after=before)
        before = builder.recv(rank, (rank - 1) % n, into, reduce=step < n - 1)
        builder.match(send, np.roll(before, -1))
    return builder.build()


def test_check_collective_tells_a_learner_what_is_missing():
    check_collective(learners_ring(4, 16, 6), "all-reduce")
    with pytest.raises(ProgramError, match=r"rank 0 data\[0:16\]: lacks the contribution of ranks 1 to 3"):
        check_collective(learners_ring(4, 16, 0), "all-reduce")
    with pytest.raises(ProgramError, match=r"rank 0 data\[0:4\]: lacks the contribution of ranks 1 to 3"):
        check_collective(learners_ring(4, 16, 3), "all-reduce")
    with pytest.raises(ProgramError, match=r"rank 0 data\[8:12\]: lacks the contribution of rank 1"):
        check_collective(learners_ring(4, 16, 5), "all-reduce")


def test_check_collective_finds_races_too():
    program = learners_ring(4, 16, 6)
    with pytest.raises(ProgramError):
        check_collective(replace(program, dependency=program.dependency[:0]), "all-reduce")


def test_check_collective_on_other_buffers_and_ranks():
    builder = Builder("some", 4)
    mine = builder.buffer("mine", 6)
    builder.message(3, 1, Region(mine, 0, 6))
    program = builder.build()
    check_collective(program, "point-to-point", buffer="mine", ranks=(3, 1))
    check_collective(program, "broadcast", buffer="mine", ranks=(1, 3), root=3)
    with pytest.raises(ProgramError, match="rank 1 mine"):
        check_collective(program, "point-to-point", buffer="mine")
    with pytest.raises(ProgramError, match="there is no buffer 'data'; its buffers: mine"):
        check_collective(program, "all-reduce")
    with pytest.raises(ProgramError, match="there is no collective 'gossip'; choose one of all-reduce"):
        check_collective(program, "gossip")


def test_check_collective_proves_an_all_to_all():
    program = collective("all-to-all", "pairwise", 3, 7)
    check_collective(program, "all-to-all", buffer="input")
    copy = int(np.flatnonzero(program.kind == Kind.COPY)[1])
    with pytest.raises(ProgramError, match=r"rank 1 output\[2:4\]: lacks the contribution of rank 1"):
        check_collective(without(program, [copy]), "all-to-all", buffer="input")
