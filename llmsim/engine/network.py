"""Max-min fair rates by progressive filling: the readable reference.

The rates of all flows rise together from zero. A flow stops rising when it reaches its own maximum or when a resource
it crosses is used up; the others go on. The result is the only allocation in which no flow can get more without taking
from one that has no more than itself (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2). A flow takes
``demand`` of a resource per unit of its rate, so that a core and a link can be shared by the same rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, eq=False)
class FlowPath:
    """What limits a flow: the resources it crosses with its demand of each per unit of rate, and a rate of its own."""

    demand: Mapping[int, float] = field(default_factory=dict)
    max_rate: float = inf


def max_min_rates(flows: Sequence[FlowPath], capacity: Sequence[float]) -> list[float]:
    """The max-min fair rate of each flow, in its unit of work per second; ``capacity`` is indexed by resource."""
    rates = [flow.max_rate for flow in flows]
    rising = {i for i, flow in enumerate(flows) if flow.demand}
    left: dict[int, float] = {}  # capacity not taken by flows that have stopped rising
    demand: dict[int, float] = {}  # total demand of those that rise
    crossing: dict[int, list[int]] = {}
    for i in rising:
        for resource, amount in flows[i].demand.items():
            left[resource] = capacity[resource]
            demand[resource] = demand.get(resource, 0.0) + amount
            crossing.setdefault(resource, []).append(i)

    while rising:
        # Each resource would be used up at this common rate; the lowest decides, if no flow's own maximum is lower.
        used_up_at = {resource: left[resource] / demand[resource] for resource in crossing}
        level = min(used_up_at.values())
        own_maximum = min(flows[i].max_rate for i in rising)
        if own_maximum <= level:
            level = own_maximum
            stop = {i for i in rising if flows[i].max_rate <= level}
        else:
            stop = {i for resource in crossing if used_up_at[resource] <= level for i in crossing[resource]} & rising
        for i in stop:
            rates[i] = level
        rising -= stop
        for i in stop:
            for resource, amount in flows[i].demand.items():
                left[resource] = max(0.0, left[resource] - level * amount)
        for resource in {resource for i in stop for resource in flows[i].demand}:
            crossing[resource] = [i for i in crossing[resource] if i in rising]
            # Summed anew: after subtractions, rounding errors of large demands would swamp a small one that is left.
            demand[resource] = sum(flows[i].demand[resource] for i in crossing[resource])
            if not crossing[resource]:
                del crossing[resource]
    return rates
