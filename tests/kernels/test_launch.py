"""Worker pools: what they run, how they fail, and that nothing is left of them."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from llmsim_kernels import zygote
from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from processes import children_of

from llmsim.errors import ExecutionError, InputError
from llmsim.program import Builder, Kernel, Region, collective

pytestmark = pytest.mark.timeout(60)


def rank_and_more(*args):
    import torch.distributed as dist

    return (dist.get_rank(), dist.get_world_size(), *args)


def total(array):
    import torch
    import torch.distributed as dist

    tensor = torch.from_numpy(array)
    dist.all_reduce(tensor)
    return tensor.numpy()


def fail_on(rank):
    import torch.distributed as dist

    if dist.get_rank() == rank:
        raise RuntimeError("out of luck")
    time.sleep(30)


def end_on(rank, how):
    import torch.distributed as dist

    if dist.get_rank() == rank:
        how()
    time.sleep(30)


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def unpicklable():
    return threading.Lock()


def sleep_forever(rank, writes, reads):
    time.sleep(1000)


def gone(pids, limit_s=10.0):
    """Do all these processes end (or stay ended) within the limit?"""
    deadline = time.monotonic() + limit_s
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_function_runs_on_every_rank(pools):
    assert pools(3).run(rank_and_more, "a", 1) == [(0, 3, "a", 1), (1, 3, "a", 1), (2, 3, "a", 1)]
    assert pools(3).run(rank_and_more, per_rank=[("x",), ("y",), ("z",)]) == [(0, 3, "x"), (1, 3, "y"), (2, 3, "z")]
    assert pools(3).run(os.getpid) == pools(3).pids


def test_arrays_of_all_sizes_travel_both_ways(pools):
    for count in (0, 1, 1000, 3_000_001):
        arrays = [np.arange(count, dtype=np.float64) * rank for rank in range(3)]
        before = [array.copy() for array in arrays]
        for result in pools(3).run(total, per_rank=[(array,) for array in arrays]):
            np.testing.assert_array_equal(result, np.arange(count) * 3.0)
        for array, was in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, was)  # what workers do to their copy does not come back


def surroundings():
    import torch

    return os.environ.get("LLMSIM_TEST"), os.getcwd(), torch.rand(1).item()


def test_workers_have_the_environment_of_their_pool_and_their_own_random_numbers(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMSIM_TEST", "here")
    monkeypatch.chdir(tmp_path)
    with WorkerPool(2, backend=None) as pool:
        (value, folder, one), (_, _, other) = pool.run(surroundings)
    assert (value, folder) == ("here", str(tmp_path))
    assert one != other


def test_ranks_that_get_the_same_array_do_not_share_it(pools):
    array = np.ones(100_000)
    for result in pools(3).run(total, array):
        np.testing.assert_array_equal(result, np.full(100_000, 3.0))


def test_what_cannot_be_sent_is_refused(pools):
    with pytest.raises(InputError, match="module"):
        pools(2).run(rank_and_more, threading.Lock())
    with pytest.raises(InputError, match="per_rank has 1 entries for 2 ranks"):
        pools(2).run(rank_and_more, per_rank=[()])
    assert len(pools(2).run(os.getpid)) == 2  # and the pool goes on


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"world_size": 0}, "world_size is 0"),
        ({"world_size": 2, "backend": "mpi"}, "no backend 'mpi'"),
        ({"world_size": 2, "device": "cuda"}, "gloo on 'cuda'"),
        ({"world_size": 2, "timeout_s": 0}, "timeout_s is 0"),
        ({"world_size": 2, "hosts": []}, "2 ranks but 0 hosts"),
    ],
)
def test_arguments_are_checked(arguments, match):
    with pytest.raises(InputError, match=match):
        WorkerPool(**arguments)


@pytest.mark.parametrize(
    ("function", "args", "match"),
    [
        (fail_on, (1,), "fail_on: rank 1 failed: RuntimeError: out of luck"),
        (end_on, (1, kill_self), "end_on: rank 1 was killed by SIGKILL"),
        (end_on, (2, leave), "end_on: rank 2 ended with exit code 3"),
        (unpicklable, (), "rank 0 failed: TypeError: cannot pickle"),
    ],
)
def test_a_rank_that_fails_ends_all(function, args, match):
    with WorkerPool(3) as pool:
        pids = pool.pids
        began = time.monotonic()
        with pytest.raises(ExecutionError, match=match):
            pool.run(function, *args)
        assert gone(pids, 0)
        assert time.monotonic() - began < 10
        with pytest.raises(ExecutionError, match="cannot be used any more"):
            pool.run(os.getpid)


def test_ranks_that_do_not_answer_are_named_and_ended():
    with WorkerPool(3, backend=None) as pool:
        pids = pool.pids
        with pytest.raises(ExecutionError, match=r"ranks 0, 1, 2 did not answer within 0\.2 s"):
            pool.run(time.sleep, 100, limit_s=0.2)
        assert gone(pids, 0)


def test_a_rank_killed_during_a_program_is_named():
    builder = Builder("long", 3)
    builder.compute(np.arange(3), Kernel("long", duration_s=30.0))
    with WorkerPool(3) as pool:
        pids = pool.pids
        killer = threading.Timer(0.3, os.kill, (pids[1], signal.SIGKILL))
        killer.start()
        with pytest.raises(ExecutionError, match="long: rank 1 was killed by SIGKILL"):
            execute(builder.build(), pool=pool)
        assert gone(pids, 0)


@pytest.mark.parametrize("function", [sleep_forever])
def test_a_peer_that_never_sends_is_named_with_the_operation(function):
    """Rank 1 hangs in a computation; rank 2 waits for its message, rank 0 for that of rank 2."""
    builder = Builder("hanging", 3)
    data = builder.buffer("data", 4)
    never = builder.compute(1, Kernel("hang"))
    builder.message(1, 2, Region(data, 0, 4), after=never)
    builder.message(2, 0, Region(data, 0, 4), after=[])
    program = builder.build()
    with WorkerPool(3) as pool:
        pids = pool.pids
        began = time.monotonic()
        with pytest.raises(
            ExecutionError, match=r"hanging: rank 2 waited 0\.5 s for rank 1 in recv #0: RECV 16 B data"
        ):
            execute(program, pool=pool, compute={"hang": function}, timeout_s=0.5)
        assert gone(pids, 0)
        assert time.monotonic() - began < 10


def test_a_stopped_rank_is_named():
    program = collective("all-reduce", "ring", 4, 1000)
    with WorkerPool(4, timeout_s=1) as pool:
        os.kill(pool.pids[2], signal.SIGSTOP)
        with pytest.raises(ExecutionError, match="rank 2"):
            execute(program, pool=pool, timeout_s=1)
        assert gone(pool.pids, 0)


def test_an_exception_in_the_block_ends_the_workers():
    with pytest.raises(KeyError), WorkerPool(2) as pool:
        raise KeyError
    assert gone(pool.pids, 0)


def test_the_starting_process_can_be_killed_and_comes_back():
    with WorkerPool(2) as pool:
        assert zygote._current is not None
        os.kill(zygote._current.process.pid, signal.SIGKILL)
        with pytest.raises(ExecutionError, match=r"the process that starts the workers has died|rank \d"):
            pool.run(time.sleep, 30)
        assert gone(pool.pids)
    with WorkerPool(2) as pool:
        assert len(pool.run(os.getpid)) == 2


OWNER = """
    import os, sys, time
    from llmsim_kernels.launch import WorkerPool
    if __name__ == "__main__":
        with WorkerPool(2) as pool:
            print(os.getpid(), *pool.pids, flush=True)
            pool.run(time.sleep, 100)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_workers_of_a_process_that_ends_end_too(tmp_path, number):
    script = tmp_path / "owner.py"
    script.write_text(textwrap.dedent(OWNER))
    owner = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with owner:
        owner_pid, *workers = map(int, owner.stdout.readline().split())
        helpers = children_of(owner_pid)
        time.sleep(0.1)
        owner.send_signal(number)
        errors = owner.stderr.read()
    assert set(workers) <= set(helpers)
    assert len(workers) == 2
    assert gone(helpers)
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)


def test_torchrun(tmp_path):
    """Two ranks started by someone else."""
    script = tmp_path / "ranks.py"
    script.write_text(
        textwrap.dedent("""
            import numpy as np
            from llmsim.program import collective
            from llmsim_kernels.execute import execute_rank

            program = collective("all-reduce", "ring", 2, 1000)
            inputs = {"data": np.arange(2000, dtype=np.float32).reshape(2, 1000)}
            result = execute_rank(program, inputs, repeats=2)
            if result is not None:
                assert (result.outputs["data"] == inputs["data"].sum(0)).all()
                print("made", len(result.timelines), "timelines", result.time_s > 0)
        """)
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--log-dir",
            tmp_path,
            "--nproc-per-node=2",
            script,
        ],
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "made 2 timelines True"
