"""A common clock by round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llmsim_kernels.clock import offset_ns, offset_to_rank_0_ns

pytestmark = pytest.mark.timeout(60)


@given(
    ahead=st.integers(-(10**12), 10**12),
    delays=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20),
)
def test_the_error_is_at_most_half_the_shortest_trip(ahead, delays):
    trips, now = [], 0
    for there, back in delays:
        trips.append((now, now + there + ahead, now + there + back))
        now += there + back + 1
    shortest = min(there + back for there, back in delays)
    assert abs(offset_ns(trips) - ahead) <= shortest / 2 + 1


def measured_offset():
    return offset_to_rank_0_ns(measure=True)


def test_one_machine_has_one_clock(pools):
    assert pools(3).run(offset_to_rank_0_ns) == [0, 0, 0]
    zero, *others = pools(3).run(measured_offset)
    assert zero == 0
    assert all(abs(offset) < 50e6 for offset in others)  # at most half a trip, even on a busy machine
