# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Data parallelism: parameter server against ring all-reduce
#
# *Terms: data parallelism (数据并行, 1.1), parameter server (参数服务器, 1.4), ring all-reduce (Ring AllReduce, 1.5).
# About 35 minutes; needs lesson 01. Runs without a GPU.*
#
# In data parallel training every device holds a full copy of the model and computes gradients on its own part of the
# batch. Before the optimizer steps, all copies need the *same* gradient: the sum over devices. How that sum is formed
# is a communication problem, and this lesson compares the two classical answers.

# %%
import matplotlib_inline.backend_inline
import numpy as np

from llmsim import Builder, Costs, Region, build_topology, closed_form_s, collective, simulate
from llmsim.cost import parameter_server_s
from llmsim.errors import ProgramError
from llmsim.plots import compare_gantt, curves, gantt
from llmsim.program import Kernel, Layer, check_collective, data_parallel_step, parameter_server, segments
from llmsim.units import format_duration

matplotlib_inline.backend_inline.set_matplotlib_formats("png")

# %% [markdown]
# ## 1. Question
#
# Sixteen workers each hold 64 MiB of gradients. Every machine has one full-duplex link of 1 Gb/s into a switch. How
# many times longer does the exchange take with **one parameter server** than with a **ring all-reduce**? Write your
# guess down before you read on; it appears in the last plot.

# %%
guess = 4.0  # parameter server's time over the ring's
workers, size_bytes, bandwidth, latency = 16, 64 * 2**20, 125e6, 20e-6

# %% [markdown]
# ## 2. Picture
#
# The smallest interesting ring has three ranks. A ring all-reduce cuts the gradient in as many segments as there are
# ranks and passes them round. In the first N−1 steps each rank *adds* what it receives, so that afterwards each rank
# holds one finished segment (a reduce-scatter); in the second N−1 steps the finished segments go round once more (an
# all-gather). A program is plain data, and this is all that rank 1 does:

# %%
print(collective("all-reduce", "ring", 3, 9).view(1))

# %% [markdown]
# With a parameter server every worker *pushes* its gradient to the server and *pulls* the result. The server's link
# carries the traffic of all workers; a worker's link carries only its own.

# %%
small = {"bandwidth_bytes_per_s": bandwidth, "latency_s": latency}
served = simulate(parameter_server(3, 3 * 2**20), build_topology("switch", 4, **small))
gantt(served, title="Three workers and one server (rank 3): the server's link is always busy")

# %% [markdown]
# ## 3. Predict
#
# A message of S bytes takes α + S/B: a fixed latency α and the bytes over the bandwidth B. The ring has 2(N−1) steps
# and each passes a segment of S/N bytes on every link at once. The server takes N pushes of S bytes through its one
# incoming link, then N pulls through its outgoing link. Here α is two link latencies, host to switch to host.

# %%
alpha = 2 * latency


def ring_s(n, s=size_bytes):
    return closed_form_s("all-reduce", "ring", n, s, latency_s=alpha, bandwidth_bytes_per_s=bandwidth)


def server_s(n, s=size_bytes, servers=1):
    return parameter_server_s(n, servers, s, latency_s=alpha, bandwidth_bytes_per_s=bandwidth)


print(f"bound: {format_duration(2 * (workers - 1) / workers * size_bytes / bandwidth)} of bytes on each link")
print(f"ring:  {format_duration(ring_s(workers))}    server: {format_duration(server_s(workers))}")
print(f"ratio: {server_s(workers) / ring_s(workers):.2f}")

# %% [markdown]
# The ratio grows with N: the server's link carries N·S bytes each way, a ring link only 2(N−1)/N·S, never more than
# twice the gradient. That is the origin of the popular sentence *"the cost of ring all-reduce does not depend on the
# number of devices"*. Part 8 tests it.
#
# ## 4. Build
#
# Write the first half of the ring yourself, for any N. In step k rank r sends a segment to rank r+1 and adds the one it
# receives from rank r−1. Which segment must it be, so that in the next step it passes on the very segment it has just
# added to? The stub sends the same segment in every step. `check_collective` runs the program on symbols instead of
# numbers, and says whose contribution is missing, where.


