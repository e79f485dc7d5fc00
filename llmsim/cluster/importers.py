"""Clusters from the output of tools: ``nvidia-smi topo -m``."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmsim.cluster.cluster import Cluster, Host
from llmsim.errors import InputError

if TYPE_CHECKING:
    from llmsim.catalog.types import LinkType

# How far two things are apart, nearest first, as nvidia-smi's legend says it.
LEGEND = {
    "PIX": "at most one PCIe bridge between them",
    "PXB": "several PCIe bridges, but no host bridge",
    "PHB": "a PCIe host bridge (typically the CPU)",
    "NODE": "host bridges within a NUMA node",
    "SYS": "the interconnect between NUMA nodes",
}
_OLD_NAMES = {"SOC": "SYS", "PSB": "PIX"}
_MOST_NVLINKS = 18  # of a GPU, in any generation up to NVLink 5
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|[a-z][a-z0-9]*_\w+|[a-z]+\d+")


@dataclass(frozen=True)
class TopoMatrix:
    """The table that ``nvidia-smi topo -m`` prints: ``cells[a, b]`` for a ≠ b, and the NUMA node of each row."""

    names: tuple[str, ...]
    cells: dict[tuple[str, str], str]
    numa: dict[str, str]

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name.startswith("GPU"))


def parse_topo(text: str, where: str = "nvidia-smi topo -m") -> TopoMatrix:
    """Read the table.

    Raises:
        InputError: no table, or a line of it that cannot be right; the message has the line's number.
    """
    lines = [_ESCAPE.sub("", line).expandtabs() for line in text.splitlines()]
    start = next((i for i, line in enumerate(lines) if line.split()[:1] == ["GPU0"] and "X" not in line.split()), None)
    if start is None:
        raise InputError("there is no line of column names that begins with GPU0", where=where)
    header = lines[start].split()
    affinity = next((i for i, word in enumerate(header) if word in ("CPU", "NUMA")), len(header))
    names = tuple(header[:affinity])
    header_place = f"{where}: line {start + 1}"
    for name in names:
        if not _DEVICE.fullmatch(name):
            raise InputError(f"{name!r} is neither a GPU nor a NIC", where=header_place)
    if len(set(names)) < len(names):
        raise InputError("a column stands twice", where=header_place)
    numa_column = "NUMA" in header[affinity:]
    cells: dict[tuple[str, str], str] = {}
    numa: dict[str, str] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        words = line.split()
        if not words or words[0] not in names:
            if words and words[0].rstrip(":") in ("Legend", "NIC"):
                break
            if words and _DEVICE.fullmatch(words[0]) and len(words) > 1:
                raise InputError(f"there is no column {words[0]!r}", where=f"{where}: line {number}")
            continue
        row, place = words[0], f"{where}: line {number}"
        if row in {a for a, _ in cells}:
            raise InputError(f"{row} has two rows", where=place)
        if len(words) <= len(names):
            raise InputError(f"{row} has {len(words) - 1} cells for {len(names)} columns", where=place)
        for column, word in zip(names, words[1:], strict=False):
            cell = _OLD_NAMES.get(word, word)
            if (cell == "X") != (row == column) or not (cell in LEGEND or cell == "X" or re.fullmatch(r"NV\d+", cell)):
                raise InputError(
                    f"{word!r} between {row} and {column}", where=place, mend=f"expected NV# or {_known()}"
                )
            cells[row, column] = cell
        rest = words[1 + len(names) :]
        if numa_column and len(rest) >= 2 and rest[1].isdigit():
            numa[row] = rest[1]
    for name in names:
        if (name, name) not in cells:
            raise InputError(f"{name} has a column but no row", where=header_place)
    for (a, b), cell in cells.items():
        if cells[b, a] != cell:
            raise InputError(f"{a} to {b} is {cell}, but {b} to {a} is {cells[b, a]}", where=where)
    return TopoMatrix(names, {pair: cell for pair, cell in cells.items() if pair[0] != pair[1]}, numa)


def _known() -> str:
    return ", ".join(LEGEND)


def import_topo(
    text: str,
    *,
    name: str = "nvidia-smi",
    nvlink: str | None = None,
    pcie: str = "pcie-4",
    device: str | None = None,
    where: str = "nvidia-smi topo -m",
) -> Cluster:
    """The node that ``nvidia-smi topo -m`` describes: its GPUs are the devices, its NICs nodes of kind ``nic``.

    NVLinks become cables between two GPUs, or cables to an NVSwitch where a GPU would otherwise have more of them than
    exist. PCIe becomes a tree of switches, host bridges and NUMA nodes with one bandwidth, the catalog's for ``pcie``.
    The table does not say which GPUs share a PCIe switch where NVLink joins them; then NUMA nodes are all there is.

    Args:
        text: what the command printed.
        nvlink: the catalog's name of the NVLink generation; by default 25 GB/s a link (generations 2 to 4).
        pcie: the catalog's name of the PCIe generation.
        device: the catalog's name of the GPU.

    Raises:
        InputError: the text is not such a table, or a name is not in the catalog.
    """
    from llmsim import catalog

    matrix = parse_topo(text, where)
    bus = catalog.link(pcie)
    line = catalog.link(nvlink or "nvlink-4")
    if device is not None:
        catalog.device(device)
    if line.unit_bandwidth_bytes_per_s is None:
        raise InputError(f"{line.name} is no NVLink", where=where, mend="choose nvlink-2 to nvlink-5")
    most = _MOST_NVLINKS if nvlink is None else round(line.bandwidth_bytes_per_s / line.unit_bandwidth_bytes_per_s)
    return _graph(matrix, name, bus, line, most, device)


def _graph(matrix: TopoMatrix, name: str, bus: "LinkType", line: "LinkType", most: int, device: str | None) -> Cluster:
    import networkx as nx

    graph: nx.DiGraph = nx.DiGraph()
    for gpu in matrix.gpus:
        stated = {} if device is None else {"device": device}
        graph.add_node(gpu, kind="device", host=name, forwards=False, **stated)
    for nic in matrix.names:
        if nic not in graph:
            graph.add_node(nic, kind="nic", host=name)

    def cable(a: str, b: str, bandwidth_bytes_per_s: float, latency_s: float) -> None:
        for ends in ((a, b), (b, a)):
            graph.add_edge(*ends, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s)

    unit, latency_s = line.unit_bandwidth_bytes_per_s or 0.0, line.latency_s or 0.0
    links = {
        gpu: [int(cell[2:]) for (a, _), cell in matrix.cells.items() if a == gpu and cell.startswith("NV")]
        for gpu in matrix.gpus
    }
    switched = {gpu for gpu in matrix.gpus if sum(links[gpu]) > most}
    if switched:
        graph.add_node("nvswitch", kind="switch")
    for gpu in matrix.gpus:
        if gpu in switched:
            cable(gpu, "nvswitch", max(links[gpu]) * unit, latency_s / 2)
    for (a, b), cell in matrix.cells.items():
        if cell.startswith("NV") and a < b and not (a in switched and b in switched):
            cable(a, b, int(cell[2:]) * unit, latency_s)
    _pcie_tree(matrix, graph, lambda a, b: cable(a, b, bus.bandwidth_bytes_per_s, bus.latency_s or 0.0))
    return Cluster(name, graph, matrix.gpus, {name: Host(name)})


_BRIDGE = {"PIX": "pcie", "PXB": "pcie", "PHB": "bridge", "NODE": "numa", "SYS": "system"}


def _pcie_tree(matrix: TopoMatrix, graph, cable: Callable[[str, str], None]) -> None:
    """Join the leaves level by level; whatever is near each other gets a common node above it.

    Each GPU hangs on a slot of its own, so that the way over PCIe is never as short as that over an NVSwitch.
    """
    top: dict[str, str] = {}  # the highest node above each name so far
    for leaf in matrix.names:
        top[leaf] = leaf
        if leaf in matrix.gpus:
            graph.add_node(f"{leaf}.slot", kind="switch")
            cable(leaf, f"{leaf}.slot")
            top[leaf] = f"{leaf}.slot"
    counts: dict[str, int] = {}
    near: set[tuple[str, str]] = set()
    for level in LEGEND:
        near |= {pair for pair in matrix.cells if _distance(matrix, *pair) == level}
        for group in _groups(matrix.names, near):
            below = list(dict.fromkeys(top[member] for member in group))
            if len(below) > 1:
                kind = _BRIDGE[level]
                node = f"{kind}{counts.setdefault(kind, 0)}"
                counts[kind] += 1
                graph.add_node(node, kind="switch" if kind == "pcie" else "host")
                for child in below:
                    cable(child, node)
                top.update(dict.fromkeys(group, node))


def _distance(matrix: TopoMatrix, a: str, b: str) -> str:
    """How far two things are apart over PCIe; where NVLink hides it, by their NUMA nodes."""
    cell = matrix.cells[a, b]
    if cell in LEGEND:
        return cell
    same = a in matrix.numa and matrix.numa[a] == matrix.numa.get(b)
    return "NODE" if same else "SYS"


def _groups(names: Iterable[str], pairs: set[tuple[str, str]]) -> list[list[str]]:
    """The connected components, in order of their first name."""
    group = {name: [name] for name in names}
    for a, b in sorted(pairs):
        if group[a] is not group[b]:
            group[a].extend(group[b])
            for member in group[b]:
                group[member] = group[a]
    order = {name: i for i, name in enumerate(group)}
    unique = {id(members): sorted(members, key=order.__getitem__) for members in group.values()}
    return list(unique.values())
