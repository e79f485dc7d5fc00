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
# # Clusters, links and the cost of moving bytes
#
# *Terms: D2D, D2H and H2D transfer (6.11–6.13: 设备到设备, 设备到主机, 主机到设备). About 30 minutes, no prerequisites.
# Runs without a GPU.*
#
# Everything a distributed system does is computing or moving bytes. This lesson is about the second: how long a message
# takes on a link of its own, and what happens when it must share. The same few rules hold for a cable between two GPUs,
# for the PCIe bus of a server and for the network of a data centre, and all later lessons build on them.

# %%
import matplotlib_inline.backend_inline
import numpy as np

from llmsim import Builder, Costs, Region, build_topology, closed_form_s, simulate
from llmsim.catalog import link
from llmsim.engine import simulate_flows
from llmsim.engine.flow_file import parse_flows
from llmsim.errors import ProgramError
from llmsim.plots import compare_gantt, curves, gantt, topology
from llmsim.program import check_collective, segments
from llmsim.units import format_bandwidth, format_duration, format_size

matplotlib_inline.backend_inline.set_matplotlib_formats("png")

# %% [markdown]
# ## 1. Question
#
# Eight machines stand in two racks. All links, also the one *between* the racks, carry 200 Mb/s each way. Three
# machines of the first rack send to three of the second, and at the same time one machine of the second rack sends to
# a neighbour that already receives one of those three messages. Which share of its link does that neighbourly message
# get?

# %%
guess = 0.5  # of a link's bandwidth
bandwidth, latency = 25e6, 20e-6  # bytes per second and seconds, of every link

# %% [markdown]
# ## 2. Picture
#
# Circles are devices that hold a rank, squares are switches. A cable is two *links*, one for each direction, and each
# has a bandwidth and a latency of its own. A switch costs nothing here but the links to and from it.

# %%
racks = build_topology("two-racks", 8, bandwidth, latency, uplink_bandwidth_bytes_per_s=bandwidth)
topology(racks)

# %% [markdown]
# The four messages as a program: for each rank an ordered list of operations, and nothing else. Rank 4 receives on two
# streams, because it takes part in two messages at once.

# %%
elements = 2**20
builder = Builder("three across, one beside", 8)
data = builder.buffer("data", 2 * elements)
whole = Region(data, 0, elements)
builder.message(np.array([0, 1, 2]), np.array([4, 5, 6]), whole)
builder.message(7, 4, whole, into=Region(data, elements, elements), streams=("send", "recv from neighbour"))
four_messages = builder.build()
print(four_messages)
print(four_messages.view(4))

# %% [markdown]
# ## 3. Predict
#
# A message alone takes T(S) = α + S/B. The latency α is paid once, whatever the size; B is the bandwidth of the slowest
# link on the way. Two regimes follow, and between them lies the size at which half the time is latency: α·B. Below it
# bandwidth hardly matters, above it latency hardly does. The catalog knows the links of today's machines, each figure
# with its source.

# %%
hops = {"nvlink-4": 1, "pcie-3": 2, "roce-400g": 2}  # GPU to GPU: a cable, or a cable to a switch and one from it
sizes = np.array([2.0**k for k in range(6, 31)])
lines = {}
for name, cables in hops.items():
    wire = link(name)
    alpha, wire_bandwidth = cables * wire.latency_s, wire.bandwidth_bytes_per_s
    lines[name] = [
        closed_form_s("point-to-point", "direct", 2, s, latency_s=alpha, bandwidth_bytes_per_s=wire_bandwidth)
        for s in sizes
    ]
    half = format_size(alpha * wire_bandwidth)
    print(f"{name:10} {format_bandwidth(wire_bandwidth):>10} each way; latency is half of the time at {half}")
curves(sizes, lines, x_label="message", x_unit="bytes", title="Time of one message: flat, then proportional")

