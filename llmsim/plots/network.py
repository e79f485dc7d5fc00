"""A picture of any cluster: on a circle, a line, a grid, or in layers of switches, as its wiring suggests."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import cos, pi, sin
from typing import NamedTuple

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray

from llmsim.cluster.cluster import Cluster
from llmsim.plots.picture import COLOURS, FAINT, INK, Picture, styled
from llmsim.units import format_bandwidth, format_duration

Positions = dict[str, tuple[float, float]]

_MARKER = {"device": "o", "switch": "s", "nic": "D", "host": "h"}
_FILL = {"device": "#8CCBEF", "switch": "#E8E8E8", "nic": "#F0E442", "host": "#F4C7A1"}
_LAYER = 1.7  # height of a layer, in device distances
_MOST_LABELS = 80
_MOST_KINDS = 6  # of cables that get a colour of their own


class Cable(NamedTuple):
    """Both directions of a link, or one where they differ."""

    a: str
    b: str
    bandwidth_bytes_per_s: float
    latency_s: float


@styled
def topology(cluster: Cluster, *, title: str = "") -> Picture:
    """The devices, switches and cables of a cluster; the colour of a cable is its bandwidth and latency.

    Returns:
        The picture; ``data`` holds ``layout`` ("circle", "line", "grid", "layers" or "radial"), ``positions`` by node
        and ``cables`` as :class:`Cable`, two of them where the directions differ.
    """
    layout, positions = _place(cluster)
    cables = _cables(cluster)
    xs, ys = np.array(list(positions.values())).T
    width, height = np.ptp(xs) + 1.6, np.ptp(ys) + 1.6
    if layout == "layers":
        picture = Picture(float(np.clip(width * 0.42 + 2, 5.5, 14)), float(np.clip(height * 0.8, 3, 7)))
    else:
        picture = Picture(7.5, float(np.clip(5.5 * height / width, 1.8, 6)) + 0.4)
    axes = picture.add_subplot()
    _draw_hosts(axes, cluster, positions)
    _draw_cables(axes, cables, positions)
    _draw_nodes(axes, cluster, positions, layout)
    axes.set_xlim(xs.min() - 0.8, xs.max() + 0.8)
    axes.set_ylim(ys.min() - 0.8, ys.max() + 0.8)
    if layout != "layers":
        axes.set_aspect("equal")
    axes.axis("off")
    kinds = Counter(str(data.get("kind", "device")) for _, data in cluster.graph.nodes(data=True))
    counts = [f"{n} {kind}{'' if n == 1 else 'es' if kind.endswith('h') else 's'}" for kind, n in kinds.items()]
    axes.set_title(title or f"{cluster.name}: {', '.join(counts)}, {len(cables)} cables")
    picture.data = {"layout": layout, "positions": positions, "cables": cables}
    return picture


def _cables(cluster: Cluster) -> list[Cable]:
    """Links, the two directions of a cable as one where they are equal."""
    cables = []
    for link in cluster.links:
        back = cluster.graph.get_edge_data(link.destination, link.source) or {}
        equal = (back.get("bandwidth_bytes_per_s"), back.get("latency_s")) == tuple(link)[2:4]
        if not (equal and link.source > link.destination):
            cables.append(Cable(*link[:4]))
    return cables


# where nodes stand ----------------------------------------------------------------------------------------------------


def _place(cluster: Cluster) -> tuple[str, Positions]:
    graph = cluster.graph.to_undirected(as_view=True)
    coordinates = nx.get_node_attributes(cluster.graph, "coordinates")
    if len(coordinates) == len(graph):
        return "grid", _grid(coordinates)
    devices = set(cluster.devices)
    switches = [n for n in graph if n not in devices]
    if not switches:
        if graph.number_of_edges() == len(graph) - 1 and max(d for _, d in graph.degree) <= 2:
            return "line", {name: (float(i), 0.0) for i, name in enumerate(cluster.devices)}
        return "circle", _circle(cluster.devices, radius=max(1.5, len(graph) * 0.16))
    level = _levels(cluster, graph)
    sideways = sum(level[u] == level[v] != 0 for u, v in graph.edges)
    if sideways > max(2, len(switches) - 1):
        return "radial", _radial(graph, cluster.devices, switches)
    return "layers", _layers(graph, cluster.devices, level)


def _grid(coordinates: Mapping[str, Sequence[int]]) -> Positions:
    """Columns to the right, rows down; a third dimension as sheets set off to the upper right."""
    positions = {}
    for name, place in coordinates.items():
        *outer, row, column = (0, *place)
        shift = float(sum(outer))
        positions[name] = (column + shift * 0.37, -row + shift * 0.29)
    return positions


def _circle(names: Sequence[str], radius: float) -> Positions:
    step = 2 * pi / max(1, len(names))
    return {n: (radius * sin(i * step), radius * cos(i * step)) for i, n in enumerate(names)}


def _levels(cluster: Cluster, graph: nx.Graph) -> dict[str, int]:
    """Cables between each node and the nearest device; -1 for the switch inside a host of a larger network."""
    level = dict(nx.multi_source_dijkstra_path_length(graph, set(cluster.devices), weight=lambda u, v, d: 1))
    hosts = {n: {cluster.host_of(d).name for d in graph[n]} for n in graph if all(level[m] == 0 for m in graph[n])}
    inside = [n for n, names in hosts.items() if level[n] == 1 and len(names) == 1 and len(graph[n]) > 1]
    outside = [n for n in graph if level[n] == 1 and n not in inside]
    return level | dict.fromkeys(inside, -1 if outside else 1)


def _layers(graph: nx.Graph, devices: Sequence[str], level: Mapping[str, int]) -> Positions:
    """Devices in order on a line; each switch above the middle of what it joins below, then spread evenly."""
    positions = {name: (float(i), 0.0) for i, name in enumerate(devices)}
    width = len(devices) - 1
    for height in (h for h in range(min(level.values()), max(level.values()) + 1) if h):
        layer = [n for n in graph if level[n] == height]
        middle = {n: float(np.mean([positions[m][0] for m in graph[n] if m in positions] or [0.0])) for n in layer}
        layer.sort(key=lambda n: middle[n])
        apart = min((middle[b] - middle[a] for a, b in pairwise(layer)), default=width)
        span = width if len(layer) > 2 else width / 2
        xs = np.linspace(-span / 2, span / 2, len(layer)) + width / 2 if len(layer) > 1 else [width / 2]
        for n, x in zip(layer, xs, strict=True):
            positions[n] = (middle[n] if apart >= 1.4 else float(x), height * _LAYER)
    return positions


def _radial(graph: nx.Graph, devices: Sequence[str], switches: Sequence[str]) -> Positions:
    """Switches on a circle in order, each device outside next to its first switch."""
    spread = max(1, -(-len(devices) // len(switches)))
    radius = max(1.6, len(switches) * spread * 0.13)
    positions = _circle(switches, radius)
    step = 2 * pi / len(switches)
    hub_of = {d: next((s for s in graph[d] if s in positions), None) for d in devices}
    for i, hub in enumerate(switches):
        mine = [d for d in devices if hub_of[d] == hub]
        for j, device in enumerate(mine):
            angle = i * step + ((j + 0.5) / len(mine) - 0.5) * step * 0.8
            positions[device] = ((radius + 1.1) * sin(angle), (radius + 1.1) * cos(angle))
    return positions | _circle([d for d in devices if d not in positions], radius + 2.0)


# how they are drawn ---------------------------------------------------------------------------------------------------


def _draw_hosts(axes: Axes, cluster: Cluster, positions: Positions) -> None:
    """A box around the devices of each machine, where machines have several and these stand side by side."""
    members: dict[str, list[tuple[float, float]]] = {}
    for device in cluster.devices:
        members.setdefault(cluster.host_of(device).name, []).append(positions[device])
    if len(members) < 2 or len(members) == len(cluster.devices):
        return
    for places in members.values():
        xs, ys = np.array(places).T
        if np.ptp(ys) == 0 and np.ptp(xs) == len(xs) - 1:
            box = FancyBboxPatch(
                (xs.min() - 0.34, ys.min() - 0.34),
                np.ptp(xs) + 0.68,
                0.68,
                boxstyle="round,pad=0,rounding_size=0.2",
                facecolor="#F3F3F3",
                edgecolor=FAINT,
                linewidth=0.6,
                zorder=0,
            )
            axes.add_patch(box)


def _draw_cables(axes: Axes, cables: list[Cable], positions: Positions) -> None:
    kinds = sorted({cable[2:] for cable in cables}, reverse=True)
    width = 1.6 if len(cables) < 60 else 0.8 if len(cables) < 400 else 0.35
    nodes = np.array(list(positions.values())) if len(positions) <= _MOST_LABELS else np.zeros((0, 2))
    point = {name: np.array(place) for name, place in positions.items()}
    handles = []
    for i, kind in enumerate(kinds):
        colour = COLOURS[i] if i < _MOST_KINDS else FAINT
        lines = [_line(point[c.a], point[c.b], nodes) for c in cables if c[2:] == kind]
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=width, alpha=0.85, zorder=1))
        if i <= _MOST_KINDS:
            text = f"{format_bandwidth(kind[0])}, {format_duration(kind[1])}"
            label = text if i < _MOST_KINDS else f"{len(kinds) - _MOST_KINDS} other kinds"
            handles.append(Line2D([], [], color=colour, linewidth=2, label=label))
    if handles:
        title = "cables, each direction"
        axes.legend(handles=handles, title=title, title_fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _line(start: NDArray[np.float64], end: NDArray[np.float64], nodes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of a cable, (n, 2): straight, or an arc where a straight one would run through other nodes."""
    along = end - start
    length = max(float(np.hypot(*along)), 1e-9)
    ahead = (nodes - start) @ along / length
    beside = np.abs((nodes - start) @ np.array([-along[1], along[0]])) / length
    if not np.any((beside < 0.1) & (ahead > 0.1) & (ahead < length - 0.1)):
        return np.stack([start, end])
    side = np.array([-along[1], along[0]]) / length
    side = side if side[1] - side[0] > 0 else -side
    control = (start + end) / 2 + side * 0.16 * length
    t = np.linspace(0, 1, 25)[:, None]
    return (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end


def _draw_nodes(axes: Axes, cluster: Cluster, positions: Positions, layout: str) -> None:
    dense = max(1.0, len(positions) / 60)
    for kind, marker in _MARKER.items():
        names = [n for n, data in cluster.graph.nodes(data=True) if data.get("kind", "device") == kind]
        if not names:
            continue
        xs, ys = np.array([positions[n] for n in names]).T
        size = (260 if kind == "device" else 330) / dense
        axes.scatter(xs, ys, s=size, marker=marker, c=_FILL[kind], edgecolors=INK, linewidths=0.6, zorder=2)
        if len(positions) > _MOST_LABELS and (kind == "device" or len(names) > 24):
            continue
        for name in names:
            x, y = positions[name]
            above = layout == "layers" and kind != "device"
            few = len(names) <= 8
            axes.text(
                x,
                y + (0.36 if y >= 0 else -0.36) * above,
                name.removeprefix("d") if kind == "device" else name,
                ha="center",
                va=("bottom" if y >= 0 else "top") if above else "center",
                rotation=90 if above and not few else 0,
                fontsize=6.5 if above or kind == "device" else 5.5,
                zorder=3,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}
                if above
                else None,
            )
