"""``llmsim collective``: one collective by one algorithm in detail, or by all of them side by side."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from llmsim.cli.clusters import Bandwidth, Dims, Latency, Options, Oversubscription, Ranks, cluster_of
from llmsim.cli.output import Json, alone, console, parsed, print_json, progress, table
from llmsim.cli.prediction import Answer, Engine, Question, SendMode, ask, compare
from llmsim.cluster.cluster import Cluster
from llmsim.cost.costs import Costs
from llmsim.errors import InputError
from llmsim.units import format_bandwidth, format_duration, format_size, parse_size


def collective(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="all-reduce, all-to-all, …; without one, list them.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="ring, tree, …; without one, compare all.")] = None,
    topology: Annotated[str, typer.Option(help="A topology, a cluster of the catalog, or a file.")] = "switch",
    ranks: Ranks = None,
    bandwidth: Bandwidth = None,
    latency: Latency = None,
    size: Annotated[str, typer.Option(help="Bytes on each rank.")] = "64MiB",
    dtype: Annotated[str, typer.Option(help="Element type; segments are whole elements.")] = "float32",
    engine: Annotated[Engine, typer.Option(help="What computes the time.")] = Engine.COMPILED,
    send_mode: Annotated[SendMode, typer.Option(help="Whether a send waits for its receiver.")] = SendMode.EAGER,
    chunks: Annotated[int | None, typer.Option(help="Pieces in flight, for pipelined algorithms.")] = None,
    group_size: Annotated[int | None, typer.Option(help="Ranks a group, for hierarchical algorithms.")] = None,
    inter: Annotated[str | None, typer.Option(help="Algorithm between groups, for hierarchical ones.")] = None,
    dims: Dims = None,
    oversubscription: Oversubscription = None,
    options: Options = None,
    placement: Annotated[
        str, typer.Option(help="linear, round-robin, random:SEED, or devices such as d0,d4,d1,d5.")
    ] = "linear",
    root: Annotated[int, typer.Option(help="The rank that a broadcast starts from.")] = 0,
    profile: Annotated[Path | None, typer.Option(help="Costs of messages from llmsim calibrate; else ideal.")] = None,
    transport: Annotated[str | None, typer.Option(help="Which of the profile's transports; its first.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the timeline here, for Perfetto or chrome://tracing.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the timeline, or time against size of all algorithms, as .png, .svg, .pdf."),
    ] = None,
    as_json: Json = False,
) -> None:
    """How long a collective takes, how near that is to the bound, and why."""
    from llmsim.program import ALGORITHMS

    if name is None:
        alone(context, "a collective")
        _list_algorithms(as_json)
        return
    algorithms = ALGORITHMS.get(name)
    if algorithms is None:
        raise InputError(f"there is no collective {name!r}", mend=f"choose among {', '.join(ALGORITHMS)}")
    if algorithm is not None and algorithm not in algorithms:
        raise InputError(f"{name} has no algorithm {algorithm!r}", mend=f"choose among {', '.join(algorithms)}")
    if engine is Engine.CLOSED_FORM and send_mode is SendMode.RENDEZVOUS:
        raise InputError("a closed form has no send mode", where="--send-mode", mend="use --engine compiled")
    size_bytes = parsed("--size", parse_size, size)
    given = {"chunks": chunks, "group_size": group_size, "inter": inter}
    given = {option: value for option, value in given.items() if value is not None}
    cluster_dims, given_dims = _dims_for(name, algorithm, topology, dims)
    cluster = cluster_of(topology, ranks, bandwidth, latency, oversubscription, cluster_dims, options)
    ranks = len(cluster.devices) if ranks is None else ranks
    costs = _costs(profile, transport, size_bytes // max(1, ranks))
    question = Question(
        name=name,
        cluster=cluster,
        ranks=ranks,
        size_bytes=size_bytes,
        dtype=dtype,
        engine=engine,
        send_mode=send_mode,
        placement=_placed(cluster, ranks, placement),
        root=root,
        costs=costs,
        options=given | given_dims,
    )
    if algorithm is not None:
        with progress(f"{name} by {algorithm}"):
            answer = ask(question, algorithm)
        _write(question, answer, trace, plot)
        if as_json:
            print_json(as_dict(question, answer))
        else:
            _print(question, answer)
        return
    if trace is not None:
        raise InputError("needs one algorithm", where="--trace", mend="name it with --algorithm")
    answers, refused = compare(question)
    if plot is not None:
        _curves(question, list(answers)).save(plot)
    if as_json:
        rows = [as_dict(question, answer) for answer in answers.values()]
        print_json({"collective": name, "results": rows, "not_defined": refused})
    else:
        _print_comparison(question, answers, refused)


def _dims_for(name: str, algorithm: str | None, topology: str, dims: str | None) -> tuple[str | None, dict[str, Any]]:
    """``dims`` for the network and for the algorithm: it is meant for every one of the two that has a shape."""
    from llmsim.cluster.build import TOPOLOGIES, parse_option
    from llmsim.program import ALGORITHMS
    from llmsim.program.collectives import options_of

    if dims is None:
        return None, {}
    algorithms = ALGORITHMS[name] if algorithm is None else (algorithm,)
    shaped = any("dims" in options_of(name, each) for each in algorithms)
    network = topology not in TOPOLOGIES or "dims" in TOPOLOGIES[topology].options
    if not (shaped or network):
        raise InputError("neither the network nor the algorithm has a shape", where="--dims")
    shape = parsed("--dims", lambda text: parse_option("dims", text), dims)
    return (dims if network else None), ({"dims": shape} if shaped else {})


def _costs(profile: Path | None, transport: str | None, segment_bytes: int) -> Costs:
    """What messages cost beside the wire; reductions at the rate of a segment, whether or not it fits a cache."""
    from llmsim.cost.profile import Profile

    if profile is None:
        if transport is not None:
            raise InputError("has no effect without a profile", where="--transport", mend="give --profile too")
        return Costs()
    try:
        return Profile.load(profile).costs(transport, size_bytes=max(1, segment_bytes))
    except InputError as error:
        raise error if error.where else error.at(str(profile)) from None


def _placed(cluster: Cluster, ranks: int, text: str) -> tuple[int, ...]:
    from llmsim.cluster import place

    policy, colon, seed = text.partition(":")
    if policy != "random":
        return place(cluster, ranks, text)
    if colon and not (seed.isdecimal() and len(seed) <= 19):
        raise InputError(f"{seed!r} is no seed", where="--placement", mend="write random:1")
    return place(cluster, ranks, policy, seed=int(seed or 0))


# telling --------------------------------------------------------------------------------------------------------------


def as_dict(question: Question, answer: Answer) -> dict[str, Any]:
    """What ``--json`` prints; its keys are a contract."""
    algbw, busbw = _bandwidths(question, answer.time_s)
    return {
        "collective": question.name,
        "algorithm": answer.algorithm,
        "cluster": question.cluster.name,
        "ranks": question.ranks,
        "size_bytes": question.size_bytes,
        "engine": question.engine.value,
        "send_mode": question.send_mode.value,
        "time_s": answer.time_s,
        "algbw_bytes_per_s": algbw,
        "busbw_bytes_per_s": busbw,
        "messages": answer.program.messages,
        "message_bytes": answer.program.message_bytes,
        "lower_bound_s": answer.lower_bound_s,
        "closed_form_s": answer.closed_form_s,
        "latency_share": _share(answer.time_s - answer.without_latency_s, answer.time_s),
    }


def _bandwidths(question: Question, time_s: float) -> tuple[float, float]:
    """Algorithm and bus bandwidth of a time; 0 where there is no time."""
    from llmsim.cost import algbw_bytes_per_s, busbw_bytes_per_s

    algbw = algbw_bytes_per_s(question.size_bytes, time_s)
    return algbw, busbw_bytes_per_s(question.name, question.ranks, question.size_bytes, time_s)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _print(question: Question, answer: Answer) -> None:
    out = console()
    title = f"{_title(question)} by {answer.algorithm}: {answer.program.messages:,} messages"
    out.print(title, style="bold", soft_wrap=True)
    times = {"predicted": answer.time_s, "closed form": answer.closed_form_s, "lower bound": answer.lower_bound_s}
    rows = [
        (label, format_duration(time_s), *(format_bandwidth(b) if b else "-" for b in _bandwidths(question, time_s)))
        for label, time_s in times.items()
        if time_s is not None
    ]
    out.print(table(("", "time", "algbw", "busbw"), rows))
    for line in _reasons(answer):
        out.print(line, soft_wrap=True)


def _reasons(answer: Answer) -> list[str]:
    """Where the time above the bound goes, and what the closed form leaves out."""
    lines = []
    gap_s = answer.time_s - answer.lower_bound_s
    if gap_s > 1e-9 * answer.time_s:
        latency_s = min(answer.time_s - answer.without_latency_s, gap_s)
        share = f"{_share(gap_s, answer.time_s):.1%} of the time lies above the bound"
        rest = format_duration(max(gap_s - latency_s, 0.0))
        lines.append(
            f"{share}: {format_duration(latency_s)} of latency, {rest} of more bytes, idle links or shared ones"
        )
    if answer.closed_form_s and answer.timeline is not None:
        more = answer.time_s / answer.closed_form_s - 1
        if abs(more) >= 5e-4:
            than = "slower" if more > 0 else "faster"
            lines.append(f"{abs(more):.1%} {than} than the closed form, in which no two messages share a link")
    return lines


def _title(question: Question) -> str:
    return f"{question.name} of {format_size(question.size_bytes)} on {question.ranks} ranks, {question.cluster.name}"


def _print_comparison(question: Question, answers: Mapping[str, Answer], refused: Mapping[str, str]) -> None:
    rows = []
    for name, answer in answers.items():
        values = as_dict(question, answer)
        rows.append(
            (
                name,
                format_duration(answer.time_s),
                f"{answer.time_s / answer.lower_bound_s:.2f}" if answer.lower_bound_s else "-",
                format_bandwidth(values["algbw_bytes_per_s"]),
                format_bandwidth(values["busbw_bytes_per_s"]),
                f"{values['latency_share']:.1%}",
                f"{values['messages']:,}",
                "-" if answer.closed_form_s is None else format_duration(answer.closed_form_s),
            )
        )
    columns = ("algorithm", "time", "x bound", "algbw", "busbw", "latency", "messages", "closed form")
    out = console()
    bound = next(iter(answers.values())).lower_bound_s
    out.print(f"{_title(question)}: lower bound {format_duration(bound)}", style="bold", soft_wrap=True)
    out.print(table(columns, rows))
    for name, reason in refused.items():
        out.print(f"{name}: {reason}", soft_wrap=True)


def _list_algorithms(as_json: bool) -> None:
    from llmsim.program import ALGORITHMS, COLLECTIVES
    from llmsim.program.collectives import options_of

    known = {name: {a: list(options_of(name, a)) for a in algorithms} for name, algorithms in ALGORITHMS.items()}
    if as_json:
        print_json(known)
        return
    rows = [(name, COLLECTIVES[name], ", ".join(algorithms)) for name, algorithms in known.items()]
    console().print(table(("collective", "", "algorithms"), rows, left=range(3)))


# files ----------------------------------------------------------------------------------------------------------------


def _write(question: Question, answer: Answer, trace: Path | None, plot: Path | None) -> None:
    import numpy as np

    from llmsim.program.program import Kind

    for option, path in (("--trace", trace), ("--plot", plot)):
        if path is not None and answer.timeline is None:
            raise InputError("a closed form has no timeline", where=option, mend="use --engine compiled")
    if trace is not None and answer.timeline is not None:
        sends = np.flatnonzero(answer.program.kind == Kind.SEND)
        with progress(f"writing {trace}"):
            answer.timeline.to_chrome(trace, messages=np.column_stack([sends, answer.program.match[sends]]))
    if plot is not None and answer.timeline is not None:
        from llmsim import plots

        title = f"{_title(question)} by {answer.algorithm}: {format_duration(answer.time_s)}"
        plots.gantt(answer.timeline, title=title).save(plot)


def _curves(question: Question, algorithms: list[str]):
    """Time against size for all algorithms, up to the size asked for."""
    import numpy as np

    from llmsim import plots
    from llmsim.program.collectives import options_of

    itemsize = np.dtype(question.dtype).itemsize
    most = max(question.size_bytes, 1024 * itemsize)
    sizes = sorted({int(s) // itemsize * itemsize for s in np.geomspace(1024, most, 13)})
    times: dict[str, list[float]] = {algorithm: [] for algorithm in algorithms}
    bounds = []
    with progress("drawing curves", total=len(sizes) * len(algorithms)) as step:
        for size in sizes:
            for algorithm in algorithms:
                known = options_of(question.name, algorithm)
                mine = {option: value for option, value in question.options.items() if option in known}
                answer = ask(replace(question, size_bytes=size, options=mine), algorithm)
                times[algorithm].append(answer.time_s)
                step()
            bounds.append(answer.lower_bound_s)
    title = f"{question.name} on {question.ranks} ranks, {question.cluster.name}"
    return plots.curves(sizes, times, x_label="size", x_unit="bytes", bounds={"lower bound": bounds}, title=title)
