"""Builds the catalog's clusters from their devices and links."""

from llmsim.catalog.load import cluster_models, devices, links, pick
from llmsim.catalog.types import LinkType
from llmsim.cluster import fabrics, topologies
from llmsim.cluster.build import parse_option
from llmsim.cluster.cluster import Cluster
from llmsim.errors import InputError

_OPTIONS = {
    "nodes": ("nodes", "spines", "oversubscription", "seed"),
    "torus": ("shape",),
    "hccs": ("nodes",),
    "host": ("ranks", "cores"),
}


def cluster(name: str, **options: object) -> Cluster:
    """The catalog's cluster ``name``, with sizes given anew where ``options`` say so.

    ``nodes`` (and ``spines``, ``oversubscription``, ``seed``) for GPU nodes and NPU servers, ``shape`` for a torus
    (``(4, 4, 4)`` or ``"4x4x4"``), ``ranks`` and ``cores`` for one machine.

    Raises:
        InputError: an unknown cluster or option, or a size it cannot have.
    """
    model = pick(cluster_models(), name, "cluster")
    allowed = _OPTIONS[model.builder]
    values = dict(model.defaults)
    for option, value in options.items():
        if option not in allowed:
            raise InputError(f"unknown option {option!r}", where=name, mend=f"it takes {', '.join(allowed)}")
        values[option] = value  # type: ignore[assignment]
    parsed = {option: _parsed(name, option, value) for option, value in values.items()}
    device = pick(devices(), model.device, "device").name
    inside = pick(links(), model.scale_up, "link")
    outside = pick(links(), model.network, "link") if model.network else inside
    if model.builder == "torus":
        return _torus(name, device, inside, parsed["shape"])
    if model.builder == "host":
        bandwidth, latency_s = inside.bandwidth_bytes_per_s, inside.stated_latency_s()
        # a path over loopback is two of its links: halve, so that the whole is the catalog's latency
        return fabrics.one_host(
            parsed["ranks"], bandwidth, latency_s / 2, cores=parsed["cores"], device=device, name=name
        )
    topologies.check_positive(name, nodes=parsed["nodes"])
    per_node = model.gpus_per_node
    assert per_node is not None
    if model.builder == "hccs":
        return fabrics.hccs(
            parsed["nodes"] * per_node,
            inside.bandwidth_bytes_per_s,
            inside.stated_latency_s(),
            npus_per_server=per_node,
            network_bandwidth_bytes_per_s=outside.bandwidth_bytes_per_s,
            network_latency_s=outside.stated_latency_s(),
            device=device,
            name=name,
        )
    return fabrics.rail_optimised(
        parsed.pop("nodes"),
        per_node,
        outside.bandwidth_bytes_per_s,
        outside.stated_latency_s(),
        scale_up_bandwidth_bytes_per_s=inside.bandwidth_bytes_per_s,
        scale_up_latency_s=inside.stated_latency_s(),
        switch_latency_s=outside.switch_latency_s,
        device=device,
        name=name,
        **parsed,
    )


def _parsed(name: str, option: str, value: object):
    try:
        if option == "cores" and value is None:
            return None
        return parse_option("dims" if option == "shape" else option, value)
    except InputError as error:
        raise error.at(f"{name}: {option}") from None


def _torus(name: str, device: str, link: LinkType, shape: tuple[int, ...]) -> Cluster:
    """A slice of a TPU pod: an axis wraps around only if its length is a multiple of 4 (whole cubes of 4x4x4)."""
    wrap = tuple(dim % 4 == 0 for dim in shape)
    built = topologies.torus(
        shape, link.bandwidth_bytes_per_s, link.stated_latency_s(), wrap=wrap, device=device, name=name
    )
    return built


def cluster_for(name: str, ranks: int, **options: object) -> Cluster:
    """The catalog's cluster ``name``, grown to hold ``ranks`` where its size is a number of nodes or of ranks.

    Raises:
        InputError: it cannot hold them.
    """
    model = pick(cluster_models(), name, "cluster")
    if model.builder in ("nodes", "hccs") and "nodes" not in options:
        assert model.gpus_per_node is not None
        options["nodes"] = -(-max(ranks, 1) // model.gpus_per_node)
    elif model.builder == "host" and "ranks" not in options:
        options["ranks"] = max(ranks, 1)
    built = cluster(name, **options)
    if len(built.devices) < ranks:
        raise InputError(
            f"{len(built.devices)} devices cannot hold {ranks} ranks", where=name, mend="take a larger one"
        )
    return built
