"""Trees: up to the root adding, down from the root again, the data cut into chunks that follow each other.

A plain binary tree leaves half of the ranks, its leaves, without sending in one direction. Sanders, Speck & Träff,
"Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 2009, run a second tree in
which those are the inner nodes, each tree with half of the data.
"""

import numpy as np
from numpy.typing import NDArray

from llmsim.program.builder import Builder, Ids
from llmsim.program.collectives.common import After, begin, cut, inner, members, positive
from llmsim.program.program import Region

Parents = NDArray[np.int64]  # (N,): the parent of each node, -1 for the root


def heap_tree(size: int) -> Parents:
    """The complete binary tree: node i has the children 2i + 1 and 2i + 2."""
    return (np.arange(size) - 1) // 2


def two_trees(size: int) -> tuple[Parents, Parents]:
    """Two binary trees of ``size`` ≥ 2 nodes, as NCCL builds them; the leaves of either are inner nodes of the other.

    In the first the parent of i > 0 lies at a distance of i's lowest set bit: every odd node is a leaf. The second is
    its mirror image, or where ``size`` is odd, so that the mirror would map odd on odd, the first shifted by one node.
    """
    node = np.arange(size)
    low = node & -node
    upper = (node ^ low) | (low << 1)
    first = np.where(upper < size, upper, node ^ low)
    first[0] = -1
    image = size - 1 - node if size % 2 == 0 else (node + 1) % size
    second = np.full(size, -1)
    second[image[1:]] = image[first[1:]]
    return first, second


def depth(parents: Parents) -> int:
    """Edges between the root and the node farthest from it."""
    steps, at = 0, np.arange(len(parents))
    while (at := np.where(at >= 0, parents[at], -1)).max() >= 0:
        steps += 1
    return steps


