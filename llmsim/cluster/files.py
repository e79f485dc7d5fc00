"""Clusters in files: YAML, TOML or JSON, with units as people write them.

By topology or catalog name::

    topology: leaf-spine        # any name of TOPOLOGIES, and its options under their names without the unit
    ranks: 64
    bandwidth: 50GB/s
    latency: 500ns
    oversubscription: 4:1

    catalog: dgx-h100           # any cluster of the catalog, and its options
    nodes: 4

or link by link::

    name: two hosts
    devices: [d0, {name: d1, host: b, device: cpu-core}]
    switches: [s0]
    hosts: {b: {cores: 2}}
    links:
      - {from: d0, to: s0, bandwidth: 10Gb/s, latency: 5us}
      - {from: d1, to: s0, bandwidth: 10Gb/s, latency: 5us, bidirectional: true}   # the default
      # `hops: 3` lets a link count as three of them where the shortest path is chosen
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from llmsim.cluster.build import build_topology
from llmsim.cluster.cluster import Cluster, Host
from llmsim.errors import InputError
from llmsim.units import format_bandwidth, format_duration, parse_bandwidth, parse_duration


def load_cluster(name_or_path: "str | Path", /, **options: object) -> Cluster:
    """A cluster of the catalog by name (with ``options`` such as ``nodes=4``), or one in a file.

    Raises:
        InputError: neither is there, or the file cannot be used; the message names file and field.
    """
    from llmsim import catalog

    path = Path(name_or_path)
    if path.suffix.lower() not in _READERS and not path.exists():
        known = catalog.names()["clusters"]
        if str(name_or_path) not in known and ("/" in str(name_or_path) or path.suffix):
            mend = f"give a {', '.join(_READERS)} file or one of {', '.join(known)}"
            raise InputError(f"there is no file {str(name_or_path)!r}", mend=mend)
        return catalog.cluster(str(name_or_path), **options)
    if options:
        raise InputError(f"unknown option {next(iter(options))!r}", where=str(path), mend="write it into the file")
    return parse_cluster(read_document(path), where=path.name)


def read_document(path: Path) -> Any:
    """What stands in a YAML, TOML or JSON file, as plain data.

    Raises:
        InputError: no such file, another kind of file, or a syntax error.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path.suffix or 'no'} suffix", where=str(path), mend=f"use {', '.join(_READERS)}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # also a name with a zero byte, and text that is not UTF-8
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=str(path)) from None
    return reader(text, path.name)


def parse_cluster(document: Any, where: str = "cluster") -> Cluster:
    """The cluster that a document describes; ``where`` names it in errors."""
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise InputError("is not a table of fields", where=where, mend="see the examples in llmsim.cluster.files")
    forms = [form for form in ("topology", "catalog", "devices") if form in document]
    if len(forms) != 1:
        found = f"has both {' and '.join(forms)}" if forms else "has none of topology, catalog, devices"
        raise InputError(found, where=where, mend="state one of the three")
    build = {"topology": _by_topology, "catalog": _by_catalog, "devices": _by_links}[forms[0]]
    return build(document, where)


def _by_topology(document: dict[str, Any], where: str) -> Cluster:
    from llmsim.cluster.schema import TopologyModel, checked

    model = checked(TopologyModel, document, where)
    try:
        bandwidth_bytes_per_s, latency_s = parse_bandwidth(model.bandwidth), parse_duration(model.latency)
        options = model.model_extra or {}
        for field, meant in (("bandwidth_bytes_per_s", "bandwidth"), ("latency_s", "latency")):
            if field in options:
                raise InputError(f"unknown field {field!r}", mend=f"it is called {meant}")
        cluster = build_topology(model.topology, model.ranks, bandwidth_bytes_per_s, latency_s, **options)
    except InputError as error:
        raise error.at(where) from None
    return Cluster(model.name or cluster.name, cluster.graph, cluster.devices, cluster.hosts, cluster.seed)


def _by_catalog(document: dict[str, Any], where: str) -> Cluster:
    from llmsim import catalog
    from llmsim.cluster.schema import CatalogModel, checked

    model = checked(CatalogModel, document, where)
    try:
        cluster = catalog.cluster(model.catalog, **(model.model_extra or {}))
    except InputError as error:
        raise error.at(where) from None
    return Cluster(model.name or cluster.name, cluster.graph, cluster.devices, cluster.hosts, cluster.seed)


