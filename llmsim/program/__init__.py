"""Programs: their representation, how they are built, checked and proved, and the algorithms of the field."""

from llmsim.program.builder import Builder
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
    "collective",
    "segments",
]
