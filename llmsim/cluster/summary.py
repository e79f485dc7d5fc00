"""A cluster in a few lines."""

from collections import Counter
from itertools import islice, permutations
from math import inf

from llmsim.cluster.cluster import Cluster
from llmsim.units import format_bandwidth, format_duration

EXACT_UP_TO = 300  # devices; beyond that the slower lines are left out


def describe(cluster: Cluster) -> str:
    """The cluster in a few lines: devices, hosts, switches, links by kind; up to 300 devices also the longest path and
    the bandwidth between the first and the second half of the devices."""
    nodes = cluster.graph.nodes
    kinds = Counter(nodes[d].get("device") or "device" for d in cluster.devices)
    lines = [f"{cluster.name}: {_counted(kinds)}"]
    hosts = {host.name: host for host in map(cluster.host_of, cluster.devices)}
    if len(hosts) < len(cluster.devices):
        cores = Counter("any cores" if h.cores is None else f"{h.cores:g} cores" for h in hosts.values())
        cores = Counter() if set(cores) == {"any cores"} else cores
        lines.append(f"  hosts      {_counted(cores) if cores else len(hosts)}")
    others = Counter(data.get("kind", "switch") for name, data in nodes(data=True) if name not in set(cluster.devices))
    if others:
        lines.append(f"  between    {_counted(others)}")
    links = Counter((link.bandwidth_bytes_per_s, link.latency_s) for link in cluster.links)
    for (bandwidth, latency), count in sorted(links.items(), reverse=True):
        lines.append(f"  links      {count} × {format_bandwidth(bandwidth)}, {format_duration(latency)}")
    if 1 < len(cluster.devices) <= EXACT_UP_TO:
        hops, latency = longest_path(cluster)
        lines.append(f"  diameter   {hops} links, {format_duration(latency)}")
        lines.append(f"  bisection  {format_bandwidth(bisection_bandwidth(cluster))} from the first half to the second")
    return "\n".join(lines)


def _counted(counts: Counter) -> str:
    return ", ".join(f"{count} × {name}" for name, count in counts.items())


def longest_path(cluster: Cluster) -> tuple[int, float]:
    """Links and latency in seconds of the longest route between two devices (each the largest on its own)."""
    hops, latency_s = 0, 0.0
    for a, b in permutations(cluster.devices, 2):
        path = cluster.route(a, b)
        hops = max(hops, len(path))
        latency_s = max(latency_s, sum(cluster.links[i].latency_s for i in path))
    return hops, latency_s


def bisection_bandwidth(cluster: Cluster) -> float:
    """The most that the first half of the devices can send to the second, bytes per second: a maximum flow; 0 where
    there is one device."""
    import networkx as nx

    if len(cluster.devices) < 2:
        return 0.0

    half = (len(cluster.devices) + 1) // 2
    network: nx.DiGraph = nx.DiGraph()
    for link in cluster.links:
        network.add_edge(link.source, link.destination, capacity=link.bandwidth_bytes_per_s)
    total = sum(link.bandwidth_bytes_per_s for link in cluster.links)  # as good as unlimited, and safe to subtract
    network.add_edges_from((("source",), device) for device in islice(cluster.devices, half))
    network.add_edges_from((device, ("sink",)) for device in islice(cluster.devices, half, None))
    nx.set_edge_attributes(network, {e: total for e in network.edges if "capacity" not in network.edges[e]}, "capacity")
    return float(nx.maximum_flow_value(network, ("source",), ("sink",))) if total < inf else inf
