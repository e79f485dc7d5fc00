"""What a builder refuses: names, types and contracts that no program can mean."""

import pytest

from llmsim.errors import ProgramError
from llmsim.program import Builder, Contract, Kernel, Region, check_collective, verify


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", 4), "there is a buffer 'data' already; give it another name"),
        (("more", 8.5), "buffer 'more' has 8.5 elements; give a whole number"),
        (("more", -1), "buffer 'more' has -1 elements"),
        (("more", 4, "floaty"), "'floaty' is not an element type"),
        (("more", 4, "S3"), "'S3' is not an element type"),  # NumPy knows it, but it cannot be added up
        (("more", 4, "object"), "'object' is not an element type"),
    ],
)
def test_a_buffer_that_cannot_be(arguments, message):
    builder = Builder("bad", 3)
    builder.buffer("data", 8)
    with pytest.raises(ProgramError, match=message):
        builder.buffer(*arguments)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"collective": "sum"}, "contract of sum: there is no such collective; choose one of all-reduce"),
        ({"ranks": ()}, r"its ranks are \(\); give one or more"),
        ({"ranks": (0, 1, 0)}, "each once"),
        ({"ranks": (0, 3)}, "rank 3 is outside the world of 3"),
        ({"collective": "point-to-point", "ranks": (0, 1, 2)}, "give two different ones"),
        ({"collective": "broadcast"}, "there is no root; give the rank that is root"),
        ({"collective": "reduce", "root": 3}, "rank 3 is outside"),
        ({"root": 0}, "root is 0, but it has none; leave root out"),
        ({"collective": "all-to-all"}, "give output"),
        ({"output": 1}, "leave output out"),
        ({"collective": "all-to-all", "output": 1}, "elements 0 to 9 lie outside buffer 'small' of 8 elements"),
        ({"buffer": 2}, "there is no buffer 2"),
        ({"offset": 1}, "elements 1 to 9 lie outside buffer 'data' of 8 elements"),
        ({"count": -1}, "lie outside"),
    ],
)
def test_a_contract_that_means_nothing(fields, message):
    builder = Builder("bad", 3)
    builder.buffer("data", 8)
    builder.buffer("small", 8)
    contract = Contract(
        **{"collective": "all-reduce", "ranks": (0, 1, 2), "buffer": 0, "offset": 0, "count": 8} | fields
    )
    for state in (builder.contract, builder.collective, lambda it: verify(builder.build(), [it])):
        with pytest.raises(ProgramError, match=message):
            state(contract)


def test_a_root_promises_without_taking_part_but_takes_no_part_in_an_operation():
    builder = Builder("server", 3)
    data = builder.buffer("data", 8)
    contract = Contract("reduce", (0, 1), data, 0, 8, root=2)
    builder.contract(contract)
    with pytest.raises(ProgramError, match="its root 2 takes no part in reduce"):
        builder.collective(contract)


def test_check_collective_names_ranks_that_are_not_there():
    builder = Builder("two", 2)
    builder.message(0, 1, Region(builder.buffer("data", 8), 0, 8))
    program = builder.build()
    check_collective(program, "broadcast")
    with pytest.raises(ProgramError, match="rank 2 is outside the world of 2"):
        check_collective(program, "broadcast", ranks=(0, 2))


def test_a_world_is_a_whole_number():
    with pytest.raises(ProgramError, match=r"world_size is 4\.5"):
        Builder("half", 4.5)


def test_a_source_of_another_size_is_refused_not_cut():
    builder = Builder("sizes", 1)
    data, large, whole = builder.buffer("data", 2), builder.buffer("large", 8), builder.buffer("whole", 2, "int32")
    two, eight, other = Region(data, 0, 2), Region(large, 0, 8), Region(whole, 0, 2)
    for add in (builder.copy, builder.reduce):
        with pytest.raises(ProgramError, match="its source and its region have different counts"):
            add(0, two, eight)
        with pytest.raises(ProgramError, match=r"from 'whole' \(int32\) to 'data' \(float32\); convert with a kernel"):
            add(0, two, other)
    with pytest.raises(ProgramError, match="sizes: COMPUTE: its source and its region have different counts"):
        builder.compute(0, Kernel("norm"), writes=two, reads=eight)
    builder.compute(0, Kernel("convert"), writes=two, reads=other)
    builder.compute(0, Kernel("read only"), reads=eight)
    assert len(builder.build()) == 2


def test_only_kernels_may_touch_nothing():
    builder = Builder("nothing", 2)
    builder.buffer("data", 8)
    nothing = Region(-1, 0, 8)  # would be the last buffer, to NumPy
    for add in (lambda: builder.send(0, 1, nothing), lambda: builder.recv(1, 0, nothing)):
        with pytest.raises(ProgramError, match="there is no buffer in its region"):
            add()
    builder.compute(0, Kernel("idle"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"destination": 1.5}, "peer 1.5 is no whole number|rank 1.5 is no whole number"),
        ({"destination": 2**32 + 1}, "4294967297 is too large"),
        ({"tag": 2**32}, "tag 4294967296 is too large"),
        ({"tag": None}, "tag None is no whole number"),
        ({"offset": 0.5}, "offset .*0.5.* is no whole number"),
        ({"count": 10**20}, "count 100000000000000000000 is no whole number"),
    ],
)
def test_a_number_that_a_column_cannot_hold_is_refused_and_not_cut(fields, message):
    builder = Builder("cut", 2)
    fields = {"destination": 1, "tag": 0, "offset": 0, "count": 4} | fields
    region = Region(builder.buffer("data", 8), fields["offset"], fields["count"])
    with pytest.raises(ProgramError, match=message):
        builder.message(0, fields["destination"], region, tag=fields["tag"])


@pytest.mark.parametrize("unknown", [2, 999, 2**40, 0.5, "x"])
def test_a_dependency_or_match_with_no_operation_is_refused_and_not_lost(unknown):
    builder = Builder("lost", 2)
    send, recv = builder.message(0, 1, Region(builder.buffer("data", 8), 0, 8))
    for add in (lambda: builder.after(recv, unknown), lambda: builder.after(unknown, send)):
        with pytest.raises(ProgramError, match="there is no operation"):
            add()
    with pytest.raises(ProgramError, match="there is no operation"):
        builder.match(send, unknown)