# %%
def my_reduce_scatter(n, count):
    builder = Builder("my reduce-scatter", n)
    data = builder.buffer("data", count)
    offset, length = segments(count, n)
    rank, received = np.arange(n), None
    for k in range(n - 1):
        sent = (rank - 1 - 0 * k) % n  # TODO: how does it depend on k?
        into = (sent - 1) % n  # what the left neighbour sends
        builder.send(rank, (rank + 1) % n, Region(data, offset[sent], length[sent]), after=received)
        received = builder.recv(rank, (rank - 1) % n, Region(data, offset[into], length[into]), reduce=True)
    return builder.build()


def check(program, name):
    try:
        check_collective(program, name)
        print("correct for", program)
    except ProgramError as error:
        print("not yet:", error)


check(my_reduce_scatter(4, 12), "reduce-scatter")

# %% [markdown]
# The answer is in `lessons/answers/`. A correct program is proved for every element at once: the check does not try
# numbers, it follows symbols.
#
# ## 5. Simulate
#
# The simulator executes the same program on a modelled network where flows share links fairly. Sixteen workers on a
# switch: the ring never shares a link and reproduces the closed form; the server's link is shared by sixteen flows.

# %%
count = size_bytes // 4
ring_program = collective("all-reduce", "ring", workers, count)
server_program = parameter_server(workers, count)
simulated_ring = simulate(ring_program, build_topology("switch", workers, **small))
simulated_server = simulate(server_program, build_topology("switch", workers + 1, **small))
ratio = simulated_server.makespan_s / simulated_ring.makespan_s
print(f"ring   {format_duration(simulated_ring.makespan_s)}, closed form {format_duration(ring_s(workers))}")
print(f"server {format_duration(simulated_server.makespan_s)}, closed form {format_duration(server_s(workers))}")
print(f"simulated ratio {ratio:.2f}")

# %% [markdown]
# A real training step does not wait for the whole gradient. The backward pass finishes the last layer first, so
# PyTorch's DDP (数据并行) fills *buckets* and reduces each while the earlier layers are still computing. Only what
# sticks out behind the last kernel, the *exposed* communication, costs time.

# %%
layers = [
    Layer(f"layer {i}", 2**20, Kernel("layer", duration_s=10e-3), Kernel("layer", duration_s=20e-3)) for i in range(6)
]
cluster = build_topology("switch", 4, **small)
steps = {
    overlap: simulate(data_parallel_step(4, layers, bucket_bytes=8 * 2**20, overlap=overlap), cluster)
    for overlap in (False, True)
}
print({("overlapped" if overlap else "at the end"): format_duration(t.makespan_s) for overlap, t in steps.items()})
gantt(steps[True], ranks=[0, 1], title="Buckets are reduced while the backward pass goes on")

# %% [markdown]
# ## 6. Measure
#
# Now the same two program objects on real processes over gloo. Where this machine permits it, they run in a small
# cluster of network namespaces whose links are shaped to 200 Mb/s; the prediction is made *before* the run, from the
# link speeds and the size of TCP/IP headers alone. Elsewhere the processes share memory-fast loopback, for which the
# link model holds no prediction, and only correctness is shown.

# %%
from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.netlab import netlab, netlab_unavailable

elements = 2**20
small_ring = collective("all-reduce", "ring", 4, elements)
small_server = parameter_server(3, elements)
inputs = {"data": np.arange(4, dtype=np.float32)[:, None] + np.zeros((4, elements), np.float32)}
reason = netlab_unavailable()
predicted, measured = {}, {}
if reason is None:
    with netlab("star", hosts=4, bandwidth="200Mb/s") as lab:
        costs = Costs(protocol_efficiency=lab.protocol_efficiency)
        for name, program in (("ring", small_ring), ("server", small_server)):
            predicted[name] = simulate(program, lab.cluster, costs)
        with WorkerPool(4, hosts=lab.hosts) as pool:
            result = execute(small_ring, inputs, pool=pool, warmup=1)
            idle = {"gradient": 0.0, "update": 0.0}  # seconds of computing: this is about communication
            measured["server"] = execute(small_server, pool=pool, warmup=1, compute=idle).timelines[0]
    measured["ring"] = result.timelines[0]
