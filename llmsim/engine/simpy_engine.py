"""The readable engine: every queue of a program is a SimPy process, every message a flow in a shared network.

This is the reference that the compiled engine is held to. It is also the world for whatever is dynamic: a
:class:`Network` serves any SimPy process that moves bytes.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any, cast

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import NORMAL, Event, EventPriority

from llmsim.engine.bound import BoundProgram
from llmsim.engine.network import FlowPath, max_min_rates
from llmsim.program.graph import deadlock_error
from llmsim.program.program import Kind

_SEND, _RECV, _RECV_REDUCE, _COLLECTIVE = int(Kind.SEND), int(Kind.RECV), int(Kind.RECV_REDUCE), int(Kind.COLLECTIVE)
SLACK = 1e-9  # a resource is used more, or less, than its bucket fills where it is by this share
_AFTER_ALL_ELSE = EventPriority(2)  # SimPy's own priorities are 0 and 1


class Occurrence(Event):
    """An event that can be made to happen after a delay; SimPy's own happen at once."""

    def happen(self, delay_s: float = 0.0, value: object = None, priority: EventPriority = NORMAL) -> None:
        self._ok, self._value = True, value
        self.env.schedule(self, priority, delay_s)


class Flow:
    """Work under way on a path."""

    __slots__ = ("done", "path", "rate", "remaining", "since_s")

    def __init__(self, path: FlowPath, work: float, done: Occurrence):
        self.path, self.remaining, self.done = path, work, done
        self.rate, self.since_s = 0.0, 0.0


class Bucket:
    """The tokens of a resource: they come at ``fill_rate`` up to ``size``, and go at the rate at which it is used.

    With tokens the resource gives up to ``open_rate``; without, it gives what comes.
    """

    def __init__(self, size: float, fill_rate: float, open_rate: float):
        self.size, self.fill_rate, self.open_rate = size, fill_rate, open_rate
        self.tokens, self.used, self.since_s = size, 0.0, 0.0
        self.is_open = True
        self.forecast: Occurrence | None = None  # of the moment when it is empty

    def fill(self, now: float) -> None:
        """Bring the tokens up to date."""
        self.tokens += (self.fill_rate - self.used) * (now - self.since_s)
        self.tokens = min(self.size, max(0.0, self.tokens))
        self.since_s = now

    def use(self, rate: float) -> float | None:
        """From now on it is used at ``rate``; returns after how long it will be empty, None if it won't."""
        self.used = rate
        if not self.is_open and rate < self.fill_rate * (1 - SLACK):
            self.is_open = True
        if self.is_open and rate > self.fill_rate * (1 + SLACK):
            return self.tokens / (rate - self.fill_rate)
        return None


