"""Topologies of real machine rooms: nodes with a switch inside, and networks of several switch layers.

Devices here have several cables (to the node's own fabric and to a NIC), and none passes on what is meant for another:
``forwards=False``. One NIC a device is part of that device's cable to the network.
"""

from collections.abc import Sequence
from itertools import product

from llmsim.cluster.cluster import Cluster, Host
from llmsim.cluster.topologies import Wiring, check_positive, check_ratio, dealt, mesh_all
from llmsim.errors import InputError


def fat_tree(
    k: int, bandwidth_bytes_per_s: float, latency_s: float, *, oversubscription: float = 1.0, seed: int = 0
) -> Cluster:
    """Three layers of switches with ``k`` ports: ``k`` pods, k³/4 hosts.

    ``oversubscription`` thins out the cables between edge and aggregation switches. Al-Fares, Loukissas, Vahdat 2008,
    "A scalable, commodity data center network architecture", §3.
    """
    if k < 2 or k % 2:
        raise InputError(f"k is {k}", where="fat-tree", mend="take an even number of ports, 2 or more")
    check_ratio("fat-tree", oversubscription)
    half = k // 2
    wiring = Wiring("fat-tree", k * half * half)
    core = [wiring.node(f"core{i}") for i in range(half * half)]
    for pod in range(k):
        edges = [wiring.node(f"edge{pod}.{i}") for i in range(half)]
        aggregations = [wiring.node(f"aggregation{pod}.{i}") for i in range(half)]
        for i, edge in enumerate(edges):
            for j in range(half):
                host = f"d{(pod * half + i) * half + j}"
                wiring.cable(host, edge, bandwidth_bytes_per_s, latency_s)
        for edge, aggregation in product(edges, aggregations):
            wiring.cable(edge, aggregation, bandwidth_bytes_per_s / oversubscription, latency_s)
        for i, aggregation in enumerate(aggregations):
            for switch in core[i * half : (i + 1) * half]:
                wiring.cable(aggregation, switch, bandwidth_bytes_per_s, latency_s)
    return wiring.cluster(seed=seed)


