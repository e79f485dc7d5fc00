"""Paths: what an activity crosses, and how they follow from a cluster and costs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from llmsim.cluster.cluster import Link
from llmsim.cost.costs import Costs
from llmsim.errors import InputError
from llmsim.program.program import RECEIVES, Kind, Program

# Work of a computation on shared cores is counted in units of which one core does this many per second, so that
# it shares cores with messages, whose work is bytes, at comparable rates.
_CORE_WORK_PER_S = 1e9


@dataclass(frozen=True, eq=False)
class Paths:
    """A table of distinct paths; path p crosses ``resource[start[p]:start[p + 1]]``, taking ``demand`` of each per unit
    of work."""

    delay_s: NDArray[np.float64]  # (paths,) before work starts
    latency_s: NDArray[np.float64]  # (paths,) after work ends, until a message has arrived
    max_rate: NDArray[np.float64]  # (paths,) work per second, inf where only resources limit
    start: NDArray[np.int64]  # (paths + 1,)
    resource: NDArray[np.int32]
    demand: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.delay_s)

    def __add__(self, other: "Paths") -> "Paths":
        """The paths of both, in this order."""
        return Paths(
            delay_s=np.concatenate([self.delay_s, other.delay_s]),
            latency_s=np.concatenate([self.latency_s, other.latency_s]),
            max_rate=np.concatenate([self.max_rate, other.max_rate]),
            start=np.concatenate([self.start, self.start[-1] + other.start[1:]]),
            resource=np.concatenate([self.resource, other.resource]),
            demand=np.concatenate([self.demand, other.demand]),
        )

    @staticmethod
    def of(
        delay_s: NDArray[np.float64],
        latency_s: NDArray[np.float64],
        max_rate: NDArray[np.float64],
        uses: Iterable[tuple[NDArray, NDArray, NDArray]],
    ) -> "Paths":
        """Paths from columns and ``uses``: groups of (path, resource, demand), in the order in which a path crosses
        them. Demands of 0 are left out."""
        path, resource, demand = (np.concatenate(column) for column in zip(*uses, strict=True))
        crossed = demand > 0
        path, resource, demand = path[crossed], resource[crossed], demand[crossed]
        order = np.argsort(path, kind="stable")
        start = np.searchsorted(path[order], np.arange(len(delay_s) + 1))
        return Paths(delay_s, latency_s, max_rate, start, resource[order].astype(np.int32), demand[order])


@dataclass(frozen=True, eq=False)
class LocalPaths:
    """The paths of all operations but messages, and where to find them.

    A rank's *machine* is 0 where cores never limit, or 1 + the index of its host among those whose cores are stated.
    """

    paths: Paths
    by_kind: NDArray[np.int32]  # (kinds, machines)
    work_per_byte: NDArray[np.float64]  # (kinds,)
    fixed_work: NDArray[np.float64]  # (kinds, machines), of an operation of any size
    by_kernel: NDArray[np.int32]  # (kernels, machines)
    kernel_work: NDArray[np.float64]  # (kernels,) on machines other than 0
    by_collective: NDArray[np.int32]  # (collectives,)


def local_paths(program: Program, costs: Costs, cores: Sequence[int]) -> LocalPaths:
    """Paths over no link; ``cores`` are the resources of the hosts whose cores are stated.

    With cores to share, overheads and the times of kernels are work for one core; without, they are simply delays.

    Raises:
        InputError: a COLLECTIVE without a price.
    """
    delay_s: list[float] = []
    max_rate: list[float] = []
    uses: list[tuple[int, int, float]] = []

    def add(delay: float, rate: float = inf) -> int:
        delay_s.append(delay)
        max_rate.append(rate)
        return len(delay_s) - 1

    def add_to_core(core: int, rate: float, cores: float = 1.0) -> int:
        uses.append((len(delay_s), core, cores / rate))
        return add(0.0, rate)

    by_kind = np.full((len(Kind), 1 + len(cores)), -1, dtype=np.int32)
    fixed_work = np.zeros(by_kind.shape)
    work_per_byte = np.zeros(len(Kind))
    work_per_byte[Kind.SEND] = 1.0
    for kind, overhead_s, rate in (
        (Kind.RECV, costs.receive_overhead_s, inf),  # the bytes are in place when the message has arrived
        (Kind.RECV_REDUCE, costs.receive_overhead_s, costs.reduce_bandwidth_bytes_per_s),
        (Kind.REDUCE, costs.local_overhead_s, costs.reduce_bandwidth_bytes_per_s),
        (Kind.COPY, costs.local_overhead_s, costs.copy_bandwidth_bytes_per_s),
    ):
        per_s = rate if isfinite(rate) else _CORE_WORK_PER_S
        by_kind[kind, 0] = add(overhead_s, rate)
        busy = costs.receive_cores if kind in RECEIVES else 1.0
        by_kind[kind, 1:] = [add_to_core(core, per_s, busy) for core in cores]
        fixed_work[kind, 1:] = overhead_s * per_s
        work_per_byte[kind] = 1.0 if isfinite(rate) else 0.0

    reduce = costs.reduce_bandwidth_bytes_per_s
    unit = reduce if isfinite(reduce) else _CORE_WORK_PER_S
    kernel_s = [costs.kernel_s(kernel) for kernel in program.kernels]
    by_kernel = np.empty((len(kernel_s), 1 + len(cores)), dtype=np.int32)
    by_kernel[:, 0] = [add(costs.local_overhead_s + seconds) for seconds in kernel_s]
    by_kernel[:, 1:] = [add_to_core(core, unit) for core in cores]

    path, resource, demand = zip(*uses, strict=True) if uses else ((), (), ())
    by_collective = [add(seconds) for seconds in _collective_s(program, costs)]
    return LocalPaths(
        paths=Paths.of(
            np.array(delay_s),
            np.zeros(len(delay_s)),
            np.array(max_rate),
            [(np.array(path, dtype=np.int64), np.array(resource, dtype=np.int32), np.array(demand, dtype=np.float64))],
        ),
        by_kind=by_kind,
        work_per_byte=work_per_byte,
        fixed_work=fixed_work,
        by_kernel=by_kernel,
        kernel_work=(costs.local_overhead_s + np.array(kernel_s, dtype=np.float64)) * unit,
        by_collective=np.array(by_collective, dtype=np.int32),
    )


def _collective_s(program: Program, costs: Costs) -> list[float]:
    """Seconds of each COLLECTIVE."""
    price = costs.collective_s
    if not program.collectives:
        return []
    if price is None:
        raise InputError(
            f"{program.name} has a {program.collectives[0].collective} as one operation, which has no price",
            mend="give Costs(collective_s=...), or build the program from messages",
        )
    return [
        price(contract.collective, len(contract.ranks), contract.count * program.buffers[contract.buffer].itemsize)
        for contract in program.collectives
    ]


def message_paths(
    pairs: NDArray[np.int32],
    routes: Sequence[tuple[int, ...]],
    costs: Costs,
    links: Sequence[Link],
    core: NDArray[np.int32],
) -> Paths:
    """The path of messages of each (source, destination) in ``pairs``: the links of its route, and the cores at its
    ends, where ``core`` (by rank) is the resource of a rank's host or -1."""
    link_latency_s = np.array([link.latency_s for link in links], dtype=np.float64)
    count = len(pairs)
    owner = np.repeat(np.arange(count), [len(route) for route in routes])
    link = np.fromiter((index for route in routes for index in route), dtype=np.int32, count=len(owner))
    uses = [(owner, link, np.full(len(link), 1.0 / costs.protocol_efficiency))]
    sends, receives = core[pairs[:, 0]], core[pairs[:, 1]]
    shared = (sends == receives) & (sends >= 0)  # one host, which works at both ends
    at_source = np.where(sends >= 0, costs.cpu_send_s_per_byte, 0.0)
    at_source += np.where(shared, costs.cpu_receive_s_per_byte, 0.0)
    at_destination = np.where((receives >= 0) & ~shared, costs.cpu_receive_s_per_byte, 0.0)
    uses += [(np.arange(count), sends, at_source), (np.arange(count), receives, at_destination)]
    return Paths.of(
        np.full(count, costs.send_overhead_s),
        costs.latency_s + np.bincount(owner, link_latency_s[link], count).astype(np.float64),
        np.full(count, costs.message_bandwidth_bytes_per_s),
        uses,
    )
