"""Clusters: devices, links, topologies, routing and placement."""

from llmsim.cluster.build import TOPOLOGIES, build_topology
from llmsim.cluster.cluster import Cluster, Host, Link
from llmsim.cluster.topologies import fully_connected, leaf_spine, line, mesh, ring, switch, torus, two_racks

__all__ = [
    "TOPOLOGIES",
    "Cluster",
    "Host",
    "Link",
    "build_topology",
    "fully_connected",
    "leaf_spine",
    "line",
    "mesh",
    "ring",
    "switch",
    "torus",
    "two_racks",
]
