"""Bind a program to a cluster: names become numbers, and what is left is all that an engine needs.

Every operation becomes an *activity* on a *path*: it waits ``delay_s`` of its path, then moves ``work`` at a rate
shared max-min fairly with all other activities that cross the same resources, and never faster than its path's
``max_rate``; then it is complete. A SEND's message has arrived ``latency_s`` after that. Links are resources, with work
in bytes. The cores of a host are a resource too: a byte sent takes ``demand`` core-seconds of it, so four busy ranks
on two cores slow each other down by the same mechanism by which two messages share a link.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmsim.cluster.cluster import Cluster
from llmsim.cost.costs import Costs
from llmsim.program.program import Program

SendMode = Literal["eager", "rendezvous"]


@dataclass(frozen=True, eq=False)
class Paths:
    """A table of distinct paths; path p crosses ``resource[start[p]:start[p + 1]]``, taking ``demand`` of each per unit
    of work."""

    delay_s: NDArray[np.float64]  # (paths,) before work starts
    latency_s: NDArray[np.float64]  # (paths,) after work ends, until a message has arrived
    max_rate: NDArray[np.float64]  # (paths,) work per second, inf where only resources limit
    start: NDArray[np.int64]  # (paths + 1,)
    resource: NDArray[np.int32]
    demand: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.delay_s)


@dataclass(frozen=True, eq=False)
class BoundProgram:
    """A program with a path and an amount of work for each operation; what both engines execute."""

    program: Program
    send_mode: SendMode
    capacity: NDArray[np.float64]  # (resources,) per second
    resource_names: tuple[str, ...]
    paths: Paths
    path: NDArray[np.int32]  # (operations,)
    work: NDArray[np.float64]  # (operations,)


def bind(
    program: Program,
    cluster: Cluster,
    costs: Costs | None = None,
    *,
    placement: "tuple[int, ...] | None" = None,
    send_mode: SendMode = "eager",
) -> BoundProgram:
    """Place rank r on ``cluster.devices[placement[r]]`` (rank order by default) and price every operation."""
    raise NotImplementedError
