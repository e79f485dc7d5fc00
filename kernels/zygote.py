"""A process that has imported torch once and forks workers from then on, which makes starting them fast.

It runs no threads, opens no sockets of torch and touches no device, so a fork of it is safe. One serves a whole Python
process and is started at the first need; it ends with that process, however that ends, or after a while without work.

Per group of workers there is one connection, which carries their process ids and how each ended. When the other end is
closed, by intent or by death, the workers are killed. Should this process itself be killed, the kernel kills them.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from llmsim_kernels.channel import Channel

IDLE_S = 60.0  # after this long without workers the process ends; the next start costs an import of torch again
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from llmsim_kernels.zygote import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)
_PRELOADED = (
    "numpy.random",
    "torch",
    "torch.distributed",
    "llmsim_kernels.clock",
    "llmsim_kernels.execute",
    "llmsim_kernels.rank_run",
    "llmsim_kernels.worker",
)
# One thread each, so that N workers on few cores do not fight; and a fork must find no threads.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


# the side of the user's process --------------------------------------------------------------------------------------


class _Handle:
    """The running process and the socket on which groups are asked for."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in the terminal is for the user's process; it ends the workers
                env=os.environ | _ONE_THREAD,
            )

    def usable(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def end(self) -> None:
        self.control.close()
        if self.owner == os.getpid():
            self.process.wait()


_current: _Handle | None = None
_lock = threading.Lock()


def spawn(channels: list[Channel], store: int, config: dict[str, Any]) -> Channel:
    """Fork one worker for each of ``channels`` (their far ends) and return the connection that reports on them.

    All inherit the descriptor ``store``. The connection's first message is the list of process ids; then follows
    ``(rank, wait status)`` for each worker that ends.
    """
    global _current
    ours, theirs = Channel.pair()
    try:
        with _lock:
            for attempt in (1, 2):
                if _current is None or not _current.usable():
                    _current = _Handle()
                    atexit.register(_current.end)
                try:
                    descriptors = [theirs.fileno(), store, *(channel.fileno() for channel in channels)]
                    socket.send_fds(_current.control, [b"+"], descriptors)
                    break
                except OSError:  # it ended for lack of work just now
                    if attempt == 2:
                        raise
                    _current.end()
                    _current = None
        ours.send(config)
    finally:
        theirs.close()
    return ours


def shutdown() -> None:
    """End the process now rather than with the user's process; it comes back when it is needed."""
    global _current
    with _lock:
        if _current is not None:
            atexit.unregister(_current.end)
            _current.end()
            _current = None


# the side of the zygote ----------------------------------------------------------------------------------------------


class _Group:
    def __init__(self, report: Channel, store: int, ends: list[socket.socket]):
        self.report, self.store, self.ends = report, store, ends
        self.alive: dict[int, int] = {}  # pid → rank

    def kill(self) -> None:
        for pid in self.alive:
            os.kill(pid, signal.SIGKILL)


def serve(control_fd: int, parent: int) -> None:
    """The main loop; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent_fd = os.pidfd_open(parent)
    if os.getppid() != parent:
        os._exit(0)
    for name in _PRELOADED:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # so that the collector in a worker does not write to, and thereby copy, the pages it shares
    control = socket.socket(fileno=control_fd)
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ, ("control", None))
    selector.register(parent_fd, selectors.EVENT_READ, ("parent", None))
    groups: set[_Group] = set()
    idle_since = time.monotonic()
    while groups or time.monotonic() - idle_since < IDLE_S:
        for key, _ in selector.select(IDLE_S if not groups else None):
            what, subject = key.data
            if what == "parent":
                os._exit(0)  # the kernel kills the workers
            elif what == "control":
                # More descriptors than any pool has workers would need; a short message carries them all.
                message, descriptors, _, _ = socket.recv_fds(control, 1, 250)
                if not message:
                    os._exit(0)
                report, store, *ends = descriptors
                sockets = [socket.socket(fileno=fd) for fd in ends]
                group = _Group(Channel(socket.socket(fileno=report)), store, sockets)
                _start(group, selector)
                groups.add(group)
            elif what == "report":  # nothing is ever sent here after the start, so this is its end
                selector.unregister(subject.report.fileno())
                subject.kill()
            elif what == "worker":
                group, pid, pidfd = subject
                selector.unregister(pidfd)
                os.close(pidfd)
                _, status = os.waitpid(pid, 0)
                rank = group.alive.pop(pid)
                with contextlib.suppress(OSError):  # where nobody wants to know any more
                    group.report.send((rank, status))
                if not group.alive:
                    with contextlib.suppress(KeyError):
                        selector.unregister(group.report.fileno())
                    group.report.close()
                    groups.discard(group)
                    idle_since = time.monotonic()
    os._exit(0)


def _start(group: _Group, selector: selectors.BaseSelector) -> None:
    try:
        config = group.report.recv()
    except EOFError:
        for end in group.ends:
            end.close()
        os.close(group.store)
        return
    me = os.getpid()
    for rank, end in enumerate(group.ends):
        pid = os.fork()
        if pid == 0:
            try:
                _close_all_but(end.fileno(), group.store)
                from llmsim_kernels.worker import work

                work(rank, Channel(end), group.store, config, me)
            finally:
                os._exit(70)
        group.alive[pid] = rank
    os.close(group.store)
    for end in group.ends:
        end.close()
    group.report.send(list(group.alive))
    selector.register(group.report.fileno(), selectors.EVENT_READ, ("report", group))
    for pid in group.alive:
        pidfd = os.pidfd_open(pid)
        selector.register(pidfd, selectors.EVENT_READ, ("worker", (group, pid, pidfd)))


def _close_all_but(*kept: int) -> None:
    """Drop the descriptors of others: an end is seen as closed only when nobody has it open."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):  # one is closed already, the one that listed them
                os.close(fd)


def wait_readable(channels: list[Channel], timeout_s: float) -> list[Channel]:
    """Those of ``channels`` that have something to read, or are closed, within ``timeout_s``."""
    poll = select.poll()
    by_fd = {channel.fileno(): channel for channel in channels}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(max(0, timeout_s) * 1000)]
