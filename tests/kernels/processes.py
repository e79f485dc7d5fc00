"""Processes below one, for tests that nothing is left behind."""

from pathlib import Path


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
