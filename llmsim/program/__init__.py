"""Programs: their representation, how they are built, checked and proved, and the algorithms of the field."""

from llmsim.program.builder import Builder
from llmsim.program.checks import check
from llmsim.program.collectives import ALGORITHMS, collective
from llmsim.program.data_parallel import Layer, data_parallel_step
from llmsim.program.lowering import lower
from llmsim.program.parameter_server import parameter_server, staleness
from llmsim.program.program import (
    COLLECTIVES,
    Buffer,
    Contract,
    Kernel,
    Kind,
    Op,
    Program,
    Region,
    segments,
)
from llmsim.program.proof import check_collective, verify

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "Buffer",
    "Builder",
    "Contract",
    "Kernel",
    "Kind",
    "Layer",
    "Op",
    "Program",
    "Region",
    "check",
    "check_collective",
    "collective",
    "data_parallel_step",
    "lower",
    "parameter_server",
    "segments",
    "staleness",
    "verify",
]
