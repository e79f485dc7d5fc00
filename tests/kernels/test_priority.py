"""Real-time priority for ranks, where it is permitted."""

import os
from pathlib import Path

import pytest
from llmsim_kernels import priority, probes
from llmsim_kernels.execute import execute

pytestmark = pytest.mark.timeout(60)


def policies() -> set[int]:
    return {os.sched_getscheduler(int(task.name)) for task in Path("/proc/self/task").iterdir()}


def test_asking_changes_nothing():
    before = os.sched_getscheduler(0)
    priority.permitted()
    assert os.sched_getscheduler(0) == before


def test_what_is_refused_is_not_permitted(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert not priority.permitted()


@pytest.mark.skipif(not priority.permitted(), reason="real-time priority is not permitted here")
def test_all_threads_of_ranks_have_it_and_nobody_else():
    with priority.pool(2, realtime=True) as pool:
        execute(probes.ping_pong(4, 2), pool=pool)
        assert pool.run(policies) == [{os.SCHED_RR}] * 2
    assert os.SCHED_RR not in policies()


def test_by_default_ranks_are_as_others():
    with priority.pool(1, realtime=False, backend=None) as pool:
        assert pool.run(policies) == [{os.sched_getscheduler(0)}]
