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

    extra: dict[str, object] = dict(assignments(options))
    shape = "dims" if topology in TOPOLOGIES else "shape"
    for option, name, value in (
        ("--oversubscription", "oversubscription", oversubscription),
        ("--dims", shape, dims),
    ):
        if value is not None:
            if name in extra:
                raise InputError(f"{name} is given by --set too", where=option, mend="give it once")
            extra[name] = value
    if topology in TOPOLOGIES:
        rate = parsed("--bandwidth", parse_bandwidth, DEFAULT_BANDWIDTH if bandwidth is None else bandwidth)
        delay = parsed("--latency", parse_duration, DEFAULT_LATENCY if latency is None else latency)
        return build_topology(topology, DEFAULT_RANKS if ranks is None else ranks, rate, delay, **extra)
    for option, value in (("--bandwidth", bandwidth), ("--latency", latency)):
        if value is not None:
            raise InputError(f"has no effect on {topology}, whose links have their own", where=option)
    clusters = catalog.names()["clusters"]
    if topology in clusters:
        return catalog.cluster(topology, **extra) if ranks is None else catalog.cluster_for(topology, ranks, **extra)
    if Path(topology).suffix or Path(topology).exists():
        return load_cluster(topology, **extra)
    known = [*TOPOLOGIES, *clusters]
    close = difflib.get_close_matches(topology, known, n=2, cutoff=0.5)
    mend = f"did you mean {' or '.join(close)}?" if close else f"choose among {', '.join(known)}, or give a file"
    raise InputError(f"there is no topology or cluster {topology!r}", mend=mend)


_OWN_OPTIONS = {"name": None, "ranks": "--ranks", "bandwidth_bytes_per_s": "--bandwidth", "latency_s": "--latency"}


def assignments(texts: Sequence[str] | None) -> dict[str, str]:
    """``NAME=VALUE``, each name once, as a table; names may be written with hyphens.

    Raises:
        InputError: no such pair, a name that stands twice, or one that has an option of its own.
    """
    values: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        name, value = name.strip().replace("-", "_"), value.strip()
        if not (name and sign and value):
            raise InputError(f"{text!r} is not NAME=VALUE", where="--set")
        if name in values:
            raise InputError(f"{name} is given twice", where="--set", mend="give it once")
        if name in _OWN_OPTIONS:
            own = _OWN_OPTIONS[name]
            raise InputError(f"{name} cannot be set", where="--set", mend=f"use {own}" if own else None)
        values[name] = value
    return values
