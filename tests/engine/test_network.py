"""Max-min fair rates, against references that know nothing of progressive filling."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.engine.network import FlowPath, max_min_rates

amounts = st.sampled_from([0.5, 1.0, 2.0]) | st.floats(0.1, 10.0)


@st.composite
def shared_networks(draw, flows: int = 4, resources: int = 3) -> tuple[list[FlowPath], list[float]]:
    capacity = draw(st.lists(amounts, min_size=1, max_size=resources))
    demands = st.dictionaries(st.integers(0, len(capacity) - 1), amounts, min_size=1)
    some_maximum = st.just(float("inf")) | amounts
    return draw(st.lists(st.builds(FlowPath, demands, some_maximum), min_size=1, max_size=flows)), capacity


def used(flows: list[FlowPath], rates: list[float], resource: int) -> float:
    return sum(flow.demand.get(resource, 0.0) * rate for flow, rate in zip(flows, rates, strict=True))


def brute_force_rates(flows: list[FlowPath], capacity: list[float]) -> list[float]:
    """Try every assignment of a bottleneck to each flow: its own maximum, or a resource in which all flows that are
    held back by it go at one rate and use up what the others leave. The only consistent assignment is max-min fair."""
    choices = [[None, *flow.demand] if flow.max_rate < float("inf") else [*flow.demand] for flow in flows]
    for bottleneck in product(*choices):
        limiting = sorted({b for b in bottleneck if b is not None})
        matrix, right = np.zeros((len(limiting), len(limiting))), np.zeros(len(limiting))
        for row, resource in enumerate(limiting):
            right[row] = capacity[resource]
            for flow, held_by in zip(flows, bottleneck, strict=True):
                amount = flow.demand.get(resource, 0.0)
                if held_by is None:
                    right[row] -= amount * flow.max_rate
                else:
                    matrix[row, limiting.index(held_by)] += amount
        if limiting and abs(np.linalg.det(matrix)) < 1e-12:
            continue
        level = dict(zip(limiting, np.linalg.solve(matrix, right), strict=True)) if limiting else {}
        rates = [flow.max_rate if b is None else level[b] for flow, b in zip(flows, bottleneck, strict=True)]
        if is_max_min(flows, capacity, rates):
            return rates
    raise AssertionError("no assignment of bottlenecks is consistent")


def is_max_min(flows: list[FlowPath], capacity: list[float], rates: list[float]) -> bool:
    """Feasible, and every flow is at its own maximum or crosses a used-up resource in which none is faster."""
    for resource, amount in enumerate(capacity):
        if used(flows, rates, resource) > amount * (1 + 1e-9):
            return False
    for flow, rate in zip(flows, rates, strict=True):
        if rate < 0 or rate > flow.max_rate * (1 + 1e-9):
            return False
        held_back = rate >= flow.max_rate * (1 - 1e-9)
        for resource in flow.demand:
            fastest = max(r for f, r in zip(flows, rates, strict=True) if resource in f.demand)
            used_up = used(flows, rates, resource) >= capacity[resource] * (1 - 1e-9)
            held_back = held_back or (used_up and rate >= fastest * (1 - 1e-9))
        if not held_back:
            return False
    return True


@settings(max_examples=200, deadline=None)
@given(shared_networks())
def test_rates_equal_brute_force(network):
    flows, capacity = network
    assert max_min_rates(flows, capacity) == pytest.approx(brute_force_rates(flows, capacity), rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(shared_networks(flows=30, resources=12))
def test_every_flow_has_a_bottleneck(network):
    flows, capacity = network
    assert is_max_min(flows, capacity, max_min_rates(flows, capacity))


def test_one_flow_across_and_one_on_each_link():
    """The textbook's parking lot: links of 1 and 2 shared by a flow over both and one on each."""
    flows = [FlowPath({0: 1.0, 1: 1.0}), FlowPath({0: 1.0}), FlowPath({1: 1.0})]
    assert max_min_rates(flows, [1.0, 2.0]) == pytest.approx([0.5, 0.5, 1.5])


def test_a_flow_at_its_maximum_leaves_the_rest_to_others():
    flows = [FlowPath({0: 1.0}, max_rate=0.1), FlowPath({0: 1.0})]
    assert max_min_rates(flows, [1.0]) == pytest.approx([0.1, 0.9])


def test_demand_weighs_what_a_flow_takes():
    """Equal rates, not equal shares: two units a byte take two thirds of the resource."""
    assert max_min_rates([FlowPath({0: 2.0}), FlowPath({0: 1.0})], [3.0]) == pytest.approx([1.0, 1.0])


def test_a_path_over_nothing_is_limited_by_its_maximum_alone():
    assert max_min_rates([FlowPath({}, max_rate=7.0), FlowPath()], []) == [7.0, float("inf")]
