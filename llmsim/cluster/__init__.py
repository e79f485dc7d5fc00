"""Clusters: devices, links, topologies, routing and placement."""

from llmsim.cluster.build import TOPOLOGIES, build_topology
from llmsim.cluster.cluster import Cluster, Host, Link
from llmsim.cluster.fabrics import (
    dragonfly,
    fat_tree,
    hccs,
    nvswitch_node,
    on_one_host,
    one_host,
    pcie_host,
    rail_optimised,
)
from llmsim.cluster.topologies import fully_connected, leaf_spine, line, mesh, ring, switch, torus, two_racks

__all__ = [
    "TOPOLOGIES",
    "Cluster",
    "Host",
    "Link",
    "build_topology",
    "dragonfly",
    "fat_tree",
    "fully_connected",
    "hccs",
    "leaf_spine",
    "line",
    "mesh",
    "nvswitch_node",
    "on_one_host",
    "one_host",
    "pcie_host",
    "rail_optimised",
    "ring",
    "switch",
    "torus",
    "two_racks",
]
