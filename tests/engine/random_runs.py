"""Random programs on random clusters, as hypothesis strategies."""

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from llmsim.cluster import Cluster, Host
from llmsim.cost.costs import Costs
from llmsim.program.builder import Builder
from llmsim.program.program import Contract, Kernel, Region

BUFFER = 1000  # elements

# Few round values, so that ties happen, and arbitrary ones, so that they don't.
bandwidths = st.sampled_from([1e3, 2e3, 3e3]) | st.floats(500.0, 5e3)
seconds = st.sampled_from([0.0, 0.1]) | st.floats(1e-3, 0.5)


@st.composite
def clusters(draw, devices: int) -> Cluster:
    """Devices and switches, connected by a random tree and some more links."""
    switches = draw(st.integers(0, 3))
    nodes = [f"d{i}" for i in range(devices)] + [f"s{i}" for i in range(switches)]
    graph = nx.DiGraph()
    for node in nodes:
        device = node.startswith("d")
        # Two devices a host, so that host cores are shared between ranks.
        host = {"host": f"h{int(node[1:]) // 2}"} if device else {}
        graph.add_node(node, kind="device" if device else "switch", **host)
    tree = [(nodes[i], nodes[draw(st.integers(0, i - 1))]) for i in range(1, len(nodes))]
    more = draw(st.lists(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)), max_size=4))
    for u, v in tree + [(u, v) for u, v in more if u != v]:
        for a, b in ((u, v), (v, u)):
            graph.add_edge(a, b, bandwidth_bytes_per_s=draw(bandwidths), latency_s=draw(seconds))
    cores = draw(st.lists(st.none() | st.sampled_from([0.5, 1.0, 2.0]), min_size=devices, max_size=devices))
    hosts = {f"h{i}": Host(f"h{i}", cores[i]) for i in range((devices + 1) // 2)}
    return Cluster("random", graph, tuple(nodes[:devices]), hosts, seed=draw(st.integers(0, 9)))


@st.composite
def costs(draw) -> Costs:
    some_bandwidth = st.just(float("inf")) | bandwidths
    return Costs(
        send_overhead_s=draw(seconds),
        receive_overhead_s=draw(seconds),
        latency_s=draw(seconds),
        protocol_efficiency=draw(st.sampled_from([1.0, 0.9, 0.5])),
        message_bandwidth_bytes_per_s=draw(some_bandwidth),
        reduce_bandwidth_bytes_per_s=draw(some_bandwidth),
        copy_bandwidth_bytes_per_s=draw(some_bandwidth),
        local_overhead_s=draw(seconds),
        cpu_send_s_per_byte=draw(st.sampled_from([0.0, 1e-3, 3e-4])),
        cpu_receive_s_per_byte=draw(st.sampled_from([0.0, 1e-3, 7e-4])),
        collective_s=lambda name, ranks, size_bytes: 0.05 + ranks * size_bytes * 1e-5,
    )


@st.composite
def programs(draw, world_size: int):
    """Operations of every kind on several streams, with dependencies on earlier ones.

    It can't deadlock under eager sends, as every operation waits only for ones made before it; under rendezvous it may.
    """
    builder = Builder("random", world_size)
    builder.buffer("data", BUFFER, "uint8")
    streams = ["a", "b", "c"][: draw(st.integers(1, 3))]
    made: list[int] = []

    def region() -> Region:
        count = draw(st.sampled_from([0, 100, 100, 300]) | st.integers(0, 500))
        return Region(0, draw(st.integers(0, BUFFER - count)), count)

    def after():
        return draw(st.sampled_from(made)) if made and draw(st.booleans()) else None

    def note(ids) -> None:
        made.extend(np.ravel(ids).tolist())

    def messages() -> None:
        """All sends of a batch before all its receives, each channel in order."""
        batch = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 4]))):
            source = draw(st.integers(0, world_size - 1))
            destination = (source + draw(st.integers(1, world_size - 1))) % world_size
            out, into = draw(st.integers(0, len(streams) - 1)), draw(st.integers(0, len(streams) - 1))
            tag, piece = 3 * out + into, region()  # one tag for each pair of streams: the order is no matter of timing
            send = builder.send(source, destination, piece, tag=tag, stream=streams[out], after=after())
            batch.append((send, source, destination, tag, piece, streams[into]))
        for send, source, destination, tag, piece, stream in batch:
            note(send)
            reduce = draw(st.booleans())
            note(builder.recv(destination, source, piece, reduce=reduce, tag=tag, stream=stream, after=after()))

    for _ in range(draw(st.integers(2, 16))):
        kind = draw(st.sampled_from(["messages", "messages", "messages", "compute", "copy", "reduce", "collective"]))
        rank, stream = draw(st.integers(0, world_size - 1)), draw(st.sampled_from(streams))
        if kind == "messages":
            messages()
        elif kind == "compute":
            note(builder.compute(rank, Kernel("k", duration_s=draw(seconds)), stream=stream, after=after()))
        elif kind == "collective":
            ranks = draw(st.lists(st.integers(0, world_size - 1), min_size=1, unique=True))
            contract = Contract("all-reduce", tuple(ranks), 0, 0, draw(st.integers(0, BUFFER)))
            note(builder.collective(contract, stream=stream, after=after()))
        else:
            piece = region()
            source_region = Region(0, 0, piece.count)
            operation = builder.copy if kind == "copy" else builder.reduce
            note(operation(rank, piece, source_region, stream=stream, after=after()))
    return builder.build()


@st.composite
def runs(draw):
    """A program, a cluster that holds it, costs, and a placement (or None)."""
    world_size = draw(st.integers(2, 6))
    cluster = draw(clusters(world_size))
    placement = draw(st.none() | st.lists(st.integers(0, world_size - 1), min_size=world_size, max_size=world_size))
    return draw(programs(world_size)), cluster, draw(costs()), tuple(placement) if placement else None