def dragonfly(groups: int, routers: int, hosts: int, bandwidth_bytes_per_s: float, latency_s: float) -> Cluster:
    """``groups`` of ``routers`` (all cabled to each other) with ``hosts`` each, and one cable between any two groups.

    Global cables are spread over a group's routers as evenly as possible. Kim, Dally, Scott, Abts 2008,
    "Technology-driven, highly-scalable dragonfly topology", with minimal routing: at most one cable inside the first
    group, the one between the groups, and one inside the last, which is one path between any two hosts.
    """
    check_positive("dragonfly", groups=groups, routers=routers, hosts=hosts)
    wiring = Wiring("dragonfly", groups * routers * hosts)
    names = [[wiring.node(f"router{g}.{r}") for r in range(routers)] for g in range(groups)]
    for index, device in enumerate(wiring.devices):
        g, r = divmod(index // hosts, routers)
        wiring.cable(device, names[g][r], bandwidth_bytes_per_s, latency_s)
    for group in names:
        mesh_all(wiring, group, bandwidth_bytes_per_s, latency_s)
    for a in range(groups):
        for b in range(a + 1, groups):
            # the offset from a group to the other counts its global cables, dealt out to its routers in turn
            there, back = b - a - 1, groups - 1 - (b - a)
            pair = names[a][there % routers], names[b][back % routers]
            wiring.cable(*pair, bandwidth_bytes_per_s, latency_s, hops=_GLOBAL_HOPS)
    return wiring.cluster()


_GLOBAL_HOPS = 3  # local, global, local is 5, less than two global cables that happen to meet in one router


def nvswitch_node(
    gpus: int, bandwidth_bytes_per_s: float, latency_s: float, *, device: str | None = None, host: str = "node0"
) -> Cluster:
    """One node whose devices reach each other through switches that never limit, e.g. the GPUs of a DGX A100.

    ``bandwidth_bytes_per_s`` is what one device can send (all its NVLinks together) and ``latency_s`` that of one link;
    a path has two.
    """
    wiring = Wiring("nvswitch-node", gpus, device=device, host=host, forwards=False)
    fabric = wiring.node(f"{host}.nvswitch")
    for gpu in wiring.devices:
        wiring.cable(gpu, fabric, bandwidth_bytes_per_s, latency_s)
    return wiring.cluster(hosts={host: Host(host)})


def rail_optimised(
    nodes: int,
    gpus_per_node: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    scale_up_bandwidth_bytes_per_s: float,
    scale_up_latency_s: float,
    switch_latency_s: float | None = None,
    spines: int | None = None,
    oversubscription: float = 1.0,
    device: str | None = None,
    name: str = "rail-optimised",
    seed: int = 0,
) -> Cluster:
    """Nodes with a switch inside, and a leaf switch for each rail: the i-th NIC of every node is on leaf i.

    Args:
        bandwidth_bytes_per_s: of one NIC; every GPU has one.
        latency_s: of the cable from GPU to leaf, NIC included.
        scale_up_bandwidth_bytes_per_s: what one GPU can send inside the node.
        scale_up_latency_s: of one link inside the node; a path has two.
        switch_latency_s: of a cable between switches, by default ``latency_s``.
        spines: by default as many as nodes, at most 8. Only traffic between rails crosses them.
        oversubscription: bandwidth of a leaf's NICs over bandwidth of its uplinks.
    """
    check_positive(name, nodes=nodes, gpus_per_node=gpus_per_node)
    check_ratio(name, oversubscription)
    spines = min(8, nodes) if spines is None else spines
    check_positive(name, spines=spines)
    wiring = Wiring(name, nodes * gpus_per_node, device=device, forwards=False)
    leaves = [wiring.node(f"leaf{i}") for i in range(gpus_per_node)] if nodes > 1 else []
    for n in range(nodes):
        inside = wiring.node(f"node{n}.nvswitch")
        for i in range(gpus_per_node):
            gpu = wiring.devices[n * gpus_per_node + i]
            wiring.graph.nodes[gpu]["host"] = f"node{n}"
            wiring.cable(gpu, inside, scale_up_bandwidth_bytes_per_s, scale_up_latency_s)
            if leaves:
                wiring.cable(gpu, leaves[i], bandwidth_bytes_per_s, latency_s)
    if leaves:
        uplink = nodes * bandwidth_bytes_per_s / (oversubscription * spines)
        between = latency_s if switch_latency_s is None else switch_latency_s
        for leaf, spine in product(leaves, [wiring.node(f"spine{i}") for i in range(spines)]):
            wiring.cable(leaf, spine, uplink, between)
    return wiring.cluster(hosts={f"node{n}": Host(f"node{n}") for n in range(nodes)}, seed=seed)


def hccs(
    npus: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    npus_per_server: int = 8,
    network_bandwidth_bytes_per_s: float | None = None,
    network_latency_s: float | None = None,
    device: str | None = None,
    name: str = "hccs",
) -> Cluster:
    """Ascend servers: the NPUs of a server have an HCCS link to each other; servers meet at one network switch.

    Args:
        bandwidth_bytes_per_s: of the HCCS link between two NPUs, per direction.
        network_bandwidth_bytes_per_s: of each NPU's own NIC, by default as fast as an HCCS link.
        network_latency_s: of the cable to the switch, by default ``latency_s``.
    """
    check_positive(name, npus_per_server=npus_per_server)
    if npus > npus_per_server and npus % npus_per_server:
        mend = f"take up to {npus_per_server} or a multiple of {npus_per_server}"
        raise InputError(f"{npus} NPUs fill no whole number of servers", where=name, mend=mend)
    wiring = Wiring(name, npus, device=device, forwards=False)
    servers = [wiring.devices[i : i + npus_per_server] for i in range(0, npus, npus_per_server)]
    for s, members in enumerate(servers):
        for npu in members:
            wiring.graph.nodes[npu]["host"] = f"server{s}"
        mesh_all(wiring, members, bandwidth_bytes_per_s, latency_s)
    if len(servers) > 1:
        bandwidth = bandwidth_bytes_per_s if network_bandwidth_bytes_per_s is None else network_bandwidth_bytes_per_s
        latency = latency_s if network_latency_s is None else network_latency_s
        fabric = wiring.node("network")
        for npu in wiring.devices:
            wiring.cable(npu, fabric, bandwidth, latency)
    return wiring.cluster(hosts={f"server{s}": Host(f"server{s}") for s in range(len(servers))})


def pcie_host(
    gpus: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    gpus_per_switch: int = 2,
    sockets: int = 2,
    socket_bandwidth_bytes_per_s: float | None = None,
    device: str | None = None,
) -> Cluster:
    """A server without NVLink: GPUs below PCIe switches, these below the host bridge of a CPU socket.

    Args:
        bandwidth_bytes_per_s: of every PCIe link, also of a switch's uplink that its GPUs share.
        gpus_per_switch: on each PCIe switch; switches are dealt out to the sockets.
        socket_bandwidth_bytes_per_s: between neighbouring sockets, by default that of a PCIe link.
    """
    check_positive("pcie-host", gpus=gpus, gpus_per_switch=gpus_per_switch, sockets=sockets)
    wiring = Wiring("pcie-host", gpus, device=device, host="host0", forwards=False)
    groups = [wiring.devices[i : i + gpus_per_switch] for i in range(0, gpus, gpus_per_switch)]
    bridges = [wiring.node(f"bridge{i}", kind="host") for i in range(min(sockets, len(groups)))]
    for i, (members, bridge) in enumerate(zip(groups, dealt(bridges, len(groups)), strict=True)):
        pcie_switch = wiring.node(f"pcie{i}")
        wiring.cable(pcie_switch, bridge, bandwidth_bytes_per_s, latency_s)
        for gpu in members:
            wiring.cable(gpu, pcie_switch, bandwidth_bytes_per_s, latency_s)
    between = bandwidth_bytes_per_s if socket_bandwidth_bytes_per_s is None else socket_bandwidth_bytes_per_s
    mesh_all(wiring, bridges, between, latency_s)
    return wiring.cluster(hosts={"host0": Host("host0")})


def one_host(
    ranks: int,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    *,
    cores: float | None = None,
    device: str | None = None,
    name: str = "host",
) -> Cluster:
    """One machine whose CPU ranks talk over loopback: each has its own way in and out of the kernel.

    What makes them slow each other down is ``cores``, the host's processor cores that all ranks share.
    """
    wiring = Wiring(name, ranks, device=device, host=name)
    loopback = wiring.node("loopback", kind="host")
    for rank in wiring.devices:
        wiring.cable(rank, loopback, bandwidth_bytes_per_s, latency_s)
    return wiring.cluster(hosts={name: Host(name, cores)})


def on_one_host(cluster: Cluster, cores: float | None, host: str = "host0") -> Cluster:
    """The same cluster with all its devices on one machine of ``cores``, as network namespaces are."""
    graph = cluster.graph.copy()
    for device in cluster.devices:
        graph.nodes[device]["host"] = host
    return Cluster(cluster.name, graph, cluster.devices, {host: Host(host, cores)}, cluster.seed)


def balanced_dragonfly(up_to: int) -> Sequence[tuple[int, int, int, int]]:
    """(devices, groups, routers, hosts) of the balanced dragonflies, routers = 2·hosts, up to the first larger than
    ``up_to``."""
    sizes: list[tuple[int, int, int, int]] = []
    hosts = 1
    while not sizes or sizes[-1][0] <= up_to:
        routers = 2 * hosts
        groups = routers * hosts + 1
        sizes.append((groups * routers * hosts, groups, routers, hosts))
        hosts += 1
    return sizes
