"""Answers to the exercises of lesson 02; each raises where it is wrong."""

import numpy as np

from llmsim import Builder, Region, build_topology, closed_form_s, collective, simulate
from llmsim.program import Kernel, Layer, check_collective, data_parallel_step, parameter_server, segments

BANDWIDTH, LATENCY = 125e6, 20e-6


def reduce_scatter(n: int, count: int):
    """Part 4: in step k rank r sends segment r−1−k; what it adds to is segment r−2−k, which it sends next."""
    builder = Builder("reduce-scatter", n)
    data = builder.buffer("data", count)
    offset, length = segments(count, n)
    rank, received = np.arange(n), None
    for k in range(n - 1):
        sent = (rank - 1 - k) % n
        into = (sent - 1) % n
        builder.send(rank, (rank + 1) % n, Region(data, offset[sent], length[sent]), after=received)
        received = builder.recv(rank, (rank - 1) % n, Region(data, offset[into], length[into]), reduce=True)
    return builder.build()


def exercise_1_bytes_by_rank() -> None:
    """Ring: 2(N−1)/N·S each. One server sends the whole result to each of N workers: N·S."""
    size = 8 * 4 * 1000
    for n in (2, 4, 8):
        check_collective(reduce_scatter(n, size // 4), "reduce-scatter")
        sent = collective("all-reduce", "ring", n, size // 4).bytes_sent_by_rank()
        assert (sent == 2 * (n - 1) * size // n).all()
        assert parameter_server(n, size // 4).bytes_sent_by_rank()[n] == n * size


def exercise_2_halving_doubling_against_the_ring() -> None:
    """It moves the same bytes in 2·log2 N steps instead of 2(N−1): equal at N = 2, ahead from 4 on."""
    size, alpha = 2**20, 2 * LATENCY
    for n in (2, 4, 8, 16, 32):
        ring, halving = (
            closed_form_s("all-reduce", a, n, size, latency_s=alpha, bandwidth_bytes_per_s=BANDWIDTH)
            for a in ("ring", "halving-doubling")
        )
        cluster = build_topology("switch", n, BANDWIDTH, LATENCY)
        for algorithm, formula in (("ring", ring), ("halving-doubling", halving)):
            simulated = simulate(collective("all-reduce", algorithm, n, size // 4), cluster).makespan_s
            assert abs(simulated / formula - 1) < 1e-9
        assert (halving < ring) == (n >= 4)


def exercise_3_best_bucket() -> None:
    """Tiny buckets pay 2(N−1)α each; one large bucket begins when backward ends. The best lies between."""
    layers = [
        Layer(f"layer {i}", 2**18, Kernel("layer", duration_s=2.5e-3), Kernel("layer", duration_s=5e-3))
        for i in range(24)
    ]
    cluster = build_topology("switch", 4, BANDWIDTH, 1e-3)
    step_s = {
        mib: simulate(data_parallel_step(4, layers, bucket_bytes=mib * 2**20), cluster).makespan_s
        for mib in (1, 2, 4, 8, 12, 24)
    }
    assert min(step_s, key=step_s.__getitem__) == 8
    buckets = {mib: 1 + -(-23 // mib) for mib in (1, 24)}  # a first one of 1 MiB, then as many as it takes
    latency_s = {mib: 6 * 2 * 1e-3 * n for mib, n in buckets.items()}  # 2(N−1) steps over two links each
    assert latency_s[1] > step_s[1] / 3  # what small buckets lose by
    assert step_s[24] - 24 * 7.5e-3 > 0.9 * 1.5 * 23 * 2**20 / BANDWIDTH  # nearly all of it exposed
