"""Network namespaces: who reaches whom and how fast, real programs in them, and that nothing is left behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from llmsim_kernels import netlab as module
from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.netlab import Shape, netlab, netlab_unavailable, shape_for
from processes import children_of
from test_launch import gone

from llmsim.cluster import leaf_spine, ring, switch, torus, two_racks
from llmsim.engine.emulate import emulate
from llmsim.errors import ExecutionError, InputError
from llmsim.program import collective

pytestmark = pytest.mark.timeout(60)

reason = netlab_unavailable()
needs_lab = pytest.mark.skipif(reason is not None, reason=str(reason))


def machine():
    """What a lab could leave behind on this machine."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout.splitlines()
    addresses = subprocess.run(["ip", "-o", "address"], capture_output=True, text=True).stdout.splitlines()
    named = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    queues = subprocess.run(["tc", "qdisc"], capture_output=True, text=True).stdout
    return [line.split()[1] for line in links], [line.split()[1:4] for line in addresses], named, queues


def namespaces():
    """Network namespaces that some process is in, by inode."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(os.stat(f"/proc/{pid}/ns/net").st_ino)
        except OSError:
            continue
    return found


def inodes(lab):
    """Those of the lab's namespaces."""
    return {os.stat(host.namespace).st_ino for host in lab.hosts}


def greet_all(addresses):
    """Serve a greeting, and fetch that of every host; returns by whom each was signed."""
    own = [line.split()[3].split("/")[0] for line in output("ip", "-4", "-o", "address") if " lo " not in line]
    server = socket.create_server(("0.0.0.0", 7000), backlog=64)

    def serve():
        for _ in addresses:
            connection, _ = server.accept()
            with connection:
                connection.sendall(own[0].encode())

    thread = threading.Thread(target=serve)
    thread.start()
    heard = []
    for address in addresses:
        for _ in range(500):
            try:
                with socket.create_connection((address, 7000), timeout=10) as connection:
                    heard.append(connection.recv(100).decode())
                break
            except ConnectionRefusedError:  # not up yet
                time.sleep(0.01)
    thread.join()
    return heard


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def transfer(role, address, size):
    """Send ``size`` bytes to ``address`` and wait for the receipt; the sender returns how long it took."""
    if role == "receiver":
        with socket.create_server((address, 7001)) as server:
            connection, _ = server.accept()
            with connection:
                left = size
                while left:
                    left -= len(connection.recv(min(left, 1 << 20)))
                connection.sendall(b".")
        return None
    if role != "sender":
        return None
    for _ in range(500):
        try:
            with socket.create_connection((address, 7001)) as connection:
                began = time.monotonic()
                connection.sendall(bytes(size))
                connection.recv(1)
                return time.monotonic() - began
        except ConnectionRefusedError:
            time.sleep(0.01)
    return None


@needs_lab
@pytest.mark.parametrize(
    ("topology", "hosts"),
    [("star", 1), ("star", 16), ("two-racks", 5), ("line", 4), ("ring", 6), (torus((2, 3), 1e7, 0.0), 6)],
)
def test_every_host_reaches_every_other(topology, hosts):
    with netlab(topology, hosts, "1Gb/s") as lab:
        assert len(lab.hosts) == len(lab.cluster.devices) == hosts
        addresses = [host.address for host in lab.hosts]
        assert lab.run(greet_all, addresses) == [addresses] * hosts


@needs_lab
@pytest.mark.parametrize(
    ("topology", "ends", "bytes_per_s"),
    [("star", (0, 1), 12.5e6), ("two-racks", (0, 3), 5e6), ("line", (0, 3), 12.5e6)],
)
def test_no_path_is_faster_than_its_slowest_link(topology, ends, bytes_per_s):
    size = 2_000_000
    uplink = "40Mb/s" if topology == "two-racks" else None
    with netlab(topology, 4, "100Mb/s", uplink=uplink) as lab:
        route = lab.cluster.route(*(lab.cluster.devices[end] for end in ends))
        links = [lab.cluster.links[index] for index in route]
        assert min(link.bandwidth_bytes_per_s for link in links) == bytes_per_s
        address = lab.hosts[ends[1]].address
        roles = {ends[0]: "sender", ends[1]: "receiver"}
        with WorkerPool(4, hosts=lab.hosts, backend=None) as pool:
            took_s = pool.run(transfer, per_rank=[(roles.get(r, ""), address, size) for r in range(4)])[ends[0]]
        free = sum(lab.shape.burst_bytes(link.bandwidth_bytes_per_s) for link in links)
        assert took_s >= (size / lab.shape.one_way_efficiency - free) / bytes_per_s


def counted():
    """Bytes and drops of this host's link, as its token bucket counts them."""
    sent = next(line for line in output("tc", "-s", "qdisc", "show", "dev", "eth0") if "Sent" in line)
    words = sent.replace(",", " ").split()
    return int(words[1]), int(words[words.index("(dropped") + 1])


