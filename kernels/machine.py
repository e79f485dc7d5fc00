"""What this machine is, for the records."""

import os
import platform
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
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
