"""Calibration: probes measure what they say, and a small calibration of this machine holds together."""

import numpy as np
import pytest
from llmsim_kernels import local_rates, probes
from llmsim_kernels.calibrate import Effort, calibrate, steps
from llmsim_kernels.machine import machine_card

from llmsim.cluster import build_topology
from llmsim.cost.costs import Costs
from llmsim.cost.profile import Profile
from llmsim.engine import simulate
from llmsim.errors import InputError
from llmsim.program import Kind, check

TINY = Effort(
    message_bytes=(4, 1 << 16, 1 << 22),
    small_bytes=(4,),
    large_bytes=1 << 18,
    operand_bytes=(1 << 12, 1 << 16),
    matrix=(32, 64),
    repeats=2,
    memory_bytes=1 << 20,
    probe_s=0.01,
)
COSTS = Costs(receive_overhead_s=2e-5, latency_s=1e-4, message_bandwidth_bytes_per_s=1e9)


def predicted_s(program) -> float:
    return simulate(program, build_topology("switch", program.world_size, 1e12, 0.0), COSTS).makespan_s


@pytest.mark.parametrize("world_size", [2, 4])
def test_probes_are_sound_and_reveal_the_figure_they_are_for(world_size):
    size, number = 1 << 20, 5
    alone_s = 1.2e-4 + size / 1e9
    ping_pong = probes.ping_pong(size, number, world_size)
    stream = probes.stream(size, number, world_size)
    exchange = probes.exchange(size, number, world_size)
    for program in (ping_pong, stream, exchange, probes.copies(64, number, world_size)):
        check(program)
    assert predicted_s(ping_pong) / (2 * number) == pytest.approx(alone_s, rel=1e-6)
    assert predicted_s(stream) == pytest.approx(number * size / 1e9 + 1.2e-4, rel=1e-6)
    assert predicted_s(exchange) == pytest.approx(predicted_s(stream), rel=1e-6)
    assert exchange.messages == number * world_size
    assert exchange.message_bytes == number * world_size * size
    small = probes.stream(4, 100, world_size)
    assert predicted_s(small) / 100 == pytest.approx(2e-5, rel=0.1)


def test_no_probe_is_a_collective():
    for program in (probes.ping_pong(64, 2), probes.stream(64, 2), probes.exchange(64, 2, 4), probes.copies(64, 2)):
        assert not program.contracts
        assert not np.any(program.kind == Kind.COLLECTIVE)


@pytest.mark.timeout(100)
def test_a_small_calibration(tmp_path):
    told = []
    profile = calibrate(lab=False, effort=TINY, progress=told.append)
    assert len(told) == steps(lab=False)
    assert [rate.size for rate in profile.reduce] == [1 << 12, 1 << 16]
    assert {rate.size for rate in profile.matmul} == {32, 64}
    loopback = profile.transport("loopback")
    assert set(profile.transports) == {"loopback"}
    assert 0 < loopback.alpha_s < 0.1
    assert loopback.cpu_s_per_message > 0
    assert [point.x for point in loopback.fits[0].points] == [4, 1 << 16, 1 << 22]
    # A byte costs at least a copy at each end, and no copy is faster than what caches give.
    assert 1e-12 < loopback.cpu_s_per_byte < 1e-6
    profile.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json") == profile


def test_rates_count_bytes_and_flop_of_one_operand(monkeypatch):
    monkeypatch.setattr(local_rates, "seconds_of", lambda work, device: (work(), 0.5)[1])
    assert [r.rate_per_s for r in local_rates.reduce_rates([4000, 8000], "cpu")] == [8000.0, 16000.0]
    assert [r.rate_per_s for r in local_rates.copy_rates([4000], "cpu", "cpu")] == [8000.0]
    assert [(r.rate_per_s, r.dtype) for r in local_rates.matmul_rates([10], ["float32", "bfloat16"], "cpu")] == [
        (4000.0, "float32"), (4000.0, "bfloat16")
    ]  # fmt: skip
    assert local_rates.memory_bandwidth(4000, "cpu") == 16000.0


def test_a_sample_is_long_enough_for_the_clock():
    calls = []
    seconds = local_rates.seconds_of(lambda: calls.append(None), "cpu", samples=3)
    assert 0 < seconds < 1e-4
    assert len(calls) > 3 * 10


def test_the_machine_says_what_it_is():
    card = machine_card()
    assert card.cpu
    assert card.cores >= 1
    assert card.memory_bytes > 1 << 20
    assert card.date.endswith("+00:00")


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="no GPU here"):
        calibrate(backend="nccl", device="cuda")
    with pytest.raises(InputError, match="cannot be calibrated"):
        calibrate(device="cuda")
