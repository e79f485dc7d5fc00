"""What a cluster file may hold; read by pydantic, which refuses anything else."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from llmsim.errors import InputError
from llmsim.units import parse_bandwidth, parse_duration


def _bandwidth(value: Any) -> Any:
    if parse_bandwidth(value) <= 0:
        raise InputError(f"{value!r} is no bandwidth to send with", mend="give a positive one")
    return value


def _latency(value: Any) -> Any:
    parse_duration(value)
    return value


Bandwidth = Annotated[str, BeforeValidator(_bandwidth)]
Latency = Annotated[str, BeforeValidator(_latency)]
Name = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TopologyModel(BaseModel):
    """A cluster by the name of its topology; further fields are the topology's options, checked by it."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: Name | None = None
    topology: Name
    ranks: int
    bandwidth: Bandwidth
    latency: Latency


class CatalogModel(BaseModel):
    """A cluster of the catalog; further fields are its options, checked by it."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: Name | None = None
    catalog: Name


class NodeModel(_Strict):
    """A device or a switch."""

    name: Name
    kind: Literal["device", "switch", "nic", "host"] | None = None
    device: Name | None = None
    host: Name | None = None
    forwards: bool | None = None
    coordinates: list[int] | None = None

    def attributes(self) -> dict[str, Any]:
        """What the graph keeps of it."""
        stated = self.model_dump(exclude={"name"}, exclude_none=True)
        if self.coordinates is not None:
            stated["coordinates"] = tuple(self.coordinates)
        return stated


def _named(kind: str):
    def expand(value: Any) -> Any:
        """A bare name is a node without more to say."""
        node = {"name": value} if isinstance(value, str) else value
        return {"kind": kind, **node} if isinstance(node, dict) else node

    return expand


class HostModel(_Strict):
    """A machine."""

    cores: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class LinkModel(_Strict):
    """A cable, or one direction of it."""

    source: Name = Field(alias="from")
    destination: Name = Field(alias="to")
    bandwidth: Bandwidth
    latency: Latency
    hops: int = Field(default=1, ge=1, le=16)
    bidirectional: bool = True


class ClusterModel(_Strict):
    """A cluster link by link."""

    name: Name | None = None
    seed: int = 0
    devices: list[Annotated[NodeModel, BeforeValidator(_named("device"))]] = Field(min_length=1)
    switches: list[Annotated[NodeModel, BeforeValidator(_named("switch"))]] = []
    hosts: dict[Name, HostModel] = {}
    links: list[LinkModel] = []


M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], document: Any, where: str) -> M:
    """The document as ``model``.

    Raises:
        InputError: a field is missing, unknown or wrong; all of them are named.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InputError.of_validation(error, where) from None
