"""Pools of worker processes are expensive to make: tests that do not break theirs share one for each world size."""

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from llmsim_kernels import zygote
from llmsim_kernels.launch import WorkerPool


@pytest.fixture(scope="session")
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


def children_of(pid: int) -> list[int]:
    """All processes below ``pid``."""
    below = [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]  # fmt: skip
    return below + [deeper for child in below if Path(f"/proc/{child}").exists() for deeper in children_of(child)]


def command(pid: int) -> str:
    """The command line of a process, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
