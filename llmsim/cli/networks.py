"""Commands about networks: ``topology`` and ``flows``."""

from pathlib import Path
from typing import Annotated

import typer

from llmsim.cli.clusters import Bandwidth, Dims, Latency, Options, Oversubscription, Ranks, assignment, cluster_of
from llmsim.cli.output import Json, console, print_json
from llmsim.cluster.cluster import Cluster
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
        if any(value is not None for value in (name, ranks, bandwidth, latency, oversubscription, dims)):
            mend = "leave the others out; --set takes nvlink, pcie and device"
            raise InputError("is a description of the cluster already", where="--nvidia-smi", mend=mend)
        cluster = _imported(nvidia_smi, options)
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


def _imported(file: Path, options: list[str] | None) -> Cluster:
    from llmsim.cluster import import_topo

    known = dict(assignment(text) for text in options or ())
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