@needs_lab
@pytest.mark.parametrize(("hosts", "rate"), [(2, "100Mb/s"), (2, "1Gb/s"), (8, "1Gb/s")])
def test_the_bytes_on_a_link_are_those_of_the_application_and_of_the_headers(hosts, rate):
    size = 4_000_000
    roles = ["sender", "receiver"] + [""] * (hosts - 2)
    with netlab("star", hosts, rate) as lab, WorkerPool(hosts, hosts=lab.hosts, backend=None) as pool:
        pool.run(transfer, per_rank=[(role, lab.hosts[1].address, size) for role in roles])
        (data, data_lost), (receipts, receipts_lost), *_ = pool.run(counted)
    assert data == pytest.approx(size / lab.shape.one_way_efficiency, rel=0.01)
    both_ways = lab.shape.protocol_efficiency / lab.shape.one_way_efficiency
    assert receipts / data == pytest.approx(1 - both_ways, abs=0.006)
    assert data_lost == receipts_lost == 0


@needs_lab
def test_latency_needs_netem():
    """It is added where the kernel can, and refused where it cannot."""
    try:
        lab = netlab("line", 2, "100Mb/s", latency="20ms")
    except ExecutionError as error:
        assert "netem" in str(error)  # noqa: PT017
        return
    with lab, WorkerPool(2, hosts=lab.hosts, backend=None) as pool:
        took_s = pool.run(transfer, per_rank=[(role, lab.hosts[1].address, 1) for role in ("sender", "receiver")])[0]
    assert took_s >= 0.04


@needs_lab
def test_programs_run_in_a_lab():
    program = collective("all-reduce", "ring", 4, 10_001)
    inputs = {"data": np.random.default_rng(0).integers(0, 9, (4, 10_001)).astype(np.float32)}
    with netlab("two-racks", 4, "1Gb/s") as lab, WorkerPool(4, hosts=lab.hosts) as pool:
        out = execute(program, inputs, pool=pool).outputs["data"]
    np.testing.assert_array_equal(out, emulate(program, inputs)["data"])


@needs_lab
def test_a_rank_in_a_lab_is_where_it_should_be():
    with netlab("line", 3, "1Gb/s") as lab, WorkerPool(3, hosts=lab.hosts) as pool:
        seen = pool.run(output, "ip", "-4", "-o", "address")
    for host, lines in zip(lab.hosts, seen, strict=True):
        assert any(f"{host.interface} " in line and f"{host.address}/32" in line for line in lines)


@needs_lab
def test_nothing_is_left_after_use_nor_after_an_exception():
    before = machine()
    with netlab("ring", 4) as lab, WorkerPool(4, hosts=lab.hosts, backend=None) as pool:
        holder, pids, spaces = lab._holder.pid, pool.pids, inodes(lab)
        assert len(spaces & namespaces()) == 4
        assert machine() == before  # nor is anything seen from outside meanwhile
    assert gone([holder, *pids], 0)
    assert not spaces & namespaces()
    lab = netlab("star", 2)
    holder, spaces = lab._holder.pid, inodes(lab)
    with pytest.raises(ZeroDivisionError), lab:
        raise ZeroDivisionError
    assert gone([holder], 0)
    assert not spaces & namespaces()
    assert machine() == before


OWNER = """
    import os, time
    from llmsim_kernels.launch import WorkerPool
    from llmsim_kernels.netlab import netlab
    if __name__ == "__main__":
        with netlab("star", 2) as lab, WorkerPool(2, hosts=lab.hosts) as pool:
            print(lab._holder.pid, *pool.pids, flush=True)
            print(*(os.stat(host.namespace).st_ino for host in lab.hosts), flush=True)
            pool.run(time.sleep, 100)
"""


@needs_lab
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_an_owner_that_ends(tmp_path, number):
    before = machine()
    script = tmp_path / "owner.py"
    script.write_text(textwrap.dedent(OWNER))
    owner = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with owner:
        pids, spaces = ({int(word) for word in owner.stdout.readline().split()} for _ in range(2))
        helpers = children_of(owner.pid)
        seen = namespaces()
        owner.send_signal(number)
    assert len(pids) == 3
    assert pids <= set(helpers)
    assert len(spaces) == 2
    assert spaces <= seen
    assert gone(helpers)
    assert not spaces & namespaces()
    assert machine() == before


@needs_lab
def test_a_holder_that_dies_takes_the_lab_with_it():
    with netlab("star", 2) as lab:
        spaces = inodes(lab)
        os.kill(lab._holder.pid, signal.SIGKILL)
        lab._holder.wait()
        with pytest.raises(ExecutionError):
            lab.run(os.getpid)
    assert not spaces & namespaces()


