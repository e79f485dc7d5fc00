"""What a contract promises, spelled out: which ranks hold the sum of which sources, region by region."""

from collections.abc import Sequence
from typing import NamedTuple

from llmsim.errors import ProgramError
from llmsim.program.program import COLLECTIVES, Buffer, Contract, Region, segments

ROOTED = ("broadcast", "reduce")


class Promise(NamedTuple):
    """Each of ``ranks`` holds, in ``region``, the sum of ``sources``: pairs of a rank and a region of equal count."""

    ranks: tuple[int, ...]
    region: Region
    sources: tuple[tuple[int, Region], ...]


def promises(contract: Contract) -> list[Promise]:
    """All that ``contract`` promises. What it leaves out (e.g. the other segments after a reduce-scatter) is free."""
    ranks, buffer, output = contract.ranks, contract.buffer, contract.output
    whole = Region(buffer, contract.offset, contract.count)
    offset, count = segments(contract.count, len(ranks))
    segment = [Region(buffer, contract.offset + o, c) for o, c in zip(offset.tolist(), count.tolist(), strict=True)]
    match contract.collective:
        case "all-reduce":
            return [Promise(ranks, whole, tuple((r, whole) for r in ranks))]
        case "reduce-scatter":
            return [
                Promise((rank,), own, tuple((r, own) for r in ranks)) for rank, own in zip(ranks, segment, strict=True)
            ]
        case "all-gather":
            return [Promise(ranks, own, ((rank, own),)) for rank, own in zip(ranks, segment, strict=True)]
        case "broadcast":
            assert contract.root is not None
            return [Promise(ranks, whole, ((contract.root, whole),))]
        case "reduce":
            assert contract.root is not None
            return [Promise((contract.root,), whole, tuple((r, whole) for r in ranks))]
        case "point-to-point":
            source, destination = ranks
            return [Promise((destination,), whole, ((source, whole),))]
        case "all-to-all":
            assert output is not None
            return [
                Promise((receiver,), slot(contract, i, j), ((sender, segment[j]),))
                for j, receiver in enumerate(ranks)
                for i, sender in enumerate(ranks)
            ]
    raise AssertionError(f"unknown collective {contract.collective!r}")


def slot(contract: Contract, sender: int, receiver: int) -> Region:
    """Where in its output the ``receiver``-th rank of an all-to-all holds what the ``sender``-th one sent."""
    assert contract.output is not None
    count = int(segments(contract.count, len(contract.ranks))[1][receiver])
    return Region(contract.output, contract.offset + sender * count, count)


def output_count(count: int, ranks: int) -> int:
    """Elements that the output of an all-to-all of ``count`` elements needs: rank 0, with the largest segment, most."""
    return -(-count // ranks) * ranks


def check_contract(contract: Contract, world_size: int, buffers: Sequence[Buffer], where: str) -> None:
    """Refuse a contract that cannot mean anything for a program of that world and those buffers.

    Raises:
        ProgramError: an unknown collective, ranks that are not there or twice, a root or an output that is missing or
            of no use, or a region outside its buffer.
    """
    name, ranks = contract.collective, contract.ranks
    where = f"{where}: contract of {name}"
    if name not in COLLECTIVES:
        raise ProgramError(f"there is no such collective; choose one of {', '.join(COLLECTIVES)}", where=where)
    if not ranks or len(set(ranks)) < len(ranks) or (name == "point-to-point" and len(ranks) != 2):
        need = "two different ones" if name == "point-to-point" else "one or more, each once"
        raise ProgramError(f"its ranks are {ranks}", where=where, mend=f"give {need}")
    if (contract.root is not None) != (name in ROOTED):
        raise ProgramError(
            "there is no root" if name in ROOTED else f"root is {contract.root}, but it has none",
            where=where,
            mend="give the rank that is root" if name in ROOTED else "leave root out",
        )
    for rank in (*ranks, *([] if contract.root is None else [contract.root])):
        if not 0 <= rank < world_size:
            raise ProgramError(f"rank {rank} is outside the world of {world_size}", where=where)
    if (contract.output is not None) != (name == "all-to-all"):
        raise ProgramError(
            "output is the receiving buffer of an all-to-all, and of nothing else",
            where=where,
            mend="give output" if name == "all-to-all" else "leave output out",
        )
    used = [(contract.buffer, contract.count)]
    if contract.output is not None:
        used.append((contract.output, output_count(contract.count, len(ranks))))
    for buffer, count in used:
        if not 0 <= buffer < len(buffers):
            raise ProgramError(f"there is no buffer {buffer}", where=where, mend="add it with Builder.buffer")
        most = buffers[buffer].count
        if contract.offset < 0 or contract.count < 0 or contract.offset + count > most:
            raise ProgramError(
                f"elements {contract.offset} to {contract.offset + count} lie outside buffer {buffers[buffer].name!r} "
                f"of {most} elements",
                where=where,
            )
