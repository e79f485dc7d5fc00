"""On hosts whose cores are stated, overheads are processor time: many at once take turns."""

import pytest

from llmsim.cluster import build_topology, on_one_host
from llmsim.cost.costs import Costs
from llmsim.engine import simulate
from llmsim.program import Builder, Kernel, Region

ENGINES = pytest.mark.parametrize("engine", ["compiled", "simpy"])


def messages_at_once(pairs: int, size: int, reduce: bool):
    """One message from rank 2k to rank 2k + 1, all at the same time."""
    builder = Builder("messages", 2 * pairs)
    region = Region(builder.buffer("data", size, "uint8"), 0, size)
    for k in range(pairs):
        builder.message(2 * k, 2 * k + 1, region, reduce=reduce)
    return builder.build()


@ENGINES
@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize(("pairs", "cores", "turns"), [(1, 2, 1), (2, 2, 1), (4, 2, 2), (8, 2, 4), (3, 2, 1.5)])
def test_receive_overheads(engine, reduce, pairs, cores, turns):
    """4 ranks that each need a core for 0.1 s have 2 cores for 0.2 s."""
    cluster = on_one_host(build_topology("switch", 2 * pairs, 1e9, 0.0), cores)
    costs = Costs(receive_overhead_s=0.1, latency_s=0.5, reduce_bandwidth_bytes_per_s=1e3)
    adding_s = 0.05 if reduce else 0.0
    made = simulate(messages_at_once(pairs, 50, reduce), cluster, costs, engine=engine)
    assert made.makespan_s == pytest.approx(50 / 1e9 + 0.5 + turns * (0.1 + adding_s), rel=1e-9)


@ENGINES
@pytest.mark.parametrize(("pairs", "turns"), [(1, 1), (2, 1.5), (4, 3)])
def test_a_receive_can_keep_more_than_one_core_at_work(engine, pairs, turns):
    cluster = on_one_host(build_topology("switch", 2 * pairs, 1e9, 0.0), 2.0)
    costs = Costs(receive_overhead_s=0.1, receive_cores=1.5)
    made = simulate(messages_at_once(pairs, 0, False), cluster, costs, engine=engine)
    assert made.makespan_s == pytest.approx(turns * 0.1, rel=1e-9)


@ENGINES
def test_without_stated_cores_nobody_waits(engine):
    cluster = build_topology("switch", 16, 1e9, 0.0)
    costs = Costs(receive_overhead_s=0.1, latency_s=0.5)
    assert simulate(messages_at_once(8, 0, False), cluster, costs, engine=engine).makespan_s == pytest.approx(0.6)


@ENGINES
def test_local_overheads(engine):
    """Four kernels of 0.3 s, each started at a price of 0.1 s, on one core."""
    builder = Builder("kernels", 4)
    for rank in range(4):
        builder.compute(rank, Kernel("k", duration_s=0.3))
    cluster = on_one_host(build_topology("switch", 4, 1e9, 0.0), 1.0)
    made = simulate(builder.build(), cluster, Costs(local_overhead_s=0.1), engine=engine)
    assert made.makespan_s == pytest.approx(4 * 0.4, rel=1e-9)
