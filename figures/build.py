"""All figures: functions that return a picture with its data, and one command that draws them anew.

llmsim figures            # or: make figures
llmsim figures NAME …     # only these
"""

from collections.abc import Callable

import numpy as np

import llmsim
from llmsim import plots
from llmsim.cost import parameter_server_s
from llmsim.plots import Picture

B, ALPHA = 50e9, 500e-9  # of every link: 400 Gb/s and 500 ns


def all_reduce_against_size() -> Picture:
    """Which all-reduce is fastest at which size: few steps win where latency counts, few bytes where bandwidth does."""
    ranks, sizes = 64, 4 ** np.arange(5, 16)
    cluster = llmsim.build_topology("switch", ranks, B, ALPHA)
    options: dict[str, dict[str, int]] = {"ring": {}, "halving-doubling": {}, "tree": {}, "double-tree": {"chunks": 16}}
    times: dict[str, list[float]] = {algorithm: [] for algorithm in options}
    bounds = []
    for size in sizes.tolist():
        for algorithm, chosen in options.items():
            program = llmsim.collective("all-reduce", algorithm, ranks, size // 4, **chosen)
            times[algorithm].append(llmsim.simulate(program, cluster).makespan_s)
        bounds.append(llmsim.program_lower_bound_s(program, cluster))
    title = f"All-reduce on {ranks} ranks of one switch, 50 GB/s and 500 ns a link"
    bound = {"lower bound": bounds}
    return plots.curves(sizes, times, x_label="bytes on each rank", x_unit="bytes", bounds=bound, title=title)


def ranks_and_cost() -> Picture:
    """Does communication cost depend on the number of devices? By bytes no, by latency yes, at a server very much."""
    ranks = 2 ** np.arange(1, 10)
    link = {"latency_s": ALPHA, "bandwidth_bytes_per_s": B}

    def ring(size_bytes: float) -> list[float]:
        return [llmsim.closed_form_s("all-reduce", "ring", n, size_bytes, **link) for n in ranks.tolist()]

    series = {
        "ring all-reduce, 1 GiB": ring(2**30),
        "ring all-reduce, 1 MiB": ring(2**20),
        "ring all-reduce, 1 KiB": ring(2**10),
        "one parameter server, 1 MiB": [parameter_server_s(n, 1, 2**20, **link) for n in ranks.tolist()],
    }
    title = "The same gradients on more ranks, 50 GB/s and 500 ns a link"
    return plots.curves(ranks, series, x_label="ranks", title=title)


def oversubscription() -> Picture:
    """Thin uplinks hurt the collective in which everybody talks to everybody, and hardly the one of neighbours."""
    ranks, ratios, size = 64, [1, 2, 4, 8], 2**26
    names = {"all-to-all": "direct", "all-reduce": "ring"}
    times: dict[str, list[float]] = {f"{name} ({algorithm})": [] for name, algorithm in names.items()}
    for ratio in ratios:
        cluster = llmsim.build_topology("leaf-spine", ranks, B, ALPHA, oversubscription=ratio)
        for name, algorithm in names.items():
            program = llmsim.collective(name, algorithm, ranks, size // 4)
            times[f"{name} ({algorithm})"].append(llmsim.simulate(program, cluster).makespan_s)
    title = f"64 MiB on {ranks} ranks of a leaf-spine network, 8 on each leaf"
    return plots.curves(ratios, times, x_label="oversubscription of the uplinks", title=title)


def ring_timeline() -> Picture:
    """A ring all-reduce of four ranks, step by step."""
    program = llmsim.collective("all-reduce", "ring", 4, 2**20)
    cluster = llmsim.build_topology("ring", 4, B, 5e-6)
    return plots.gantt(llmsim.simulate(program, cluster), title="Ring all-reduce of 4 MiB: three sums, three copies")


def leaf_spine() -> Picture:
    """A network of two layers."""
    return plots.topology(llmsim.build_topology("leaf-spine", 32, B, ALPHA, oversubscription=4, leaves=4))


def dgx_h100() -> Picture:
    """Two nodes of a catalog cluster: NVSwitch inside, a rail for each GPU between."""
    from llmsim import catalog

    return plots.topology(catalog.cluster("dgx-h100", nodes=2))


FIGURES: dict[str, Callable[[], Picture]] = {
    function.__name__.replace("_", "-"): function
    for function in (all_reduce_against_size, ranks_and_cost, oversubscription, ring_timeline, leaf_spine, dgx_h100)
}
