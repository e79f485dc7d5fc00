"""Real runs over gloo give what the emulator and NumPy give."""

import numpy as np
import pytest
from llmsim_kernels.execute import execute
from llmsim_kernels.transport import channels, collective_groups

from llmsim.engine.emulate import emulate
from llmsim.errors import ExecutionError, InputError, ProgramError
from llmsim.program import ALGORITHMS, Builder, Contract, Kernel, Kind, Region, collective
from llmsim.program.promises import ROOTED, output_count, promises

pytestmark = pytest.mark.timeout(60)

ALL = [(name, algorithm) for name, algorithms in ALGORITHMS.items() for algorithm in algorithms]


def whole_numbers(program, seed=0):
    """Inputs whose sums are exact in every dtype, so that the order of additions does not matter."""
    random = np.random.default_rng(seed)
    return {
        buffer.name: random.integers(0, 16, (program.world_size, buffer.count)).astype(buffer.dtype)
        for buffer in program.buffers
    }


@pytest.mark.parametrize(("name", "algorithm"), ALL)
def test_every_algorithm_gives_what_the_emulator_gives(pools, name, algorithm):
    world_size = 2 if name == "point-to-point" else 4
    program = collective(name, algorithm, world_size, 37)
    inputs = whole_numbers(program)
    result = execute(program, inputs, pool=pools(world_size))
    expected = emulate(program, inputs)
    assert result.outputs.keys() == expected.keys()
    for buffer, array in expected.items():
        np.testing.assert_array_equal(result.outputs[buffer], array)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize("count", [0, 1, 3, 600_001])
def test_sizes_and_dtypes(pools, dtype, count):
    """Nothing, fewer elements than ranks, and segments that travel in several slices."""
    program = collective("all-reduce", "ring", 3, count, dtype)
    inputs = whole_numbers(program)
    out = execute(program, inputs, pool=pools(3)).outputs["data"]
    np.testing.assert_array_equal(out, np.broadcast_to(inputs["data"].sum(0, dtype=dtype), out.shape))