class Network:
    """Resources shared max-min fairly by flows, in simulated time.

    Rates change only when a flow starts or ends, or when a bucket is empty. All that happens at one moment counts as
    one change, and only flows connected to it through shared resources are given new rates.

    Args:
        capacity: by resource, per second.
        buckets: by resource, of those that have one.
    """

    def __init__(
        self, env: simpy.Environment, capacity: Sequence[float], buckets: "Mapping[int, Bucket] | None" = None
    ):
        self.env, self.capacity, self.buckets = env, list(capacity), dict(buckets or {})
        for resource, bucket in self.buckets.items():
            self.capacity[resource] = bucket.open_rate
        self._flows: list[dict[Flow, None]] = [{} for _ in capacity]  # by resource; dicts, as they keep their order
        self._changed: dict[int, None] = {}  # resources that gained or lost a flow at this moment
        self._rate_alone: dict[FlowPath, float] = {}

    def transfer(self, path: FlowPath, work: float) -> Event:
        """An event that happens when ``work`` has been done on ``path``."""
        if not path.demand:
            return self.env.timeout(work / path.max_rate)
        flow = Flow(path, work, Occurrence(self.env))
        flow.done.callbacks = [self._end]
        for resource in path.demand:
            self._flows[resource][flow] = None
        self._change(path)
        return flow.done

    def _end(self, done: Event) -> None:
        flow = cast(Flow, done.value)
        for resource in flow.path.demand:
            del self._flows[resource][flow]
        self._change(flow.path)

    def _change(self, path: FlowPath) -> None:
        if not self._changed:
            end_of_moment = Occurrence(self.env)
            end_of_moment.callbacks = [self._share]
            end_of_moment.happen(priority=_AFTER_ALL_ELSE)
        for resource in path.demand:
            self._changed[resource] = None

    def _share(self, _: Event) -> None:
        """Give new rates to all flows that the changes of this moment can touch, and forecast when they end."""
        now = self.env.now
        for bucket in self.buckets.values():
            bucket.fill(now)
        for flows in self._components():
            for flow, rate in zip(flows, self._rates(flows), strict=True):
                if rate == flow.rate:
                    continue
                if flow.rate > 0:
                    # SimPy has no way to withdraw a forecast; so whoever waits for it is moved to a new one.
                    outdated = flow.done
                    flow.done = Occurrence(self.env)
                    flow.done.callbacks, outdated.callbacks = outdated.callbacks, []
                    flow.remaining -= flow.rate * (now - flow.since_s)
                flow.rate, flow.since_s = rate, now
                flow.done.happen(max(0.0, flow.remaining / rate), flow)
        self._changed.clear()
        for resource, bucket in self.buckets.items():
            self._use(resource, bucket)

    def _use(self, resource: int, bucket: Bucket) -> None:
        """Tell a bucket how much it is used, and forecast when it is empty."""
        empty_after_s = bucket.use(sum(flow.rate * flow.path.demand[resource] for flow in self._flows[resource]))
        if bucket.is_open:
            self.capacity[resource] = bucket.open_rate
        bucket.forecast = None
        if empty_after_s is not None:
            bucket.forecast = Occurrence(self.env)
            bucket.forecast.callbacks = [self._close]
            bucket.forecast.happen(empty_after_s, resource)

    def _close(self, forecast: Event) -> None:
        """A bucket is empty, unless its use has changed since this was forecast."""
        resource = cast(int, forecast.value)
        bucket = self.buckets[resource]
        if bucket.forecast is forecast:
            bucket.is_open, bucket.forecast = False, None
            bucket.fill(self.env.now)
            bucket.tokens = 0.0
            self.capacity[resource] = bucket.fill_rate
            self._change(FlowPath({resource: 1.0}))

    def _components(self) -> Iterator[list[Flow]]:
        """The flows connected to a changed resource, by connected component."""
        visited: set[int] = set()
        for changed in self._changed:
            if changed in visited or not self._flows[changed]:
                continue
            if len(self._flows[changed]) == 1:
                (flow,) = self._flows[changed]
                if len(flow.path.demand) == 1:  # the common case, worth a short cut
                    yield [flow]
                    continue
            component: dict[Flow, None] = {}
            stack = [changed]
            while stack:
                resource = stack.pop()
                if resource not in visited:
                    visited.add(resource)
                    for flow in self._flows[resource]:
                        if flow not in component:
                            component[flow] = None
                            stack.extend(flow.path.demand)
            yield list(component)

    def _rates(self, flows: list[Flow]) -> list[float]:
        if len(flows) > 1:
            return max_min_rates([flow.path for flow in flows], self.capacity)
        path = flows[0].path
        rate = self._rate_alone.get(path)
        if rate is None or self.buckets:
            rate = self._rate_alone[path] = max_min_rates([path], self.capacity)[0]
        return [rate]


