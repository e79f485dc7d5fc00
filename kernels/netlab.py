"""A small cluster on one machine: Linux network namespaces joined by links of chosen rates, for real packets.

>>> with netlab("two-racks", hosts=4, bandwidth="1Gb/s", uplink="500Mb/s") as lab:  # doctest: +SKIP
...     with WorkerPool(4, hosts=lab.hosts) as pool:
...         measured = execute(program, pool=pool)
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from llmsim_kernels.channel import Channel
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.netlab_holder import START, NodePlan

from llmsim.cluster import Cluster, build_topology, on_one_host
from llmsim.errors import ExecutionError, InputError
from llmsim.units import format_bandwidth, parse_bandwidth, parse_duration

MOST_HOSTS = 16
_MOST_NODES = 128
_LEAST_BYTES_PER_S, _MOST_BYTES_PER_S = 1e3, 125e9
_NETWORK = "10.77.0."  # addresses of the hosts; they exist only inside the lab
_GATEWAY = "169.254.77.1"  # what each node calls whatever is at the other end of a cable
_START_S = 30.0
_BUNDLES_PER_S = 40e3


@dataclass(frozen=True)
class LabHost:
    """One host: processes that enter ``namespace`` see only its interfaces."""

    name: str
    namespace: str  # a path
    interface: str
    address: str
    user_namespace: str | None = None  # a path, where the lab was made without privileges


@dataclass(frozen=True)
class Shape:
    """How rates are imposed on packets: by a token bucket (``tc-tbf``) at the sending end of each direction of a cable.

    Attributes:
        mtu: bytes of an IP packet.
        bundle_bytes: packets that TCP hands down together (generic segmentation offload), with their headers.
        allowance_s: a bucket holds a bundle and what a link carries in this time.
        queue_bytes: what waits for tokens at most; more would be dropped, but windows are too small for that.
    """

    mtu: int
    bundle_bytes: int
    allowance_s: float = 150e-6
    queue_bytes: int = 32 << 20

    def burst_bytes(self, bandwidth_bytes_per_s: float) -> int:
        """The size of the bucket of a link: so much leaves at once after a pause."""
        return round(self.bundle_bytes + self.allowance_s * bandwidth_bytes_per_s)

    @property
    def one_way_efficiency(self) -> float:
        """Bytes of the application in a byte of a link's rate, where the link carries data in this direction only.

        A bucket counts packets with their Ethernet header (14 bytes) but without preamble, checksum and gap; a full
        packet holds 20 bytes of IPv4 and 32 of TCP with time stamps.
        """
        return (self.mtu - 52) / (self.mtu + 14)

    @property
    def protocol_efficiency(self) -> float:
        """The same where data flow both ways at once, as in most collectives.

        Then acknowledgements of 66 bytes share the link, one for a bundle or for two full packets. This is what the
        headers leave; what is reached is 1 to 3 % less, as timers come late and connections need time to get going.
        """
        return self.one_way_efficiency * (1 - 66 / max(self.bundle_bytes, 2 * (self.mtu + 14)))


def shape_for(cluster: Cluster) -> Shape:
    """The finest shape for which this machine has the time.

    Each bundle costs each link on its way a timer and a dequeue, some 10 to 20 µs of a core on a virtual machine.
    Bundles are so large that all links together, at full rate, need 40,000 a second: one packet of 1.5 to 9 kB, or
    several of 9 kB. The bucket must hold what a timer that comes late has missed; but as it also lets as much through
    at once after a pause, α of short messages measured here is smaller by up to that time.
    """
    bundle = sum(link.bandwidth_bytes_per_s for link in cluster.links) / _BUNDLES_PER_S
    packet = min(9014, max(1514, int(bundle)))
    packets = min(7, max(1, int(bundle / packet)))  # TCP bundles at most 64 KiB
    return Shape(mtu=packet - 14, bundle_bytes=packets * packet)


class NetLab:
    """A lab that is up; made by :func:`netlab`, a context manager.

    Attributes:
        hosts: in the order of the cluster's devices.
        cluster: the model of exactly this topology: its devices are the hosts, all on this machine with its cores.
        protocol_efficiency: see :attr:`Shape.protocol_efficiency`.
    """

    def __init__(self, cluster: Cluster, shape: Shape):
        self.cluster, self.shape = cluster, shape
        self.hosts: tuple[LabHost, ...] = ()
        self.protocol_efficiency = shape.protocol_efficiency
        self._holder: subprocess.Popen[bytes] | None = None
        plans, names, interfaces = _plan(cluster, shape)
        ours, theirs = Channel.pair()
        self._channel = ours
        try:
            with theirs.socket:
                self._holder = subprocess.Popen(
                    [sys.executable, "-c", START, json.dumps(sys.path), str(theirs.fileno()), str(os.getpid())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # a Ctrl-C is for the owner, whose end ends the lab
                )
            ours.socket.settimeout(_START_S)
            ours.send(plans)
            kind, answer = ours.recv()
            if kind == "failed":
                raise ExecutionError(f"the lab could not be built: {answer}", where="netlab")
            paths, user = answer
            self.hosts = tuple(
                LabHost(name, path, interfaces[name], f"{_NETWORK}{index + 1}", user)
                for index, (name, path) in enumerate(zip(names, paths, strict=True))
                if index < len(cluster.devices)
            )
        except (EOFError, TimeoutError):
            self.close()
            raise ExecutionError("the process that builds the lab has died or hangs", where="netlab") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "NetLab":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        holder_died = self._holder is not None and self._holder.poll() is not None
        self.close()
        if holder_died and isinstance(error, ExecutionError):  # which tells of silent ranks only
            raise ExecutionError("the process that holds the lab has died, and its links with it", where="netlab")

    def close(self) -> None:
        """Take the lab down. Its namespaces vanish with the last process in them, so close pools first."""
        self._channel.close()
        if self._holder is not None:
            try:
                self._holder.wait(5)
            except subprocess.TimeoutExpired:
                self._holder.kill()
                self._holder.wait()
            self._holder = None

    def run(self, function: Callable[..., Any], *args: Any, limit_s: float = 60.0) -> list[Any]:
        """``function(*args)`` in a process on every host; the results in the order of ``hosts``.

        See :meth:`llmsim_kernels.launch.WorkerPool.run` for what can be sent.
        """
        with WorkerPool(len(self.hosts), hosts=self.hosts, backend=None) as pool:
            return pool.run(function, *args, limit_s=limit_s)


def netlab(
    topology: "str | Cluster" = "switch",
    hosts: int = 4,
    bandwidth: "str | float" = "1Gb/s",
    *,
    latency: "str | float" = 0.0,
    uplink: "str | float | None" = None,
    shape: Shape | None = None,
) -> NetLab:
    """Build a lab; use it as a context manager.

    Args:
        topology: ``"switch"`` (or ``"star"``), ``"two-racks"``, ``"line"``, ``"ring"``, or a cluster of at most 16
            devices whose routes depend on nothing but where a packet is and where it goes.
        hosts: 1 to 16; not used where a cluster is given.
        bandwidth: of each link and direction, headers included, as ``"1Gb/s"`` or in bytes per second.
        latency: of each link, added to what the machine takes; needs a kernel with ``netem``.
        uplink: of the cable between two racks; by default a quarter of what a rack's hosts have together.
        shape: how rates are imposed, by default :func:`shape_for` the cluster.

    Raises:
        InputError: an unknown topology, a number of hosts or a rate that cannot be had.
        ExecutionError: this machine does not permit it; :func:`netlab_unavailable` says so beforehand.
    """
    if isinstance(topology, Cluster):
        cluster = topology
    else:
        name = "switch" if topology == "star" else topology
        options: dict[str, object] = {}
        if uplink is not None:
            if name != "two-racks":
                raise InputError(f"a {topology} has no uplink", where="netlab", mend="leave it out or use two-racks")
            options["uplink_bandwidth_bytes_per_s"] = uplink
        rate = parse_bandwidth(bandwidth) if isinstance(bandwidth, str) else float(bandwidth)
        if not 1 <= hosts <= MOST_HOSTS:
            raise InputError(f"{hosts} hosts", where="netlab", mend=f"take 1 to {MOST_HOSTS}")
        latency_s = parse_duration(latency) if isinstance(latency, str) else float(latency)
        cluster = build_topology(name, hosts, rate, latency_s, **options)
    for link in cluster.links:
        if not _LEAST_BYTES_PER_S <= link.bandwidth_bytes_per_s <= _MOST_BYTES_PER_S:
            found = f"a link of {format_bandwidth(link.bandwidth_bytes_per_s)}"
            raise InputError(found, where="netlab", mend="take 8kb/s to 1Tb/s, which tc can shape")
    if len(cluster.devices) > MOST_HOSTS:
        raise InputError(f"{len(cluster.devices)} hosts", where="netlab", mend=f"take at most {MOST_HOSTS}")
    reason = netlab_unavailable()
    if reason is not None:
        raise ExecutionError(reason, where="netlab")
    shape = shape or shape_for(cluster)
    return NetLab(as_built(cluster, shape), shape)


def as_built(cluster: Cluster, shape: Shape) -> Cluster:
    """The model of a cluster as a lab is built of it: all devices on this machine with its cores, and links with the
    buckets that shape them."""
    graph = cluster.graph.copy()
    for _, _, data in graph.edges(data=True):
        data["burst_bytes"] = float(shape.burst_bytes(data["bandwidth_bytes_per_s"]))
    built = Cluster(cluster.name, graph, cluster.devices, cluster.hosts, cluster.seed)
    return on_one_host(built, float(os.cpu_count() or 1))


def netlab_unavailable() -> str | None:
    """Why no lab can be built on this machine, or None if one can.

    Looks for Linux, for ``ip`` and ``tc`` of iproute2, and tries a pair of namespaces with a shaped link.
    """
    if not sys.platform.startswith("linux"):
        return "network namespaces exist on Linux only"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the command {tool!r} is missing; install iproute2"
    global _tried
    if _tried is None:
        try:
            pair = build_topology("line", 2, 1e6, 0.0)
            with NetLab(pair, shape_for(pair)):
                _tried = ""
        except (ExecutionError, OSError) as error:
            why = error.what if isinstance(error, ExecutionError) else str(error)
            _tried = f"no shaped network namespaces here ({why}); run as root, or where user namespaces are allowed"
    return _tried or None


_tried: str | None = None


# from a cluster to commands ------------------------------------------------------------------------------------------


def _plan(cluster: Cluster, shape: Shape) -> tuple[list[NodePlan], list[str], dict[str, str]]:
    """For each node what to do in its namespace, their names (devices first), and each device's main interface."""
    names = [*cluster.devices, *(node for node in cluster.graph.nodes if node not in cluster.devices)]
    if len(names) > _MOST_NODES:
        raise InputError(f"{len(names)} hosts and switches", where="netlab", mend=f"take at most {_MOST_NODES}")
    number = {name: index for index, name in enumerate(names)}
    interface: dict[tuple[str, str], str] = {}  # of a node towards a neighbour
    links: dict[str, list[str]] = {name: [] for name in names}
    ip: dict[str, list[str]] = {name: ["link set dev lo up"] for name in names}
    tc: dict[str, list[str]] = {name: [] for name in names}
    for a, b in cluster.graph.edges:
        if not cluster.graph.has_edge(b, a):
            raise InputError(f"the link {a} → {b} has no way back", where="netlab", mend="TCP needs both directions")
        interface[a, b] = f"eth{sum(end == a for end, _ in interface)}"
    for a, b in cluster.graph.edges:
        near, far = interface[a, b], interface[b, a]
        if number[a] < number[b]:
            links[a].append(
                f"link add name {near} mtu {shape.mtu} address {_mac(number[a], number[b])} type veth "
                f"peer name {far} mtu {shape.mtu} address {_mac(number[b], number[a])} netns {{namespace:{number[b]}}}"
            )
        rate = cluster.graph.edges[a, b]["bandwidth_bytes_per_s"]
        ip[a] += [
            f"link set dev {near} gso_max_size {shape.bundle_bytes}",
            f"link set dev {near} up",
            f"neigh add {_GATEWAY} lladdr {_mac(number[b], number[a])} dev {near} nud permanent",
        ]
        tc[a].append(
            f"qdisc add dev {near} root handle 1: tbf rate {round(rate * 8)}bit "
            f"burst {shape.burst_bytes(rate)} limit {shape.queue_bytes}"
        )
        latency_s = cluster.graph.edges[a, b]["latency_s"]
        if latency_s > 0:  # packets wait for their time first, then for tokens
            tc[a].append(f"qdisc add dev {near} parent 1:1 handle 10: netem delay {latency_s * 1e6:.3f}us limit 100000")
    # On the first interface alone: Linux takes packets for its address on all of them.
    main = {device: "eth0" if cluster.graph.degree(device) else "lo" for device in cluster.devices}
    for device in cluster.devices:
        ip[device].append(f"address add {_address(number[device])}/32 dev {main[device]}")
    for (node, destination), hop in _next_hops(cluster).items():
        source = f" src {_address(number[node])}" if node in cluster.devices else ""
        ip[node].append(
            f"route add {_address(number[destination])}/32 via {_GATEWAY} dev {interface[node, hop]} onlink{source}"
        )
    sysctl = _sysctl(cluster)
    plans = [NodePlan(sysctl, tuple(links[n]), tuple(ip[n]), tuple(tc[n])) for n in names]
    return plans, names, main


