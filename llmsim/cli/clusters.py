"""How commands take a cluster: a topology by name, a cluster of the catalog, or a file."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from llmsim.cli.output import parsed
from llmsim.cluster.cluster import Cluster
from llmsim.errors import InputError
from llmsim.units import parse_bandwidth, parse_duration

DEFAULT_RANKS, DEFAULT_BANDWIDTH, DEFAULT_LATENCY = 8, "50GB/s", "500ns"

Ranks = Annotated[int | None, typer.Option(help=f"Ranks; {DEFAULT_RANKS}, or as many as the cluster has devices.")]
Bandwidth = Annotated[
    str | None, typer.Option(help=f"Of every link of a named topology, each direction; {DEFAULT_BANDWIDTH}.")
]
Latency = Annotated[str | None, typer.Option(help=f"Of every link of a named topology; {DEFAULT_LATENCY}.")]
Oversubscription = Annotated[str | None, typer.Option(help="Of uplinks, such as 4 or 4:1.")]
Dims = Annotated[str | None, typer.Option(help="Of a torus or mesh, such as 4x4.")]
Options = Annotated[
    list[str] | None, typer.Option("--set", help="Another option of the topology or cluster, NAME=VALUE; repeatable.")
]


def cluster_of(
    topology: str,
    ranks: int | None,
    bandwidth: str | None = None,
    latency: str | None = None,
    oversubscription: str | None = None,
    dims: str | None = None,
    options: Sequence[str] | None = None,
) -> Cluster:
    """The cluster that a command's options describe.

    Raises:
        InputError: an unknown name, or an option that would have no effect.
    """
    from llmsim import catalog
    from llmsim.cluster import TOPOLOGIES, build_topology
    from llmsim.cluster.files import load_cluster

    extra: dict[str, object] = dict(assignment(text) for text in options or ())
    extra |= {"oversubscription": oversubscription} if oversubscription is not None else {}
    if topology in TOPOLOGIES:
        extra |= {"dims": dims} if dims is not None else {}
        rate = parsed("--bandwidth", parse_bandwidth, bandwidth or DEFAULT_BANDWIDTH)
        delay = parsed("--latency", parse_duration, latency or DEFAULT_LATENCY)
        return build_topology(topology, DEFAULT_RANKS if ranks is None else ranks, rate, delay, **extra)
    for option, value in (("--bandwidth", bandwidth), ("--latency", latency)):
        if value is not None:
            raise InputError(f"has no effect on {topology}, whose links have their own", where=option)
    extra |= {"shape": dims} if dims is not None else {}
    clusters = catalog.names()["clusters"]
    if topology in clusters:
        return catalog.cluster(topology, **extra) if ranks is None else catalog.cluster_for(topology, ranks, **extra)
    if Path(topology).suffix or Path(topology).exists():
        return load_cluster(topology, **extra)
    known = [*TOPOLOGIES, *clusters]
    close = difflib.get_close_matches(topology, known, n=2, cutoff=0.5)
    mend = f"did you mean {' or '.join(close)}?" if close else f"choose among {', '.join(known)}, or give a file"
    raise InputError(f"there is no topology or cluster {topology!r}", mend=mend)


def assignment(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` as a pair; the name may be written with hyphens."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise InputError(f"{text!r} is not NAME=VALUE", where="--set")
    return name.strip().replace("-", "_"), value.strip()
