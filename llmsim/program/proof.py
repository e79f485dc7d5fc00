"""Prove what a program computes: run it on symbols instead of numbers, and compare with its contracts.

Every element starts as one symbol, "element x of this buffer on rank r". Moving data moves symbols and reducing adds
them, so that at the end each element is a sum of symbols, whatever the numbers. A kernel that writes elements makes
new symbols of its rank: a contract speaks of what each rank computed last.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from llmsim.errors import ProgramError
from llmsim.program.checks import check_collectives, check_deadlock, check_messages, check_overlaps
from llmsim.program.graph import SendMode
from llmsim.program.interpreter import interpret
from llmsim.program.program import COLLECTIVES, Contract, Kernel, Program, Region
from llmsim.program.promises import check_contract, promises
from llmsim.program.races import check_races


class Symbol(NamedTuple):
    """Element x + ``shift`` of a buffer of a rank, as the ``version``-th write of a kernel of that rank left it."""

    rank: int
    buffer: int
    version: int
    shift: int


class Piece(NamedTuple):
    """Elements [lo, hi): each x is the sum of ``terms``, symbols with how often they occur, at x + ``moved``."""

    lo: int
    hi: int
    moved: int
    terms: dict[Symbol, int]


Value = list[Piece]  # pieces one after the other, counted from the start of a region


def verify(program: Program, contracts: Sequence[Contract] | None = None, *, send_mode: SendMode = "eager") -> None:
    """Prove that ``program`` fulfils ``contracts``, by default its own.

    The proof takes one order of the operations; :func:`llmsim.program.check` shows that no other gives another result.
    Time and memory grow with operations × ranks: meant for worlds of up to some hundred ranks.

    Raises:
        ProgramError: a promise that is not kept, naming rank, elements, and the contributions that are missing, double
            or out of place; a program without any contract; or one that deadlocks.
    """
    contracts = program.contracts if contracts is None else contracts
    if not contracts:
        raise ProgramError("there is nothing to prove", where=program.name, mend="state a contract with the builder")
    for contract in contracts:
        check_contract(contract, program.world_size, program.buffers, program.name)
    check_messages(program)
    check_collectives(program)
    check_overlaps(program)
    memory = _Symbols(program)
    interpret(program, memory, send_mode)
    for contract in contracts:
        for promise in promises(contract):
            wanted = memory.total([memory.own[rank].read(region) for rank, region in promise.sources])
            for rank in promise.ranks:
                fault = _difference(memory.read(rank, promise.region), wanted)
                if fault is not None:
                    piece, expected = fault
                    at = promise.region.offset
                    elements = program.region_text(Region(promise.region.buffer, at + piece.lo, piece.hi - piece.lo))
                    raise ProgramError(
                        f"rank {rank} {elements}: {_explain(program, at, piece, expected)}",
                        where=f"{program.name}: {contract.collective}",
                    )


def check_collective(
    program: Program,
    name: str,
    *,
    buffer: str = "data",
    output: str = "output",
    ranks: Iterable[int] | None = None,
    root: int = 0,
) -> None:
    """Check and prove that ``program`` is the collective ``name`` on ``buffer``; for programs written by hand.

    Args:
        name: a key of :data:`llmsim.program.COLLECTIVES`, e.g. ``"all-reduce"``.
        buffer: the buffer it works on, whole.
        output: where an all-to-all leaves its result.
        ranks: its members in order, by default all; source and destination for ``"point-to-point"``.
        root: the rank whose data a broadcast spreads, or that holds the result of a reduce.

    Raises:
        ProgramError: unmatched messages, a deadlock, then wrong results (which names the missing or doubled
            contribution), then races.
    """
    if name not in COLLECTIVES:
        raise ProgramError(f"there is no collective {name!r}", mend=f"choose one of {', '.join(COLLECTIVES)}")
    index = {b.name: i for i, b in enumerate(program.buffers)}
    for needed in (buffer, output) if name == "all-to-all" else (buffer,):
        if needed not in index:
            raise ProgramError(
                f"there is no buffer {needed!r}", where=program.name, mend=f"its buffers: {', '.join(index) or 'none'}"
            )
    members = tuple(ranks) if ranks is not None else tuple(range(2 if name == "point-to-point" else program.world_size))
    contract = Contract(
        collective=name,
        ranks=members,
        buffer=index[buffer],
        offset=0,
        count=program.buffers[index[buffer]].count,
        root=root if name in ("broadcast", "reduce") else None,
        output=index[output] if name == "all-to-all" else None,
    )
    check_contract(contract, program.world_size, program.buffers, program.name)
    check_messages(program)
    check_deadlock(program, "eager")
    verify(program, [contract])
    check_races(program)


class _Row:
    """The elements of one buffer of one rank as pieces, split where operations touch only a part."""

    def __init__(self, rank: int, buffer: int, count: int):
        whole = Piece(0, count, 0, {Symbol(rank, buffer, 0, 0): 1})
        self._pieces: list[Piece] = [whole] if count else []
        self._starts: list[int] = [0] if count else []

    def _cut(self, at: int) -> int:
        """Make a piece start at element ``at``; its index."""
        index = bisect_right(self._starts, at) - 1
        if index < 0 or self._pieces[index].hi <= at:
            return index + 1
        piece = self._pieces[index]
        if piece.lo == at:
            return index
        self._pieces[index : index + 1] = [piece._replace(hi=at), piece._replace(lo=at)]
        self._starts.insert(index + 1, at)
        return index + 1

    def _range(self, lo: int, hi: int) -> slice:
        first = self._cut(lo)
        return slice(first, self._cut(hi))

    def read(self, lo: int, hi: int) -> Value:
        if lo == hi:
            return []
        return [Piece(p.lo - lo, p.hi - lo, p.moved + lo, p.terms) for p in self._pieces[self._range(lo, hi)]]

    def write(self, lo: int, hi: int, value: Value) -> None:
        if lo == hi:
            return
        where = self._range(lo, hi)
        self._pieces[where] = [Piece(p.lo + lo, p.hi + lo, p.moved - lo, p.terms) for p in value]
        self._starts[where] = [p.lo + lo for p in value]


class _Rows:
    """All buffers of one rank."""

    def __init__(self, program: Program, rank: int):
        self._rows = [_Row(rank, i, buffer.count) for i, buffer in enumerate(program.buffers)]

    def read(self, region: Region) -> Value:
        return self._rows[region.buffer].read(region.offset, region.offset + region.count)

    def write(self, region: Region, value: Value) -> None:
        self._rows[region.buffer].write(region.offset, region.offset + region.count, value)


class _Symbols:
    """Symbolic memory of all ranks; ``own`` is what each rank contributes, untouched by communication."""

    def __init__(self, program: Program):
        self._now = [_Rows(program, rank) for rank in range(program.world_size)]
        self.own = [_Rows(program, rank) for rank in range(program.world_size)]
        self._version = 0

    def read(self, rank: int, region: Region) -> Value:
        return self._now[rank].read(region)

    def write(self, rank: int, region: Region, value: Value) -> None:
        self._now[rank].write(region, value)

    def add(self, rank: int, region: Region, value: Value) -> None:
        self.write(rank, region, _sum(self.read(rank, region), value))

    def total(self, values: list[Any]) -> Value:
        result: Value = values[0]
        for value in values[1:]:
            result = _sum(result, value)
        return result

    def compute(self, rank: int, kernel: Kernel, writes: Region | None, reads: Region | None) -> None:
        if writes is not None and writes.count:
            self._version += 1
            symbol = Symbol(rank, writes.buffer, self._version, writes.offset)
            fresh = [Piece(0, writes.count, 0, {symbol: 1})]
            self._now[rank].write(writes, fresh)
            self.own[rank].write(writes, fresh)


def _pairs(a: Value, b: Value) -> Iterable[tuple[int, int, Piece, Piece]]:
    """Both values on their common pieces."""
    i = j = 0
    lo = 0
    while i < len(a) and j < len(b):
        hi = min(a[i].hi, b[j].hi)
        yield lo, hi, a[i], b[j]
        lo = hi
        i, j = i + (a[i].hi == hi), j + (b[j].hi == hi)


def _moved(piece: Piece, by: int) -> dict[Symbol, int]:
    """The terms of a piece as they read when it is moved by ``by``."""
    if piece.moved == by:
        return piece.terms
    return {s._replace(shift=s.shift + piece.moved - by): n for s, n in piece.terms.items()}


def _sum(a: Value, b: Value) -> Value:
    result = []
    for lo, hi, one, other in _pairs(a, b):
        terms = dict(one.terms)
        for symbol, times in _moved(other, one.moved).items():
            terms[symbol] = terms.get(symbol, 0) + times
        result.append(Piece(lo, hi, one.moved, terms))
    return result


def _difference(found: Value, wanted: Value) -> tuple[Piece, Piece] | None:
    """The first piece in which two values differ, as found and as wanted, both with ``moved`` 0."""
    for lo, hi, one, other in _pairs(found, wanted):
        if _moved(one, other.moved) != other.terms:
            return Piece(lo, hi, 0, _moved(one, 0)), Piece(lo, hi, 0, _moved(other, 0))
    return None


def _explain(program: Program, offset: int, found: Piece, wanted: Piece) -> str:
    """What is missing, double or out of place, rank by rank."""
    faults = []
    missing = {s: n - found.terms.get(s, 0) for s, n in wanted.terms.items() if found.terms.get(s, 0) < n}
    extra = {s: n for s, n in found.terms.items() if n > wanted.terms.get(s, 0)}
    if missing:
        faults.append(f"lacks the contribution of {_ranks({s.rank for s in missing})}")
    for symbol, times in sorted(extra.items()):
        if symbol in wanted.terms:
            faults.append(f"has rank {symbol.rank} {'twice' if times == 2 else f'{times} times'}")
        elif any(s._replace(version=0) == symbol._replace(version=0) for s in wanted.terms):
            faults.append(f"has an outdated contribution of rank {symbol.rank}")
        else:
            lo = found.lo + symbol.shift
            source = program.region_text(Region(symbol.buffer, lo, found.hi - found.lo))
            faults.append(f"has {source} of rank {symbol.rank}, which does not belong there")
    return "; ".join(faults[:4] + ([f"and {len(faults) - 4} more faults"] if len(faults) > 4 else []))


def _ranks(ranks: set[int]) -> str:
    """``rank 3`` or ``ranks 1, 2 and 5``, runs of three and more as ``0 to 6``."""
    numbers = np.array(sorted(ranks))
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(n) for n in run]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"rank {listed}" if len(numbers) == 1 else f"ranks {listed}"
