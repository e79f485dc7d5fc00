"""How the threads of a rank get their cores."""

import os
from pathlib import Path

import pytest
from llmsim_kernels import probes
from llmsim_kernels.execute import execute

pytestmark = pytest.mark.timeout(60)


def policies() -> dict[str, set[int]]:
    """Scheduling policies of the threads of this process, by name."""
    found: dict[str, set[int]] = {}
    for task in Path("/proc/self/task").iterdir():
        found.setdefault((task / "comm").read_text().strip(), set()).add(os.sched_getscheduler(int(task.name)))
    return found


@pytest.mark.skipif(os.sched_getscheduler(0) != os.SCHED_OTHER, reason="whoever started this chose another policy")
def test_event_loops_take_no_core_from_a_thread_that_sends(pools):
    pool = pools(2)
    execute(probes.ping_pong(4, 2), pool=pool)
    for found in pool.run(policies):
        assert found.pop("gloo_tcp_loop") == {os.SCHED_BATCH}
        assert set.union(*found.values()) == {os.SCHED_OTHER}
