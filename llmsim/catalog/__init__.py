"""The catalog: devices, links and clusters as data, each figure with its source.

``device("h100-sxm").peak_flop_per_s("bf16")``, ``link("infiniband-ndr").bandwidth_bytes_per_s``,
``cluster("dgx-h100", nodes=4)``.
"""

from llmsim.catalog.clusters import cluster, cluster_for
from llmsim.catalog.load import cluster_models, devices, links, pick
from llmsim.catalog.types import DTYPES, Device, Figure, LinkType

__all__ = [
    "DTYPES",
    "Device",
    "Figure",
    "LinkType",
    "cluster",
    "cluster_for",
    "describe_cluster",
    "device",
    "link",
    "names",
]


def device(name: str) -> Device:
    """The device ``name``.

    Raises:
        InputError: the catalog has none of that name.
    """
    return pick(devices(), name, "device")


def link(name: str) -> LinkType:
    """The link ``name``.

    Raises:
        InputError: the catalog has none of that name.
    """
    return pick(links(), name, "link")


def names() -> dict[str, tuple[str, ...]]:
    """All names of the catalog: ``{"devices": …, "links": …, "clusters": …}``."""
    return {"devices": tuple(devices()), "links": tuple(links()), "clusters": tuple(cluster_models())}


def describe_cluster(name: str) -> str:
    """What the cluster ``name`` is, and where that is said."""
    model = pick(cluster_models(), name, "cluster")
    return f"{model.description} [{model.source}]"
