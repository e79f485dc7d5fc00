"""Programs in simulated time: :func:`simulate` binds a program to a cluster and runs it on one of two engines."""

from llmsim.engine.bound import BoundProgram, bind
from llmsim.engine.flows import FlowResult, FlowSet, FlowSpec, load_flows, simulate_flows
from llmsim.engine.paths import Paths
from llmsim.engine.run import Engine, run, simulate
from llmsim.program.graph import SendMode

__all__ = [
    "BoundProgram",
    "Engine",
    "FlowResult",
    "FlowSet",
    "FlowSpec",
    "Paths",
    "SendMode",
    "bind",
    "load_flows",
    "run",
    "simulate",
    "simulate_flows",
]
