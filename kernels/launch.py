"""Start processes that form a torch.distributed group, run functions on all of them, and end them whatever happens."""

import contextlib
import math
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from llmsim_kernels import zygote
from llmsim_kernels.channel import Channel, pack

from llmsim import errors
from llmsim.errors import ExecutionError, InputError, LlmsimError

GRACE_S = 1.0  # after a first failure, how long the other ranks have to say what they saw
_START_S = 60.0  # for the start: a first import of torch on a busy machine
_MESSAGE_S = 10.0  # for one message to pass once it has begun; large arrays go through shared memory
_KILL_S = 10.0  # for killed processes to be gone
_STOP_S = 2.0  # for an orderly end; killed after that
_MOST_WORKERS = 200  # their descriptors go in one message, which holds about 250


class WorkerPool:
    """``world_size`` processes that stay alive and share a torch.distributed process group; a context manager.

    >>> with WorkerPool(4) as pool:  # doctest: +SKIP
    ...     pool.run(os.getpid)
    [4711, 4712, 4713, 4714]

    Args:
        world_size: number of processes; process r has rank r.
        hosts: rank r runs on ``hosts[r]`` of a :class:`llmsim_kernels.netlab.NetLab`, in its network namespace.
        backend: ``"gloo"``, ``"nccl"``, or None for processes without a process group.
        device: ``"cpu"`` for gloo, ``"cuda"`` for NCCL, which gives rank r GPU r modulo their number.
        timeout_s: the longest that one rank waits for another in a communication.
        threads: torch's intra-op threads in each process.

    Processes have the environment and folder of the one that makes the pool, and random generators seeded with their
    rank.

    The processes are forked from one that has imported torch already (:mod:`llmsim_kernels.zygote`), in milliseconds
    after the first start. They end with the ``with`` block, and at once when the user's process ends, however it ends.
    A rank that dies or fails ends all ranks: within :data:`GRACE_S` and the second it takes to kill them an
    :class:`ExecutionError` names it. One that never answers does so ``timeout_s`` after another rank began to wait for
    it. A pool that has failed cannot be used again.

    Raises:
        InputError: an argument that cannot be used.
        ExecutionError: the processes could not be started or connected.
    """

    def __init__(
        self,
        world_size: int,
        *,
        hosts: "Sequence[Any] | None" = None,
        backend: str | None = "gloo",
        device: str = "cpu",
        timeout_s: float = 30.0,
        threads: int = 1,
    ):
        if not 1 <= world_size <= _MOST_WORKERS:
            raise InputError(f"world_size is {world_size}", mend=f"a pool has 1 to {_MOST_WORKERS} ranks")
        if hosts is not None and len(hosts) < world_size:
            raise InputError(f"{world_size} ranks but {len(hosts)} hosts", mend="give a host for each rank")
        if not (timeout_s > 0 and math.isfinite(timeout_s)):
            raise InputError(f"timeout_s is {timeout_s}", mend="give a number of seconds above 0")
        if backend not in ("gloo", "nccl", None):
            raise InputError(f"there is no backend {backend!r}", mend="use 'gloo', 'nccl' or None")
        if backend is not None and device != {"gloo": "cpu", "nccl": "cuda"}[backend]:
            raise InputError(f"{backend} on {device!r}", mend="use gloo on 'cpu' or nccl on 'cuda'")
        self.world_size, self.backend, self.device, self.timeout_s = world_size, backend, device, timeout_s
        self.pids: list[int] = []
        self._hosts, self._threads = hosts, threads
        self._exits: dict[int, int] = {}
        self._workers: list[Channel] = []
        self._report: Channel | None = None
        self._failed: str | None = None
        try:
            self._start()
        except BaseException:
            self.kill()
            raise

    # life --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        environment = {"GLOO_SOCKET_IFNAME": "lo"} | dict(os.environ)  # all ranks are on this machine
        config = {
            "world_size": self.world_size,
            "hosts": list(self._hosts) if self._hosts else None,
            "backend": self.backend,
            "threads": self._threads,
            "timeout_s": self.timeout_s,
            "env": environment,
            "path": list(sys.path),
            "folder": os.getcwd(),
        }
        pairs = [Channel.pair() for _ in range(self.world_size)]
        self._workers = [ours for ours, _ in pairs]
        for ours in self._workers:  # a process that is stopped in the middle of a message must not stop this one
            ours.socket.settimeout(_MESSAGE_S)
        store = os.memfd_create("llmsim-rendezvous", os.MFD_CLOEXEC)
        try:
            self._report = zygote.spawn([theirs for _, theirs in pairs], store, config)
        finally:
            os.close(store)
            for _, theirs in pairs:
                theirs.close()
        self._collect(_START_S + self.timeout_s, "start")
        if not self.pids:
            self._note_exit()  # the first report, on its way

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._failed is None:
            self.close()
        else:
            self.kill()

    def close(self) -> None:
        """Let the processes end in order, and kill those that take longer than two seconds."""
        if self._report is not None and self._failed is None:
            for worker in self._workers:
                with contextlib.suppress(OSError):
                    worker.send(None)
            self._await_exits(_STOP_S)
        self.kill()

    def kill(self) -> None:
        """End all processes now and wait until they are gone."""
        if self._report is not None:
            with contextlib.suppress(OSError):  # the other end sees this, kills, and still reports
                self._report.socket.shutdown(socket.SHUT_WR)
            self._await_exits(_KILL_S)
            self._report.close()
            self._report = None
        for worker in self._workers:
            worker.close()
        self._workers = []
        self._failed = self._failed or "it was closed"

    def _await_exits(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while len(self._exits) < self.world_size and self._report is not None:
            if not zygote.wait_readable([self._report], deadline - time.monotonic()):
                return
            if not self._note_exit():
                return

    def _note_exit(self) -> bool:
        """Read one message of the zygote; False when there will be no more."""
        assert self._report is not None
        try:
            message = self._report.recv()
        except (EOFError, OSError):
            return False
        if isinstance(message, list):
            self.pids = message
        else:
            rank, status = message
            self._exits[rank] = status
        return True

    # work --------------------------------------------------------------------------------------------------------

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        per_rank: "Iterable[tuple[Any, ...]] | None" = None,
        limit_s: float = 600.0,
        name: str | None = None,
    ) -> list[Any]:
        """``function(*args, *per_rank[r])`` on every rank r; the results by rank.

        Functions are found by name in the worker, so they must be importable there: a function of a module, not a
        lambda or one defined inside another function or in a notebook (those work where ``cloudpickle`` is installed).
        Arrays in arguments and results travel through shared memory.

        Args:
            per_rank: further arguments that differ between ranks.
            limit_s: all ranks are ended when they have not all returned after this long.
            name: what errors call this; by default the function's name.

        Raises:
            InputError: a function or an argument that cannot be sent.
            ExecutionError: a rank died, failed or did not answer; all ranks have been ended.
        """
        if self._failed is not None:
            raise ExecutionError(f"the pool cannot be used any more: {self._failed}", mend="make a new WorkerPool")
        own = [tuple(extra) for extra in per_rank] if per_rank is not None else [()] * self.world_size
        if len(own) != self.world_size:
            raise InputError(f"per_rank has {len(own)} entries for {self.world_size} ranks")
        portable = _portable(function)
        try:
            if per_rank is None:
                packed = [pack((portable, args, ()))] * self.world_size
            else:
                packed = [pack((portable, args, extra)) for extra in own]
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InputError(
                f"cannot send this to the workers: {error}", mend="use module-level functions and plain data"
            ) from error
        try:
            for worker, message in zip(self._workers, packed, strict=True):
                with contextlib.suppress(OSError):  # where it has died; what follows says how
                    worker.send_packed(message)
            return self._collect(limit_s, name or str(getattr(function, "__name__", function)))
        except BaseException as error:
            self._failed = str(error) or type(error).__name__
            self.kill()
            raise

    def _collect(self, limit_s: float, what: str) -> list[Any]:
        """One answer from every rank."""
        assert self._report is not None
        results: dict[int, Any] = {}
        failures: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + limit_s
        while len(results) + len(failures) < self.world_size:
            waiting = [w for r, w in enumerate(self._workers) if r not in results and r not in failures]
            ready = zygote.wait_readable([*waiting, self._report], deadline - time.monotonic())
            if not ready:
                break
            # The reports first: what follows may read on from there.
            for channel in sorted(ready, key=lambda channel: channel is not self._report):
                if channel is self._report:
                    if not self._note_exit():
                        raise ExecutionError("the process that starts the workers has died", where=what)
                    continue
                rank = self._workers.index(channel)
                try:
                    kind, value = channel.recv()
                except (EOFError, OSError):
                    self._await_exit_of(rank)
                    kind, value = "failed", {"line": self._how_it_ended(rank), "died": True}  # explains all others
                if kind == "failed":
                    failures[rank] = value
                    if value.get("died"):
                        raise _verdict(failures, [], what, limit_s)
                    grace_s = GRACE_S if value["missed"] is not None else GRACE_S / 5
                    deadline = min(deadline, time.monotonic() + grace_s)
                else:
                    results[rank] = value
        if failures or len(results) < self.world_size:
            silent = [r for r in range(self.world_size) if r not in results and r not in failures]
            raise _verdict(failures, silent, what, limit_s)
        return [results[rank] for rank in range(self.world_size)]

    def _await_exit_of(self, rank: int) -> None:
        deadline = time.monotonic() + GRACE_S
        while rank not in self._exits and self._report is not None:
            if not zygote.wait_readable([self._report], deadline - time.monotonic()) or not self._note_exit():
                return

    def _how_it_ended(self, rank: int) -> str:
        status = self._exits.get(rank)
        if status is None:
            return "closed its connection, or stopped in the middle of a message"
        code = os.waitstatus_to_exitcode(status)
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _verdict(failures: dict[int, dict[str, Any]], silent: list[int], what: str, limit_s: float) -> LlmsimError:
    """The error that names the rank at the root of what the ranks report.

    A rank that died explains all others that miss it; then comes one that failed by itself; then one that misses a
    rank which does not speak; then one that waited in vain, whereupon others lost their connection to it.
    """
    names = f"rank{'s' * (len(silent) > 1)} {', '.join(map(str, silent))}"
    if not failures:
        return ExecutionError(f"{names} did not answer within {limit_s:g} s", where=what)

    def root(rank: int) -> tuple[int, int]:
        failure = failures[rank]
        if failure.get("died"):
            return 0, rank
        if failure["missed"] is None:
            return 1, rank
        if failure["missed"] in silent:
            return 2, rank
        return (3 if "waited" in failure["line"] or "imed out" in failure["line"] else 4), rank

    rank = min(failures, key=root)
    failure, (order, _) = failures[rank], root(rank)
    line, kind = failure["line"], failure.get("kind", "ExecutionError")
    if kind == "ExecutionError" and not line.startswith("rank "):
        line = f"rank {rank} {line}" if failure.get("died") else f"rank {rank} failed: {line}"
    if order >= 3 and silent:
        line = f"{names} did not answer: {line}"
    error: LlmsimError = getattr(errors, kind)(line, where=what if kind == "ExecutionError" else None)
    if "traceback" in failure:
        error.add_note(f"on rank {rank}:\n{failure['traceback']}")
    return error


class _ByValue:
    """A function sent as its code, for those that cannot be imported."""

    def __init__(self, data: bytes):
        self.data = data

    def __call__(self, *args: Any) -> Any:
        return pickle.loads(self.data)(*args)


def _portable(function: Callable[..., Any]) -> Callable[..., Any]:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module != "__main__" and "<" not in name:
        return function
    try:
        import cloudpickle
    except ImportError:
        raise InputError(
            f"{name or function} is defined in a script, notebook or function, where workers cannot import it",
            mend="move it to a module, or install cloudpickle",
        ) from None
    return _ByValue(cloudpickle.dumps(function))