# %% [markdown]
# Read the curves from both ends. Ten times the bandwidth would not make a 64-byte message on any of these wires faster:
# it is all latency, and only sending fewer messages helps. A gigabyte is the other way round. This is why
# gradients are gathered in buckets before they are sent, and why a KV cache is moved in large blocks.
#
# Bounds first: no model of the network can make a message faster than S/B of the slowest link it crosses, nor faster
# than the sum of the latencies on its way. Every engine of this project is tested against such bounds.
#
# Mind the units: networks are sold in bits per second (400 Gb/s), memories in bytes per second (50 GB/s is the same),
# sizes in powers of 1000 (GB) or 1024 (GiB).
#
# ## 4. Build
#
# A message across two links may be *relayed*: the middle rank receives it whole, then passes it on, and the time
# doubles. Cut it in chunks and the second link works while the first still does. Write the relay of a broadcast along
# three ranks in `chunks` pieces. The stub forwards each piece, but forgets to wait for it.


# %%
def my_relay(count, chunks):
    builder = Builder(f"relay in {chunks} chunks", 3)
    data = builder.buffer("data", count)
    for offset, length in zip(*segments(count, chunks), strict=True):
        piece = Region(data, offset, length)
        builder.message(0, 1, piece)
        builder.message(1, 2, piece)  # TODO: after=...
    return builder.build()


def check(program, name):
    try:
        check_collective(program, name)
        print("correct for", program)
    except ProgramError as error:
        print("not yet:", error)


check(my_relay(12, 3), "broadcast")

# %% [markdown]
# `check_collective` follows symbols through the program, in place of numbers, and then asks whether any other order of
# the operations could give something else.
#
# ## 5. Simulate
#
# Back to the two racks. The simulator gives every message its *max-min fair* share: all rates rise together until a
# link is full; the messages on it stay at that rate, the others rise on.

# %%
simulated = simulate(four_messages, racks)
alone_s = 4 * elements / bandwidth
shares = {span.rank: alone_s / span.duration_s for span in simulated if span.name == "send"}
print({f"from rank {rank}": f"{share:.3f} of a link on average" for rank, share in shares.items()})
gantt(simulated, title=f"The neighbour's message gets {shares[7]:.2f} of its link; you guessed {guess}")

# %% [markdown]
# The three messages share the uplink, a third each. Rank 4's own link could give each of its two messages a half, but
# the one from afar cannot use it: the neighbour takes what is left, two thirds. α–β alone cannot say this; it needs the
# network as a whole.
#
# The same mechanism explains transfers inside a server. Two GPUs below one PCIe switch copy to and from host memory:
# D2H (设备到主机), H2D (主机到设备) and, without NVLink, D2D (设备到设备) through the switch. Which of these slow
# each other down? Follow the routes before you look: only those that cross the same link in the same direction.

# %%
cables = [("gpu0", "pcie"), ("gpu1", "pcie"), ("pcie", "memory")]
links = [{"from": a, "to": b, "bandwidth": "32GB/s", "latency": "500ns"} for a, b in cables]
copies = {
    "one H2D": [["memory", "pcie", "gpu0"]],
    "two H2D": [["memory", "pcie", "gpu0"], ["memory", "pcie", "gpu1"]],
    "H2D and D2H": [["memory", "pcie", "gpu0"], ["gpu1", "pcie", "memory"]],
    "D2D and H2D": [["gpu0", "pcie", "gpu1"], ["memory", "pcie", "gpu1"]],
}
for name, routes in copies.items():
    flows = [{"size": "1GiB", "route": route} for route in routes]
    results = simulate_flows(parse_flows({"links": links, "flows": flows}))
    print(f"{name:12}", ", ".join(format_bandwidth(result.mean_rate_bytes_per_s) for result in results))

# %% [markdown]
# Two copies into both GPUs share the one cable to memory; a copy in and a copy out do not, since the cable is full
# duplex. So a server that swaps KV blocks out while others come in pays for the slower of the two, not for their sum.
# On a machine with a GPU the next cell measures the three transfers, from pinned and from pageable host memory.

# %%
import torch

if torch.cuda.is_available():
    from llmsim_kernels.local_rates import transfer_rates

    for kind, rates in transfer_rates([2**16, 2**20, 2**26]).items():
        print(f"{kind:13}", ", ".join(f"{format_size(r.size)}: {format_bandwidth(r.rate_per_s)}" for r in rates))
