"""Collective communication as programs: one file for each family of algorithms."""

from llmsim.program.collectives.factory import ALGORITHMS, algorithm_of, collective, options_of

__all__ = ["ALGORITHMS", "algorithm_of", "collective", "options_of"]
