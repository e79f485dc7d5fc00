"""A machine's calibrated figures: what ``llmsim calibrate`` measured, the fits, and the costs that follow from them.

A profile is a JSON file. It belongs to one machine and one backend; messages are described once for each *transport*
over which ranks of this machine can talk, since a loopback socket and a shaped link between two network namespaces
have little in common.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import inf, isfinite, log
from pathlib import Path
from typing import Any

from llmsim.cost.costs import Costs
from llmsim.cost.fit import Fit
from llmsim.errors import InputError

FORMAT = 1
_STRICT = {"extra": "forbid"}


def _positive(owner: object, *names: str, or_zero: bool = False) -> None:
    for name in names:
        value = getattr(owner, name)
        if not isfinite(value) or value < 0 or (value == 0 and not or_zero):
            raise InputError(f"{name} is {value:g}", mend="give a finite number above 0")


@dataclass(frozen=True)
class Machine:
    """What was measured, and with what."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str  # the operating system's
    python: str
    torch: str
    date: str  # UTC, ISO 8601
    accelerators: tuple[str, ...] = ()
    busy_cores: float = 0.0  # kept at work by others just then: an idle machine has next to none
    realtime: bool = False  # whether ranks ran at real-time priority, so that others could not delay them
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        _positive(self, "cores", "memory_bytes")


@dataclass(frozen=True)
class Transport:
    """Messages between two ranks.

    A message of S bytes alone takes ``alpha_s`` + S / bandwidth, where bandwidth is the lower of
    ``bandwidth_bytes_per_s`` and what ``link_efficiency`` leaves of its links' rate, headers taken off. The ``cpu``
    figures are core-seconds at both ends together, the kernel's included: so much for each message, for each byte, and
    for each packet (or bundle of packets that the kernel handles as one).
    """

    alpha_s: float
    cpu_s_per_message: float
    bandwidth_bytes_per_s: float
    link_efficiency: float
    cpu_s_per_byte: float
    cpu_s_per_packet: float
    fits: tuple[Fit, ...]
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        _positive(self, "alpha_s", "bandwidth_bytes_per_s", "link_efficiency")
        per = ("cpu_s_per_message", "cpu_s_per_byte", "cpu_s_per_packet")
        _positive(self, *per, or_zero=True)
        if self.link_efficiency > 1:
            raise InputError(f"link_efficiency is {self.link_efficiency:g}", mend="give a share of 1")


@dataclass(frozen=True)
class Rate:
    """A rate reached at one size: bytes per second for copies and reductions, FLOP per second for matrix products."""

    size: int  # bytes of the operand; for a product of two n × n matrices, n
    rate_per_s: float
    dtype: str = "float32"
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        _positive(self, "size", "rate_per_s")


@dataclass(frozen=True)
class Profile:
    """Calibrated figures of one machine and backend.

    ``reduce`` and ``copy`` are by size, since what fits a cache is several times faster; both count the bytes of one
    operand. ``fits`` holds those that belong to no transport.
    """

    machine: Machine
    backend: str
    device: str
    transports: Mapping[str, Transport]
    reduce: tuple[Rate, ...]
    copy: tuple[Rate, ...]
    matmul: tuple[Rate, ...]
    memory_bandwidth_bytes_per_s: float
    local_overhead_s: float
    transfers: Mapping[str, tuple[Rate, ...]]  # between host and accelerator, by kind: "h2d pinned", …
    quick: bool = False
    format: int = FORMAT
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise InputError(f"format {self.format} is not {FORMAT}", mend="calibrate again with this version")
        for name in ("reduce", "copy", "matmul"):
            keys = [(rate.size, rate.dtype) for rate in getattr(self, name)]
            if not keys or len(set(keys)) < len(keys):
                raise InputError(f"{name} needs one entry for each size, and at least one", mend="calibrate again")
        _positive(self, "memory_bandwidth_bytes_per_s")
        _positive(self, "local_overhead_s", or_zero=True)

    def transport(self, name: str | None = None) -> Transport:
        """A transport by name; the first one by default.

        Raises:
            InputError: it was not calibrated.
        """
        if name is None:
            name = next(iter(self.transports), "loopback")
        if name not in self.transports:
            known = ", ".join(self.transports) or "none"
            raise InputError(f"transport {name!r} was not calibrated", mend=f"the profile has {known}")
        return self.transports[name]

    def costs(
        self,
        transport: str | None = None,
        *,
        size_bytes: float = inf,
        header_efficiency: float = 1.0,
        packet_bytes: float = inf,
        dtype: str = "float32",
    ) -> Costs:
        """What operations cost on this machine, for :func:`llmsim.engine.simulate`.

        Args:
            transport: over which ranks talk; the first one of the profile by default.
            size_bytes: of the operands that are copied and reduced, whose rates depend on whether they fit a cache;
                larger than any cache by default.
            header_efficiency: what headers leave of a link's rate.
            packet_bytes: of what the kernel handles as one packet.
            dtype: of matrix products.
        """
        messages = self.transport(transport)
        products = [rate.rate_per_s for rate in self.matmul if rate.dtype == dtype]
        if not products:
            raise InputError(f"no matrix products of {dtype!r} were measured")
        cpu_s_per_byte = messages.cpu_s_per_byte + messages.cpu_s_per_packet / packet_bytes
        return Costs(
            # A message that is alone waits for nothing: α is the work for it, at both ends in part at the same time.
            receive_overhead_s=min(messages.alpha_s, messages.cpu_s_per_message),
            receive_cores=max(1.0, messages.cpu_s_per_message / messages.alpha_s),
            latency_s=max(0.0, messages.alpha_s - messages.cpu_s_per_message),
            protocol_efficiency=messages.link_efficiency * header_efficiency,
            message_bandwidth_bytes_per_s=messages.bandwidth_bytes_per_s,
            reduce_bandwidth_bytes_per_s=rate_at(self.reduce, size_bytes),
            copy_bandwidth_bytes_per_s=rate_at(self.copy, size_bytes),
            local_overhead_s=self.local_overhead_s,
            cpu_send_s_per_byte=cpu_s_per_byte / 2,
            cpu_receive_s_per_byte=cpu_s_per_byte / 2,
            flop_per_s=max(products),
            memory_bandwidth_bytes_per_s=self.memory_bandwidth_bytes_per_s,
        )

    def fits(self) -> "tuple[tuple[str, Fit], ...]":
        """Every fit with the transport it belongs to."""
        return tuple((name, fit) for name, transport in self.transports.items() for fit in transport.fits)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the file."""
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write the profile; equal profiles give equal bytes.

        Raises:
            InputError: the file cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write the profile: {error.strerror}", where=str(path)) from error

    @classmethod
    def load(cls, path: str | Path) -> "Profile":
        """Read a profile.

        Raises:
            InputError: it cannot be read or is none; every finding with its field.
        """
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise InputError(
                f"cannot read the profile: {error.strerror}", where=str(path), mend="make one with llmsim calibrate"
            ) from error
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: "str | bytes", where: str = "profile") -> "Profile":
        """A profile from the text of its file; ``where`` is what errors call it."""
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            raise InputError.of_validation(error, where) from None


def rate_at(rates: "tuple[Rate, ...]", size: float) -> float:
    """The rate at ``size``, on straight lines over the logarithm of the size; at the ends, that of the nearest."""
    points = sorted((rate.size, rate.rate_per_s) for rate in rates)
    if size <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if size <= x1:
            share = (log(size) - log(x0)) / (log(x1) - log(x0))
            return y0 + share * (y1 - y0)
    return points[-1][1]
