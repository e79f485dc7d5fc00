"""What this machine is, for the records."""

import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from llmsim.cost.profile import Machine


def machine_card() -> Machine:
    """This machine: processor, cores this process may use, memory, accelerators, versions, and now."""
    accelerators = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=torch.__version__,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        accelerators=tuple(accelerators),
        busy_cores=busy_cores(),
    )


def busy_cores(over_s: float = 0.4) -> float:
    """How many cores are at work while this process sleeps: what others on this machine do, time stolen by other
    virtual machines included. 0 where the system does not tell."""

    def seconds() -> float:
        try:
            ticks = [
                int(word) for word in Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]
            ]
        except (OSError, ValueError):
            return 0.0
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")  # all but idle and waiting for disks

    before, begin = seconds(), time.monotonic()
    time.sleep(over_s)
    return round((seconds() - before) / (time.monotonic() - begin), 2)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