def _by_links(document: dict[str, Any], where: str) -> Cluster:
    import networkx as nx

    from llmsim.cluster.schema import ClusterModel, checked

    model = checked(ClusterModel, document, where)
    graph: nx.DiGraph = nx.DiGraph()
    for field, nodes in (("devices", model.devices), ("switches", model.switches)):
        for i, node in enumerate(nodes):
            if node.name in graph:
                raise InputError(f"{node.name!r} is there already", where=f"{where}: {field}[{i}]")
            graph.add_node(node.name, **node.attributes())
    for i, link in enumerate(model.links):
        place = f"{where}: links[{i}]"
        for end, name in (("from", link.source), ("to", link.destination)):
            if name not in graph:
                raise InputError(f"there is no device or switch {name!r}", where=f"{place}.{end}", mend="list it")
        if link.source == link.destination:
            raise InputError(f"{link.source!r} is joined to itself", where=place)
        values = {
            "bandwidth_bytes_per_s": parse_bandwidth(link.bandwidth),
            "latency_s": parse_duration(link.latency),
        } | ({"hops": link.hops} if link.hops > 1 else {})
        pair = (link.source, link.destination)
        for source, destination in (pair, pair[::-1]) if link.bidirectional else (pair,):
            if graph.has_edge(source, destination):
                raise InputError(f"a link {source} → {destination} is there already", where=place)
            graph.add_edge(source, destination, **values)
    hosts = {name: Host(name, host.cores) for name, host in model.hosts.items()}
    for i, device in enumerate(model.devices):
        if model.hosts and device.host is not None and device.host not in hosts:
            raise InputError(f"there is no host {device.host!r}", where=f"{where}: devices[{i}].host", mend="list it")
    try:
        return Cluster(
            model.name or where.partition(".")[0],
            graph,
            tuple(device.name for device in model.devices),
            hosts,
            model.seed,
        )
    except InputError as error:
        raise error.at(where) from None


# writing ---------------------------------------------------------------------------------------------------------


def to_dict(cluster: Cluster) -> dict[str, Any]:
    """A cluster as plain data, link by link, which :func:`parse_cluster` reads back."""
    nodes = cluster.graph.nodes
    document: dict[str, Any] = {"name": cluster.name}
    if cluster.seed:
        document["seed"] = cluster.seed
    document["devices"] = [_node(name, nodes[name], "device") for name in cluster.devices]
    others = [name for name in nodes if name not in set(cluster.devices)]
    if others:
        document["switches"] = [_node(name, nodes[name], "switch") for name in others]
    if cluster.hosts:
        document["hosts"] = {
            name: {} if host.cores is None else {"cores": _short(host.cores)} for name, host in cluster.hosts.items()
        }
    document["links"] = _links(cluster)
    return document


def _node(name: str, attributes: Mapping[str, Any], usual_kind: str) -> "str | dict[str, Any]":
    stated = {key: attributes[key] for key in ("kind", "device", "host", "forwards") if key in attributes}
    if "coordinates" in attributes:
        stated["coordinates"] = list(attributes["coordinates"])
    if stated.get("kind") == usual_kind:
        del stated["kind"]
    return {"name": name, **stated} if stated else name


def _short(number: float) -> float:
    return int(number) if number == int(number) else number


def _links(cluster: Cluster) -> list[dict[str, Any]]:
    by_ends = {(link.source, link.destination): link for link in cluster.links}
    written: set[tuple[str, str]] = set()
    entries: list[dict[str, Any]] = []
    for link in cluster.links:
        pair = (link.source, link.destination)
        if pair in written:
            continue
        back = by_ends.get(pair[::-1])
        hops = cluster.graph.edges[pair].get("hops", 1)
        both = back is not None and back[2:] == link[2:] and cluster.graph.edges[pair[::-1]].get("hops", 1) == hops
        written |= {pair, pair[::-1]} if both else {pair}
        entry = {
            "from": link.source,
            "to": link.destination,
            "bandwidth": _exact(link.bandwidth_bytes_per_s, format_bandwidth, parse_bandwidth, "B/s"),
            "latency": _exact(link.latency_s, format_duration, parse_duration, "s"),
        }
        if hops > 1:
            entry["hops"] = hops
        entries.append(entry if both else {**entry, "bidirectional": False})
    return entries


def _exact(value: float, write: Callable[[float], str], read: Callable[[str], float], unit: str) -> str:
    """The short form where it means exactly ``value``, else all its digits."""
    short = write(value)
    return short if read(short) == value else f"{value!r}{unit}"


def save_cluster(cluster: Cluster, path: "str | Path") -> None:
    """Write a cluster to a YAML or JSON file.

    Raises:
        InputError: another kind of file, or one that cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() in (".yaml", ".yml"):
        text = yaml.safe_dump(to_dict(cluster), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    elif path.suffix.lower() == ".json":
        text = json.dumps(to_dict(cluster), indent=1, ensure_ascii=False) + "\n"
    else:
        raise InputError(f"cannot write a {path.suffix or 'nameless'} file", where=str(path), mend="use .yaml or .json")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


# reading ---------------------------------------------------------------------------------------------------------


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a field may stand once only."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for i, (key_node, _) in enumerate(node.value):
            if keys[i] in keys[:i]:
                key = keys[i]
                raise yaml.MarkedYAMLError(problem=f"field {key!r} stands twice", problem_mark=key_node.start_mark)
        return super().construct_mapping(node, deep)


def _read_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}: line {mark.line + 1}" if mark else where
        raise InputError(f"not valid YAML: {error.problem or error.context}", where=place) from None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise InputError(f"not valid YAML: {error}", where=where) from None
    except (AttributeError, LookupError, TypeError):  # PyYAML on a value that its tag, as !!timestamp, does not fit
        raise InputError("not valid YAML: a value does not fit its tag", where=where, mend="leave tags out") from None


def _read_toml(text: str, where: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"not valid TOML: {error}", where=where) from None


def _read_json(text: str, where: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            names = [name for name, _ in pairs]
            raise InputError(f"field {next(n for n in names if names.count(n) > 1)!r} stands twice", where=where)
        return fields

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", where=f"{where}: line {error.lineno}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"not valid JSON: {error}", where=where) from None


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".toml": _read_toml,
    ".json": _read_json,
}
