"""Every algorithm computes what its name says, for any number of ranks, size, type and order of operations."""

import numpy as np
import pytest

from llmsim.engine.emulate import emulate
from llmsim.errors import ProgramError
from llmsim.program import ALGORITHMS, Builder, Contract, Kernel, Region, check, collective, segments, verify
from llmsim.program.collectives import algorithm_of, options_of
from llmsim.program.collectives.tree import two_trees

DTYPES = ("float32", "float64", "int32", "int64", "float16")
ALL = [(name, algorithm) for name, algorithms in ALGORITHMS.items() for algorithm in algorithms]


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def random_options(name, algorithm, n, rng):
    """A value for each option the algorithm has."""
    rows = int(rng.choice(divisors(n)))
    choice = {
        "chunks": int(rng.integers(1, 4)),
        "group_size": rows,
        "dims": (rows, n // rows),
        "inter": str(rng.choice(["ring", "bidirectional-ring", "halving-doubling", "tree", "double-tree"])),
    }
    options = {option: choice[option] for option in options_of(name, algorithm)}
    return options | ({"root": int(rng.integers(n))} if name in ("broadcast", "reduce") else {})


def expect(name, data, result, output, root):
    """Compare with NumPy; rows of the arrays are ranks."""
    n, count = data.shape
    offset, size = segments(count, n)
    if name == "all-reduce":
        np.testing.assert_array_equal(result, np.broadcast_to(data.sum(axis=0, dtype=data.dtype), data.shape))
    elif name == "reduce-scatter":
        for i in range(n):
            own = slice(offset[i], offset[i] + size[i])
            np.testing.assert_array_equal(result[i, own], data[:, own].sum(axis=0, dtype=data.dtype))
    elif name == "all-gather":
        whole = np.concatenate([data[i, offset[i] : offset[i] + size[i]] for i in range(n)])
        np.testing.assert_array_equal(result, np.broadcast_to(whole, data.shape))
    elif name == "broadcast":
        np.testing.assert_array_equal(result, np.broadcast_to(data[root], data.shape))
    elif name == "reduce":
        np.testing.assert_array_equal(result[root], data.sum(axis=0, dtype=data.dtype))
    elif name == "point-to-point":
        np.testing.assert_array_equal(result[1], data[0])
    else:
        for j in range(n):
            arrived = np.concatenate([data[i, offset[j] : offset[j] + size[j]] for i in range(n)])
            np.testing.assert_array_equal(output[j, : len(arrived)], arrived)
            np.testing.assert_array_equal(result, data)


@pytest.mark.parametrize("n", range(1, 18))
@pytest.mark.parametrize(("name", "algorithm"), ALL)
def test_values(name, algorithm, n):
    if name == "point-to-point" and n == 1:
        pytest.skip("one rank has no one to send to")
    rng = np.random.default_rng([n, *f"{name} {algorithm}".encode()])
    for count in (0, int(rng.integers(1, n + 1)), int(rng.integers(n, 12 * n))):
        dtype = str(rng.choice(DTYPES))
        options = random_options(name, algorithm, n, rng)
        program = collective(name, algorithm, n, count, dtype, **options)
        data = rng.integers(-8, 9, (n, count)).astype(dtype)  # sums are exact in every type
        buffer = "input" if name == "all-to-all" else "data"
        mode = str(rng.choice(["eager", "rendezvous"]))
        result = emulate(program, {buffer: data}, send_mode=mode, seed=int(rng.integers(1 << 30)))
        expect(name, data, result[buffer], result.get("output"), options.get("root"))


@pytest.mark.parametrize("n", range(1, 18))
@pytest.mark.parametrize(("name", "algorithm"), ALL)
def test_checks_and_proof(name, algorithm, n):
    if name == "point-to-point" and n == 1:
        pytest.skip("one rank has no one to send to")
    rng = np.random.default_rng([n, 1, *f"{name} {algorithm}".encode()])
    program = collective(name, algorithm, n, 5 * n + 2, **random_options(name, algorithm, n, rng))
    check(program)
    verify(program)


@pytest.mark.parametrize(("name", "algorithm"), ALL)
def test_two_in_a_row_wait_for_each_other(name, algorithm):
    """Composition: kernels write the data, two collectives follow on other channels, kernels read the result."""
    n, count = 6, 31
    builder = Builder("chained", n)
    data = builder.buffer("data", count)
    regions = [Region(data, 0, count)]
    if name == "all-to-all":
        regions.append(Region(builder.buffer("output", 36), 0, count))
    ranks = (0, 3) if name == "point-to-point" else range(n)
    where = np.array(ranks)
    add = algorithm_of(name, algorithm)
    done = [builder.compute(where, Kernel("produce"), writes=regions[0])]
    done = add(builder, ranks, *regions, after=done)
    done = add(builder, ranks, *regions, after=done, channel=".again", tag=100)
    assert all(ids.shape == where.shape for ids in done)
    for region in regions:
        builder.compute(where, Kernel("consume"), writes=region, after=done, stream="other")
    check(builder.build())


@pytest.mark.parametrize("algorithm", ALGORITHMS["all-reduce"])
def test_groups_side_by_side(algorithm):
    """One call for three groups of four interleaved ranks, each with a region of its own."""
    ranks = np.arange(12).reshape(4, 3).T
    builder = Builder("groups", 12)
    data = builder.buffer("data", 100)
    offset = np.array([0, 40, 60])
    algorithm_of("all-reduce", algorithm)(builder, ranks, Region(data, offset, 13))
    for group, start in zip(ranks, offset, strict=True):
        builder.contract(Contract("all-reduce", tuple(group.tolist()), data, int(start), 13))
    program = builder.build()
    check(program)
    verify(program)
    inputs = np.random.default_rng(0).integers(0, 9, (12, 100)).astype("float32")
    result = emulate(program, {"data": inputs})["data"]
    expected = inputs.copy()
    for group, start in zip(ranks, offset, strict=True):
        expected[group, start : start + 13] = inputs[group, start : start + 13].sum(axis=0)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("name", "algorithm", "factor"),
    [
        ("all-reduce", "ring", 2 * 7),
        ("all-reduce", "bidirectional-ring", 2 * 7),
        ("all-reduce", "halving-doubling", 2 * 7),
        ("all-reduce", "hierarchical", 2 * 7),
        ("all-reduce", "torus", 2 * 7),
        ("all-reduce", "tree", 2 * 7),
        ("all-reduce", "double-tree", 2 * 7),
        ("reduce-scatter", "ring", 7),
        ("all-gather", "halving-doubling", 7),
        ("reduce-scatter", "hierarchical", 7),
        ("all-gather", "torus", 7),
        ("broadcast", "chain", 7),
        ("broadcast", "binomial", 7),
        ("all-to-all", "pairwise", 7),
    ],
)
def test_bytes_in_all_are_the_least(name, algorithm, factor):
    """On 8 ranks all these algorithms move (N−1) or 2(N−1) times the data, in whole."""
    program = collective(name, algorithm, 8, 8 * 64, "float64")
    assert program.message_bytes == factor * 8 * 64 * 8
    if "ring" in algorithm or name == "all-to-all":
        assert set(program.bytes_sent_by_rank()) == {factor * 64 * 8}


