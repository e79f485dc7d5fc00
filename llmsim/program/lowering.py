"""Replace collectives that stand as single operations by the messages of an algorithm."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from llmsim.errors import ProgramError
from llmsim.program.builder import Builder, Ids
from llmsim.program.checks import check_collectives, check_deadlock
from llmsim.program.collectives.common import TAG_SPAN
from llmsim.program.collectives.factory import algorithm_of, options_of
from llmsim.program.graph import levels, nodes, waits
from llmsim.program.program import Contract, Kind, Program, Region


def lower(program: Program, algorithm: str | Mapping[str, str] = "ring", **options) -> Program:
    """The same program with messages in place of its COLLECTIVE operations.

    On each rank the messages wait for what the collective waited for, and what waited for the collective waits for
    them; as before, the collectives of a stream follow one another. The messages of a collective on stream ``comm``
    stand in ``send.comm``, ``recv.comm`` and the like.

    Args:
        algorithm: for all collectives, or by name of the collective; those that a mapping leaves out stay as they are.
        options: of the algorithms, e.g. ``chunks=4``; each goes to the algorithms that know it.

    Raises:
        ProgramError: an algorithm that the collective does not have, or an option that none of them knows.
    """
    check_collectives(program)
    check_deadlock(program, "eager")
    names = sorted({contract.collective for contract in program.collectives})
    chosen = dict.fromkeys(names, algorithm) if isinstance(algorithm, str) else dict(algorithm)
    known = {name: options_of(name, way) for name, way in chosen.items()}
    for option in options:
        if not any(option in own for own in known.values()):
            ways = ", ".join(sorted(set(chosen.values()))) or "no collective"
            raise ProgramError(
                f"no algorithm in use has an option {option!r}", where=program.name, mend=f"used: {ways}"
            )

    lowered = program.kind == Kind.COLLECTIVE
    lowered[lowered] = [program.collectives[c].collective in chosen for c in program.call[lowered].tolist()]
    builder, new = Builder.from_program(program, ~lowered)
    done: dict[int, list[int]] = {}  # new operations that stand for the end of a collective on one rank
    earlier, later = waits(program, "eager")
    causes: defaultdict[int, list[int]] = defaultdict(list)
    of_interest = lowered[earlier] | lowered[later]
    for before, after in zip(earlier[of_interest].tolist(), later[of_interest].tolist(), strict=True):
        causes[after].append(before)

    def ids(ops: list[int]) -> list[int]:
        return [i for op in ops for i in (done[op] if lowered[op] else [int(new[op])])]

    tags: dict[object, int] = {}
    base = int(program.tag.max(initial=0)) + 1
    for ops in _in_order(program, lowered):
        contract = program.collectives[program.call[ops[0]]]
        stream = program.streams[program.stream[ops[0]]]
        own = {key: value for key, value in options.items() if key in known[contract.collective]}
        # Which stream of an algorithm serves a pair of ranks depends on all this, and a tag belongs to one stream.
        tag = tags.setdefault((stream, contract.collective, contract.ranks, contract.root), base + TAG_SPAN * len(tags))
        phase = program.phases[program.phase[ops[0]]] if program.phase[ops[0]] >= 0 else None
        after = _columns([ids(causes[op]) for op in ops])
        ends = _add(builder, contract, chosen[contract.collective], after, tag, "." + stream, phase, own)
        for member, op in enumerate(ops):
            done[op] = [int(end[member]) for end in ends if end[member] >= 0]
    for op, before in causes.items():
        if not lowered[op]:
            builder.after(new[op], np.array(ids([b for b in before if lowered[b]]), dtype=np.int64))
    return builder.build()


def _in_order(program: Program, lowered) -> list[list[int]]:
    """The operations of each collective to be lowered, by member; a collective comes after those it waits for."""
    node = nodes(program)
    earlier, later = (node[side] for side in waits(program, "eager"))
    members: defaultdict[int, list[int]] = defaultdict(list)
    for op in np.flatnonzero(lowered).tolist():
        members[int(node[op])].append(op)
    result = []
    for wave in levels(len(program), earlier, later):
        for first in wave[lowered[wave] & (node[wave] == wave)].tolist():
            by_rank = {int(program.rank[op]): op for op in members[first]}
            result.append([by_rank[rank] for rank in program.collectives[program.call[first]].ranks])
    return result


def _columns(rows: list[list[int]]) -> list[Ids]:
    """Rows of unequal length as columns, filled up with -1."""
    width = max(map(len, rows))
    return list(np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int64).T.reshape(width, len(rows)))


def _add(
    builder: Builder, contract: Contract, algorithm: str, after: list[Ids], tag: int, channel: str, phase, options: dict
) -> list[Ids]:
    function = algorithm_of(contract.collective, algorithm)
    regions = [Region(contract.buffer, contract.offset, contract.count)]
    if contract.output is not None:
        regions.append(Region(contract.output, contract.offset, contract.count))
    if contract.root is not None:
        options = options | {"root": contract.ranks.index(contract.root)}
    if phase is None:
        return function(builder, contract.ranks, *regions, after=after, tag=tag, channel=channel, **options)
    with builder.phase(phase):
        return function(builder, contract.ranks, *regions, after=after, tag=tag, channel=channel, **options)