else:
    print(f"no network lab here ({reason}); running on loopback")
    result = execute(small_ring, inputs)
    measured["ring"] = result.timelines[0]
print("every rank holds 0+1+2+3:", bool((result.outputs["data"] == 6).all()))

# %% [markdown]
# ## 7. Report

# %%
for name in predicted:
    p, m = predicted[name].makespan_s, measured[name].makespan_s
    print(f"{name:7} predicted {format_duration(p):>9}  measured {format_duration(m):>9}  error {p / m - 1:+.1%}")
if predicted:
    picture = compare_gantt(
        predicted["ring"], measured["ring"], title="Ring all-reduce: predicted above, measured below"
    )
else:
    picture = gantt(measured["ring"], title="Ring all-reduce on loopback, measured")
picture

# %% [markdown]
# What is left over is what the model left out: the processors' time for each message and for moving bytes through the
# kernel. `llmsim calibrate` measures those, and `llmsim validate` repeats this report over dozens of cases.
#
# ## 8. Break it
#
# *"The cost does not depend on the number of devices."* It is true of the bytes: 2(N−1)/N·S per device tends to 2S. It
# is false of the latency, 2(N−1)α, which grows without bound. And the parameter server need not lose: with as many
# *sharded* servers as workers, each link carries about as much as in the ring, in two latencies instead of 2(N−1).

# %%
ranks = np.array([2**k for k in range(1, 13)])
curves(
    ranks,
    {
        "ring, 64 MiB": [ring_s(n) for n in ranks],
        "ring, 64 KiB": [ring_s(n, 2**16) for n in ranks],
        "one server, 64 MiB": [server_s(n) for n in ranks],
        "N servers, 64 MiB": [server_s(n, servers=n) for n in ranks],
        f"your guess x ring at N={workers}": np.full(len(ranks), guess * ring_s(workers)),
    },
    bounds={"64 MiB: bytes alone": [2 * (n - 1) / n * size_bytes / bandwidth for n in ranks]},
    x_label="devices",
    title=f"The truth at N={workers} is {ratio:.1f} times the ring",
)


# %%
def race(devices=64, size_kib=1024):
    """Drag both: where does the ring stop being worth its latency?"""
    s = size_kib * 1024
    ring, one, many = ring_s(devices, s), server_s(devices, s), server_s(devices, s, servers=devices)
    print(f"ring {format_duration(ring)}, one server {format_duration(one)}, {devices} servers {format_duration(many)}")


try:
    from ipywidgets import interact

    interact(race, devices=(2, 1024), size_kib=(4, 65536))
except ImportError:
    race()

# %% [markdown]
# ## 9. Exercises
#
# 1. *Easy.* `program.bytes_sent_by_rank()` counts from the program itself. Show that each rank of the ring sends
#    2(N−1)/N·S bytes for N = 2, 4, 8, and find what the server sends.
# 2. *Medium.* For 1 MiB on these links, from which power of two on does recursive halving-doubling beat the ring? Use
#    `closed_form_s` with `"halving-doubling"`, then confirm with `simulate`.
# 3. *Open.* Cut the model of part 5 into 24 layers of 1 MiB and raise the latency to 1 ms a link. Which `bucket_bytes`
#    gives the shortest step? Explain why both very small and very large buckets lose.
#
# ## 10. Where next
#
# Patarasuk & Yuan (2009) prove the ring's bandwidth optimal; Sergeev & Del Balso (2018) brought it to training as
# Horovod; Li et al. (2020) describe DDP's buckets; Li et al. (2014) the parameter server. Read
# `llmsim/program/collectives/ring.py`, the whole algorithm in one block of operations, and gloo's own ring in its
# `gloo/allreduce.cc`, which adds up one piece of a segment while the next is on its way. Then run
# `llmsim collective all-reduce --ranks 64 --size 1GiB` to see all algorithms side by side.
