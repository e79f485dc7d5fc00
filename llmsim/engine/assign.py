"""One pass over all operations that gives each its path and its work."""

import numpy as np
from numpy.typing import NDArray

from llmsim.engine.jit import column, jit
from llmsim.engine.paths import LocalPaths
from llmsim.program.program import Kind, Program

_COMPUTE, _SEND, _COLLECTIVE = int(Kind.COMPUTE), int(Kind.SEND), int(Kind.COLLECTIVE)


def assign_paths(
    program: Program, machine: NDArray[np.int32], local: LocalPaths
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]]:
    """Path and work of each operation, and the distinct (source, destination) of messages, shape (pairs, 2).

    ``machine`` is that of each rank. Pair i of the result has path ``len(local.paths) + i``.
    """
    itemsize = np.array([b.itemsize for b in program.buffers] + [0], dtype=np.int64)  # [-1]: no region
    path = np.empty(len(program), dtype=np.int32)
    work = np.empty(len(program), dtype=np.float64)
    world = program.world_size
    pairs = np.empty((min(len(program), world * (world - 1)), 2), dtype=np.int32)  # more than will be touched
    count = _assign(
        world,
        len(program.streams),
        program.queue_start,
        program.kind,
        *column(program.peer),
        *column(program.call),
        *column(program.buffer),
        *column(program.count),
        itemsize,
        len(local.paths),
        machine,
        local.by_kind,
        local.work_per_byte,
        local.fixed_work,
        local.by_kernel,
        local.kernel_work,
        local.by_collective,
        pair_of_peer=np.empty(world, dtype=np.int32),
        seen_by=np.full(world, -1, dtype=np.int32),
        path=path,
        work=work,
        pairs=pairs,
    )
    return path, work, pairs[:count].copy()


@jit
def _assign(
    world_size,
    streams,
    queue_start,
    kind,
    peer,
    peer_step,
    call,
    call_step,
    buffer,
    buffer_step,
    count,
    count_step,
    itemsize,
    first_pair,
    machine,
    kind_path,
    kind_work,
    kind_fixed,
    kernel_path,
    kernel_work,
    collective_path,
    pair_of_peer,  # scratch, as the next
    seen_by,  # the rank for which `pair_of_peer` holds
    path,  # results
    work,
    pairs,
):
    """Fill the results and return the number of pairs."""
    used = 0
    for rank in range(world_size):
        at = machine[rank]
        for stream in range(streams):
            queue = stream * world_size + rank
            for i in range(queue_start[queue], queue_start[queue + 1]):
                k = kind[i]
                if k == _COMPUTE:
                    kernel = call[i * call_step]
                    path[i] = kernel_path[kernel, at]
                    work[i] = kernel_work[kernel] if at > 0 else 0.0
                elif k == _COLLECTIVE:
                    path[i] = collective_path[call[i * call_step]]
                    work[i] = 0.0
                else:
                    work[i] = kind_work[k] * (count[i * count_step] * itemsize[buffer[i * buffer_step]])
                    work[i] += kind_fixed[k, at]
                    if k == _SEND:
                        to = peer[i * peer_step]
                        if seen_by[to] != rank:
                            seen_by[to] = rank
                            pair_of_peer[to] = used
                            pairs[used, 0] = rank
                            pairs[used, 1] = to
                            used += 1
                        path[i] = first_pair + pair_of_peer[to]
                    else:
                        path[i] = kind_path[k, at]
    return used
