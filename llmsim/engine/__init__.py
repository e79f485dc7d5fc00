"""Programs in simulated time: :func:`simulate` binds a program to a cluster and runs it on one of two engines."""

from llmsim.engine.bound import BoundProgram, Paths, SendMode, bind
from llmsim.engine.run import Engine, run, simulate

__all__ = ["BoundProgram", "Engine", "Paths", "SendMode", "bind", "run", "simulate"]
