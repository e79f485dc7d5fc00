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
from llmsim.cluster.files import load_cluster, parse_cluster, save_cluster, to_dict
from llmsim.cluster.importers import import_topo
from llmsim.cluster.placement import place
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
    "import_topo",
    "leaf_spine",
    "line",
    "load_cluster",
    "mesh",
    "nvswitch_node",
    "on_one_host",
    "one_host",
    "parse_cluster",
    "pcie_host",
    "place",
    "rail_optimised",
    "ring",
    "save_cluster",
    "switch",
    "to_dict",
    "torus",
    "two_racks",
]