class _Run:
    """One run of a bound program: a process for each queue, and events for what they wait for in each other."""

    def __init__(self, bound: BoundProgram):
        program, paths = bound.program, bound.paths
        self.env = simpy.Environment()
        most = bound.most_capacity
        buckets = {
            resource: Bucket(float(bound.burst[resource]), float(bound.capacity[resource]), float(most[resource]))
            for resource in np.flatnonzero(bound.burst).tolist()
        }
        self.network = Network(self.env, bound.capacity.tolist(), buckets)
        self.rendezvous = bound.send_mode == "rendezvous"
        self.queue_start = program.queue_start.tolist()
        self.start_s, self.end_s = [-1.0] * len(program), [-1.0] * len(program)  # -1: not yet
        self.first_before, self.before = (column.tolist() for column in program._dependency_by_op)
        # Lists, as Python reads single elements of arrays slowly.
        self.kind, self.match, self.call = program.kind.tolist(), program.match.tolist(), program.call.tolist()
        self.path, self.work = bound.path.tolist(), bound.work.tolist()
        self.delay_s, self.latency_s = paths.delay_s.tolist(), paths.latency_s.tolist()
        crossed = list(zip(paths.resource.tolist(), paths.demand.tolist(), strict=True))
        self.flow_path = [
            FlowPath(dict(crossed[first:last]), max_rate)
            for (first, last), max_rate in zip(pairwise(paths.start.tolist()), paths.max_rate.tolist(), strict=True)
        ]
        self.takes_time = [bool(path.demand) or path.max_rate < inf for path in self.flow_path]
        # Events for which a process waits, by operation.
        self.completed: dict[int, Occurrence] = {}
        self.arrived: dict[int, Occurrence] = {}  # the message of a SEND
        self.reached: dict[int, Occurrence] = {}  # a RECV, under rendezvous
        self.members_missing = [len(contract.ranks) for contract in program.collectives]
        self.all_there = [Occurrence(self.env) for _ in program.collectives]

    def run(self) -> None:
        for first, last in pairwise(self.queue_start):
            if first < last:
                self.env.process(self.queue(range(first, last)))
        self.env.run()

    def queue(self, ops: range) -> Generator[Event, Any, None]:
        """Run the operations of one queue in order."""
        env, start_s, end_s = self.env, self.start_s, self.end_s  # local names are looked up faster
        completed, arrived = self.completed, self.arrived
        paths, delay_s, work, takes_time = self.path, self.delay_s, self.work, self.takes_time
        before, first_before = self.before, self.first_before
        for op in ops:
            for earlier in before[first_before[op] : first_before[op + 1]]:
                if end_s[earlier] < 0:
                    yield completed.get(earlier) or completed.setdefault(earlier, Occurrence(env))
            start_s[op] = env.now
            precondition = self.precondition(op)
            if precondition is not None:
                yield precondition
            path = paths[op]
            if delay_s[path] > 0:
                yield env.timeout(delay_s[path])
            if work[op] > 0 and takes_time[path]:
                yield self.network.transfer(self.flow_path[path], work[op])
            end_s[op] = env.now
            if op in completed:
                completed.pop(op).happen()
            if op in arrived:
                arrived.pop(op).happen(self.latency_s[path])

    def precondition(self, op: int) -> Event | None:
        """What must happen, besides the dependencies of an operation, before its activity begins."""
        kind, env = self.kind[op], self.env
        if kind in (_RECV, _RECV_REDUCE):
            if op in self.reached:
                self.reached.pop(op).happen()
            send = self.match[op]
            if self.end_s[send] < 0:
                return self.arrived.setdefault(send, Occurrence(env))
            arrival_s = self.end_s[send] + self.latency_s[self.path[send]]
            return env.timeout(arrival_s - env.now) if arrival_s > env.now else None
        if kind == _SEND:
            recv = self.match[op]
            if self.rendezvous and self.start_s[recv] < 0:
                return self.reached.setdefault(recv, Occurrence(env))
        elif kind == _COLLECTIVE:
            call = self.call[op]
            self.members_missing[call] -= 1
            if self.members_missing[call] > 0:
                return self.all_there[call]
            self.all_there[call].happen()
        return None


def run_simpy(bound: BoundProgram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start and end of each operation, in seconds.

    Raises:
        ProgramError: the program deadlocks.
    """
    run = _Run(bound)
    run.run()
    start_s, end_s = np.array(run.start_s), np.array(run.end_s)
    if np.any(end_s < 0):
        raise deadlock_error(bound.program, bound.send_mode)
    return start_s, end_s
