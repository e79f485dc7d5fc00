"""Bind a program to a cluster: names become numbers, and what is left is all that an engine needs.

Every operation becomes an *activity* on a *path*: it waits ``delay_s`` of its path, then moves ``work`` at a rate
shared max-min fairly with all other activities that cross the same resources, and never faster than its path's
``max_rate``; then it is complete. A SEND's message has arrived ``latency_s`` after that. Links are resources, with work
in bytes. The cores of a host are a resource too: a byte sent takes ``demand`` core-seconds of it, so four busy ranks
on two cores slow each other down by the same mechanism by which two messages share a link.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmsim.cluster.cluster import Cluster
from llmsim.cost.costs import Costs
from llmsim.errors import InputError
from llmsim.program.program import Kind, Program

SendMode = Literal["eager", "rendezvous"]

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


@dataclass(frozen=True, eq=False)
class BoundProgram:
    """A program with a path and an amount of work for each operation; what both engines execute."""

    program: Program
    send_mode: SendMode
    capacity: NDArray[np.float64]  # (resources,) per second
    resource_names: tuple[str, ...]
    paths: Paths
    path: NDArray[np.int32]  # (operations,)
    work: NDArray[np.float64]  # (operations,)
    cluster_name: str = ""


@dataclass
class PathTable:
    """Collects paths; resources of unlimited capacity are left out, as they never limit."""

    capacity: Sequence[float]
    delay_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    max_rate: list[float] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    resource: list[int] = field(default_factory=list)
    demand: list[float] = field(default_factory=list)

    def add(
        self,
        *,
        delay_s: float = 0.0,
        latency_s: float = 0.0,
        max_rate: float = inf,
        uses: Iterable[tuple[int, float]] = (),  # resource, demand per unit of work
    ) -> int:
        """Add a path and return its index."""
        self.delay_s.append(delay_s)
        self.latency_s.append(latency_s)
        self.max_rate.append(max_rate)
        for resource, demand in uses:
            if demand > 0 and self.capacity[resource] < inf:
                self.resource.append(resource)
                self.demand.append(demand)
        self.start.append(len(self.resource))
        return len(self.delay_s) - 1

    def table(self) -> Paths:
        return Paths(
            delay_s=np.array(self.delay_s, dtype=np.float64),
            latency_s=np.array(self.latency_s, dtype=np.float64),
            max_rate=np.array(self.max_rate, dtype=np.float64),
            start=np.array(self.start, dtype=np.int64),
            resource=np.array(self.resource, dtype=np.int32),
            demand=np.array(self.demand, dtype=np.float64),
        )


def bind(
    program: Program,
    cluster: Cluster,
    costs: Costs | None = None,
    *,
    placement: "tuple[int, ...] | None" = None,
    send_mode: SendMode = "eager",
) -> BoundProgram:
    """Place rank r on ``cluster.devices[placement[r]]`` (rank order by default) and price every operation.

    Several ranks may be placed on one device; messages between them cross no link.

    Raises:
        InputError: the cluster has too few devices, the placement names one that does not exist or has not one entry
            a rank, a link has no bandwidth, two devices are not connected, or a COLLECTIVE has no price.
    """
    from llmsim.engine.assign import assign_paths  # Numba takes a moment to import

    costs = Costs() if costs is None else costs
    if send_mode not in ("eager", "rendezvous"):
        raise InputError(f"{send_mode!r} is not a send mode", mend="use 'eager' or 'rendezvous'")
    devices = _devices(program, cluster, placement)
    hosts = [cluster.host_of(device) for device in devices]
    core_hosts = {host.name: host for host in hosts if host.cores is not None}
    names = [f"{link.source} → {link.destination}" for link in cluster.links] + [f"cores of {n}" for n in core_hosts]
    capacity = [link.bandwidth_bytes_per_s for link in cluster.links]
    capacity += [float(host.cores) for host in core_hosts.values() if host.cores is not None]
    for name, amount in zip(names, capacity, strict=True):
        if not amount > 0:
            raise InputError(f"{name!r} has a capacity of {amount:g}", where=cluster.name, mend="give it more than 0")
    cores = {name: len(cluster.links) + i for i, name in enumerate(core_hosts)}  # host → its resource

    paths = PathTable(capacity)
    # A rank's *machine* is 0 where cores never limit, or 1 + the index of its host among those with cores.
    machine = np.array([1 + list(cores).index(h.name) if h.name in cores else 0 for h in hosts], dtype=np.int32)
    kind_path, kind_work = _local_paths(paths, costs, list(cores.values()))
    kernel_path, kernel_work = _kernel_paths(paths, program, costs, list(cores.values()), kind_path)
    collective_path = _collective_paths(paths, program, costs)

    path, work, pairs = assign_paths(
        program, len(paths.delay_s), machine, kind_path, kind_work, kernel_path, kernel_work, collective_path
    )
    for source, destination in pairs.tolist():
        _add_message_path(paths, cluster, costs, cores, devices, hosts, source, destination)
    return BoundProgram(
        program=program,
        send_mode=send_mode,
        capacity=np.array(capacity, dtype=np.float64),
        resource_names=tuple(names),
        paths=paths.table(),
        path=path,
        work=work,
        cluster_name=cluster.name,
    )


def _devices(program: Program, cluster: Cluster, placement: "tuple[int, ...] | None") -> list[str]:
    """The device of each rank."""
    available = len(cluster.devices)
    if placement is None:
        if program.world_size > available:
            raise InputError(
                f"{program.name} has {program.world_size} ranks but cluster {cluster.name} has {available} devices",
                mend="use a larger cluster, fewer ranks, or a placement that puts several ranks on one device",
            )
        return list(cluster.devices[: program.world_size])
    if len(placement) != program.world_size:
        raise InputError(
            f"the placement has {len(placement)} entries for a world of {program.world_size} ranks",
            mend="give one device index a rank",
        )
    for rank, device in enumerate(placement):
        if not 0 <= device < available:
            raise InputError(
                f"the placement puts rank {rank} on device {device}, but cluster {cluster.name} has {available}",
                mend=f"use indices from 0 to {available - 1}",
            )
    return [cluster.devices[device] for device in placement]


def _local_paths(paths: PathTable, costs: Costs, cores: list[int]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Path by (kind, machine), and work per byte by kind, of all that a rank does on its own."""
    rate = {
        Kind.RECV: inf,  # the bytes are in place when the message has arrived
        Kind.RECV_REDUCE: costs.reduce_bandwidth_bytes_per_s,
        Kind.REDUCE: costs.reduce_bandwidth_bytes_per_s,
        Kind.COPY: costs.copy_bandwidth_bytes_per_s,
    }
    table = np.full((len(Kind), 1 + len(cores)), -1, dtype=np.int32)
    work_per_byte = np.zeros(len(Kind))
    work_per_byte[Kind.SEND] = 1.0
    for kind, bandwidth in rate.items():
        received = kind in (Kind.RECV, Kind.RECV_REDUCE)
        delay_s = costs.receive_overhead_s if received else costs.local_overhead_s
        work_per_byte[kind] = 1.0 if isfinite(bandwidth) else 0.0
        for machine, core in enumerate([None, *cores]):
            uses = [(core, 1.0 / bandwidth)] if core is not None else []
            table[kind, machine] = paths.add(delay_s=delay_s, max_rate=bandwidth, uses=uses)
    return table, work_per_byte


