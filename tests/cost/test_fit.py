"""Fits find the parameters that data were made of."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmsim.cost.fit import fit_latency_bandwidth, fit_line, fit_mean, medians
from llmsim.errors import InputError

SIZES = [4, 1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26]

latencies = st.floats(1e-7, 1e-2)
bandwidths = st.floats(1e6, 1e12)


@given(latencies, bandwidths)
def test_exact_data_give_their_parameters_back(latency_s, bandwidth):
    assume(latency_s > 1e-9 * SIZES[-1] / bandwidth)  # else it is lost in the rounding of the times
    fit = fit_latency_bandwidth("t", {size: [latency_s + size / bandwidth] for size in SIZES})
    assert fit.parameters["latency_s"] == pytest.approx(latency_s, rel=1e-5)
    assert fit.parameters["bandwidth_bytes_per_s"] == pytest.approx(bandwidth, rel=1e-5)
    assert fit.worst_residual < 1e-8


@settings(max_examples=50)
@given(st.floats(1e-5, 1e-3), st.floats(1e8, 1e10), st.integers(0, 2**32 - 1))
def test_noise_of_some_percent_moves_them_by_as_much(latency_s, bandwidth, seed):
    """Repeats that were interrupted, a third of all and up to ten times as long, do not matter: medians are taken."""
    generator = np.random.default_rng(seed)
    samples = {}
    for size in SIZES:
        repeats = (latency_s + size / bandwidth) * generator.normal(1, 0.02, 15)
        repeats[:5] *= generator.uniform(1, 10, 5)
        samples[size] = repeats
    fit = fit_latency_bandwidth("t", samples)
    assert fit.parameters["latency_s"] == pytest.approx(latency_s, rel=0.1)
    assert fit.parameters["bandwidth_bytes_per_s"] == pytest.approx(bandwidth, rel=0.1)
    assert [point.measured for point in fit.points] == [float(np.median(samples[size])) for size in SIZES]


points = st.lists(st.tuples(st.floats(0, 1e6), st.floats(1e-3, 1e3)), min_size=2, max_size=8, unique_by=lambda p: p[0])


@given(points)
def test_no_line_without_negative_parameters_is_better(data):
    x, y = np.array(data).T
    intercept, slope = fit_line(x, y)
    assert intercept >= 0
    assert slope >= 0

    def cost(a, b):
        return float((((a + b * x) / y - 1) ** 2).sum())

    best = cost(intercept, slope)
    for da, db in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)):
        for step in (1e-2, 1e-4):
            a = max(0.0, intercept + da * step * (intercept + y.min()))
            b = max(0.0, slope + db * step * (slope + y.min() / (x.max() + 1)))
            assert best <= cost(a, b) * (1 + 1e-9) + 1e-12


def test_noise_that_hides_the_size_gives_a_lower_bound_and_large_residuals():
    fit = fit_latency_bandwidth("t", {4: [2.0], 1000: [1.0]})
    assert fit.parameters["bandwidth_bytes_per_s"] == 1000.0
    assert fit.parameters["latency_s"] > 0
    assert fit.worst_residual > 0.5


def test_a_line_through_a_known_intercept():
    x = np.array([1.0, 2.0, 4.0])
    assert fit_line(x, 3 + 2 * x, through=3.0) == (3.0, pytest.approx(2.0))


def test_the_mean_is_the_best_single_value():
    fit = fit_mean("t", {1: [1.0, 1.0], 2: [2.0]}, "value", "x")
    value = fit.parameters["value"]
    grid = np.linspace(0.5, 3, 10001)
    cost = (grid / 1 - 1) ** 2 + (grid / 2 - 1) ** 2
    assert value == pytest.approx(grid[cost.argmin()], abs=1e-3)
    assert fit.points[0].residual == pytest.approx(value - 1)


def test_medians():
    assert medians({1: [3.0, 1.0, 2.0], 2: np.array([4.0, 1.0])}) == {1: 2.0, 2: 2.5}


@pytest.mark.parametrize(
    ("samples", "match"),
    [
        ({4: [1e-4]}, "too few"),
        ({4: [1.0], 8: [0.0]}, "above zero"),
        ({4: [1.0], 8: [float("nan")]}, "above zero"),
        ({-1: [2.0], 0: [1.0]}, "show no bandwidth"),
    ],
)
def test_what_cannot_be_fitted_is_refused(samples, match):
    with pytest.raises(InputError, match=match):
        fit_latency_bandwidth("t", samples)
