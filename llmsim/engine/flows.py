"""Flows given one by one: a small network and what is sent over it, without a program or a cluster.

A file holds links and flows (YAML, TOML or JSON)::

    links:
      - {from: a, to: b, bandwidth: 10Gb/s, latency: 5us}
      - {from: b, to: c, bandwidth: 1Gb/s, latency: 5us, name: uplink}
    flows:
      - {name: backup, size: 1GiB, route: [a, b, c]}
      - {name: query, start: 10ms, size: 64KiB, route: [uplink]}

A link goes both ways, at its bandwidth each way, unless it says ``bidirectional: false``. A route is a list of nodes or
of names of links; a named link is crossed in the direction in which it is written, and may do without ``from`` and
``to``. A flow starts at time 0 unless it says when.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from llmsim.cluster.cluster import Link
from llmsim.engine.bound import BoundProgram
from llmsim.engine.paths import Paths
from llmsim.engine.run import Engine, run
from llmsim.program.builder import Builder
from llmsim.program.program import Kind, Region


@dataclass(frozen=True)
class FlowSpec:
    """Bytes to send along a route, a tuple of indices of links, from a moment on."""

    name: str
    size_bytes: int
    route: tuple[int, ...]
    start_s: float = 0.0


@dataclass(frozen=True)
class FlowSet:
    """Directed links, and the flows that share them."""

    links: tuple[Link, ...]
    flows: tuple[FlowSpec, ...]
    name: str = "flows"


@dataclass(frozen=True)
class FlowResult:
    """What became of a flow. ``completion_s`` is when its last byte has arrived; the mean rate is over all the time
    from start to completion."""

    name: str
    size_bytes: int
    start_s: float
    completion_s: float

    @property
    def duration_s(self) -> float:
        return self.completion_s - self.start_s

    @property
    def mean_rate_bytes_per_s(self) -> float:
        """0 where nothing is sent."""
        return self.size_bytes / self.duration_s if self.size_bytes else 0.0


def load_flows(path: "str | Path") -> FlowSet:
    """Read a file of links and flows.

    Raises:
        InputError: the file cannot be read, or a field is missing, unknown or wrong; all findings with their place.
    """
    from llmsim.cluster.files import read_document
    from llmsim.engine.flow_file import parse_flows  # pydantic takes a moment to import

    path = Path(path)
    return parse_flows(read_document(path), path.name)


def simulate_flows(flow_set: FlowSet, *, engine: Engine = "compiled") -> list[FlowResult]:
    """When each flow completes: its bytes at the max-min fair rate, and then the latencies of its links.

    The flows run as a program of single messages, each between two ranks of its own.
    """
    flows = flow_set.flows
    timeline = run(_bound(flow_set), engine=engine)
    received = timeline.end_s[len(flows) :]  # operations are sorted by stream: all sends, then all receives
    return [
        FlowResult(flow.name, flow.size_bytes, flow.start_s, float(end_s))
        for flow, end_s in zip(flows, received, strict=True)
    ]


def _bound(flow_set: FlowSet) -> BoundProgram:
    links, flows = flow_set.links, flow_set.flows
    count = len(flows)
    builder = Builder(flow_set.name, max(1, 2 * count))
    data = builder.buffer("data", max((flow.size_bytes for flow in flows), default=0), "uint8")
    sources = 2 * np.arange(count)
    builder.message(sources, sources + 1, Region(data, 0, _column([flow.size_bytes for flow in flows], np.int64)))
    program = builder.build()
    owner = np.repeat(np.arange(count), [len(flow.route) for flow in flows])
    crossed = np.array([link for flow in flows for link in flow.route], dtype=np.int32)
    latency_s = [sum(links[i].latency_s for i in flow.route) for flow in flows]
    start_s = [flow.start_s for flow in flows]  # a flow that starts later waits on its path, as for an overhead
    sends = program.kind == Kind.SEND
    return BoundProgram(
        program=program,
        send_mode="eager",
        capacity=_column([link.bandwidth_bytes_per_s for link in links], np.float64),
        resource_names=tuple(f"{link.source} → {link.destination}" for link in links),
        paths=Paths.of(  # one for each flow, and one that takes no time for all receives
            _column([*start_s, 0.0], np.float64),
            _column([*latency_s, 0.0], np.float64),
            np.full(count + 1, inf),
            [(owner, crossed, np.ones(len(crossed)))],
        ),
        path=np.where(sends, np.arange(len(program)), count).astype(np.int32),
        work=np.where(sends, program.size_bytes, 0).astype(np.float64),
        burst=_column([link.burst_bytes for link in links], np.float64),
        cluster_name=flow_set.name,
    )


def _column(values: Sequence, dtype: type) -> np.ndarray:
    return np.array(values, dtype=dtype)
