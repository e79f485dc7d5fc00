"""The emulator: inputs, kernels, orders."""

import numpy as np
import pytest

from llmsim.engine.emulate import emulate
from llmsim.errors import InputError, ProgramError
from llmsim.program import Builder, Contract, Kernel, Region, collective
from llmsim.program.promises import promises


def test_kernels_compute_with_views_of_their_regions():
    builder = Builder("kernels", 2)
    a, b = builder.buffer("a", 4), builder.buffer("b", 4)
    builder.compute([0, 1], Kernel("scale"), writes=Region(a, 1, 2), reads=Region(b, 2, 2))
    builder.compute([0, 1], Kernel("idle"), writes=Region(b, 0, 4), stream="other")

    def scale(rank, writes, reads):
        writes += (rank + 1) * reads

    inputs = {"a": np.zeros((2, 4), "float32"), "b": np.arange(8, dtype="float32").reshape(2, 4)}
    result = emulate(builder.build(), inputs, compute={"scale": scale})
    np.testing.assert_array_equal(result["a"], [[0, 2, 3, 0], [0, 12, 14, 0]])
    np.testing.assert_array_equal(result["b"], inputs["b"])
    assert inputs["a"].sum() == 0  # inputs stay as they are


def test_a_kernel_without_regions_gets_none():
    builder = Builder("bare", 1)
    builder.compute(0, Kernel("work"))
    calls = []
    emulate(builder.build(), {}, compute={"work": lambda *arguments: calls.append(arguments)})
    assert calls == [(0, None, None)]


def test_buffers_that_are_left_out_start_as_zeros():
    assert emulate(collective("all-reduce", "ring", 3, 5, "int32"), {})["data"].tolist() == [[0] * 5] * 3


def test_a_message_holds_what_was_there_when_it_was_sent():
    builder = Builder("overwritten", 2)
    data = builder.buffer("data", 1)
    sent = builder.send(0, 1, Region(data, 0, 1))
    later = builder.compute(0, Kernel("overwrite"), writes=Region(data, 0, 1), after=sent)
    signal = Region(builder.buffer("signal", 1), 0, 1)
    _, told = builder.message(0, 1, signal, tag=1, streams=("signal", "signal"), after=later)
    builder.recv(1, 0, Region(data, 0, 1), after=told)  # taken out long after
    program = builder.build()

    def overwrite(rank, writes, reads):
        writes[:] = -1

    result = emulate(program, {"data": np.array([[7], [0]], "float32")}, compute={"overwrite": overwrite})
    assert result["data"].tolist() == [[-1], [7]]
    with pytest.raises(ProgramError, match="deadlock with rendezvous"):
        emulate(program, {}, send_mode="rendezvous")


def test_the_order_drawn_is_another_for_each_seed_and_the_same_for_one():
    builder = Builder("order", 1)
    for name in "abcdef":
        builder.compute(0, Kernel(name), stream=name)
    program = builder.build()

    def order(seed):
        seen = []
        emulate(program, {}, compute={name: (lambda *_, name=name: seen.append(name)) for name in "abcdef"}, seed=seed)
        return "".join(seen)

    assert order(None) == "abcdef"
    assert len({order(seed) for seed in range(20)}) > 10
    assert order(3) == order(3)


@pytest.mark.parametrize("name", ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all"])
def test_collectives_as_operations(name):
    """The same result as a message program, where the collective defines it."""
    builder = Builder("as one", 3)
    data, output = builder.buffer("data", 8, "int64"), builder.buffer("output", 9, "int64")
    root = 1 if name in ("broadcast", "reduce") else None
    contract = Contract(name, (0, 1, 2), data, 0, 8, root=root, output=output if name == "all-to-all" else None)
    builder.collective(contract)
    inputs = np.random.default_rng(0).integers(0, 99, (3, 8))
    result = emulate(builder.build(), {"data": inputs})
    algorithm = {"broadcast": "chain", "reduce": "tree", "all-to-all": "direct"}.get(name, "ring")
    other = collective(name, algorithm, 3, 8, "int64", root=root or 0)
    expected = emulate(other, {other.buffers[0].name: inputs})
    where = "output" if name == "all-to-all" else "data"
    for promise in promises(contract):
        part = slice(promise.region.offset, promise.region.offset + promise.region.count)
        for rank in promise.ranks:
            np.testing.assert_array_equal(result[where][rank, part], expected[where][rank, part])


@pytest.mark.parametrize(
    ("inputs", "compute", "message"),
    [
        ({"date": np.zeros((3, 5), "float32")}, {}, "has no buffer 'date'; its buffers: data"),
        ({"data": np.zeros((3, 4), "float32")}, {}, r"data: the input has shape \(3, 4\).*; give shape \(3, 5\)"),
        ({"data": np.zeros((3, 5))}, {}, "dtype float64; give shape .* and dtype float32"),
        ({}, {"add": print}, "has no kernel 'add'; its kernels: none"),
    ],
)
def test_bad_input_is_refused(inputs, compute, message):
    with pytest.raises(InputError, match=message):
        emulate(collective("all-reduce", "ring", 3, 5), inputs, compute=compute)
