"""All algorithms by name, and whole programs of one collective."""

import inspect
from collections.abc import Callable, Iterable

import numpy as np

from llmsim.errors import ProgramError
from llmsim.program.builder import Builder, Ids
from llmsim.program.collectives import broadcast, exchange, grid, halving_doubling, ring, tree
from llmsim.program.program import Contract, Program, Region
from llmsim.program.promises import output_count

Algorithm = Callable[..., list[Ids]]

ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "all-reduce": {
        "ring": ring.ring_all_reduce,
        "bidirectional-ring": ring.bidirectional_ring_all_reduce,
        "halving-doubling": halving_doubling.halving_doubling_all_reduce,
        "tree": tree.tree_all_reduce,
        "double-tree": tree.double_tree_all_reduce,
        "hierarchical": grid.hierarchical_all_reduce,
        "torus": grid.torus_all_reduce,
    },
    "reduce-scatter": {
        "ring": ring.ring_reduce_scatter,
        "bidirectional-ring": ring.bidirectional_ring_reduce_scatter,
        "halving-doubling": halving_doubling.halving_reduce_scatter,
        "hierarchical": grid.hierarchical_reduce_scatter,
        "torus": grid.torus_reduce_scatter,
    },
    "all-gather": {
        "ring": ring.ring_all_gather,
        "bidirectional-ring": ring.bidirectional_ring_all_gather,
        "halving-doubling": halving_doubling.doubling_all_gather,
        "hierarchical": grid.hierarchical_all_gather,
        "torus": grid.torus_all_gather,
    },
    "broadcast": {
        "binomial": broadcast.binomial_broadcast,
        "tree": tree.tree_broadcast,
        "chain": broadcast.chain_broadcast,
    },
    "reduce": {
        "tree": tree.tree_reduce,
    },
    "all-to-all": {
        "direct": exchange.direct_all_to_all,
        "pairwise": exchange.pairwise_all_to_all,
    },
    "point-to-point": {
        "direct": exchange.point_to_point,
    },
}

_NOT_OPTIONS = {"builder", "ranks", "region", "output", "after", "tag", "channel", "root"}


def algorithm_of(name: str, algorithm: str) -> Algorithm:
    """The function that adds collective ``name`` by ``algorithm`` to a builder.

    Raises:
        ProgramError: either is unknown; the message lists those that are known.
    """
    if name not in ALGORITHMS:
        raise ProgramError(f"there is no collective {name!r}", mend=f"choose one of {_listed(ALGORITHMS)}")
    if algorithm not in ALGORITHMS[name]:
        raise ProgramError(f"{name} has no algorithm {algorithm!r}", mend=f"choose one of {_listed(ALGORITHMS[name])}")
    return ALGORITHMS[name][algorithm]


def options_of(name: str, algorithm: str) -> tuple[str, ...]:
    """The options that an algorithm knows, e.g. ``("chunks",)``."""
    return tuple(p for p in inspect.signature(algorithm_of(name, algorithm)).parameters if p not in _NOT_OPTIONS)


def check_options(name: str, algorithm: str, options: Iterable[str]) -> None:
    """Refuse options that the algorithm does not know."""
    known = options_of(name, algorithm)
    for option in options:
        if option not in known:
            raise ProgramError(
                f"{name} by {algorithm} has no option {option!r}", mend=f"its options are: {_listed(known) or 'none'}"
            )


def collective(
    name: str, algorithm: str, world_size: int, count: int, dtype: str = "float32", *, root: int = 0, **options
) -> Program:
    """A program of one collective over all ranks, with the contract that it fulfils.

    Args:
        name: a key of :data:`ALGORITHMS`, e.g. ``"all-reduce"``.
        algorithm: a key of ``ALGORITHMS[name]``, e.g. ``"ring"``.
        world_size: number of ranks.
        count: elements on each rank, in buffer ``data``; an all-to-all has ``input`` and ``output``, which has up to
            ``world_size - 1`` elements more so that slots of the largest segment fit. A point-to-point message goes
            from rank 0 to rank 1.
        dtype: NumPy's name of the element type.
        root: the rank whose data a broadcast spreads, or that holds the result of a reduce.
        options: of the algorithm, e.g. ``chunks=4`` or ``group_size=8``.

    Raises:
        ProgramError: unknown name, algorithm or option, or an algorithm that is not defined for ``world_size``.
    """
    function = algorithm_of(name, algorithm)
    check_options(name, algorithm, options)
    where = f"{name} by {algorithm}"
    rooted = "root" in inspect.signature(function).parameters
    builder = Builder(f"{name} {algorithm}", world_size)
    if not (isinstance(root, (int, np.integer)) and 0 <= root < world_size):
        raise ProgramError(f"root {root!r} is outside the world of {world_size}", where=where)
    if root and not rooted:
        raise ProgramError(f"root is {root}, but {name} has no root", where=where, mend="leave root out")
    if rooted:
        options["root"] = int(root)

    members = tuple(range(world_size))
    if name == "point-to-point":
        if world_size < 2:
            raise ProgramError("one rank has no one to send to", where=where, mend="use a world_size of 2 or more")
        members = (0, 1)
    if name == "all-to-all":
        data = builder.buffer("input", count, dtype)
        output = builder.buffer("output", output_count(count, world_size), dtype)
        options["output"] = Region(output, 0, count)
    else:
        data, output = builder.buffer("data", count, dtype), None
    try:
        function(builder, members, Region(data, 0, count), **options)
    except ProgramError as error:
        raise error if error.where else error.at(where) from None
    builder.contract(Contract(name, members, data, 0, count, root=int(root) if rooted else None, output=output))
    return builder.build()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
