"""The Linux calls that Python 3.11 has no name for."""

import contextlib
import ctypes
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent(signal: int) -> None:
    """Have the kernel send ``signal`` to this process when the thread that forked it ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl")


def precise_sleep() -> None:
    """Let sleeps of this thread end on time; by default the kernel may stretch each by 50 µs."""
    _checked(_libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0), "prctl")


def never_preempt(thread_name: str) -> None:
    """Have the threads of this process with this name wait for a core until what runs there makes room
    (``SCHED_BATCH``); no effect on those of another than the default policy."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended, or the kernel will not have it
            thread = int(task.name)
            if (task / "comm").read_text().strip() == thread_name and os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def enter_namespace(path: str, kind: int) -> None:
    """Move this thread (for a user namespace: this process) into the namespace behind ``path``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.setns(descriptor, kind), f"setns {path}")
    finally:
        os.close(descriptor)


def leave_namespaces(kinds: int) -> None:
    """Move this process into new namespaces of these kinds."""
    _checked(_libc.unshare(kinds), "unshare")
