"""Predict how LLM training and serving systems behave, run the same algorithms for real, and put the two side by side.

A distributed algorithm is written once, as a program. ``emulate`` proves what it computes, ``simulate`` predicts its
time on a cluster, and ``llmsim_kernels.execute`` runs it::

    import llmsim

    program = llmsim.collective("all-reduce", "ring", world_size=4, count=1 << 20)
    cluster = llmsim.build_topology("ring", 4, bandwidth_bytes_per_s=50e9, latency_s=5e-6)
    timeline = llmsim.simulate(program, cluster)
    timeline.makespan_s

The names below are imported when they are first used, so that ``import llmsim`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmsim.catalog import device, link
    from llmsim.catalog.glossary import explain
    from llmsim.cluster import Cluster, build_topology, import_topo, load_cluster, place, save_cluster
    from llmsim.cost import Costs, closed_form_s, program_lower_bound_s
    from llmsim.engine import simulate
    from llmsim.engine.emulate import emulate
    from llmsim.errors import ExecutionError, InputError, LlmsimError, ProgramError
    from llmsim.program import (
        Builder,
        Contract,
        Kernel,
        Kind,
        Program,
        Region,
        check,
        check_collective,
        collective,
        data_parallel_step,
        lower,
        parameter_server,
        staleness,
        verify,
    )
    from llmsim.timeline import Span, Timeline, compare

_HOME = {
    "Builder": "llmsim.program",
    "Cluster": "llmsim.cluster",
    "Contract": "llmsim.program",
    "Costs": "llmsim.cost",
    "ExecutionError": "llmsim.errors",
    "InputError": "llmsim.errors",
    "Kernel": "llmsim.program",
    "Kind": "llmsim.program",
    "LlmsimError": "llmsim.errors",
    "Program": "llmsim.program",
    "ProgramError": "llmsim.errors",
    "Region": "llmsim.program",
    "Span": "llmsim.timeline",
    "Timeline": "llmsim.timeline",
    "build_topology": "llmsim.cluster",
    "check": "llmsim.program",
    "check_collective": "llmsim.program",
    "closed_form_s": "llmsim.cost",
    "collective": "llmsim.program",
    "compare": "llmsim.timeline",
    "data_parallel_step": "llmsim.program",
    "device": "llmsim.catalog",
    "emulate": "llmsim.engine.emulate",
    "explain": "llmsim.catalog.glossary",
    "import_topo": "llmsim.cluster",
    "link": "llmsim.catalog",
    "load_cluster": "llmsim.cluster",
    "lower": "llmsim.program",
    "parameter_server": "llmsim.program",
    "place": "llmsim.cluster",
    "program_lower_bound_s": "llmsim.cost",
    "save_cluster": "llmsim.cluster",
    "simulate": "llmsim.engine",
    "staleness": "llmsim.program",
    "verify": "llmsim.program",
}

__all__ = [
    "Builder",
    "Cluster",
    "Contract",
    "Costs",
    "ExecutionError",
    "InputError",
    "Kernel",
    "Kind",
    "LlmsimError",
    "Program",
    "ProgramError",
    "Region",
    "Span",
    "Timeline",
    "build_topology",
    "check",
    "check_collective",
    "closed_form_s",
    "collective",
    "compare",
    "data_parallel_step",
    "device",
    "emulate",
    "explain",
    "import_topo",
    "link",
    "load_cluster",
    "lower",
    "parameter_server",
    "place",
    "program_lower_bound_s",
    "save_cluster",
    "simulate",
    "staleness",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import an exported name on its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'llmsim' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
