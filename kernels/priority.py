"""Ranks that nothing else on the machine delays, so that a measurement is of them and not of what else is running.

Linux has a class of threads that run before all others (``SCHED_RR``). It takes a privilege, which root has. The kernel
keeps a twentieth of the time for everybody else, so the machine stays usable.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmsim_kernels.launch import WorkerPool

_LOWEST = 1  # of the real-time priorities: what the kernel itself needs goes before


def permitted() -> bool:
    """Whether this process may give threads real-time priority."""
    if not hasattr(os, "sched_setscheduler") or os.sched_getscheduler(0) not in (os.SCHED_OTHER, os.SCHED_BATCH):
        return False  # or it has one that is better left alone
    before = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_LOWEST))
    except OSError:
        return False
    os.sched_setscheduler(0, before, os.sched_param(0))
    return True


def take() -> None:
    """Give real-time priority to all threads of this process, and so to those that they will start."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(_LOWEST))


@contextlib.contextmanager
def pool(world_size: int, *, realtime: bool, **options: Any) -> Iterator[WorkerPool]:
    """A :class:`WorkerPool`, whose ranks have real-time priority where ``realtime``."""
    with WorkerPool(world_size, **options) as made:
        if realtime:
            made.run(take)
        yield made