else:
    print("no GPU here, and no measurement of one is committed yet")

# %% [markdown]
# ## 6. Measure
#
# The same program object on real processes. Where this machine permits it, `netlab` builds the two racks from network
# namespaces and shaped links, and the eight processes send real packets. The prediction stands before the run.

# %%
from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.netlab import netlab, netlab_unavailable

reason = netlab_unavailable()
predicted = None
if reason is None:
    with netlab("two-racks", hosts=8, bandwidth="200Mb/s", uplink="200Mb/s") as lab:
        predicted = simulate(four_messages, lab.cluster, Costs(protocol_efficiency=lab.protocol_efficiency))
        with WorkerPool(8, hosts=lab.hosts) as pool:
            measured = execute(four_messages, pool=pool, warmup=1).timelines[0]
else:
    print(f"no network lab here ({reason}); running on loopback, where links are not shaped")
    measured = execute(four_messages).timelines[0]

# %% [markdown]
# ## 7. Report

# %%
for i in [i for i, span in enumerate(measured) if span.name == "recv"]:
    m = measured.span(i)
    line = f"arrived at rank {m.rank} ({m.stream}): measured {format_duration(m.end_s):>9}"
    if predicted is not None:
        p = predicted.span(i)
        line += f", predicted {format_duration(p.end_s):>9}, error {p.end_s / m.end_s - 1:+.1%}"
    print(line)
compare_gantt(predicted, measured) if predicted is not None else gantt(measured)

# %% [markdown]
# TCP is not exactly max-min fair: its flows probe for bandwidth, so single messages scatter while their sum fills the
# uplink. And a real *send* is complete when its bytes have been handed to the kernel, before the last one has left.
#
# ## 8. Break it
#
# One knob makes the closed form false: *oversubscription*. Four hosts a rack, each sending to the other rack; α–β
# predicts the same time whatever the uplink.

# %%
across = Builder("four across", 8)
data = across.buffer("data", elements)
across.message(np.arange(4), np.arange(4, 8), Region(data, 0, elements))
across_program = across.build()
ratios = np.array([0.5, 1, 2, 4, 8, 16])
times = [
    simulate(across_program, build_topology("two-racks", 8, bandwidth, latency, oversubscription=r)).makespan_s
    for r in ratios
]
alone = closed_form_s(
    "point-to-point", "direct", 2, 4 * elements, latency_s=3 * latency, bandwidth_bytes_per_s=bandwidth
)
curves(
    ratios,
    {"simulated": times},
    bounds={"α + S/B": np.full(len(ratios), alone)},
    x_label="oversubscription of the uplink",
    title="Free of contention up to 1:1, proportional beyond",
)

# %% [markdown]
# ## 9. Exercises
#
# 1. *Easy.* From which message size on does `roce-400g` beat `pcie-3` in part 3? Find it from α and B, then with
#    `closed_form_s`. And from which on does it beat `nvlink-4`?
# 2. *Medium.* Give the relay of part 4 the right dependency. The latency of a link is paid twice, however many chunks
#    follow each other; but let each message also keep its sender busy for o = 1 ms, `Costs(send_overhead_s=1e-3)`. On a
#    line of three without latency the time is then (chunks + 1)·(o + S/(chunks·B)). Find the best number of chunks for
#    4 MiB at 25 MB/s, by formula and by `simulate`.
# 3. *Open.* Invent flows on the two racks that finish later under fair sharing than if they took turns, and say why.
#    Is there a set of flows for which taking turns makes the *last* one finish earlier?
#
# ## 10. Where next
#
# Hockney (1994) is the source of α–β, Bertsekas & Gallager's *Data Networks* of max-min fairness. Read
# `llmsim/engine/network.py`, the sharing of links in one page, and NCCL's `src/graph/tuning.cc`, which chooses
# algorithms by an α and a B for each kind of link. Try `llmsim topology two-racks --ranks 8` and
# `llmsim explain D2H`. Lesson 02 sends gradients over these links.
