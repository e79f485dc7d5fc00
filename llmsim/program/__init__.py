"""Programs: their representation, how they are built, checked and proved, and the algorithms of the field."""

from llmsim.program.builder import Builder
from llmsim.program.checks import check
from llmsim.program.collectives import ALGORITHMS, collective
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
from llmsim.program.verify import check_collective, verify

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "Buffer",
    "Builder",
    "Contract",
    "Kernel",
    "Kind",
    "Op",
    "Program",
    "Region",
    "check",
    "check_collective",
    "collective",
    "segments",
    "verify",
]