def test_only_shards_leave_a_group():
    """Of hierarchical collectives, 1/group_size of the data crosses groups."""
    for name, factor in (("all-reduce", 2), ("reduce-scatter", 1), ("all-gather", 1)):
        program = collective(name, "hierarchical", 12, 120, group_size=4)
        crossing = program.size_bytes[(program.kind == 1) & (program.rank // 4 != program.peer // 4)].sum()
        assert crossing == factor * 12 * (3 - 1) * 120 // 12 * 4


def test_options_change_the_program():
    def streams(*arguments, **options):
        program = collective(*arguments, **options)
        return len(program.streams), program.messages, program.peer[program.peer >= 0].tolist()

    for name, algorithm, options in (
        ("all-reduce", "ring", {"chunks": 2}),
        ("all-reduce", "tree", {"chunks": 2}),
        ("all-reduce", "hierarchical", {"group_size": 3}),
        ("all-reduce", "hierarchical", {"inter": "tree"}),
        ("all-reduce", "torus", {"dims": (12, 1)}),
        ("reduce-scatter", "hierarchical", {"group_size": 2}),
        ("broadcast", "chain", {"chunks": 3}),
        ("broadcast", "binomial", {"root": 3}),
        ("point-to-point", "direct", {"chunks": 3}),
    ):
        assert streams(name, algorithm, 12, 96, **options) != streams(name, algorithm, 12, 96)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("sum", "ring", 4, 8), {}, "no collective 'sum'; choose one of all-reduce, reduce-scatter"),
        (("all-reduce", "rings", 4, 8), {}, "all-reduce has no algorithm 'rings'; choose one of ring, bidirectional"),
        (("all-reduce", "ring", 4, 8), {"chunk": 2}, "no option 'chunk'; its options are: chunks"),
        (("all-reduce", "ring", 4, 8), {"chunks": 0}, "all-reduce by ring: chunks is 0; give a whole number from 1"),
        (("all-reduce", "ring", 4, 8), {"chunks": 1.5}, "chunks is 1.5"),
        (("all-reduce", "ring", 0, 8), {}, "world_size is 0"),
        (("all-reduce", "ring", 4, -8), {}, "buffer 'data' has -8 elements"),
        (("all-reduce", "ring", 4, 8, "floaty"), {}, "'floaty' is not an element type"),
        (("all-reduce", "ring", 4, 8), {"root": 2}, "all-reduce has no root"),
        (("broadcast", "chain", 4, 8), {"root": 4}, "root 4 is outside the world of 4"),
        (("all-reduce", "hierarchical", 8, 8), {"group_size": 3}, "groups of 3 do not divide 8 ranks"),
        (("all-reduce", "hierarchical", 8, 8), {"inter": "direct"}, "inter is 'direct'; choose one of ring"),
        (("all-reduce", "torus", 8, 8), {"dims": (3, 3)}, r"dims \(3, 3\) do not make 8 ranks"),
        (("point-to-point", "direct", 1, 8), {}, "one rank has no one to send to"),
    ],
)
def test_what_is_not_defined_is_refused(arguments, options, message):
    with pytest.raises(ProgramError, match=message):
        collective(*arguments, **options)


def test_a_rank_twice_in_a_group_is_refused():
    builder = Builder("twice", 4)
    region = Region(builder.buffer("data", 8), 0, 8)
    with pytest.raises(ProgramError, match="rank 1 is twice"):
        algorithm_of("all-reduce", "ring")(builder, (0, 1, 1), region)


@pytest.mark.parametrize("n", range(2, 40))
def test_leaves_of_either_of_the_two_trees_are_inner_nodes_of_the_other(n):
    """So that no rank idles in one direction, as half of them do in a single binary tree (Sanders et al. 2009)."""
    inner = []
    for tree in two_trees(n):
        assert np.count_nonzero(tree < 0) == 1
        children = np.bincount(tree[tree >= 0], minlength=n)
        assert children.max() <= 2
        at = np.arange(n)
        for _ in range((n - 1).bit_length()):  # from every node the root is at most ⌈log2 N⌉ edges away
            at = np.where(tree[at] >= 0, tree[at], at)
        assert (tree[at] < 0).all()
        inner.append(children > 0)
    assert (inner[0] | inner[1]).all()
