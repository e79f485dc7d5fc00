"""What a file of flows may hold; read by pydantic, which refuses anything else."""

from itertools import pairwise
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from llmsim.cluster.cluster import Link
from llmsim.cluster.schema import Bandwidth, Latency, Name, checked
from llmsim.engine.flows import FlowSet, FlowSpec
from llmsim.errors import InputError
from llmsim.units import parse_bandwidth, parse_duration, parse_size


def _start(value: Any) -> str:
    text = "0s" if value == 0 and not isinstance(value, bool) else value
    parse_duration(text)
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LinkModel(_Strict):
    """A cable, or one direction of it."""

    name: Name | None = None
    source: Name | None = Field(None, validation_alias=AliasChoices("from", "source"))
    destination: Name | None = Field(None, validation_alias=AliasChoices("to", "destination"))
    bandwidth: Bandwidth
    latency: Latency = "0s"
    bidirectional: bool = True


class FlowModel(_Strict):
    name: Name | None = None
    start: Annotated[str, BeforeValidator(_start)] = "0s"
    size: Annotated[int, BeforeValidator(parse_size)]
    route: Annotated[list[Name], Field(min_length=1)]


class FlowsModel(_Strict):
    links: Annotated[list[LinkModel], Field(min_length=1)]
    flows: Annotated[list[FlowModel], Field(min_length=1)]


def parse_flows(document: Any, where: str = "flows") -> FlowSet:
    """The links and flows of a document; ``where`` names it in errors.

    Raises:
        InputError: a field is missing, unknown or wrong, or a route leads nowhere.
    """
    model = checked(FlowsModel, document, where)
    links: list[Link] = []
    by_name: dict[str, int] = {}
    by_ends: dict[tuple[str, str], list[int]] = {}
    for number, given in enumerate(model.links):
        place = f"{where}: links[{number}]"
        if (given.source is None) != (given.destination is None) or (given.source is None and given.name is None):
            raise InputError("its ends are not known", where=place, mend="give from and to, or a name")
        if given.source is not None and given.source == given.destination:
            raise InputError(f"it leads from {given.source} to itself", where=place)
        if given.name in by_name:
            raise InputError(f"there are two links {given.name!r}", where=place)
        if given.name is not None:
            by_name[given.name] = len(links)
        for ends in _directions(given):
            by_ends.setdefault(ends, []).append(len(links))
            links.append(Link(*ends, parse_bandwidth(given.bandwidth), parse_duration(given.latency)))
    if both := sorted(by_name.keys() & {node for ends in by_ends for node in ends}):
        raise InputError(f"{both[0]!r} names a link and a node", where=where, mend="give them different names")

    flows: list[FlowSpec] = []
    names: set[str] = set()
    for number, flow in enumerate(model.flows):
        place = f"{where}: flows[{number}]"
        name = flow.name if flow.name is not None else f"flow {number}"
        if name in names:
            raise InputError(f"there are two flows {name!r}", where=place)
        names.add(name)
        try:
            named = any(step in by_name for step in flow.route)
            route = _named_route(flow.route, by_name, links) if named else _node_route(flow.route, by_ends)
        except InputError as error:
            raise error.at(f"{place}.route") from None
        if len(set(route)) < len(route):
            raise InputError("it crosses a link twice", where=f"{place}.route")
        flows.append(FlowSpec(name, flow.size, route, parse_duration(flow.start)))
    return FlowSet(tuple(links), tuple(flows), where)


def _directions(link: LinkModel) -> list[tuple[str, str]]:
    """The ends of each direction; a link without ends has one, between nodes that no route can name."""
    if link.source is None or link.destination is None:
        return [(f"start of {link.name}", f"end of {link.name}")]
    there = (link.source, link.destination)
    return [there, there[::-1]] if link.bidirectional else [there]


def _named_route(steps: list[str], by_name: dict[str, int], links: list[Link]) -> tuple[int, ...]:
    for step in steps:
        if step not in by_name:
            raise InputError(f"there is no link {step!r}", mend=f"the links with a name are {', '.join(by_name)}")
    for before, after in pairwise(steps):
        end, start = links[by_name[before]].destination, links[by_name[after]].source
        if end != start and not (end == f"end of {before}" or start == f"start of {after}"):
            raise InputError(f"link {after!r} starts at {start}, but {before!r} ends at {end}")
    return tuple(by_name[step] for step in steps)


def _node_route(steps: list[str], by_ends: dict[tuple[str, str], list[int]]) -> tuple[int, ...]:
    if len(steps) < 2:
        raise InputError(f"{steps[0]!r} is no link", mend="give two nodes or more, or names of links")
    route = []
    for ends in pairwise(steps):
        found = by_ends.get(ends, [])
        if len(found) != 1:
            what = "no link leads" if not found else f"{len(found)} links lead"
            mend = "give the nodes in order" if not found else "give names to the links, and a route of names"
            raise InputError(f"{what} from {ends[0]} to {ends[1]}", mend=mend)
        route.append(found[0])
    return tuple(route)
