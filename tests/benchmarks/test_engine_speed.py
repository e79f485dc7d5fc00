"""How fast programs are built, bound and run: ``make bench``. Compiled functions are compiled before the clock starts.

``extra_info`` of each benchmark carries messages per second and, where it is asked for, seconds by phase and the peak
memory of a process of its own.
"""

import subprocess
import sys
import time

import pytest

from llmsim.cluster import leaf_spine, rail_optimised, ring
from llmsim.engine import bind, run, simulate
from llmsim.program.collectives import collective

BANDWIDTH_BYTES_PER_S, LATENCY_S = 50e9, 1e-6


def phases(benchmark, build, cluster):
    """Measure build + bind + run, and note the shares of the best round."""
    best = {"total_s": float("inf")}

    def everything():
        nonlocal best
        at = [time.perf_counter()]
        program = build()
        at.append(time.perf_counter())
        bound = bind(program, cluster)
        at.append(time.perf_counter())
        timeline = run(bound)
        at.append(time.perf_counter())
        if at[-1] - at[0] < best["total_s"]:
            best = {"build_s": at[1] - at[0], "bind_s": at[2] - at[1], "run_s": at[3] - at[2], "total_s": at[3] - at[0]}
        return program.messages, timeline.makespan_s

    messages, makespan_s = benchmark.pedantic(everything, rounds=3, warmup_rounds=1)
    note(benchmark, messages, best["total_s"], **best)
    return makespan_s


def note(benchmark, messages, seconds, **more):
    benchmark.extra_info.update(messages=messages, messages_per_s=round(messages / seconds), **more)
    print(f"\n{benchmark.name}: {messages:,} messages, {messages / seconds:,.0f} per second, {more}")


@pytest.mark.parametrize("world_size", [256, 512, 1024, 2048])
def test_ring_all_reduce(benchmark, world_size):
    """2.1 million messages at 1,024 ranks; messages per second show how cost grows with size."""
    cluster = ring(world_size, BANDWIDTH_BYTES_PER_S, LATENCY_S)
    count = 1 << 28
    makespan_s = phases(benchmark, lambda: collective("all-reduce", "ring", world_size, count), cluster)
    closed_form_s = 2 * (world_size - 1) * (LATENCY_S + 4 * count / world_size / BANDWIDTH_BYTES_PER_S)
    assert makespan_s == pytest.approx(closed_form_s, rel=1e-9)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_ring_all_reduce_peak_memory(benchmark):
    """Of a fresh process that simulates 1,024 ranks, interpreter and libraries included."""
    code = """
from llmsim.cluster import ring
from llmsim.engine import simulate
from llmsim.program.collectives import collective
simulate(collective("all-reduce", "ring", 1024, 1 << 28), ring(1024, 50e9, 1e-6))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)
"""

    def child():
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)

    peak_bytes = benchmark.pedantic(child, rounds=1, warmup_rounds=1)
    benchmark.extra_info["peak_memory_bytes"] = peak_bytes
    print(f"\n{benchmark.name}: {peak_bytes / 2**20:.0f} MiB")


def test_hierarchical_all_reduce_of_4096_ranks(benchmark):
    """512 nodes of 8, rail-optimised: 4.2 million messages."""
    cluster = rail_optimised(
        512,
        8,
        BANDWIDTH_BYTES_PER_S,
        LATENCY_S,
        scale_up_bandwidth_bytes_per_s=9 * BANDWIDTH_BYTES_PER_S,
        scale_up_latency_s=LATENCY_S,
    )
    phases(benchmark, lambda: collective("all-reduce", "hierarchical", 4096, 1 << 28, group_size=8), cluster)


@pytest.mark.parametrize("algorithm", ["direct", "pairwise"])
def test_contended_all_to_all(benchmark, algorithm):
    """65,280 flows over 256 hosts on 16 leaves, 4:1 oversubscribed; the program is bound before."""
    cluster = leaf_spine(256, 12.5e9, LATENCY_S, leaves=16, spines=4, oversubscription=4.0)
    program = collective("all-to-all", algorithm, 256, 256 * 65536)
    bound = bind(program, cluster)
    benchmark.pedantic(run, args=(bound,), rounds=5, warmup_rounds=1)
    note(benchmark, program.messages, benchmark.stats.stats.min)


def test_simpy_ring(benchmark):
    program = collective("all-reduce", "ring", 64, 1 << 20)
    bound = bind(program, ring(64, BANDWIDTH_BYTES_PER_S, LATENCY_S))
    benchmark.pedantic(run, args=(bound,), kwargs={"engine": "simpy"}, rounds=5, warmup_rounds=1)
    note(benchmark, program.messages, benchmark.stats.stats.min)


def test_small_program_from_start_to_end(benchmark):
    """What a lesson or a sweep pays for one small simulation."""
    cluster = ring(8, BANDWIDTH_BYTES_PER_S, LATENCY_S)
    timeline = benchmark(lambda: simulate(collective("all-reduce", "ring", 8, 1 << 20), cluster))
    assert timeline.makespan_s > 0
