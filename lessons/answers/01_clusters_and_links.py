"""Answers to the exercises of lesson 01; each raises where it is wrong."""

import numpy as np

from llmsim import Builder, Costs, Region, build_topology, closed_form_s, simulate
from llmsim.catalog import link
from llmsim.program import check_collective, segments


def message_s(wire: str, cables: int, size_bytes: float) -> float:
    """α + S/B over ``cables`` links of one kind."""
    kind = link(wire)
    alpha, bandwidth = cables * kind.latency_s, kind.bandwidth_bytes_per_s
    return closed_form_s("point-to-point", "direct", 2, size_bytes, latency_s=alpha, bandwidth_bytes_per_s=bandwidth)


def exercise_1_crossing_of_two_lines() -> None:
    """α1 + S/B1 = α2 + S/B2 at S = (α2 − α1) / (1/B1 − 1/B2), here near 39 kB. NVLink has the smaller α *and* the
    larger B: RoCE never beats it."""
    pcie, roce = link("pcie-3"), link("roce-400g")
    slower = 1 / pcie.bandwidth_bytes_per_s - 1 / roce.bandwidth_bytes_per_s
    crossing = 2 * (roce.latency_s - pcie.latency_s) / slower
    assert 38e3 < crossing < 40e3
    for size in 2.0 ** np.arange(6, 31):
        assert (message_s("roce-400g", 2, size) < message_s("pcie-3", 2, size)) == (size > crossing)
        assert message_s("roce-400g", 2, size) > message_s("nvlink-4", 1, size)


def relay(count: int, chunks: int):
    """Each piece is passed on when it has arrived."""
    builder = Builder(f"relay in {chunks} chunks", 3)
    data = builder.buffer("data", count)
    for offset, length in zip(*segments(count, chunks), strict=True):
        piece = Region(data, offset, length)
        _, received = builder.message(0, 1, piece)
        builder.message(1, 2, piece, after=received)
    return builder.build()


def exercise_2_best_number_of_chunks() -> None:
    """(c + 1)(o + S/(cB)) is least at c = √(S/(oB)), near 13 for 4 MiB, 25 MB/s and o = 1 ms. With that as latency of
    the links instead the time is 2α + (c + 1)S/(cB), which falls with every further chunk."""
    check_collective(relay(12, 3), "broadcast")
    count, overhead_s, bandwidth = 2**20, 1e-3, 25e6
    line = build_topology("line", 3, bandwidth, 0.0)
    costs = Costs(send_overhead_s=overhead_s)  # paid once for each message, by its sender
    candidates = np.arange(1, 31)
    simulated = [simulate(relay(count, c), line, costs).makespan_s for c in candidates]
    formula = (candidates + 1) * (overhead_s + 4 * count / (candidates * bandwidth))
    assert np.allclose(simulated, formula, rtol=1e-3)  # pieces of 4 MiB differ by an element where c does not divide
    best = np.sqrt(4 * count / (overhead_s * bandwidth))
    assert abs(candidates[np.argmin(simulated)] - best) <= 1
    slow = build_topology("line", 3, bandwidth, 1e-3)
    simulated = [simulate(relay(count, c), slow).makespan_s for c in candidates]
    formula = 2 * 1e-3 + (candidates + 1) * 4 * count / (candidates * bandwidth)
    assert np.allclose(simulated, formula, rtol=1e-3)
    assert np.argmin(simulated) == len(candidates) - 1


def exercise_3_taking_turns() -> None:
    """Two equal messages on one uplink: shared, both finish at 2S/B; in turns, at S/B and 2S/B, so the first gains and
    the second loses nothing. On one link the last byte leaves at the same time either way. But where a message that
    has crossed must be passed on, the last one gains too: the relay begins earlier."""

    def across(turns: bool, relay: bool):
        builder = Builder("across", 8)
        data = builder.buffer("data", 2**20)
        whole = Region(data, 0, 2**20)
        first, arrived = builder.message(0, 4, whole)
        if relay:
            builder.message(4, 6, whole, after=arrived)
        builder.message(1, 5, whole, after=first if turns else None)
        return builder.build()

    racks = build_topology("two-racks", 8, 25e6, 0.0, uplink_bandwidth_bytes_per_s=25e6)
    message_s = 4 * 2**20 / 25e6

    def finish(turns: bool, relay: bool):
        return simulate(across(turns, relay), racks).finish_by_rank_s() / message_s

    assert np.allclose(finish(False, False)[[4, 5]], [2, 2])
    assert np.allclose(finish(True, False)[[4, 5]], [1, 2])
    assert np.isclose(finish(False, True).max(), 3)
    assert np.isclose(finish(True, True).max(), 2)
