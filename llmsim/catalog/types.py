"""What the catalog gives out: devices and links in SI units, each figure with the document it is from."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmsim.errors import InputError

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "int4")
_ALIASES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Figure:
    """A quantity as printed, and where: ``confidence`` is ``vendor`` (read in the vendor's document), ``secondary`` (a
    document that cites the vendor), ``measured``, ``derived``, ``disputed`` or ``nominal`` (a round assumption)."""

    text: str
    source: str
    confidence: str
    note: str = ""


@dataclass(frozen=True)
class Device:
    """An accelerator or a processor core. ``figures`` has the source of each quantity, ``peak.bf16`` for a peak."""

    name: str
    description: str
    kind: str  # gpu, tpu, npu or cpu
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    peaks_flop_per_s: Mapping[str, float]  # dense, by dtype
    scale_up_bandwidth_bytes_per_s: float | None  # per direction, all links together
    power_w: float | None
    figures: Mapping[str, Figure]

    def peak_flop_per_s(self, dtype: str) -> float:
        """Dense peak for ``dtype``, by the catalog's or NumPy's and torch's name of it.

        Raises:
            InputError: the catalog has no peak for it.
        """
        try:
            return self.peaks_flop_per_s[_ALIASES.get(dtype, dtype)]
        except KeyError:
            has = ", ".join(self.peaks_flop_per_s)
            raise InputError(f"no peak for {dtype!r}", where=self.name, mend=f"it has {has}") from None


@dataclass(frozen=True)
class LinkType:
    """A kind of link. Bandwidth is per direction, ``per`` says of what."""

    name: str
    description: str
    per: str
    bandwidth_bytes_per_s: float
    unit_bandwidth_bytes_per_s: float | None  # of one physical link, where a device has several
    latency_s: float | None  # of one cable; a path through one switch has two
    switch_latency_s: float | None  # of a cable between switches
    figures: Mapping[str, Figure]

    def stated_latency_s(self) -> float:
        """The latency.

        Raises:
            InputError: no source gives one.
        """
        if self.latency_s is None:
            raise InputError("the catalog has no latency for this link", where=self.name, mend="give one")
        return self.latency_s
