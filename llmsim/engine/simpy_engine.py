"""The readable engine: every queue of a program is a SimPy process, every message a flow in a shared network.

This is the reference that the compiled engine is held to. It is also the world for whatever is dynamic: a
:class:`Network` serves any SimPy process that moves bytes.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import Any, cast

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import Event, EventPriority

from llmsim.engine.bound import BoundProgram
from llmsim.engine.deadlock import deadlock_error
from llmsim.engine.network import FlowPath, max_min_rates
from llmsim.program.program import RECEIVES, Kind

_AFTER_ALL_ELSE = EventPriority(2)  # SimPy's own priorities are 0 and 1


class Flow:
    """Work under way on a path."""

    __slots__ = ("done", "path", "rate", "remaining", "since_s", "timer")

    def __init__(self, path: FlowPath, work: float, done: Event):
        self.path, self.remaining, self.done = path, work, done
        self.rate, self.since_s = 0.0, 0.0
        self.timer: Event | None = None  # the latest forecast of its completion; earlier ones are void


class Network:
    """Resources shared max-min fairly by flows, in simulated time.

    Rates change only when a flow starts or ends. All that happens at one moment counts as one change, and only flows
    connected to it through shared resources are given new rates.
    """

    def __init__(self, env: simpy.Environment, capacity: Sequence[float]):
        self.env, self.capacity = env, capacity
        self._flows: list[dict[Flow, None]] = [{} for _ in capacity]  # by resource; dicts, as they keep their order
        self._changed: dict[int, None] = {}  # resources that gained or lost a flow at this moment

    def transfer(self, path: FlowPath, work: float) -> Event:
        """An event that happens when ``work`` has been done on ``path``."""
        if not path.demand:
            return self.env.timeout(work / path.max_rate)
        flow = Flow(path, work, Event(self.env))
        for resource in path.demand:
            self._flows[resource][flow] = None
        self._change(path)
        return flow.done

    def _change(self, path: FlowPath) -> None:
        if not self._changed:
            end_of_moment = Event(self.env)
            end_of_moment._ok, end_of_moment._value = True, None
            end_of_moment.callbacks = [self._share]
            self.env.schedule(end_of_moment, _AFTER_ALL_ELSE)
        for resource in path.demand:
            self._changed[resource] = None

    def _share(self, _: Event) -> None:
        """Give new rates to all flows that the changes of this moment can touch."""
        env, now = self.env, self.env.now
        for flows in self._components():
            for flow, rate in zip(flows, self._rates(flows), strict=True):
                if rate != flow.rate:
                    flow.remaining -= flow.rate * (now - flow.since_s)
                    flow.rate, flow.since_s = rate, now
                    flow.timer = env.timeout(max(0.0, flow.remaining / rate), flow)
                    flow.timer.callbacks.append(self._finish)
        self._changed.clear()

    def _components(self) -> Iterator[list[Flow]]:
        """The flows connected to a changed resource, by connected component."""
        seen: set[Flow] = set()
        visited: set[int] = set()
        for changed in self._changed:
            component: list[Flow] = []
            stack = [changed]
            while stack:
                resource = stack.pop()
                if resource in visited:
                    continue
                visited.add(resource)
                for flow in self._flows[resource]:
                    if flow not in seen:
                        seen.add(flow)
                        component.append(flow)
                        stack.extend(flow.path.demand)
            if component:
                yield component

    def _rates(self, flows: list[Flow]) -> list[float]:
        if len(flows) == 1:  # the common case, worth a short cut
            path = flows[0].path
            return [min(path.max_rate, *[self.capacity[r] / demand for r, demand in path.demand.items()])]
        return max_min_rates([flow.path for flow in flows], self.capacity)

    def _finish(self, timer: Event) -> None:
        flow = cast(Flow, timer.value)
        if flow.timer is timer:
            for resource in flow.path.demand:
                del self._flows[resource][flow]
            self._change(flow.path)
            flow.done.succeed()


class _Run:
    """One run of a bound program: a process for each queue, and events for what they wait for in each other."""

    def __init__(self, bound: BoundProgram):
        self.bound, self.program = bound, bound.program
        self.env = simpy.Environment()
        self.network = Network(self.env, bound.capacity.tolist())
        size = len(self.program)
        self.start_s, self.end_s = [-1.0] * size, [-1.0] * size  # -1: not yet
        self._completion: dict[int, Event] = {}  # of operations that someone waits for
        self._arrival_at_receive: dict[int, Event] = {}  # RECVs that a rendezvous SEND waits for
        self._members_missing = [len(contract.ranks) for contract in self.program.collectives]
        self._all_there = [Event(self.env) for _ in self.program.collectives]
        paths = bound.paths
        ends = paths.start.tolist()
        resource, demand = paths.resource.tolist(), paths.demand.tolist()
        self.paths = [
            FlowPath(dict(zip(resource[a:b], demand[a:b], strict=True)), max_rate)
            for (a, b), max_rate in zip(pairwise(ends), paths.max_rate.tolist(), strict=True)
        ]
        self.delay_s, self.latency_s = paths.delay_s.tolist(), paths.latency_s.tolist()
        self.path, self.work = bound.path.tolist(), bound.work.tolist()
        self.kind, self.match = self.program.kind.tolist(), self.program.match.tolist()
        self.call = self.program.call.tolist()
        self.before = _predecessors(bound)

    def run(self) -> None:
        ends = self.program.queue_start.tolist()
        for first, last in pairwise(ends):
            if first < last:
                self.env.process(self.queue(range(first, last)))
        self.env.run()

    def queue(self, ops: range) -> Generator[Event, Any, None]:
        """Run the operations of one queue in order."""
        env = self.env
        for op in ops:
            for earlier in self.before.get(op, ()):
                if self.end_s[earlier] < 0:
                    yield self.completion(earlier)
            self.start_s[op] = env.now
            begin_s = yield from self.preconditions(op)
            path = self.path[op]
            delay_s = begin_s + self.delay_s[path] - env.now
            if delay_s > 0:
                yield env.timeout(delay_s)
            work, flow_path = self.work[op], self.paths[path]
            if work > 0 and (flow_path.demand or flow_path.max_rate < inf):
                yield self.network.transfer(flow_path, work)
            self.end_s[op] = env.now
            waited_for = self._completion.pop(op, None)
            if waited_for is not None:
                waited_for.succeed()

    def preconditions(self, op: int) -> Generator[Event, Any, float]:
        """Wait for what an operation needs besides its dependencies; returns when its activity begins, now or later."""
        kind, env = self.kind[op], self.env
        if kind in RECEIVES:
            send = self.match[op]
            if self.bound.send_mode == "rendezvous" and op in self._arrival_at_receive:
                self._arrival_at_receive.pop(op).succeed()
            if self.end_s[send] < 0:
                yield self.completion(send)
            return max(env.now, self.end_s[send] + self.latency_s[self.path[send]])
        if kind == Kind.SEND and self.bound.send_mode == "rendezvous":
            recv = self.match[op]
            if self.start_s[recv] < 0:
                self._arrival_at_receive[recv] = Event(env)
                yield self._arrival_at_receive[recv]
        elif kind == Kind.COLLECTIVE:
            call = self.call[op]
            self._members_missing[call] -= 1
            if self._members_missing[call] == 0:
                self._all_there[call].succeed()
            else:
                yield self._all_there[call]
        return env.now

    def completion(self, op: int) -> Event:
        """The event of an operation's completion."""
        event = self._completion.get(op)
        if event is None:
            event = self._completion[op] = Event(self.env)
        return event


def _predecessors(bound: BoundProgram) -> dict[int, list[int]]:
    """Operation → the operations it waits for, where there are any."""
    before: dict[int, list[int]] = {}
    for earlier, later in bound.program.dependency.tolist():
        before.setdefault(later, []).append(earlier)
    return before


def run_simpy(bound: BoundProgram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start and end of each operation, in seconds.

    Raises:
        ProgramError: the program deadlocks.
    """
    run = _Run(bound)
    run.run()
    start_s, end_s = np.array(run.start_s), np.array(run.end_s)
    if np.any(end_s < 0):
        raise deadlock_error(bound, start_s >= 0, end_s >= 0)
    return start_s, end_s