def _kernel_paths(
    paths: PathTable, program: Program, costs: Costs, cores: list[int], kind_path: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Path by (kernel, machine) and work by kernel. With cores to share, the time of a kernel is work for one core;
    without, it is simply a delay."""
    reduce = costs.reduce_bandwidth_bytes_per_s
    unit = reduce if isfinite(reduce) else _CORE_WORK_PER_S
    seconds = np.array([costs.kernel_s(kernel) for kernel in program.kernels], dtype=np.float64)
    table = np.empty((len(program.kernels), 1 + len(cores)), dtype=np.int32)
    for index, kernel_s in enumerate(seconds.tolist()):
        table[index, 0] = paths.add(delay_s=costs.local_overhead_s + kernel_s)
    for machine, core in enumerate(cores, start=1):
        table[:, machine] = paths.add(delay_s=costs.local_overhead_s, max_rate=unit, uses=[(core, 1.0 / unit)])
    return table, seconds * unit


def _collective_paths(paths: PathTable, program: Program, costs: Costs) -> NDArray[np.int32]:
    """Path by collective, whose delay is its price."""
    if program.collectives and costs.collective_s is None:
        raise InputError(
            f"{program.name} has a {program.collectives[0].collective} as one operation, which has no price",
            mend="give Costs(collective_s=...), or build the program from messages",
        )
    result = []
    for contract in program.collectives:
        assert costs.collective_s is not None
        size_bytes = contract.count * program.buffers[contract.buffer].itemsize
        seconds = costs.collective_s(contract.collective, len(contract.ranks), size_bytes)
        result.append(paths.add(delay_s=seconds))
    return np.array(result, dtype=np.int32)


def _add_message_path(
    paths: PathTable,
    cluster: Cluster,
    costs: Costs,
    cores: dict[str, int],
    devices: list[str],
    hosts: list,
    source: int,
    destination: int,
) -> None:
    """The path of messages between two ranks: its links, and the cores at its ends."""
    route = () if devices[source] == devices[destination] else cluster.route(devices[source], devices[destination])
    uses: dict[int, float] = dict.fromkeys(route, 1.0 / costs.protocol_efficiency)
    for rank, core_s_per_byte in ((source, costs.cpu_send_s_per_byte), (destination, costs.cpu_receive_s_per_byte)):
        core = cores.get(hosts[rank].name)
        if core is not None and core_s_per_byte > 0:
            uses[core] = uses.get(core, 0.0) + core_s_per_byte
    paths.add(
        delay_s=costs.send_overhead_s,
        latency_s=costs.latency_s + sum(cluster.links[i].latency_s for i in route),
        max_rate=costs.message_bandwidth_bytes_per_s,
        uses=uses.items(),
    )
