"""What a compiled run reads and writes, in one tuple of arrays."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.engine.bound import BoundProgram
from llmsim.engine.jit import column


class Run(NamedTuple):
    """The program, what became of it so far, and where each queue stands.

    A queue that cannot go on joins the list of those that wait for the same thing. A queue waits for one thing at a
    time, so one link a queue (``next_waiting``) serves all lists; -1 ends a list.
    """

    queue_start: NDArray[np.int64]  # (queues + 1,)
    kind: NDArray[np.uint8]  # by operation
    match: NDArray[np.int32]
    call: NDArray[np.int32]  # of operation i at i * call_step
    call_step: int
    dependency: NDArray[np.int32]  # (m, 2): earlier and later operation, sorted by the later one
    path: NDArray[np.int32]
    work: NDArray[np.float64]
    delay_s: NDArray[np.float64]  # by path
    latency_s: NDArray[np.float64]
    rate_alone: NDArray[np.float64]
    rendezvous: bool
    start_s: NDArray[np.float64]  # by operation, negative until it has been reached
    end_s: NDArray[np.float64]  # by operation, negative until it is complete
    head: NDArray[np.int64]  # by queue: its next operation
    pending: NDArray[np.int64]  # by queue: the next dependency to look at
    missing: NDArray[np.int64]  # by collective: members that have not reached it
    waits_for_members: NDArray[np.int32]  # by collective: head of the list of queues that wait for the others
    next_waiting: NDArray[np.int32]  # by queue
    ready: NDArray[np.int32]  # a stack of queues to look at: at first all, the first one on top


def new_run(bound: BoundProgram, rate_alone: NDArray[np.float64]) -> Run:
    """A run that has not begun."""
    program, paths = bound.program, bound.paths
    queues, collectives = len(program.queue_start) - 1, program.collectives
    dependency = program.dependency
    if np.any(dependency[1:, 1] < dependency[:-1, 1]):
        dependency = dependency[np.argsort(dependency[:, 1], kind="stable")]
    call, call_step = column(program.call)
    return Run(
        queue_start=program.queue_start,
        kind=np.ascontiguousarray(program.kind),
        match=program.match,
        call=call,
        call_step=call_step,
        dependency=np.ascontiguousarray(dependency),
        path=bound.path,
        work=bound.work,
        delay_s=paths.delay_s,
        latency_s=paths.latency_s,
        rate_alone=rate_alone,
        rendezvous=bound.send_mode == "rendezvous",
        start_s=np.full(len(program), -1.0),
        end_s=np.full(len(program), -1.0),
        head=program.queue_start[:-1].copy(),
        pending=np.searchsorted(dependency[:, 1], program.queue_start[:-1]),
        missing=np.array([len(contract.ranks) for contract in collectives], dtype=np.int64),
        waits_for_members=np.full(len(collectives), -1, dtype=np.int32),
        next_waiting=np.full(queues, -1, dtype=np.int32),
        ready=np.arange(queues, dtype=np.int32)[::-1].copy(),
    )
