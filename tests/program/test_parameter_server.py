"""Parameter servers: the same training as on one machine, its time, and how stale asynchronous gradients are."""

import numpy as np
import pytest

from llmsim.cluster import switch
from llmsim.cost import Costs, parameter_server_s
from llmsim.engine import simulate
from llmsim.engine.emulate import emulate
from llmsim.errors import InputError, ProgramError
from llmsim.program import Kernel, check, collective, parameter_server, staleness, verify
from llmsim.timeline import Timeline

RATE = 0.125


def targets(workers, count):
    return np.random.default_rng(1).integers(-4, 5, (workers, count)).astype("float64")


def kernels(target):
    """Least squares: worker w pulls the weights towards its own target."""

    def gradient(rank, writes, reads):
        writes[:] = reads - target[rank]

    def update(rank, writes, reads):
        writes -= RATE * reads

    return {"gradient": gradient, "update": update}


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (3, 1), (4, 3), (2, 5)])
def test_synchronous_training_is_gradient_descent(workers, servers):
    count, steps = 13, 3
    program = parameter_server(workers, count, servers=servers, steps=steps, dtype="float64")
    check(program)
    verify(program)
    target, start = targets(workers, count), np.arange(count, dtype="float64")
    weights = start
    for _ in range(steps):
        weights = weights - RATE * (weights - target).sum(axis=0)
    inputs = {"weights": np.tile(start, (workers + servers, 1))}
    for seed in range(3):
        result = emulate(program, inputs, compute=kernels(target), seed=seed)["weights"]
        np.testing.assert_array_equal(result[:workers], np.tile(weights, (workers, 1)))


def test_asynchronous_training_applies_every_gradient_in_some_order():
    """With a constant gradient the order does not matter, and no update may be lost."""
    workers, count, steps = 3, 8, 4
    program = parameter_server(workers, count, servers=2, steps=steps, mode="async", dtype="float64")
    check(program)

    def gradient(rank, writes, reads):
        writes[:] = rank + 1

    functions = kernels(None) | {"gradient": gradient}
    for seed in range(5):
        result = emulate(program, {}, compute=functions, seed=seed, send_mode=("eager", "rendezvous")[seed % 2])
        held = np.concatenate([result["weights"][3, :4], result["weights"][4, 4:]])
        np.testing.assert_array_equal(held, np.full(count, -RATE * steps * (1 + 2 + 3)))


def test_asynchronous_results_depend_on_the_order():
    program, target = parameter_server(3, 5, steps=3, mode="async", dtype="float64"), targets(3, 5)
    results = {emulate(program, {}, compute=kernels(target), seed=seed)["weights"].tobytes() for seed in range(10)}
    assert len(results) > 1


@pytest.mark.parametrize("gamma", [0.0, 3e-10])
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (8, 1), (8, 2), (3, 3), (2, 4)])
def test_time_of_a_synchronous_step(workers, servers, gamma):
    size_bytes, latency_s, bandwidth = 4 * 1200, 1e-6, 1e9
    program = parameter_server(workers, 1200, servers=servers, steps=2)
    cluster = switch(workers + servers, bandwidth, latency_s)
    costs = Costs(reduce_bandwidth_bytes_per_s=1 / gamma) if gamma else Costs()
    step_s = parameter_server_s(
        workers,
        servers,
        size_bytes,
        latency_s=2 * latency_s,  # to the switch and from it
        bandwidth_bytes_per_s=bandwidth,
        reduce_s_per_byte=gamma,
    )
    assert simulate(program, cluster, costs).makespan_s == pytest.approx(2 * step_s, rel=1e-9)


def test_the_closed_form_refuses_bad_input():
    with pytest.raises(InputError, match="servers is 0"):
        parameter_server_s(4, 0, 8, latency_s=0.0, bandwidth_bytes_per_s=1.0)
    with pytest.raises(InputError, match="size_bytes is -8"):
        parameter_server_s(4, 1, -8, latency_s=0.0, bandwidth_bytes_per_s=1.0)


def test_equal_workers_are_stale_by_the_number_of_the_others():
    """Workers a little apart are served in turn: from the second step on each gradient misses those of all others, and
    in the first, for which all read the initial weights, those of the workers before."""
    workers, steps = 4, 5
    gradients = [Kernel(f"gradient {w}", duration_s=1e-3 + w * 1e-5) for w in range(workers)]
    program = parameter_server(workers, 1, mode="async", steps=steps, gradient_kernel=gradients)
    stale = staleness(program, simulate(program, switch(workers + 1, 1e9, 1e-9)))
    assert stale.tolist() == [[[w, *[workers - 1] * (steps - 1)] for w in range(workers)]]


def test_a_slow_worker_is_stale_and_the_fast_ones_are_not():
    slow, fast = Kernel("slow", duration_s=10.5), Kernel("fast", duration_s=1.0)
    program = parameter_server(2, 4, mode="async", steps=8, gradient_kernel=[slow, fast])
    timeline = simulate(program, switch(3, 1e12, 0.0))
    stale = staleness(program, timeline)
    # The fast one does all 8 steps in the first 8 s, within the first step of the slow one.
    assert stale[0, 0].tolist() == [8, 0, 0, 0, 0, 0, 0, 0]
    assert stale[0, 1].tolist() == [0] * 8


def test_staleness_counted_by_hand():
    """Two workers, two steps, at times set by hand: what counts is the reading (start of the reply) and the update."""
    program = parameter_server(2, 1, mode="async", steps=2)
    start, end = np.zeros(len(program)), np.zeros(len(program))
    for worker, times in enumerate([[(1.0, 2.0), (3.0, 9.0)], [(1.5, 2.5), (4.0, 5.0)]]):
        # (update ends, reply begins) of steps 0 and 1
        ops = program.queue_ops(2, f"worker.{worker}")
        for step, (updated, replied) in enumerate(times):
            end[ops[3 * step + 1]], start[ops[3 * step + 2]] = updated, replied
    # Updates: worker 0 at 1.0 and 3.0, worker 1 at 1.5 and 4.0. Readings before step 1: at 2.0 and 2.5.
    stale = staleness(program, program.timeline(start, end))
    assert stale.tolist() == [[[0, 0], [1, 1]]]


def test_staleness_needs_an_asynchronous_program_and_its_timeline():
    program = collective("all-reduce", "ring", 2, 4)
    with pytest.raises(InputError, match=r"no streams worker\.0"):
        staleness(program, simulate(program, switch(2, 1e9, 0.0)))
    with pytest.raises(InputError, match="timeline has 0 spans"):
        staleness(parameter_server(2, 4, mode="async"), Timeline.from_spans([]))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 8), {}, "workers is 0"),
        ((2, 8), {"servers": 0}, "servers is 0"),
        ((2, 8), {"steps": 0}, "steps is 0"),
        ((2, -8), {}, "buffer 'weights' has -8 elements"),
        ((2, 8), {"mode": "bounded"}, "'bounded' is not a mode; use 'sync' or 'async'"),
        ((2, 8), {"gradient_kernel": [Kernel("g")]}, "1 gradient kernels for 2 workers"),
    ],
)
def test_bad_input_is_refused(arguments, options, message):
    with pytest.raises(ProgramError, match=message):
        parameter_server(*arguments, **options)
