"""Rates that follow changes are those found from scratch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_network import amounts

from llmsim.engine.events import add_flow, fill_all, new_heap, new_sharing, remove_flow, share
from llmsim.engine.network import FlowPath, max_min_rates


@st.composite
def changes(draw):
    """Capacities, paths, and batches of flows that start or end together; flow q is the q-th queue's."""
    capacity = draw(st.lists(amounts, min_size=1, max_size=8))
    demands = st.dictionaries(st.integers(0, len(capacity) - 1), amounts, min_size=1, max_size=5)
    paths = draw(st.lists(st.builds(FlowPath, demands, st.just(1e9) | amounts), min_size=1, max_size=12))
    batches = draw(st.lists(st.sets(st.integers(0, len(paths) - 1), min_size=1), min_size=1, max_size=12))
    return capacity, paths, batches


@settings(max_examples=200, deadline=None)
@given(changes(), st.booleans())
def test_rates_after_any_changes_equal_those_from_scratch(change, all_anew):
    capacity, paths, batches = change
    queues = len(paths)
    lengths = [len(path.demand) for path in paths]
    start = np.concatenate([[0], np.cumsum(lengths)])
    net = new_sharing(
        queues,
        start,
        np.array([r for path in paths for r in path.demand]),
        np.array([a for path in paths for a in path.demand.values()]),
        np.array(capacity),
        np.full(len(capacity), queues),
    )
    event, order = new_heap(queues)
    running: set[int] = set()
    size = 0
    for batch in batches:  # each toggles its flows
        for q in batch:
            if q in running:
                remove_flow(net, q)
            else:
                add_flow(net, q, start[q], start[q + 1], paths[q].max_rate, 1.0, 0.0)
        running ^= batch
        if all_anew:
            net.counts[0] = fill_all(net, net.counts[0])
            net.counts[1] = 0
        size = share(net, event, order, size, 0.0)
        flows = sorted(running)
        expected = max_min_rates([paths[q] for q in flows], capacity)
        assert [net.flow[q]["rate"] for q in flows] == pytest.approx(expected, rel=1e-9)
