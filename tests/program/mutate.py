"""Break programs in small ways."""

from dataclasses import replace

import numpy as np

from llmsim.program import Program

COLUMNS = ("kind", "peer", "tag", "call", "phase", "buffer", "offset", "count", "source_buffer", "source_offset")


def without(program: Program, ops) -> Program:
    """The program without some operations; what depended on them waits for nothing instead."""
    keep = ~np.isin(np.arange(len(program)), ops)
    new = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
    edges = program.dependency[keep[program.dependency].all(axis=1)]
    match = program.match[keep]
    start = np.concatenate([[0], np.cumsum(keep)])[program.queue_start]
    return replace(
        program,
        queue_start=start,
        match=np.where(match >= 0, new[match], -1).astype(np.int32),
        dependency=new[edges],
        **{name: getattr(program, name)[keep] for name in COLUMNS},
    )


def changed(program: Program, column: str, op: int, value: int) -> Program:
    """The program with one entry of a column replaced."""
    copy = getattr(program, column).copy()
    copy[op] = value
    return replace(program, **{column: copy})


def without_dependency(program: Program, edge: int) -> Program:
    return replace(program, dependency=np.delete(program.dependency, edge, axis=0))
