"""Closed forms for collectives in the α–β–γ model, where no two messages share a link.

α is the latency of a message, β = 1/B the seconds per byte of a link, γ the seconds per byte added up. Each form is
exact for the program of the same name on a network that gives every message a link of its own (a fully connected one,
or the algorithm's own ring or torus), where the segments divide evenly and one stream sends its messages one after the
other; where a form holds for fewer cases than that, its docstring says so.

Sources: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005;
Chan, Heimlich, Purkayastha & van de Geijn, "Collective communication: theory, practice, and experience", CCPE 2007;
Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009; Sanders, Speck &
Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 2009.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from math import isfinite
from numbers import Integral

from llmsim.errors import InputError
from llmsim.program.collectives.grid import INTER, default_dims, default_group_size
from llmsim.program.program import COLLECTIVES


@dataclass(frozen=True)
class _Link:
    """α, β and γ."""

    latency_s: float
    s_per_byte: float
    reduce_s_per_byte: float

    def step(self, size_bytes: float, *, reduce: bool = False) -> float:
        """One message and, if so, adding it up."""
        return self.latency_s + size_bytes * (self.s_per_byte + (self.reduce_s_per_byte if reduce else 0.0))


def _ring_half(n: int, size: float, link: _Link, reduce: bool) -> float:
    """N−1 steps of one segment each."""
    return (n - 1) * link.step(size / n, reduce=reduce)


def _bidirectional_half(n: int, size: float, link: _Link, reduce: bool) -> float:
    """N−1 steps of half a segment in each direction; between two ranks both halves take the same link."""
    share = 1.0 if n == 2 else 0.5
    gamma = link.reduce_s_per_byte / 2 if reduce else 0.0
    return (n - 1) * (link.latency_s + size / n * (share * link.s_per_byte + gamma))


def _halving(n: int, size: float, link: _Link, reduce: bool) -> float:
    """log2 N exchanges of S/2, S/4, … S/N."""
    if n & (n - 1):
        raise InputError(
            f"there is no closed form for {n} ranks, as their shares differ", mend="use a power of two, or an engine"
        )
    return sum(link.step(size / 2**k, reduce=reduce) for k in range(1, n.bit_length()))


def ring_all_reduce(n: int, size: float, link: _Link) -> float:
    """2(N−1)(α + S/(N·B)) + (N−1)γS/N: Patarasuk & Yuan 2009."""
    return _ring_half(n, size, link, True) + _ring_half(n, size, link, False)


def ring_reduce_scatter(n: int, size: float, link: _Link) -> float:
    """(N−1)(α + S/(N·B) + γS/N): Chan et al. 2007, bucket algorithm."""
    return _ring_half(n, size, link, True)


def ring_all_gather(n: int, size: float, link: _Link) -> float:
    """(N−1)(α + S/(N·B)): Chan et al. 2007, bucket algorithm."""
    return _ring_half(n, size, link, False)


def bidirectional_ring_all_reduce(n: int, size: float, link: _Link) -> float:
    """2(N−1)(α + S/(2N·B)) + (N−1)γS/(2N) for N > 2."""
    return _bidirectional_half(n, size, link, True) + _bidirectional_half(n, size, link, False)


def bidirectional_ring_reduce_scatter(n: int, size: float, link: _Link) -> float:
    """(N−1)(α + S/(2N·B) + γS/(2N)) for N > 2."""
    return _bidirectional_half(n, size, link, True)


def bidirectional_ring_all_gather(n: int, size: float, link: _Link) -> float:
    """(N−1)(α + S/(2N·B)) for N > 2."""
    return _bidirectional_half(n, size, link, False)


def halving_doubling_all_reduce(n: int, size: float, link: _Link) -> float:
    """2·log2 P·α + 2(P−1)/P·S/B + (P−1)/P·γS over the largest power of two P ≤ N, Thakur et al. 2005; where N
    is none, also 2(α + S/B) + γS for folding in and out."""
    power = 1 << (n.bit_length() - 1)
    fold = link.step(size, reduce=True) + link.step(size) if power < n else 0.0
    return fold + _halving(power, size, link, True) + _halving(power, size, link, False)


def halving_reduce_scatter(n: int, size: float, link: _Link) -> float:
    """log2 N·α + (N−1)/N·S(1/B + γ) for powers of two: Thakur et al. 2005."""
    return _halving(n, size, link, True)


def doubling_all_gather(n: int, size: float, link: _Link) -> float:
    """log2 N·α + (N−1)/N·S/B for powers of two: Thakur et al. 2005."""
    return _halving(n, size, link, False)


def _tree(depth: int, size: float, link: _Link, chunks: int, *, up: bool = False, down: bool = False) -> float:
    """A pipeline of ``chunks`` through all levels: the sum of its stages, and its slowest once for each further chunk.

    On the way up each level adds the chunks of two children, one after the other.
    """
    if depth == 0:
        return 0.0
    send, add = size / chunks * link.s_per_byte, 2 * size / chunks * link.reduce_s_per_byte
    stages = depth * ((link.latency_s + send + add) * up + (link.latency_s + send) * down)
    return stages + (chunks - 1) * (max(send, add) if up else send)


def tree_all_reduce(n: int, size: float, link: _Link, *, chunks: int = 1) -> float:
    """2D(α + s/B) + 2Dγs + (c−1)·max(s/B, 2γs) with D = ⌊log2 N⌋ levels and c chunks of s = S/c.

    With γ > 0 exact for N = 2^k − 1, where every inner node has two children, and else an upper bound.
    """
    return _tree(n.bit_length() - 1, size, link, chunks, up=True, down=True)


def double_tree_all_reduce(n: int, size: float, link: _Link, *, chunks: int = 1) -> float:
    """The form of a tree with half of the data and D = ⌈log2 N⌉, as in Sanders et al. 2009; the root adds only one
    child.

    With γ > 0 exact for N = 2^k, and else an upper bound. The two trees have some links in common, so that with more
    than one chunk a network with one link for each pair of ranks can take longer.
    """
    root = size / 2 / chunks * link.reduce_s_per_byte
    return _tree((n - 1).bit_length(), size / 2, link, chunks, up=True, down=True) - (root if n > 1 else 0.0)


def hierarchical_all_reduce(
    n: int,
    size: float,
    link: _Link,
    *,
    group_size: int | None = None,
    inter: str = "ring",
    inter_latency_s: float | None = None,
    inter_bandwidth_bytes_per_s: float | None = None,
) -> float:
    """The ring's form over g ranks with S, and the form of ``inter`` over N/g with S/g.

    ``inter_latency_s`` and ``inter_bandwidth_bytes_per_s`` are those of links between groups, if they differ.
    """
    if inter not in INTER:
        raise InputError(f"inter is {inter!r}", mend=f"choose one of {', '.join(INTER)}")
    group = default_group_size(n) if group_size is None else group_size
    if group < 1 or n % group:
        raise InputError(f"groups of {group} do not divide {n} ranks", mend="choose a divisor as group_size")
    across = _Link(
        link.latency_s if inter_latency_s is None else inter_latency_s,
        link.s_per_byte if inter_bandwidth_bytes_per_s is None else 1 / inter_bandwidth_bytes_per_s,
        link.reduce_s_per_byte,
    )
    return ring_all_reduce(group, size, link) + _form("all-reduce", inter)(n // group, size / group, across)


def torus_all_reduce(n: int, size: float, link: _Link, *, dims: tuple[int, int] | None = None) -> float:
    """2(C−1)(α + S/(2C·B)) + 2(R−1)(α + S/(2CR·B)) + γ-terms, or with R and C swapped where that is longer.

    Exact for square tori and single rings. In others the halves meet on some links, and this is a lower bound: either
    half alone, or all that crosses the links of one axis.
    """
    rows, columns = default_dims(n) if dims is None else dims
    if rows * columns != n:
        raise InputError(f"dims {rows} × {columns} do not make {n} ranks", mend="give rows and columns, e.g. (2, 4)")
    if rows == 1 or columns == 1:
        return ring_all_reduce(n, size, _Link(link.latency_s, link.s_per_byte, link.reduce_s_per_byte / 2))
    times = []
    for first, second in ((columns, rows), (rows, columns)):
        half = ring_all_reduce(first, size / 2, link) + ring_all_reduce(second, size / 2 / first, link)
        crossing = (first - 1) / first * size * (1 + 1 / second)
        times += [half, link.step(crossing)]
    return max(times)


def binomial_broadcast(n: int, size: float, link: _Link) -> float:
    """⌈log2 N⌉(α + S/B): Thakur et al. 2005. Exact for powers of two, and else an upper bound."""
    return (n - 1).bit_length() * link.step(size)


def tree_broadcast(n: int, size: float, link: _Link, *, chunks: int = 1) -> float:
    """D(α + s/B) + (c−1)s/B with D = ⌊log2 N⌋ levels and c chunks of s = S/c."""
    return _tree(n.bit_length() - 1, size, link, chunks, down=True)


def chain_broadcast(n: int, size: float, link: _Link, *, chunks: int = 1) -> float:
    """(N−1)(α + s/B) + (c−1)s/B with c chunks of s = S/c: a pipeline, Patarasuk & Yuan 2009."""
    return _tree(n - 1, size, link, chunks, down=True)


def tree_reduce(n: int, size: float, link: _Link, *, chunks: int = 1) -> float:
    """D(α + s/B + 2γs) + (c−1)·max(s/B, 2γs), with D, c, s and exactness as for :func:`tree_all_reduce`."""
    return _tree(n.bit_length() - 1, size, link, chunks, up=True)


def direct_all_to_all(n: int, size: float, link: _Link) -> float:
    """α + S/(N·B): all messages at once, each on the link of its pair."""
    return link.step(size / n) if n > 1 else 0.0


def pairwise_all_to_all(n: int, size: float, link: _Link) -> float:
    """(N−1)(α + S/(N·B)): Thakur et al. 2005."""
    return (n - 1) * link.step(size / n)


def point_to_point(n: int, size: float, link: _Link, *, chunks: int = 1) -> float:
    """α + S/B, in however many ``chunks``: their latencies overlap."""
    return link.step(size)


CLOSED_FORMS: dict[str, dict[str, Callable[..., float]]] = {
    "all-reduce": {
        "ring": ring_all_reduce,
        "bidirectional-ring": bidirectional_ring_all_reduce,
        "halving-doubling": halving_doubling_all_reduce,
        "tree": tree_all_reduce,
        "double-tree": double_tree_all_reduce,
        "hierarchical": hierarchical_all_reduce,
        "torus": torus_all_reduce,
    },
    "reduce-scatter": {
        "ring": ring_reduce_scatter,
        "bidirectional-ring": bidirectional_ring_reduce_scatter,
        "halving-doubling": halving_reduce_scatter,
    },
    "all-gather": {
        "ring": ring_all_gather,
        "bidirectional-ring": bidirectional_ring_all_gather,
        "halving-doubling": doubling_all_gather,
    },
    "broadcast": {"binomial": binomial_broadcast, "tree": tree_broadcast, "chain": chain_broadcast},
    "reduce": {"tree": tree_reduce},
    "all-to-all": {"direct": direct_all_to_all, "pairwise": pairwise_all_to_all},
    "point-to-point": {"direct": point_to_point},
}


def closed_form_s(
    collective: str,
    algorithm: str,
    world_size: int,
    size_bytes: float,
    *,
    latency_s: float,
    bandwidth_bytes_per_s: float,
    reduce_s_per_byte: float = 0.0,
    **options,
) -> float:
    """Seconds of a collective by its closed form: see :data:`CLOSED_FORMS` and the docstrings of its functions.

    Args:
        size_bytes: S, the whole buffer of one rank, as for :func:`llmsim.program.collective`.
        latency_s: α.
        bandwidth_bytes_per_s: B, of every link.
        reduce_s_per_byte: γ.
        options: of the algorithm, e.g. ``chunks`` or ``group_size``.

    Raises:
        InputError: no such form or option, or a value that makes no sense.
    """
    _check(collective, world_size, size_bytes, latency_s, bandwidth_bytes_per_s)
    if not reduce_s_per_byte >= 0:
        raise InputError(f"reduce_s_per_byte is {reduce_s_per_byte}", mend="give a number of 0 or more")
    form = _form(collective, algorithm)
    known = [name for name in signature(form).parameters if name not in ("n", "size", "link")]
    for option in options:
        if option not in known:
            raise InputError(
                f"the closed form of {collective} by {algorithm} has no option {option!r}",
                mend=f"its options are: {', '.join(known) or 'none'}",
            )
    if "chunks" in options and not options["chunks"] >= 1:
        raise InputError(f"chunks is {options['chunks']!r}", mend="give a whole number of 1 or more")
    return float(
        form(world_size, size_bytes, _Link(latency_s, 1 / bandwidth_bytes_per_s, reduce_s_per_byte), **options)
    )


def parameter_server_s(
    workers: int,
    servers: int,
    size_bytes: float,
    *,
    latency_s: float,
    bandwidth_bytes_per_s: float,
    reduce_s_per_byte: float = 0.0,
) -> float:
    """Communication of one synchronous step: 2(α + max(W/P, 1)·S/B) + (W−1)γS/P.

    W workers push S bytes each to P servers and pull as many, every rank with one link of bandwidth B to a switch. The
    links of the servers limit as long as W > P; so the time grows with the workers, unlike that of a ring.
    """
    for name, value in (("workers", workers), ("servers", servers)):
        if value < 1:
            raise InputError(f"{name} is {value}", mend="give at least 1")
    _check("reduce", workers, size_bytes, latency_s, bandwidth_bytes_per_s)
    transfer = max(workers / servers, 1.0) * size_bytes / bandwidth_bytes_per_s
    return 2 * (latency_s + transfer) + (workers - 1) * reduce_s_per_byte * size_bytes / servers


def busbw_factor(collective: str, world_size: int) -> float:
    """What NCCL's tests multiply the algorithm bandwidth by to get the bus bandwidth: the bytes that each rank has to
    send at least, over S. Source: nccl-tests, doc/PERFORMANCE.md."""
    _check(collective, world_size, 0, 0, 1)
    share = (world_size - 1) / world_size
    if collective == "all-reduce":
        return 2 * share
    return 1.0 if collective in ("broadcast", "reduce", "point-to-point") else share


def algbw_bytes_per_s(size_bytes: float, time_s: float) -> float:
    """S over time, as nccl-tests print it."""
    return size_bytes / time_s if time_s > 0 else 0.0


def busbw_bytes_per_s(collective: str, world_size: int, size_bytes: float, time_s: float) -> float:
    """Algorithm bandwidth times :func:`busbw_factor`: comparable with the speed of the links, whatever N."""
    return algbw_bytes_per_s(size_bytes, time_s) * busbw_factor(collective, world_size)


def _form(collective: str, algorithm: str) -> Callable[..., float]:
    forms = CLOSED_FORMS[collective]
    if algorithm not in forms:
        raise InputError(
            f"there is no closed form of {collective} by {algorithm!r}", mend=f"choose one of {', '.join(forms)}"
        )
    return forms[algorithm]


def _check(collective: str, world_size: int, size_bytes: float, latency_s: float, bandwidth_bytes_per_s: float) -> None:
    if collective not in COLLECTIVES:
        raise InputError(f"there is no collective {collective!r}", mend=f"choose one of {', '.join(COLLECTIVES)}")
    least = 2 if collective == "point-to-point" else 1
    if not (isinstance(world_size, Integral) and world_size >= least):
        raise InputError(f"world_size is {world_size!r}", mend=f"give a whole number of {least} or more")
    for name, value in (("size_bytes", size_bytes), ("latency_s", latency_s)):
        if not (value >= 0 and isfinite(value)):
            raise InputError(f"{name} is {value}", mend="give a number of 0 or more")
    if not bandwidth_bytes_per_s > 0:
        raise InputError(f"bandwidth_bytes_per_s is {bandwidth_bytes_per_s}", mend="give a number above 0")