ROOTLESS = """
    import os
    from llmsim_kernels.netlab import netlab, netlab_unavailable
    from llmsim_kernels.launch import WorkerPool
    from llmsim_kernels.execute import execute
    from llmsim.program import collective
    if __name__ == "__main__":
        assert os.geteuid() != 0
        if netlab_unavailable() is not None:
            print("unavailable:", netlab_unavailable())
        else:
            with netlab("star", 2) as lab, WorkerPool(2, hosts=lab.hosts) as pool:
                execute(collective("all-reduce", "ring", 2, 100), pool=pool)
                print("ran")
"""


@needs_lab
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as somebody else; others run all tests rootless")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
def test_without_privileges(tmp_path):
    """As another user, who may read all files (Python may be installed where only root may) but nothing else."""
    script = tmp_path / "rootless.py"
    script.write_text(textwrap.dedent(ROOTLESS))
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    may_read = [f"--{what}-caps=-all,+dac_read_search" for what in ("inh", "ambient")]
    done = subprocess.run([*become, *may_read, sys.executable, script], capture_output=True, text=True, timeout=50)
    if "unavailable" in done.stdout:
        pytest.skip(done.stdout)
    assert done.stdout == "ran\n", done.stderr[-2000:]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"hosts": 0}, "0 hosts"),
        ({"hosts": 17}, "17 hosts; take 1 to 16"),
        ({"topology": "cube"}, "no topology 'cube'"),
        ({"bandwidth": "fast"}, "not a bandwidth"),
        ({"uplink": "1Gb/s"}, "no uplink"),
        ({"topology": "two-racks", "uplink": "quick"}, "uplink"),
        ({"topology": switch(17, 1e6, 0.0)}, "17 hosts"),
        ({"latency": "1 light-year"}, "duration"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments, match):
    with pytest.raises(InputError, match=match):
        netlab(**arguments)


def test_routes_that_depend_on_the_sender_are_refused():
    with pytest.raises(InputError, match="depends on the sender"):
        module._next_hops(leaf_spine(8, 1e6, 0.0, leaves=2, spines=4))


@pytest.mark.parametrize("cluster", [ring(5, 1e6, 0.0), two_racks(4, 1e6, 0.0), torus((3, 3), 1e6, 0.0)])
def test_packets_take_the_routes_of_the_model(cluster):
    try:
        hops = module._next_hops(cluster)
    except InputError:
        assert cluster.name == "torus"  # several shortest paths
        return
    for source in cluster.devices:
        for destination in cluster.devices:
            nodes, node = [source], source
            while node != destination:
                node = hops[node, destination]
                nodes.append(node)
            links = [
                (link.source, link.destination)
                for link in map(cluster.links.__getitem__, cluster.route(source, destination))
            ]
            assert links == list(pairwise(nodes))


def test_efficiency_follows_from_the_headers():
    shape = Shape(mtu=1500, bundle_bytes=1514)
    assert shape.one_way_efficiency == 1448 / 1514
    assert shape.protocol_efficiency == pytest.approx(1448 / 1514 * (1 - 66 / 3028))


def test_shapes_need_a_bounded_number_of_timers():
    for hosts in (2, 4, 8, 16):
        for rate in (1.25e6, 12.5e6, 125e6):
            cluster = switch(hosts, rate, 0.0)
            shape = shape_for(cluster)
            assert 1500 <= shape.mtu <= 9000
            assert shape.bundle_bytes <= 65536
            if shape.bundle_bytes < 7 * 9014:
                assert sum(link.bandwidth_bytes_per_s for link in cluster.links) / shape.bundle_bytes < 80e3
            assert shape.burst_bytes(rate) >= shape.bundle_bytes


def test_a_machine_without_the_tools_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "iproute2" in netlab_unavailable()
    with pytest.raises(ExecutionError, match="iproute2"):
        netlab("star", 2)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux" in netlab_unavailable()


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ("--size 6", "--size: 6 B is no whole number of float32"),
        ("--size 0", "--size: 0 B"),
        ("ping --trace t.json", "ping takes no --algorithm"),
        ("all-reduce --hosts 1", "--hosts: 1 hosts"),
        ("all-reduce --hosts 1000000000", "--hosts: 1000000000 hosts"),
        ("--bandwidth 1b/s", "a link of"),
        ("--bandwidth 1e20B/s", "a link of"),
    ],
)
def test_the_command_refuses_what_it_could_not_do(arguments, finding, capsys):
    from llmsim_kernels.cli import app

    from llmsim.cli import run

    assert run(app, ["netlab", *arguments.split()]) == 2
    assert finding in capsys.readouterr().err


@needs_lab
def test_the_death_of_the_process_that_holds_the_lab_is_told_and_not_only_the_silence():
    lab = netlab(hosts=2)
    assert lab._holder is not None
    os.kill(lab._holder.pid, signal.SIGKILL)
    lab._holder.wait()
    silence = ExecutionError("rank 0 waited 30 s for rank 1")
    with pytest.raises(ExecutionError, match="the process that holds the lab has died"):
        lab.__exit__(ExecutionError, silence, None)
