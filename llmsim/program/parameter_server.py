"""Parameter servers: workers push gradients to servers, which update the weights, and pull these back.

Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014 (keys sharded over servers,
synchronous or bounded or asynchronous); Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012 (asynchronous).
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import InputError, ProgramError
from llmsim.program.builder import Builder, Ids
from llmsim.program.program import Contract, Kernel, Kind, Program, Region, segments
from llmsim.timeline import Timeline

GRADIENT = Kernel("gradient")
UPDATE = Kernel("update")


def parameter_server(
    workers: int,
    count: int,
    *,
    servers: int = 1,
    mode: Literal["sync", "async"] = "sync",
    steps: int = 1,
    gradient_kernel: Kernel | Sequence[Kernel] = GRADIENT,
    update_kernel: Kernel = UPDATE,
    dtype: str = "float32",
) -> Program:
    """Training steps of ranks 0 … ``workers`` − 1 with the ranks after them as servers.

    Server s holds segment s of ``weights``. In a step each worker computes ``gradients`` from ``weights``, pushes each
    segment to its server, and pulls the new weights. In mode ``"sync"`` a server updates once with the sum of all
    gradients. In mode ``"async"`` it serves each worker in a stream of its own: it updates with the gradients of that
    one (in its part of ``inbox``) and sends back what the weights then are, whatever the others do meanwhile. Then
    ``weights`` is relaxed: its races are the method.

    Args:
        count: elements of the weights.
        gradient_kernel: for all workers, or one for each (some may be slower).
        update_kernel: writes a segment of ``weights``, reads the gradients.

    Raises:
        ProgramError: no workers, servers or steps, an unknown mode, or not one gradient kernel for each worker.
    """
    for name, value in (("workers", workers), ("servers", servers), ("steps", steps)):
        if value < 1:
            raise ProgramError(f"{name} is {value}", where="parameter server", mend="give at least 1")
    if mode not in ("sync", "async"):
        raise ProgramError(f"{mode!r} is not a mode", where="parameter server", mend="use 'sync' or 'async'")
    kernels = [gradient_kernel] * workers if isinstance(gradient_kernel, Kernel) else list(gradient_kernel)
    if len(kernels) != workers:
        raise ProgramError(
            f"there are {len(kernels)} gradient kernels for {workers} workers",
            where="parameter server",
            mend="give one for all, or one for each",
        )
    if mode == "sync":
        return _sync(workers, count, servers, steps, kernels, update_kernel, dtype)
    return _async(workers, count, servers, steps, kernels, update_kernel, dtype)


def _sync(
    workers: int, count: int, servers: int, steps: int, kernels: list[Kernel], update: Kernel, dtype: str
) -> Program:
    builder = Builder("parameter server sync", workers + servers)
    weights, gradients = builder.buffer("weights", count, dtype), builder.buffer("gradients", count, dtype)
    worker, server = np.arange(workers), workers + np.arange(servers)
    offset, size = segments(count, servers)
    pulled: list[Ids] = []
    for step in range(steps):
        with builder.phase(f"step {step}"):
            computed = _compute(builder, kernels, weights, gradients, count, pulled)
            pulled = []
            for s in range(servers):
                part = {name: Region(b, offset[s], size[s]) for name, b in (("w", weights), ("g", gradients))}
                # The first gradient overwrites the sum of the step before.
                _, pushed = builder.message(
                    worker, server[s], part["g"], reduce=worker > 0, streams=(f"push.{s}", "reduce"), after=computed
                )
                updated = builder.compute(server[s], update, writes=part["w"], reads=part["g"], after=pushed[-1])
                for w in range(workers):
                    builder.send(server[s], w, part["w"], stream=f"reply.{w}", after=updated)
                pulled.append(builder.recv(worker, server[s], part["w"], stream=f"pull.{s}", after=computed))
    for s in range(servers):
        root, where = int(server[s]), (int(offset[s]), int(size[s]))
        builder.contract(Contract("reduce", tuple(range(workers)), gradients, *where, root=root))
        builder.contract(Contract("broadcast", (*range(workers), root), weights, *where, root=root))
    return builder.build()


def _async(
    workers: int, count: int, servers: int, steps: int, kernels: list[Kernel], update: Kernel, dtype: str
) -> Program:
    builder = Builder("parameter server async", workers + servers)
    weights = builder.buffer("weights", count, dtype, relaxed=True)
    gradients = builder.buffer("gradients", count, dtype)
    inbox = builder.buffer("inbox", workers * count, dtype)
    worker, server = np.arange(workers), workers + np.arange(servers)
    offset, size = segments(count, servers)
    pulled: list[Ids] = []
    for step in range(steps):
        with builder.phase(f"step {step}"):
            computed = _compute(builder, kernels, weights, gradients, count, pulled)
            for s in range(servers):
                part = Region(gradients, offset[s], size[s])
                builder.send(worker, server[s], part, stream=f"push.{s}", after=computed)
            for w in range(workers):
                stream = f"worker.{w}"
                part, slot = Region(weights, offset, size), Region(inbox, w * count + offset, size)
                builder.recv(server, w, slot, stream=stream)
                builder.compute(server, update, writes=part, reads=slot, stream=stream)
                builder.send(server, w, part, stream=stream)
            pulled = [
                builder.recv(worker, server[s], Region(weights, offset[s], size[s]), stream=f"pull.{s}", after=computed)
                for s in range(servers)
            ]
    return builder.build()


def _compute(
    builder: Builder, kernels: list[Kernel], weights: int, gradients: int, count: int, pulled: list[Ids]
) -> Ids:
    """Gradients of all workers, from the weights that they have pulled."""
    writes, reads = Region(gradients, 0, count), Region(weights, 0, count)
    if len(set(kernels)) == 1:
        return builder.compute(np.arange(len(kernels)), kernels[0], writes=writes, reads=reads, after=pulled)
    ops = [
        builder.compute(w, kernel, writes=writes, reads=reads, after=[ids[w] for ids in pulled])
        for w, kernel in enumerate(kernels)
    ]
    return np.array(ops)


def staleness(program: Program, timeline: Timeline) -> NDArray[np.int64]:
    """How many updates by other workers were applied between a worker's reading of the weights and its own update.

    Shape (servers, workers, steps). The weights are read when the server begins to send them; an update is applied
    when its kernel ends. The first step computes from the initial weights, before any update.

    Raises:
        InputError: the program is not an asynchronous parameter server, or the timeline is that of another program.
    """
    streams = [i for i, name in enumerate(program.streams) if name.startswith("worker.")]
    if not streams:
        raise InputError("there are no streams worker.0, worker.1, …", where=program.name, mend="use mode='async'")
    if len(timeline) != len(program):
        raise InputError(
            f"the timeline has {len(timeline)} spans but the program {len(program)} operations", where=program.name
        )
    servers = sorted(set(program.rank[program.stream == streams[0]].tolist()))
    return np.array([_staleness_at(program, timeline, server, streams) for server in servers])


def _staleness_at(program: Program, timeline: Timeline, server: int, streams: Iterable[int]) -> NDArray[np.int64]:
    updates, replies = [], []
    for stream in streams:
        ops = np.array(program.queue_ops(server, stream))
        updates.append(timeline.end_s[ops[program.kind[ops] == Kind.COMPUTE]])
        replies.append(timeline.start_s[ops[program.kind[ops] == Kind.SEND]])
    applied = np.array(updates)  # (workers, steps)
    read = np.concatenate([np.full((len(applied), 1), -np.inf), np.array(replies)[:, :-1]], axis=1)
    # An update counts where it ends after the reading and before the own one, which is not counted itself.
    of_all = np.sort(applied.ravel())
    up_to_own = np.searchsorted(of_all, applied, side="right")
    up_to_read = np.searchsorted(of_all, read, side="right")
    return up_to_own - up_to_read - 1
