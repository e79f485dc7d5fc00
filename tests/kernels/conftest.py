"""Pools of worker processes are expensive to make: the tests of a module that do not break theirs share one for each
world size. Not those of several modules, as some kill the process that all pools of this one are forked from."""

import os

import pytest
from processes import children_of, command

pytest.importorskip("torch")

from llmsim_kernels import zygote
from llmsim_kernels.launch import WorkerPool


@pytest.fixture(scope="module")
def pools():
    """World size → a pool of it."""
    made: dict[int, WorkerPool] = {}

    def pool(world_size: int) -> WorkerPool:
        if world_size not in made:
            made[world_size] = WorkerPool(world_size, timeout_s=20)
        return made[world_size]

    yield pool
    for one in made.values():
        one.close()
    zygote.shutdown()
    assert [p for p in children_of(os.getpid()) if "llmsim_kernels" in command(p)] == []
