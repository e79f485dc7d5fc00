"""The data-parallel step: buckets, values, and what overlap saves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsim.cluster import fully_connected
from llmsim.cost import Costs, closed_form_s
from llmsim.engine import simulate
from llmsim.engine.emulate import emulate
from llmsim.errors import ProgramError
from llmsim.program import Kernel, Kind, Layer, check, data_parallel_step, verify
from llmsim.program.data_parallel import ddp_buckets, fusion_buckets

SIZES = [700, 100, 900, 300, 50, 50, 1200]


def layers():
    return [
        Layer(f"layer {i}", size, Kernel(f"forward {i}", duration_s=1e-5), Kernel(f"backward {i}", duration_s=2e-5))
        for i, size in enumerate(SIZES)
    ]


sizes = st.lists(st.integers(0, 50), max_size=30)
limits = st.integers(1, 80)


@given(sizes, limits, limits)
def test_ddp_buckets_close_when_they_are_full(sizes, limit, first):
    buckets = ddp_buckets(sizes, limit, first)
    assert [i for bucket in buckets for i in bucket] == list(range(len(sizes)))
    for number, bucket in enumerate(buckets):
        room = first if number == 0 else limit
        filled = np.cumsum([sizes[i] for i in bucket])
        assert (filled[:-1] < room).all()
        assert filled[-1] >= room or number == len(buckets) - 1


@given(sizes, limits)
def test_fusion_buckets_never_exceed_the_threshold_for_several_tensors(sizes, limit):
    buckets = fusion_buckets(sizes, limit)
    assert [i for bucket in buckets for i in bucket] == list(range(len(sizes)))
    filled = [sum(sizes[i] for i in bucket) for bucket in buckets]
    for number, bucket in enumerate(buckets):
        assert filled[number] <= limit or len(bucket) == 1
        if number + 1 < len(buckets):
            assert filled[number] + sizes[buckets[number + 1][0]] > limit


VARIANTS = [
    {"bucketing": bucketing, "overlap": overlap, "lower": low}
    for bucketing in ("ddp", "horovod")
    for overlap in (True, False)
    for low in (True, False)
] + [{"algorithm": "double-tree", "chunks": 2}, {"optimizer": Kernel("adam")}]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("n", [1, 3, 4])
def test_all_ranks_end_with_the_sum_of_all_gradients(n, options):
    program = data_parallel_step(n, layers(), bucket_bytes=4000, first_bucket_bytes=1000, dtype="float64", **options)
    check(program)
    verify(program)

    def backward(rank, writes, reads):
        writes[:] = rank + 1 + np.arange(len(writes))

    functions = {f"backward {i}": backward for i in range(len(SIZES))}
    expected = np.concatenate([n * np.arange(size) + n * (n + 1) / 2 for size in SIZES[::-1]])
    for seed in range(2):
        result = emulate(program, {}, compute=functions, seed=seed)["gradients"]
        np.testing.assert_array_equal(result, np.tile(expected, (n, 1)))


def test_buckets_begin_when_their_last_gradient_is_ready():
    program = data_parallel_step(2, layers(), bucket_bytes=4000, first_bucket_bytes=1000, lower=False)
    # Backward fills 1200, 50, 50, 300, 900, 100, 700 elements of 4 B.
    collectives = list(program.queue_ops(0, "comm"))
    text = [program.action(program.op(i)) for i in collectives]
    assert [t.split("gradients")[1].split(" ")[0] for t in text] == ["[0:1200]", "[1200:2500]", "[2500:3300]"]
    waits = [[program.kernels[program.call[p]].name for p in program.predecessors(i)] for i in collectives]
    assert waits == [["backward 6"], ["backward 2"], ["backward 0"]]
    late = data_parallel_step(2, layers(), bucket_bytes=4000, first_bucket_bytes=1000, lower=False, overlap=False)
    waits = [[late.kernels[late.call[p]].name for p in late.predecessors(i)] for i in late.queue_ops(0, "comm")]
    assert waits == [["backward 0"]] * 3


def test_horovod_copies_only_where_it_fuses():
    program = data_parallel_step(2, layers(), bucketing="horovod", bucket_bytes=4 * 1300, lower=False)
    # Buckets: 1200+50+50, 300+900+100, 700.
    copies = program.kind == Kind.COPY
    assert np.count_nonzero(copies & (program.rank == 0)) == 2 * (3 + 3)
    buffers = [program.buffers[program.buffer[i]].name for i in program.queue_ops(0, "comm")]
    assert buffers == ["fusion", "fusion", "gradients"]


def test_time_with_and_without_overlap():
    """Communication of one bucket takes 40 µs and backward of a layer 20 µs, so the times can be told by hand."""
    kernels = Kernel("forward", duration_s=0.0), Kernel("backward", duration_s=2e-5)
    equal = [Layer(f"layer {i}", 1000, *kernels) for i in range(4)]
    cluster = fully_connected(2, 1e8, 0.0)  # 4000 B: 2 × 2000 B / 1e8 B/s = 40 µs

    def price(name, n, size_bytes):
        return closed_form_s(name, "ring", n, size_bytes, latency_s=0.0, bandwidth_bytes_per_s=1e8)

    for lower, costs in ((True, Costs()), (False, Costs(collective_s=price))):

        def time_s(lower=lower, costs=costs, bucket_bytes=4000, **options):
            options |= {"bucket_bytes": bucket_bytes, "first_bucket_bytes": bucket_bytes}
            return simulate(data_parallel_step(2, equal, lower=lower, **options), cluster, costs).makespan_s

        assert time_s() == pytest.approx(2e-5 + 4 * 4e-5, rel=1e-9)
        assert time_s(overlap=False) == pytest.approx(4 * 2e-5 + 4 * 4e-5, rel=1e-9)
        assert time_s(bucket_bytes=16000) == pytest.approx(4 * 2e-5 + 4 * 4e-5, rel=1e-9)  # one bucket for all
        assert time_s(bucket_bytes=8000) == pytest.approx(2 * 2e-5 + 4 * 4e-5, rel=1e-9)


def test_the_optimizer_waits_for_all_buckets():
    program = data_parallel_step(2, layers(), bucket_bytes=400, first_bucket_bytes=400, optimizer=Kernel("adam"))
    timeline = simulate(program, fully_connected(2, 1e8, 1e-6))
    last = program.queue_ops(0, "compute")[-1]
    assert program.kernels[program.call[last]].name == "adam"
    others = (program.rank == 0) & (np.arange(len(program)) != last)
    assert timeline.start_s[last] == timeline.end_s[others].max()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((2, []), {}, "a step needs layers"),
        ((2, [Layer("l", -1, Kernel("f"), Kernel("b"))]), {}, "0 or more parameters"),
        ((2, layers()), {"bucket_bytes": 0}, "a bucket has no size"),
        ((2, layers()), {"bucketing": "byteps"}, "'byteps' is not a bucketing"),
        ((2, layers()), {"algorithm": "direct"}, "all-reduce has no algorithm 'direct'"),
        ((2, layers()), {"chunks": 2, "lower": False}, "option 'chunks' needs messages"),
        ((0, layers()), {}, "world_size is 0"),
    ],
)
def test_bad_input_is_refused(arguments, options, message):
    with pytest.raises(ProgramError, match=message):
        data_parallel_step(*arguments, **options)
