"""The repository's figures show what their captions say."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import llmsim

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures():
    return runpy.run_path(str(ROOT / "figures" / "build.py"))["FIGURES"]


def test_every_figure_has_a_caption(figures):
    assert all(function.__doc__ for function in figures.values())


def test_few_steps_win_for_small_and_few_bytes_for_large_buffers(figures):
    data = figures["all-reduce-against-size"]().data
    times = {name: np.array(y) for name, y in data["series"].items()}
    assert times["tree"][0] < times["ring"][0] / 5
    assert times["ring"][-1] < times["tree"][-1] / 5
    bound = np.array(data["bounds"]["lower bound"])
    assert all(np.all(y >= bound * (1 - 1e-9)) for y in times.values())


def test_ring_cost_is_independent_of_ranks_by_bytes_only(figures):
    data = figures["ranks-and-cost"]().data
    ranks = np.array(data["x"])
    times = {name: np.array(y) for name, y in data["series"].items()}
    large, small, server = (times[n] for n in times if "1 GiB" in n or "1 KiB" in n or "server" in n)
    assert large[-1] < 1.1 * large[3]
    assert small[-1] == pytest.approx(small[3] * (ranks[-1] - 1) / (ranks[3] - 1), rel=0.05)
    assert server[-1] == pytest.approx(server[3] * ranks[-1] / ranks[3], rel=0.1)


def test_oversubscription_hurts_all_to_all_and_not_the_ring(figures):
    data = figures["oversubscription"]().data
    all_to_all, ring = data["series"].values()
    assert all_to_all[-1] > 4 * all_to_all[0]
    assert ring[-1] == pytest.approx(ring[0], rel=1e-9)


def test_the_ring_timeline_is_as_long_as_the_closed_form(figures):
    data = figures["ring-timeline"]().data
    closed_s = llmsim.closed_form_s("all-reduce", "ring", 4, 2**22, latency_s=5e-6, bandwidth_bytes_per_s=50e9)
    assert data["makespan_s"] == pytest.approx(closed_s, rel=1e-9)


def test_networks_are_drawn_whole(figures):
    assert len(figures["leaf-spine"]().data["positions"]) == 32 + 4 + 2
    assert len(figures["dgx-h100"]().data["positions"]) == 16 + 2 + 8 + 2