def _next_hops(cluster: Cluster) -> dict[tuple[str, str], str]:
    """(node, destination) → the neighbour that the model's routes take from there."""
    hops: dict[tuple[str, str], str] = {}
    for source in cluster.devices:
        for destination in cluster.devices:
            for index in cluster.route(source, destination):
                link = cluster.links[index]
                hop = hops.setdefault((link.source, destination), link.destination)
                if hop != link.destination:
                    raise InputError(
                        f"at {link.source} the way to {destination} depends on the sender",
                        where="netlab",
                        mend="use a topology with one shortest path, or one spine",
                    )
    return hops


_SYSCTL = (
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/ipv4/tcp_congestion_control", "reno"),  # BBR would pace by its own estimate, and pause to probe
    ("net/ipv4/tcp_slow_start_after_idle", "0"),
    ("net/ipv4/tcp_no_metrics_save", "1"),
    ("net/ipv4/tcp_limit_output_bytes", "131072"),  # so that a sender's own queue delays others by little
)


def _sysctl(cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Settings of every namespace.

    TCP windows are small, so that nothing is dropped, flows that share a queue share it evenly, and a send is complete
    not long before its last byte has left; but they hold a bundle or two and what a link carries in 2 ms, for ranks
    that are late, and four times what the longest path holds.
    """
    longest_s = max(
        (
            sum(cluster.links[i].latency_s for i in cluster.route(a, b))
            for a in cluster.devices
            for b in cluster.devices
        ),
        default=0.0,
    )
    fastest = max((link.bandwidth_bytes_per_s for link in cluster.links), default=0.0)
    window = round((1 << 17) + min(1 << 20, 2e-3 * fastest) + 4 * 2 * longest_s * fastest)
    return (*_SYSCTL, *((f"net/ipv4/tcp_{way}mem", f"4096 {window} {window}") for way in "rw"))


def _address(index: int) -> str:
    return f"{_NETWORK}{index + 1}"


def _mac(node: int, towards: int) -> str:
    return f"02:00:00:00:{node:02x}:{towards:02x}"
