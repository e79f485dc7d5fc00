"""One run in a netlab: what ``llmsim netlab`` does."""

from dataclasses import dataclass, replace

from llmsim_kernels import priority
from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.netlab import NetLab, netlab

from llmsim.cost.costs import Costs
from llmsim.cost.profile import Profile
from llmsim.engine import simulate
from llmsim.errors import ExecutionError, InputError
from llmsim.program import ALGORITHMS, Builder, Program, Region, collective
from llmsim.timeline import Timeline
from llmsim.units import format_size
from llmsim.validation.records import format_rate


@dataclass(frozen=True)
class LabRun:
    """A collective in a lab: predicted, and the repeat nearest to the median."""

    name: str
    predicted: Timeline
    measured: Timeline
    time_s: float
    repeats_s: list[float]


def run(
    name: str,
    algorithm: str | None,
    topology: str,
    hosts: int,
    bandwidth_bytes_per_s: float,
    uplink_bytes_per_s: float | None,
    size_bytes: int,
    repeats: int,
    profile: Profile | None,
) -> LabRun:
    """Run a collective in a lab made for it, and predict it: by the profile, or as an ideal machine without one.

    Raises:
        InputError: unknown names, or a lab that cannot be had.
        ExecutionError: the run failed.
    """
    if name not in ALGORITHMS:
        raise InputError(f"there is no collective {name!r}", where="netlab", mend=f"use ping, {', '.join(ALGORITHMS)}")
    algorithm = algorithm or next(iter(ALGORITHMS[name]))
    program = collective(name, algorithm, hosts, max(1, size_bytes // 4))
    with netlab(topology, hosts, bandwidth_bytes_per_s, uplink=uplink_bytes_per_s) as lab:
        costs = lab_costs(lab, profile, size_bytes)
        predicted = simulate(program, lab.cluster, costs, send_mode="rendezvous")
        realtime = profile is not None and profile.machine.realtime and priority.permitted()
        with priority.pool(hosts, realtime=realtime, hosts=lab.hosts) as pool:
            done = execute(program, pool=pool, repeats=repeats, warmup=1, outputs=[])
    title = f"{name} {algorithm}, {hosts} ranks, {format_size(size_bytes)}, {topology}"
    return LabRun(
        name=f"{title} of {format_rate(bandwidth_bytes_per_s)}",
        predicted=predicted,
        measured=min(done.timelines, key=lambda t: abs(t.makespan_s - done.time_s)),
        time_s=done.time_s,
        repeats_s=done.times_s.tolist(),
    )


def lab_costs(lab: NetLab, profile: Profile | None, size_bytes: float) -> Costs:
    """Costs in a lab; without a profile those of an ideal machine, whose messages have headers all the same."""
    if profile is None:
        return replace(Costs(), protocol_efficiency=lab.protocol_efficiency)
    return profile.costs(
        "netlab",
        size_bytes=size_bytes,
        header_efficiency=lab.protocol_efficiency,
        packet_bytes=lab.shape.bundle_bytes,
    )


def ping(
    topology: str,
    hosts: int,
    bandwidth_bytes_per_s: float,
    uplink_bytes_per_s: float | None,
    size_bytes: int,
    repeats: int,
) -> list[tuple[str, float, float, float]]:
    """(host, round trip of 4 bytes, one-way time of ``size_bytes``, bandwidth of that) of each host but the first."""
    rows = []
    with (
        netlab(topology, hosts, bandwidth_bytes_per_s, uplink=uplink_bytes_per_s) as lab,
        WorkerPool(hosts, hosts=lab.hosts) as pool,
    ):
        for rank in range(1, hosts):
            small = execute(_there_and_back(hosts, rank, 4, 20), pool=pool, repeats=repeats, warmup=1, outputs=[])
            large = execute(_there_and_back(hosts, rank, size_bytes, 1), pool=pool, repeats=repeats, outputs=[])
            one_way_s = large.time_s / 2
            if one_way_s <= 0:
                raise ExecutionError("a message took no time", where=f"d{rank}")
            rows.append((lab.hosts[rank].name, small.time_s / 20, one_way_s, size_bytes / one_way_s))
    return rows


def _there_and_back(world_size: int, rank: int, size_bytes: int, trips: int) -> Program:
    builder = Builder(f"ping rank {rank}", world_size)
    region = Region(builder.buffer("data", max(1, size_bytes // 4)), 0, size_bytes // 4)
    arrived = None
    for _ in range(trips):
        for source, destination in ((0, rank), (rank, 0)):
            _, arrived = builder.message(source, destination, region, after=arrived)
    return builder.build()
