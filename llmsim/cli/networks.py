"""Commands about networks: ``topology`` and ``flows``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from llmsim.cli.clusters import Bandwidth, Dims, Latency, Options, Oversubscription, Ranks, assignments, cluster_of
from llmsim.cli.output import Json, alone, console, print_json, progress, table
from llmsim.cluster.cluster import Cluster
from llmsim.errors import InputError
from llmsim.units import format_bandwidth, format_duration, format_size


class EventEngine(StrEnum):
    """The engines that execute flows."""

    COMPILED = "compiled"
    SIMPY = "simpy"


def flows(
    file: Annotated[Path, typer.Argument(help="Links and flows, as .yaml, .toml or .json; see llmsim.engine.flows.")],
    engine: Annotated[EventEngine, typer.Option(help="What computes the times.")] = EventEngine.COMPILED,
    as_json: Json = False,
) -> None:
    """When each of several flows that share links completes."""
    from llmsim.engine.flows import load_flows, simulate_flows

    flow_set = load_flows(file)
    with progress(f"{len(flow_set.flows)} flows"):
        results = simulate_flows(flow_set, engine=engine.value)
    rows: list[dict[str, Any]] = []
    for flow, result in zip(flow_set.flows, results, strict=True):
        path = [flow_set.links[i] for i in flow.route]
        alone_s = flow.size_bytes / min(link.bandwidth_bytes_per_s for link in path) + sum(x.latency_s for x in path)
        rows.append(
            {
                "name": result.name,
                "size_bytes": result.size_bytes,
                "start_s": result.start_s,
                "completion_s": result.completion_s,
                "duration_s": result.duration_s,
                "mean_rate_bytes_per_s": result.mean_rate_bytes_per_s,
                "duration_alone_s": alone_s,
            }
        )
    if as_json:
        print_json({"flows": rows, "makespan_s": max(result.completion_s for result in results)})
        return
    cells = [
        (
            row["name"],
            format_size(row["size_bytes"]),
            format_duration(row["start_s"]),
            format_duration(row["completion_s"]),
            format_bandwidth(row["mean_rate_bytes_per_s"]),
            f"{row['duration_s'] / row['duration_alone_s']:.2f}" if row["duration_alone_s"] else "-",
        )
        for row in rows
    ]
    console().print(table(("flow", "size", "start", "completion", "mean rate", "x alone"), cells))


def topology(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="A topology, a cluster of the catalog, or a file.")] = None,
    ranks: Ranks = None,
    bandwidth: Bandwidth = None,
    latency: Latency = None,
    oversubscription: Oversubscription = None,
    dims: Dims = None,
    options: Options = None,
    nvidia_smi: Annotated[
        Path | None, typer.Option("--nvidia-smi", help="Read the output of nvidia-smi topo -m instead.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .png, .svg or .pdf.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write it link by link to this .yaml or .json.")] = None,
    as_json: Json = False,
) -> None:
    """Describe any cluster, and draw it; without a name, list the topologies."""
    from llmsim.cluster.files import save_cluster, to_dict
    from llmsim.cluster.summary import EXACT_UP_TO, bisection_bandwidth, describe, longest_path

    if name is None and nvidia_smi is None:
        alone(context, "a topology")
        _list_topologies(as_json)
        return
    if nvidia_smi is not None:
        if any(value is not None for value in (name, ranks, bandwidth, latency, oversubscription, dims)):
            mend = "leave the others out; --set takes nvlink, pcie and device"
            raise InputError("is a description of the cluster already", where="--nvidia-smi", mend=mend)
        cluster = _imported(nvidia_smi, options)
    else:
        assert name is not None
        cluster = cluster_of(name, ranks, bandwidth, latency, oversubscription, dims, options)
    if plot is not None:
        from llmsim import plots

        with progress(f"drawing {plot}"):
            plots.topology(cluster).save(plot)
    if save is not None:
        save_cluster(cluster, save)
    if as_json:
        small = len(cluster.devices) <= EXACT_UP_TO
        with progress("measuring paths"):
            hops, latency_s = longest_path(cluster) if small else (None, None)
            bisection = bisection_bandwidth(cluster) if small else None
        summary = {
            "devices": len(cluster.devices),
            "nodes": len(cluster.graph),
            "links": len(cluster.links),
            "diameter_links": hops,
            "diameter_latency_s": latency_s,
            "bisection_bandwidth_bytes_per_s": bisection,
        }
        print_json({"name": cluster.name, **summary, "cluster": to_dict(cluster)})
    else:
        with progress("measuring paths"):
            text = describe(cluster)
        console().print(text, soft_wrap=True)


def _imported(file: Path, options: list[str] | None) -> Cluster:
    from llmsim.cluster import import_topo

    known = assignments(options)
    if unknown := set(known) - {"nvlink", "pcie", "device"}:
        mend = "it takes nvlink, pcie and device, names of the catalog"
        raise InputError(f"unknown option {sorted(unknown)[0]!r}", where="--set", mend=mend)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=str(file)) from None
    return import_topo(text, name=file.stem, where=file.name, **known)


def _list_topologies(as_json: bool) -> None:
    from llmsim import catalog
    from llmsim.cluster import TOPOLOGIES

    clusters = {name: catalog.describe_cluster(name) for name in catalog.names()["clusters"]}
    if as_json:
        print_json(
            {
                "topologies": {t.name: {"summary": t.summary, "options": t.options} for t in TOPOLOGIES.values()},
                "clusters": clusters,
            }
        )
        return
    rows = [(t.name, t.summary, " ".join(t.options)) for t in TOPOLOGIES.values()]
    console().print(table(("topology", "", "options (--set NAME=VALUE)"), rows, left=range(3)))
    console().print()
    console().print(table(("cluster", ""), clusters.items(), left=range(2)))