@pytest.mark.parametrize("name", ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all"])
@pytest.mark.parametrize("count", [0, 12, 14])
def test_the_backends_own_collectives_keep_their_contract(pools, name, count):
    """On a part of the world and a part of the buffer."""
    builder = Builder(name, 4)
    data = builder.buffer("data", 20)
    output = builder.buffer("output", 3 + output_count(count, 3)) if name == "all-to-all" else None
    contract = Contract(name, (0, 2, 3), data, 3, count, root=2 if name in ROOTED else None, output=output)
    builder.collective(contract)
    program = builder.build()
    inputs = whole_numbers(program)
    out = execute(program, inputs, pool=pools(4)).outputs
    arrays = list(out.values())
    start = list(inputs.values())
    for promise in promises(contract):
        of = promise.region
        expected = sum(start[r.buffer][rank, r.offset : r.offset + r.count] for rank, r in promise.sources)
        for rank in promise.ranks:
            np.testing.assert_array_equal(arrays[of.buffer][rank, of.offset : of.offset + of.count], expected)
    np.testing.assert_array_equal(out["data"][1], inputs["data"][1])  # no member


def triple(rank, writes, reads):
    """A kernel that works on arrays and tensors alike."""
    writes[:] = reads * 3 + rank


def pipeline():
    """Rank 0 computes, copies and sends; rank 1 adds what it receives to what it has reduced itself."""
    builder = Builder("pipeline", 2)
    a, b = builder.buffer("a", 8), builder.buffer("b", 8)
    front, back = Region(a, 0, 4), Region(a, 4, 4)
    made = builder.compute(0, Kernel("triple", duration_s=0.02), writes=front, reads=back)
    copied = builder.copy(0, Region(b, 0, 4), front, after=made)
    own = builder.reduce(1, Region(b, 2, 4), Region(a, 0, 4))
    builder.message(0, 1, Region(b, 0, 4), Region(b, 2, 4), reduce=True, after=copied, recv_after=own)
    return builder.build()


def test_computations_copies_and_reductions(pools):
    program = pipeline()
    inputs = whole_numbers(program)
    result = execute(program, inputs, pool=pools(2), compute={"triple": triple})
    expected = emulate(program, inputs, compute={"triple": triple})
    for buffer, array in expected.items():
        np.testing.assert_array_equal(result.outputs[buffer], array)


@pytest.mark.parametrize("compute", ["paced", "busy", {"triple": 0.02}])
def test_a_paced_computation_takes_its_time_and_leaves_memory_alone(pools, compute):
    program = pipeline()
    inputs = whole_numbers(program)
    result = execute(program, inputs, pool=pools(2), compute=compute)
    spans = {(span.rank, span.name): span for span in result.timelines[0]}
    assert spans[0, "triple"].duration_s >= 0.02
    np.testing.assert_array_equal(result.outputs["a"], inputs["a"])


def test_the_timeline_respects_the_order_of_the_program(pools):
    program = collective("all-reduce", "ring", 4, 100_000)
    result = execute(program, pool=pools(4), repeats=3, warmup=1)
    assert len(result.timelines) == len(result.times_s) == 3
    for timeline, time_s in zip(result.timelines, result.times_s, strict=True):
        start, end = timeline.start_s, timeline.end_s
        assert time_s == timeline.makespan_s
        assert start.min() >= 0
        assert 0 <= timeline.meta["late_s"] <= start.max()
        assert np.all(start <= end)
        before, after = program.dependency.T
        assert np.all(end[before] <= start[after])
        same_queue = program.queue[1:] == program.queue[:-1]
        assert np.all(end[:-1][same_queue] <= start[1:][same_queue])
        sends = np.flatnonzero(program.kind == Kind.SEND)
        assert np.all(start[sends] <= end[sends])
        assert np.all(end[sends] <= end[program.match[sends]])


def test_repeats_start_from_the_inputs_again(pools):
    program = collective("all-reduce", "ring", 2, 10)
    inputs = whole_numbers(program)
    out = execute(program, inputs, pool=pools(2), repeats=3).outputs["data"]
    np.testing.assert_array_equal(out[0], inputs["data"].sum(0))


def test_all_ranks_agree_on_groups_and_channels():
    """What process groups are made of: the same for every rank, as all must make them in one order."""
    builder = Builder("groups", 4)
    data = builder.buffer("data", 4)
    for ranks in ((2, 3), (0, 1, 2, 3), (2, 3)):
        builder.collective(Contract("all-reduce", ranks, data, 0, 4), stream=f"comm{len(ranks)}")
    builder.message([3, 0, 3], [1, 2, 1], Region(data, 0, 1), tag=[0, 0, 5])
    program = builder.build()
    groups = [((0, 1, 2, 3), program.streams.index("comm4")), ((2, 3), program.streams.index("comm2"))]
    assert collective_groups(program) == groups
    assert channels(program) == [(0, 2, 0), (3, 1, 0), (3, 1, 5)]


def test_only_the_outputs_asked_for_come_back(pools):
    assert list(execute(pipeline(), pool=pools(2), outputs=["b"]).outputs) == ["b"]


def crossing(messages, streams):
    """Both ranks send messages and receive them in the opposite order; only tags keep them apart."""
    builder = Builder("crossing", 2)
    data, into = builder.buffer("data", messages), builder.buffer("into", messages)
    for rank in (0, 1):
        for tag in range(messages):
            builder.send(rank, 1 - rank, Region(data, tag, 1), tag=tag, stream=f"send{tag % streams}")
        for tag in reversed(range(messages)):
            builder.recv(rank, 1 - rank, Region(into, tag, 1), tag=tag, stream="recv")
    return builder.build()


def test_messages_with_tags_overtake_each_other(pools):
    program = crossing(messages=100, streams=100)
    inputs = whole_numbers(program)
    out = execute(program, inputs, pool=pools(2)).outputs["into"]
    np.testing.assert_array_equal(out, inputs["data"][::-1])


def test_a_program_that_needs_eager_sends_ends_with_an_explanation():
    """gloo's sends wait for their receives, and those are posted 32 ahead: too few for this program."""
    program = crossing(messages=100, streams=1)
    emulate(program, {}, send_mode="eager")
    waiting = r"rank [01] waited 1 s for rank [01] in .*a send may have to wait for its receiver"
    with pytest.raises(ExecutionError, match=waiting):
        execute(program, timeout_s=1)


def test_receives_posted_ahead_let_both_send_first(pools):
    """What deadlocks where a send waits until its receiver has reached the receive."""
    builder = Builder("both send first", 2)
    data, into = builder.buffer("data", 1 << 20), builder.buffer("into", 1 << 20)
    everything = 1 << 20
    for rank in (0, 1):
        builder.send(rank, 1 - rank, Region(data, 0, everything), stream="only")
        builder.recv(rank, 1 - rank, Region(into, 0, everything), stream="only")
    program = builder.build()
    with pytest.raises(ProgramError):
        emulate(program, {}, send_mode="rendezvous")
    inputs = whole_numbers(program)
    np.testing.assert_array_equal(execute(program, inputs, pool=pools(2)).outputs["into"], inputs["data"][::-1])


def test_inputs_are_checked(pools):
    program = collective("all-reduce", "ring", 2, 10)
    with pytest.raises(InputError, match="no buffer 'datum'"):
        execute(program, {"datum": np.zeros((2, 10), np.float32)}, pool=pools(2))
    with pytest.raises(InputError, match=r"shape \(10,\)"):
        execute(program, {"data": np.zeros(10, np.float32)}, pool=pools(2))
    with pytest.raises(InputError, match="float64"):
        execute(program, {"data": np.zeros((2, 10))}, pool=pools(2))
    with pytest.raises(InputError, match="3 ranks"):
        execute(program, pool=pools(3))
    with pytest.raises(InputError, match="repeats"):
        execute(program, pool=pools(2), repeats=0)
    with pytest.raises(InputError, match="compute"):
        execute(program, pool=pools(2), compute="fast")


def test_a_kernel_without_duration_is_refused(pools):
    builder = Builder("matmul", 2)
    builder.compute(0, Kernel("matmul", flop=1e9))
    with pytest.raises(InputError, match="'matmul' states no duration_s"):
        execute(builder.build(), pool=pools(2))


def test_a_dependency_between_ranks_is_refused(pools):
    builder = Builder("remote", 2)
    first = builder.compute(0, Kernel("a", duration_s=0.0))
    builder.compute(1, Kernel("a", duration_s=0.0), after=first)
    with pytest.raises(ProgramError, match="on another rank"):
        execute(builder.build(), pool=pools(2))


def test_operations_that_wait_for_each_other_are_refused(pools):
    builder = Builder("circle", 2)
    first = builder.compute(0, Kernel("a", duration_s=0.0), stream="one")
    second = builder.compute(0, Kernel("a", duration_s=0.0), stream="two", after=first)
    builder.after(first, second)
    with pytest.raises(ProgramError, match="wait"):
        execute(builder.build(), pool=pools(2))