def tree_all_reduce(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """Reduce to member 0 and broadcast from it on one binary tree; ``chunks`` pieces of the data follow each other."""
    ranks = members(ranks)
    tree = heap_tree(ranks.shape[-1])
    return _reduce_and_broadcast(builder, ranks, tree, region, positive(chunks, "chunks"), after, tag, channel)


def double_tree_all_reduce(
    builder: Builder, ranks, region: Region, *, after: After = None, tag: int = 0, channel: str = "", chunks: int = 1
) -> list[Ids]:
    """As :func:`tree_all_reduce`, each half of the data on one of the :func:`two_trees`, at once."""
    ranks = members(ranks)
    if ranks.shape[-1] == 1:
        return list(after or ())
    done: list[Ids] = []
    for i, tree in enumerate(two_trees(ranks.shape[-1])):
        half = cut(region, 2, i)
        own = f"{channel}.{i}"
        done += _reduce_and_broadcast(builder, ranks, tree, half, positive(chunks, "chunks"), after, tag + 2 * i, own)
    return done


def tree_broadcast(
    builder: Builder, ranks, region: Region, *, root: int = 0, after: After = None, tag: int = 0, channel: str = "",
    chunks: int = 1,
) -> list[Ids]:  # fmt: skip
    """From member ``root`` down a binary tree; ``chunks`` pieces of the data follow each other."""
    ranks = np.roll(members(ranks), -root, axis=-1)
    if ranks.shape[-1] == 1:
        return list(after or ())
    after = [np.roll(ids, -root, axis=-1) for ids in after or ()]
    pieces = cut(inner(region), positive(chunks, "chunks"), np.arange(chunks))
    done = _down(builder, ranks, heap_tree(ranks.shape[-1]), pieces, after, None, tag, channel)
    return [np.roll(ids, root, axis=-1) for ids in done]


def tree_reduce(
    builder: Builder, ranks, region: Region, *, root: int = 0, after: After = None, tag: int = 0, channel: str = "",
    chunks: int = 1,
) -> list[Ids]:  # fmt: skip
    """Up a binary tree to member ``root``; what the others hold in ``region`` afterwards is partial sums."""
    ranks = np.roll(members(ranks), -root, axis=-1)
    if ranks.shape[-1] == 1:
        return list(after or ())
    after = [np.roll(ids, -root, axis=-1) for ids in after or ()]
    pieces = cut(inner(region), positive(chunks, "chunks"), np.arange(chunks))
    sent, summed = _up(builder, ranks, heap_tree(ranks.shape[-1]), pieces, after, tag, channel)
    return [np.roll(ids, root, axis=-1) for ids in (sent, summed[..., -1, 0], summed[..., -1, 1])]


def _reduce_and_broadcast(
    builder: Builder, ranks, tree: Parents, region: Region, chunks: int, after: After, tag: int, channel: str
) -> list[Ids]:
    if ranks.shape[-1] == 1:
        return list(after or ())
    pieces = cut(inner(region), chunks, np.arange(chunks))
    sent, summed = _up(builder, ranks, tree, pieces, after, tag, channel + ".up")
    return [sent, *_down(builder, ranks, tree, pieces, after, summed, tag + 1, channel + ".down")]


def _slots(tree: Parents) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Children of each node, shape (N, 2), -1 for none; and which of them each node is to its parent, shape (N,)."""
    child, slot = np.full((len(tree), 2), -1), np.zeros(len(tree), dtype=np.int64)
    for node in np.flatnonzero(tree >= 0):
        parent = tree[node]
        slot[node] = child[parent, 0] >= 0
        child[parent, slot[node]] = node
    return child, slot


def _up(
    builder: Builder, ranks, tree: Parents, pieces: Region, after: After, tag: int, channel: str
) -> tuple[Ids, Ids]:
    """Add up from the leaves to the root, chunk by chunk.

    Returns the last send of each node, shape (..., N), and the receives from its children, shape (..., N, chunks, 2).
    """
    child, slot = _slots(tree)
    below = np.flatnonzero(tree >= 0)
    chunks = pieces.offset.shape[-1]

    # A node adds its children's chunks in turn: the sum would be wrong if both were added at once.
    node, chunk, which = np.nonzero(np.broadcast_to(child[:, None, :] >= 0, (len(tree), chunks, 2)))
    taken = builder.recv(
        ranks[..., node],
        ranks[..., child[node, which]],
        _at(pieces, chunk),
        reduce=True,
        tag=tag,
        stream="recv" + channel,
    )
    recv = np.full((*ranks.shape, chunks, 2), -1, dtype=np.int64)
    recv[..., node, chunk, which] = taken

    send = builder.send(
        ranks[..., below, None], ranks[..., tree[below], None], _rows(pieces), tag=tag, stream="send" + channel
    )
    builder.match(send, np.moveaxis(recv[..., tree[below], :, slot[below]], 0, -2))  # two index arrays come in front
    for which_child in range(2):
        builder.after(send, recv[..., which_child][..., below, :])
    begin(builder, [a[..., below] for a in after or ()], send[..., 0])
    for which_child in range(2):
        begin(builder, after, recv[..., 0, which_child])
    sent = np.full(ranks.shape, -1, dtype=np.int64)
    sent[..., below] = send[..., -1]
    return sent, recv


def _down(
    builder: Builder, ranks, tree: Parents, pieces: Region, after: After, summed: Ids | None, tag: int, channel: str
) -> list[Ids]:
    """From the root to the leaves, chunk by chunk, to both children of a node at once.

    The root sends a chunk when ``summed``, shape (..., N, chunks, 2), is complete for it.
    """
    child, _ = _slots(tree)
    below = np.flatnonzero(tree >= 0)
    root = int(np.flatnonzero(tree < 0)[0])
    chunks = pieces.offset.shape[-1]
    recv = np.full((*ranks.shape, chunks), -1, dtype=np.int64)
    recv[..., below, :] = builder.recv(
        ranks[..., below, None], ranks[..., tree[below], None], _rows(pieces), tag=tag, stream="recv" + channel
    )
    begin(builder, after, recv[..., 0])
    done = [recv[..., -1]]
    for which in range(2):
        parent = np.flatnonzero(child[:, which] >= 0)
        kid = child[parent, which]
        send = builder.send(
            ranks[..., parent, None], ranks[..., kid, None], _rows(pieces), tag=tag, stream=f"send{channel}{which}"
        )
        builder.match(send, recv[..., kid, :])
        builder.after(send, recv[..., parent, :])
        begin(builder, [a[..., parent] for a in after or ()], send[..., 0])
        if summed is not None:
            at_root = send[..., parent == root, :]
            for i in range(2):
                builder.after(at_root, summed[..., i][..., root, None, :])
        last = np.full(ranks.shape, -1, dtype=np.int64)
        last[..., parent] = send[..., -1]
        done.append(last)
    return done


def _at(pieces: Region, chunk) -> Region:
    """The piece of each operation of a list."""
    return Region(pieces.buffer, pieces.offset[..., chunk], pieces.count[..., chunk])


def _rows(pieces: Region) -> Region:
    """All pieces for each node of a list, shape (..., 1, chunks)."""
    return Region(pieces.buffer, pieces.offset[..., None, :], pieces.count[..., None, :])
