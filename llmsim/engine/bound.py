"""Bind a program to a cluster: names become numbers, and what is left is all that an engine needs.

Every operation becomes an *activity* on a *path*: it waits ``delay_s`` of its path, then moves ``work`` at a rate
shared max-min fairly with all other activities that cross the same resources, and never faster than its path's
``max_rate``; then it is complete. A SEND's message has arrived ``latency_s`` after that. Links are resources, with work
in bytes. The cores of a host are a resource too: a byte sent takes ``demand`` core-seconds of it, so four busy ranks
on two cores slow each other down by the same mechanism by which two messages share a link.

A resource may have a *bucket* of tokens, which fills at its capacity and is emptied by what is done beyond that; as
long as there are tokens, the resource does not limit. So does a link that is shaped by a token bucket filter.
"""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from llmsim.cluster.cluster import Cluster
from llmsim.cost.costs import Costs
from llmsim.engine.paths import Paths, local_paths, message_paths
from llmsim.errors import InputError
from llmsim.program.graph import SendMode
from llmsim.program.program import Program

_UNLIMITED = 1e6  # times the capacity; infinity would be none to calculate with


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
    burst: NDArray[np.float64]  # (resources,) tokens of a full bucket, 0 where there is none
    cluster_name: str = ""

    @property
    def most_capacity(self) -> NDArray[np.float64]:
        """What each resource gives at most: with tokens, practically anything; shape (resources,)."""
        return np.where(self.burst > 0, self.capacity * _UNLIMITED, self.capacity)


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
            a rank, a host has no cores, or a COLLECTIVE has no price.
    """
    from llmsim.engine.assign import assign_paths  # Numba takes a moment to import

    costs = Costs() if costs is None else costs
    if send_mode not in ("eager", "rendezvous"):
        raise InputError(f"{send_mode!r} is not a send mode", mend="use 'eager' or 'rendezvous'")
    devices = _devices(program, cluster, placement)
    hosts = [cluster.host_of(device) for device in devices]
    cores = {host.name: host.cores for host in hosts if host.cores is not None and isfinite(host.cores)}
    for name, count in cores.items():
        if not count > 0:
            raise InputError(f"host {name!r} has {count:g} cores", where=cluster.name, mend="give it more than 0")
    machine_of = {name: 1 + i for i, name in enumerate(cores)}
    machine = np.array([machine_of.get(host.name, 0) for host in hosts], dtype=np.int32)
    links = cluster.links
    capacity = np.array([link.bandwidth_bytes_per_s for link in links] + list(cores.values()), dtype=np.float64)
    names = [f"{link.source} → {link.destination}" for link in links] + [f"cores of {name}" for name in cores]

    local = local_paths(program, costs, range(len(links), len(capacity)))
    path, work, pairs = assign_paths(program, machine, local)
    between = message_paths(
        pairs,
        [cluster.route(devices[a], devices[b]) if devices[a] != devices[b] else () for a, b in pairs.tolist()],
        costs,
        links,
        np.where(machine > 0, len(links) - 1 + machine, -1).astype(np.int32),
    )
    return BoundProgram(
        program=program,
        send_mode=send_mode,
        capacity=capacity,
        resource_names=tuple(names),
        paths=local.paths + between,
        path=path,
        work=work,
        burst=np.array([link.burst_bytes for link in links] + [0.0] * len(cores), dtype=np.float64),
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
