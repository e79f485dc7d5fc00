"""What each kind of operation and each cost means in time, on both engines, worked out by hand."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from llmsim.cluster import Cluster, Host, ring, switch
from llmsim.cost.costs import Costs
from llmsim.engine import simulate
from llmsim.errors import ProgramError
from llmsim.program.builder import Builder
from llmsim.program.collectives import collective
from llmsim.program.program import Contract, Kernel, Region

pytestmark = pytest.mark.parametrize("engine", ["compiled", "simpy"])

B = 1000.0  # bytes per second of every link
LATENCY = 0.25  # seconds of every link


def wire(devices: int = 2, cores: float | None = None, hosts: int | None = None) -> Cluster:
    """Devices on one switch; with ``cores``, that many on each of ``hosts`` machines (one for each device)."""
    graph = nx.DiGraph()
    for i in range(devices):
        host = f"h{i % hosts}" if hosts else f"h{i}"
        graph.add_node(f"d{i}", kind="device", host=host)
        for u, v in ((f"d{i}", "s"), ("s", f"d{i}")):
            graph.add_edge(u, v, bandwidth_bytes_per_s=B, latency_s=LATENCY)
    names = {f"h{i}": Host(f"h{i}", cores) for i in range(devices)} if cores is not None else {}
    return Cluster("wire", graph, tuple(f"d{i}" for i in range(devices)), names)


def builder(world_size: int = 2) -> Builder:
    new = Builder("test", world_size)
    new.buffer("data", 10_000, "uint8")
    return new


def bytes_at(count: int, offset: int = 0) -> Region:
    return Region(0, offset, count)


def spans(program, cluster, costs=None, **options):
    timeline = simulate(program, cluster, costs, **options)
    return [(span.start_s, span.end_s) for span in timeline]


def test_a_message(engine):
    """Overhead, bytes at the goodput of the link, then latencies while the sender is free again."""
    new = builder()
    new.message(0, 1, bytes_at(900))
    costs = Costs(send_overhead_s=0.1, receive_overhead_s=0.2, latency_s=0.5, protocol_efficiency=0.9)
    (send, recv) = spans(new.build(), wire(), costs, engine=engine)
    assert send == pytest.approx((0.0, 0.1 + 1.0))
    assert recv == pytest.approx((0.0, 0.1 + 1.0 + 0.5 + 2 * LATENCY + 0.2))


def test_one_message_goes_no_faster_than_its_own_limit(engine):
    new = builder()
    new.message(0, 1, bytes_at(1000))
    send, _ = spans(new.build(), wire(), Costs(message_bandwidth_bytes_per_s=B / 4), engine=engine)
    assert send == pytest.approx((0.0, 4.0))


def test_two_messages_share_a_link_and_the_longer_one_gets_it_back(engine):
    """Into one device: each at B/2 until the short one has ended, then B."""
    new = builder(3)
    new.message([0, 1], 2, Region(0, [0, 5000], [1000, 3000]), tag=[0, 1])
    short, long, *_ = spans(new.build(), wire(3), engine=engine)
    assert short == pytest.approx((0.0, 2.0))
    assert long == pytest.approx((0.0, 2.0 + 2000 / B))


def test_a_message_that_comes_later_slows_the_first(engine):
    new = builder(3)
    new.message(0, 2, bytes_at(2000))
    work = new.compute(1, Kernel("wait", duration_s=1.0))
    new.message(1, 2, bytes_at(2000), tag=1, after=work)
    timeline = simulate(new.build(), wire(3), engine=engine)
    ends = {(s.rank, s.name): s.end_s for s in timeline}
    assert ends[0, "send"] == pytest.approx(3.0)  # 1000 alone in 1 s, 1000 at half rate in 2 s
    assert ends[1, "send"] == pytest.approx(4.0)  # 1000 at half rate in 2 s, 1000 alone in 1 s


@pytest.mark.parametrize(("mode", "begins"), [("eager", 0.0), ("rendezvous", 2.0)])
def test_only_a_rendezvous_send_waits_for_its_receiver(engine, mode, begins):
    new = builder()
    busy = new.compute(1, Kernel("busy", duration_s=2.0))
    new.message(0, 1, bytes_at(1000), recv_after=busy)
    timeline = simulate(new.build(), wire(), engine=engine, send_mode=mode)
    end = {s.name: s.end_s for s in timeline}
    assert end["send"] == pytest.approx(begins + 1.0)
    assert end["recv"] == pytest.approx(max(2.0, begins + 1.0 + 2 * LATENCY))


def test_operations_of_a_queue_run_in_order_and_streams_at_once(engine):
    new = builder(2)
    new.compute([0, 0], Kernel("k", duration_s=1.0), stream="a")
    new.compute(0, Kernel("k", duration_s=3.0), stream="b")
    assert spans(new.build(), wire(), engine=engine) == [(0.0, 1.0), (1.0, 2.0), (0.0, 3.0)]


def test_kernels_cost_the_longer_of_arithmetic_and_memory_traffic(engine):
    new = builder()
    new.compute(0, Kernel("arithmetic", flop=100.0, memory_bytes=1.0))
    new.compute(0, Kernel("traffic", flop=1.0, memory_bytes=600.0))
    costs = Costs(flop_per_s=100.0, memory_bandwidth_bytes_per_s=200.0, local_overhead_s=0.5)
    assert spans(new.build(), wire(), costs, engine=engine) == [(0.0, 1.5), (1.5, 5.0)]


def test_copies_and_reductions_take_their_bandwidth(engine):
    new = builder()
    new.copy(0, bytes_at(1000), bytes_at(1000, 5000))
    new.reduce(0, bytes_at(1000), bytes_at(1000, 5000))
    costs = Costs(copy_bandwidth_bytes_per_s=500.0, reduce_bandwidth_bytes_per_s=250.0, local_overhead_s=0.5)
    assert spans(new.build(), wire(), costs, engine=engine) == [(0.0, 2.5), (2.5, 7.0)]


def test_a_receive_that_reduces_adds_the_time_of_the_sum(engine):
    new = builder()
    new.message(0, 1, bytes_at(1000), reduce=True)
    _, recv = spans(new.build(), wire(), Costs(reduce_bandwidth_bytes_per_s=500.0), engine=engine)
    assert recv == pytest.approx((0.0, 1.0 + 2 * LATENCY + 2.0))


def test_a_collective_starts_when_all_have_come_and_ends_on_all_at_once(engine):
    new = builder(3)
    late = new.compute(2, Kernel("late", duration_s=3.0))
    new.collective(Contract("all-reduce", (0, 1, 2), 0, 0, 600), after=np.array([-1, -1, late]))
    priced = Costs(collective_s=lambda name, ranks, size_bytes: {"all-reduce": 1.0}[name] + ranks * size_bytes / 900)
    timeline = simulate(new.build(), wire(3), priced, engine=engine)
    assert [s.end_s for s in timeline if s.name == "all-reduce"] == pytest.approx([6.0, 6.0, 6.0])
    assert [s.start_s for s in timeline if s.name == "all-reduce"] == pytest.approx([0.0, 0.0, 3.0])


def test_four_tasks_on_two_cores_take_twice_as_long(engine):
    new = builder(4)
    new.compute([0, 1, 2, 3], Kernel("task", duration_s=1.0))
    program = new.build()
    for cores, expected in ((2, 2.0), (3, 4 / 3), (4, 1.0), (8, 1.0)):
        timeline = simulate(program, wire(4, cores=cores, hosts=1), engine=engine)
        assert timeline.end_s == pytest.approx(np.full(4, expected))


def test_bytes_take_core_time_at_both_ends(engine):
    """2 ms of core a byte on half a core at the sender: 250 bytes per second, less than the link."""
    new = builder()
    new.message(0, 1, bytes_at(1000))
    program = new.build()
    for costs, rate in (
        (Costs(cpu_send_s_per_byte=2e-3), 250.0),
        (Costs(cpu_receive_s_per_byte=5e-3), 100.0),
        (Costs(cpu_send_s_per_byte=2e-3, cpu_receive_s_per_byte=5e-3), 100.0),
    ):
        send, _ = spans(program, wire(cores=0.5), costs, engine=engine)
        assert send == pytest.approx((0.0, 1000 / rate))
        send, _ = spans(program, wire(), costs, engine=engine)  # cores not stated: never what limits
        assert send == pytest.approx((0.0, 1.0))
    both = Costs(cpu_send_s_per_byte=2e-3, cpu_receive_s_per_byte=5e-3)
    send, _ = spans(program, wire(cores=0.5, hosts=1), both, engine=engine)  # one host works for both
    assert send == pytest.approx((0.0, 1000 * 7e-3 / 0.5))


def test_a_message_and_a_computation_share_a_core(engine):
    """Both rise at one rate in their units of work, where a core does 1000 a second of either: half a core each."""
    new = builder()
    new.message(0, 1, bytes_at(1000))
    new.compute(0, Kernel("task", duration_s=1.0))
    costs = Costs(cpu_send_s_per_byte=1e-3, reduce_bandwidth_bytes_per_s=1000.0)
    timeline = simulate(new.build(), wire(cores=1.0), costs, engine=engine)
    end = {s.name: s.end_s for s in timeline}
    assert end["send"] == pytest.approx(2.0)
    assert end["task"] == pytest.approx(2.0)


def test_ranks_on_one_device_need_no_link(engine):
    new = builder()
    new.message(0, 1, bytes_at(1000))
    program = new.build()
    assert spans(program, wire(), engine=engine, placement=(1, 1)) == [(0.0, 0.0), (0.0, 0.0)]
    assert spans(program, wire(), engine=engine, placement=(1, 0))[0] == pytest.approx((0.0, 1.0))


def test_no_bytes_no_time_on_the_wire(engine):
    new = builder()
    new.message(0, 1, bytes_at(0))
    send, recv = spans(new.build(), wire(), Costs(send_overhead_s=0.5), engine=engine)
    assert send == (0.0, 0.5)
    assert recv == (0.0, 0.5 + 2 * LATENCY)


@pytest.mark.parametrize("world_size", [2, 3, 8, 17])
@pytest.mark.parametrize("make", [ring, switch])
def test_ring_all_reduce_takes_its_closed_form(engine, world_size, make):
    """2(N−1)(α + S/(N·B)), with α the latency of a hop and the overheads of a message."""
    size_bytes = 4 * 840 * world_size
    program = collective("all-reduce", "ring", world_size, 840 * world_size)
    costs = Costs(send_overhead_s=1e-6, receive_overhead_s=2e-6, latency_s=3e-6)
    alpha_s = (1 if make is ring else 2) * 5e-7 + 1e-6 + 2e-6 + 3e-6
    expected = 2 * (world_size - 1) * (alpha_s + size_bytes / (world_size * 50e9))
    timeline = simulate(program, make(world_size, 50e9, 5e-7), costs, engine=engine)
    assert timeline.makespan_s == pytest.approx(expected, rel=1e-9)


OPTIONS = {
    "send_overhead_s": 0.1,
    "receive_overhead_s": 0.1,
    "latency_s": 0.1,
    "protocol_efficiency": 0.9,
    "message_bandwidth_bytes_per_s": 100.0,
    "reduce_bandwidth_bytes_per_s": 500.0,
    "copy_bandwidth_bytes_per_s": 100.0,
    "local_overhead_s": 0.1,
    "cpu_send_s_per_byte": 1e-2,
    "cpu_receive_s_per_byte": 1e-2,
    "flop_per_s": 10.0,
    "memory_bandwidth_bytes_per_s": 10.0,
    "collective_s": lambda *_: 9.0,
}


@pytest.mark.parametrize("option", list(OPTIONS))
def test_every_cost_changes_the_result(engine, option):
    new = builder()
    sent, received = new.message(0, 1, bytes_at(1000), reduce=True)
    copied = new.copy(1, bytes_at(1000), bytes_at(1000, 5000), after=received)
    ran = new.compute(1, Kernel("k", flop=100.0, memory_bytes=90.0), after=copied)
    new.collective(Contract("all-reduce", (0, 1), 0, 0, 10), after=[sent, ran])
    program = new.build()
    before = Costs(collective_s=lambda *_: 1.0)
    after = replace(before, **{option: OPTIONS[option]})
    times = [simulate(program, wire(cores=1.0), costs, engine=engine).makespan_s for costs in (before, after)]
    assert times[1] > times[0] + 1e-3


def test_a_deadlock_names_an_operation_and_what_it_waits_for(engine):
    """Two ranks that both send first: fine where sends are eager, stuck where they wait for their receivers."""
    new = builder()
    send = [new.send(r, 1 - r, bytes_at(10), stream="comm") for r in (0, 1)]
    recv = [new.recv(r, 1 - r, bytes_at(10, 100), stream="comm") for r in (0, 1)]
    new.match(send, [recv[1], recv[0]])
    program = new.build()
    assert simulate(program, wire(), engine=engine).makespan_s > 0
    message = r"deadlock with rendezvous sends: rank . comm #0: SEND 10 B .* waits for rank . comm #1: RECV"
    with pytest.raises(ProgramError, match=message):
        simulate(program, wire(), engine=engine, send_mode="rendezvous")


def test_a_cycle_of_dependencies_is_a_deadlock(engine):
    new = builder()
    a = new.compute(0, Kernel("a"), stream="a")
    b = new.compute(1, Kernel("b"), stream="b")
    new.after(a, b)
    new.after(b, a)
    with pytest.raises(ProgramError, match=r"COMPUTE [ab] waits for .*COMPUTE [ba] waits for"):
        simulate(new.build(), wire(), engine=engine)


def test_collectives_in_opposite_order_are_a_deadlock(engine):
    new = builder()
    one, two = Contract("all-reduce", (0, 1), 0, 0, 1), Contract("all-gather", (0, 1), 0, 0, 2)
    x, y = new.collective(one, stream="x"), new.collective(two, stream="y")
    new.after(x[0], y[0])
    new.after(y[1], x[1])
    with pytest.raises(ProgramError, match=r"waits for .*COLLECTIVE"):
        simulate(new.build(), wire(), Costs(collective_s=lambda *_: 1.0), engine=engine)
