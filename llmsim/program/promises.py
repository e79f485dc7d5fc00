"""What a contract promises, spelled out: which ranks hold the sum of which sources, region by region."""

from typing import NamedTuple

from llmsim.program.program import Contract, Region, segments


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
