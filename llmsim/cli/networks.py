"""Commands about networks: ``topology`` and ``flows``."""

from pathlib import Path
from typing import Annotated

import typer

from llmsim.cli.clusters import Bandwidth, Dims, Latency, Options, Oversubscription, Ranks, cluster_of
from llmsim.cli.output import Json, console, print_json
from llmsim.errors import InputError


def topology(
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
    from llmsim.cluster.summary import bisection_bandwidth, describe, longest_path

    if name is None and nvidia_smi is None:
        _list_topologies(as_json)
        return
    if nvidia_smi is not None:
        from llmsim.cluster.nvidia_smi import load_nvidia_smi

        given = (name, ranks, bandwidth, latency, oversubscription, dims, options)
        if any(value for value in given):
            raise InputError("takes no other description of the cluster", where="--nvidia-smi")
        cluster = load_nvidia_smi(nvidia_smi)
    else:
        assert name is not None
        cluster = cluster_of(name, ranks, bandwidth, latency, oversubscription, dims, options)
    if plot is not None:
        from llmsim import plots

        plots.topology(cluster).save(plot)
    if save is not None:
        save_cluster(cluster, save)
    if as_json:
        hops, latency_s = longest_path(cluster)
        summary = {
            "devices": len(cluster.devices),
            "nodes": len(cluster.graph),
            "links": len(cluster.links),
            "diameter_links": hops,
            "diameter_latency_s": latency_s,
            "bisection_bandwidth_bytes_per_s": bisection_bandwidth(cluster),
        }
        print_json({"name": cluster.name, **summary, "cluster": to_dict(cluster)})
    else:
        console().print(describe(cluster), soft_wrap=True)


def _list_topologies(as_json: bool) -> None:
    from llmsim import catalog
    from llmsim.cli.output import table
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
