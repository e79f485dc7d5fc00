"""The process that holds a netlab: its namespaces exist as long as it has them open, and so does all that is in them.

It builds the lab from a list of instructions and then waits for its owner to close the connection or to die, upon
which it ends and the kernel takes the namespaces, links and queues apart. Nothing has a name outside.
"""

import os
import select
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmsim_kernels import system
from llmsim_kernels.channel import Channel

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from llmsim_kernels.netlab_holder import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)


@dataclass(frozen=True)
class NodePlan:
    """What to do in the namespace of one node. ``ip`` and ``tc`` are lines for their batch modes, in which
    ``{namespace:K}`` stands for the namespace of node K."""

    sysctl: tuple[tuple[str, str], ...]
    links: tuple[str, ...]  # ip commands that make links to nodes, run before all others
    ip: tuple[str, ...]
    tc: tuple[str, ...]


def serve(fd: int, parent: int) -> None:
    """Build what the other end of ``fd`` asks for, answer with the paths of the namespaces, and hold them."""
    import socket

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent_fd = os.pidfd_open(parent)
    if os.getppid() != parent:
        os._exit(0)
    channel = Channel(socket.socket(fileno=fd))
    try:
        answer: tuple[str, Any] = ("ready", _build(channel.recv()))
    except EOFError:
        os._exit(0)
    except (OSError, RuntimeError) as error:
        answer = ("failed", str(error))
    try:
        channel.send(answer)
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        poll.register(parent_fd, select.POLLIN)
        poll.poll()
    finally:
        os._exit(0)


def _build(plans: list[NodePlan]) -> tuple[list[str], str | None]:
    """Make the namespaces; returns their paths, and that of the user namespace if it took one."""
    user = None
    try:
        system.leave_namespaces(system.CLONE_NEWNET)
    except PermissionError:  # not root: become root of a user namespace of our own
        uid, gid = os.getuid(), os.getgid()
        system.leave_namespaces(system.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        user = f"/proc/{os.getpid()}/ns/user"
    namespaces = []
    for _ in plans:
        system.leave_namespaces(system.CLONE_NEWNET)
        namespaces.append(os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    for namespace, plan in zip(namespaces, plans, strict=True):
        system.enter_namespace(f"/proc/self/fd/{namespace}", system.CLONE_NEWNET)
        for name, value in plan.sysctl:
            path = Path("/proc/sys", name)
            if path.exists():
                path.write_text(value)
        _batch("ip", plan.links, namespaces)
    for namespace, plan in zip(namespaces, plans, strict=True):
        system.enter_namespace(f"/proc/self/fd/{namespace}", system.CLONE_NEWNET)
        _batch("ip", plan.ip, namespaces)
        _batch("tc", plan.tc, namespaces)
    return [f"/proc/{os.getpid()}/fd/{namespace}" for namespace in namespaces], user


def _batch(tool: str, lines: tuple[str, ...], namespaces: list[int]) -> None:
    if not lines:
        return
    text = "\n".join(lines) + "\n"
    for number, namespace in enumerate(namespaces):
        text = text.replace(f"{{namespace:{number}}}", f"/proc/self/fd/{namespace}")
    done = subprocess.run(
        [tool, "-batch", "-"], input=text, capture_output=True, text=True, pass_fds=namespaces, timeout=30
    )
    if done.returncode:
        complaint = [line for line in done.stderr.splitlines() if line.strip()]
        if "netem" in text and "unknown" in done.stderr:
            raise RuntimeError("this kernel has no netem, which links with latency need; give links of 0 s")
        raise RuntimeError(f"{tool}: {complaint[0] if complaint else f'exit code {done.returncode}'}")
