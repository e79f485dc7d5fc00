"""One collective on one cluster, predicted: what ``llmsim collective`` prints."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import signature
from math import log2
from typing import Any

from llmsim.cli.output import progress
from llmsim.cluster.cluster import Cluster
from llmsim.cost.costs import Costs
from llmsim.errors import InputError, LlmsimError
from llmsim.program.program import Program
from llmsim.timeline import Timeline
from llmsim.units import format_size

_MOST_BYTES = 10**18  # offsets have 64 bits
_MOST_MESSAGES = 150_000_000  # about 100 bytes each, in the program and in the engine


class Engine(StrEnum):
    """What computes the time."""

    CLOSED_FORM = "closed-form"
    COMPILED = "compiled"
    SIMPY = "simpy"


class SendMode(StrEnum):
    """Whether a send waits for its receiver."""

    EAGER = "eager"
    RENDEZVOUS = "rendezvous"


@dataclass(frozen=True)
class Question:
    """All but the algorithm."""

    name: str
    cluster: Cluster
    ranks: int
    size_bytes: int
    dtype: str
    engine: Engine
    send_mode: SendMode
    placement: tuple[int, ...]
    root: int
    costs: Costs
    options: Mapping[str, Any]

    @property
    def count(self) -> int:
        """Elements on each rank."""
        import numpy as np

        try:
            dtype = np.dtype(self.dtype)
        except (TypeError, ValueError, SyntaxError):
            dtype = None
        if dtype is None or dtype.kind not in "iufc":
            raise InputError(f"{self.dtype!r} is not a type of number", where="--dtype", mend="e.g. float32")
        itemsize = dtype.itemsize
        if self.size_bytes % itemsize:
            mend = f"take a multiple of {itemsize} B, or --dtype uint8"
            raise InputError(f"{self.size_bytes} B is no whole number of {self.dtype}", where="--size", mend=mend)
        if self.size_bytes > _MOST_BYTES:
            raise InputError(f"{format_size(self.size_bytes)} is too large", where="--size", mend="take up to 1 EB")
        return self.size_bytes // itemsize


@dataclass(frozen=True)
class Answer:
    """The prediction for one algorithm; ``timeline`` is None for a closed form."""

    algorithm: str
    program: Program
    time_s: float
    without_latency_s: float  # the same with all latencies and overheads 0
    closed_form_s: float | None
    lower_bound_s: float
    timeline: Timeline | None


def ask(question: Question, algorithm: str) -> Answer:
    """Predict one algorithm.

    Raises:
        LlmsimError: the algorithm is not defined for the world or the options, or has no closed form.
    """
    from llmsim.cost import program_lower_bound_s
    from llmsim.engine import simulate
    from llmsim.program import collective as make

    name, cluster = question.name, question.cluster
    _refuse_what_fills_the_memory(question, algorithm)
    program = make(
        name, algorithm, question.ranks, question.count, question.dtype, root=question.root, **question.options
    )
    bound_s = program_lower_bound_s(program, cluster, question.placement, question.costs)
    free = replace(question.costs, send_overhead_s=0.0, receive_overhead_s=0.0, latency_s=0.0, local_overhead_s=0.0)
    form_s: float | None = None
    try:
        form_s = _closed_form_s(question, algorithm, bound_s)
    except InputError:
        if question.engine is Engine.CLOSED_FORM:
            raise
    if question.engine is Engine.CLOSED_FORM:
        assert form_s is not None
        without_s = _closed_form_s(replace(question, cluster=without_latency(cluster), costs=free), algorithm, 0.0)
        return Answer(algorithm, program, form_s, without_s, form_s, bound_s, None)
    run = {"engine": question.engine.value, "send_mode": question.send_mode.value, "placement": question.placement}
    timeline = simulate(program, cluster, question.costs, **run)  # type: ignore[arg-type]
    without = simulate(program, without_latency(cluster), free, **run)  # type: ignore[arg-type]
    return Answer(algorithm, program, timeline.makespan_s, without.makespan_s, form_s, bound_s, timeline)


def _refuse_what_fills_the_memory(question: Question, algorithm: str) -> None:
    """Foresee the number of messages of a large world from that of two small ones."""
    from llmsim.program import collective as make

    if question.ranks <= 4096:
        return
    options = {key: value for key, value in question.options.items() if key not in ("group_size", "dims")}
    few, more = (make(question.name, algorithm, n, n, **options).messages for n in (64, 128))
    expected = more * (question.ranks / 128) ** log2(more / few) if few else 0
    if expected > _MOST_MESSAGES:
        raise InputError(f"{algorithm} on {question.ranks:,} ranks has about {expected:.1g} messages", where="--ranks",
                         mend="take fewer ranks or an algorithm with fewer steps")  # fmt: skip


def compare(question: Question) -> tuple[dict[str, Answer], dict[str, str]]:
    """Answers by algorithm, fastest first, and why the other algorithms have none. Options go to whom they concern.

    Raises:
        InputError: an option that concerns no algorithm.
    """
    from llmsim.program import ALGORITHMS
    from llmsim.program.collectives import options_of

    algorithms = list(ALGORITHMS[question.name])
    for option in question.options:
        if not any(option in options_of(question.name, algorithm) for algorithm in algorithms):
            raise InputError(f"concerns no algorithm of {question.name}", where=f"--{option.replace('_', '-')}")
    answers: dict[str, Answer] = {}
    refused: dict[str, str] = {}
    findings: dict[str, LlmsimError] = {}
    with progress(question.name, total=len(algorithms)) as step:
        for algorithm in algorithms:
            known = options_of(question.name, algorithm)
            mine = {option: value for option, value in question.options.items() if option in known}
            try:
                answers[algorithm] = ask(replace(question, options=mine), algorithm)
            except LlmsimError as error:
                refused[algorithm] = error.line()
                findings[error.what] = error
            step()
    if not answers and len(findings) == 1:  # said once, and not by every algorithm
        (finding,) = findings.values()
        where = finding.where if finding.where and finding.where.startswith("--") else question.name
        raise InputError(finding.what, where=where, mend=finding.mend)
    if not answers:
        raise InputError("; ".join(dict.fromkeys(refused.values())))
    return dict(sorted(answers.items(), key=lambda item: item[1].time_s)), refused


def without_latency(cluster: Cluster) -> Cluster:
    """The same cluster with links of no latency: what is left of a time is bytes and waiting."""
    graph = cluster.graph.copy()
    for edge in graph.edges:
        graph.edges[edge]["latency_s"] = 0.0
    return Cluster(cluster.name, graph, cluster.devices, cluster.hosts, cluster.seed)


def _closed_form_s(question: Question, algorithm: str, bound_s: float) -> float:
    """The closed form with α and B of the path between the first two ranks, overheads of messages included.

    Raises:
        InputError: there is none, or links differ, so that there is no one α and B, or it is below the bound because
            messages share links here, which it does not know of.
    """
    from llmsim.cost import CLOSED_FORMS, closed_form_s

    cluster, where = question.cluster, f"closed form of {algorithm}"
    if question.ranks == 1:
        return 0.0
    if len({link[2:] for link in cluster.links}) > 1:
        raise InputError(f"the links of {cluster.name} differ", where=where, mend="use --engine compiled")
    first, second = (cluster.devices[question.placement[rank]] for rank in (0, 1))
    path = [cluster.links[i] for i in cluster.route(first, second)]
    form = CLOSED_FORMS[question.name].get(algorithm)
    known = signature(form).parameters if form else ()
    costs = question.costs
    alpha_s = costs.send_overhead_s + costs.latency_s + costs.receive_overhead_s + sum(link.latency_s for link in path)
    rate = min(link.bandwidth_bytes_per_s for link in path) * costs.protocol_efficiency
    time_s = closed_form_s(
        question.name,
        algorithm,
        question.ranks,
        question.size_bytes,
        latency_s=alpha_s,
        bandwidth_bytes_per_s=min(rate, costs.message_bandwidth_bytes_per_s),
        reduce_s_per_byte=1 / costs.reduce_bandwidth_bytes_per_s,
        **{option: value for option, value in question.options.items() if option in known},
    )
    if time_s < bound_s * (1 - 1e-9):
        finding = f"it gives every message a link of its own, which {cluster.name} does not have"
        raise InputError(finding, where=where, mend="use --engine compiled")
    return time_s
