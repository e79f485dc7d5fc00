"""What runs in a worker process: join the group, then run functions until told to stop."""

import os
import pickle
import random
import re
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from llmsim_kernels import system
from llmsim_kernels.channel import Channel

from llmsim.errors import InputError, LlmsimError, ProgramError

# How torch.distributed says that another rank is slow or gone.
_MISSED = re.compile(r"[Tt]imed? ?out|[Cc]onnection (closed|reset)|[Bb]roken pipe|[Ss]ocket closed")


def work(rank: int, channel: Channel, store: int, config: dict[str, Any], parent: int) -> None:
    """Serve as ``rank`` of a pool; returns when the pool is closed."""
    hosts = config["hosts"]
    try:
        if hosts:
            enter_host(hosts[rank])
            config["env"]["GLOO_SOCKET_IFNAME"] = hosts[rank].interface
        # Only now: a change of user namespace would take it back.
        system.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        sys.path[:] = config["path"]
        os.chdir(config["folder"])
        os.environ.clear()
        os.environ.update(config["env"])
        _seed(rank)
        _join(rank, store, config)
    except BaseException as error:
        channel.send(("failed", _report(error)))
        return
    channel.send(("ready", None))
    while True:
        try:
            task = channel.recv()
            if task is None:
                break
            answer = _done(*task)
        except EOFError:
            return
        except BaseException as error:
            answer = ("failed", _report(error))
        try:
            channel.send(answer)
        except (pickle.PicklingError, TypeError, AttributeError) as error:  # the result cannot be sent
            channel.send(("failed", _report(error)))
        del task, answer  # so that large arrays are freed before the next task
    _leave(config)


def _done(function: Callable[..., Any], args: tuple[Any, ...], own_args: tuple[Any, ...]) -> tuple[str, Any]:
    return "done", function(*args, *own_args)


def enter_host(host: Any) -> None:
    """Move this process into a host of a netlab."""
    if host.user_namespace is not None:
        system.enter_namespace(host.user_namespace, system.CLONE_NEWUSER)
    system.enter_namespace(host.namespace, system.CLONE_NEWNET)


def _seed(rank: int) -> None:
    """Forks of one process would all draw the same numbers."""
    import numpy as np
    import torch

    random.seed(rank)
    np.random.seed(rank)  # noqa: NPY002 - the generator that other code may still use
    torch.manual_seed(rank)


def _join(rank: int, store: int, config: dict[str, Any]) -> None:
    backend = config["backend"]
    if backend is None:
        return
    import torch
    import torch.distributed as dist

    torch.set_num_threads(config["threads"])
    if backend == "nccl":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    # The rendezvous is a file in memory: it needs no address that all reach, and nobody has to clean up after it.
    meeting = dist.FileStore(f"/proc/self/fd/{store}", config["world_size"])
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(config["world_size"])
    dist.init_process_group(
        backend,
        store=meeting,
        rank=rank,
        world_size=config["world_size"],
        timeout=timedelta(seconds=config["timeout_s"]),
    )


def _leave(config: dict[str, Any]) -> None:
    if config["backend"] is not None:
        import torch.distributed as dist

        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()


def _report(error: BaseException) -> dict[str, Any]:
    """An exception as plain data, as unpickling a user's exception class could fail on the other side.

    ``missed`` is the rank that this one waited for, -1 if it is not known which, or None if it failed by itself.
    """
    missed = getattr(error, "peer", None)
    if missed is None and isinstance(error, RuntimeError) and _MISSED.search(str(error)):
        missed = -1
    kind = type(error).__name__ if type(error) in (InputError, ProgramError) else "ExecutionError"
    line = error.line() if isinstance(error, LlmsimError) else f"{type(error).__name__}: {error}"
    return {"kind": kind, "line": line, "missed": missed, "traceback": "".join(traceback.format_exception(error))}
