"""Quantities as people write them: ``1GiB``, ``400Gb/s``, ``50GB/s``, ``5us``, ``312TFLOP/s``.

Inside the package every quantity is a bare SI number whose name carries its unit (``size_bytes``, ``latency_s``,
``bandwidth_bytes_per_s``); strings are parsed at the edge, here. ``b`` is a bit and ``B`` a byte; ``k M G T P`` are
powers of 1000 and ``Ki Mi Gi Ti Pi`` powers of 1024. Letter case matters, except that ``K`` is ``k``. pint was
considered: there ``b`` is a barn, and importing it takes longer than importing this package.
"""

import re
import reprlib
from collections.abc import Mapping
from fractions import Fraction

from llmsim.errors import InputError

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_PREFIX: dict[str, int] = _DECIMAL | _BINARY

_BYTE = {prefix + "B": Fraction(factor) for prefix, factor in _PREFIX.items()}
_BIT = {prefix + bit: Fraction(factor) / 8 for prefix, factor in _PREFIX.items() for bit in ("b", "bit")}
_SIZE = _BYTE | _BIT
_BANDWIDTH = {unit + "/s": factor for unit, factor in _SIZE.items()}
_BANDWIDTH |= {prefix + "bps": Fraction(factor) / 8 for prefix, factor in _PREFIX.items()}
_TIME = {
    "ns": "1e-9",
    "us": "1e-6",
    "µs": "1e-6",
    "μs": "1e-6",
    "ms": "1e-3",
    "s": "1",
    "min": "60",
    "h": "3600",
    "d": "86400",
}
_DURATION = {unit: Fraction(factor) for unit, factor in _TIME.items()}
_FLOP_RATE = {prefix + "FLOP/s": Fraction(factor) for prefix, factor in _DECIMAL.items()}

_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-zµμ/]*)\s*")
_LARGEST = 10**30  # far above any quantity of this field, far below what a float holds
_LONGEST = 60  # characters
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2  # else nested lists of a file, each printed in part, make a message of megabytes


def _shown(value: object) -> str:
    """``value`` for a message: short, and never an error, as printing a number of thousands of digits is."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "1e999"
    return _SHORT.repr(value)


def _parse(text: object, kind: str, units: Mapping[str, Fraction], example: str) -> Fraction:
    """The exact value of ``text`` in SI units; one error family for every way in which it can be wrong."""
    mend = f"write a {kind} such as {example}"
    shown = repr(text) if isinstance(text, str) and len(text) <= _LONGEST else _shown(text)
    if not isinstance(text, str):
        raise InputError(f"{shown} is not a {kind}", mend=mend)
    match = _NUMBER_AND_UNIT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InputError(f"{shown} is not a {kind}", mend=mend)
    number, unit = Fraction(match[1]), match[2]
    if not unit and "" not in units and number != 0:
        raise InputError(f"{shown} has no unit", mend=mend)
    if unit and unit not in units:
        raise InputError(f"{unit!r} in {shown} is not a unit of {kind}", mend=mend)
    if number < 0:
        raise InputError(f"{shown} is negative", mend=mend)
    value = number * units[unit] if unit in units else number
    if value > _LARGEST:
        raise InputError(f"{shown} is too large", mend=mend)
    return value


def parse_size(text: str | int) -> int:
    """Bytes in ``text``, e.g. ``"1GiB"`` → 1073741824; a bare whole number is taken as bytes.

    Raises:
        InputError: no size, negative, unknown unit, or not a whole number of bytes.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        text = _shown(text)
    value = _parse(text, "size", _SIZE | {"": Fraction(1)}, "64KiB or 1.5GB")
    if value.denominator != 1:
        raise InputError(f"{text!r} is not a whole number of bytes", mend="write a size such as 64KiB or 1.5GB")
    return int(value)


def parse_bandwidth(text: str) -> float:
    """Bytes per second in ``text``: ``"400Gb/s"`` → 5e10 and ``"50GB/s"`` → 5e10; ``Gbps`` means gigabits."""
    return float(_parse(text, "bandwidth", _BANDWIDTH, "50GB/s or 400Gb/s"))


def parse_duration(text: str) -> float:
    """Seconds in ``text``, e.g. ``"5us"`` → 5e-6."""
    return float(_parse(text, "duration", _DURATION, "5us or 1.5ms"))


def parse_flop_rate(text: str) -> float:
    """FLOP/s in ``text``, e.g. ``"312TFLOP/s"`` → 3.12e14 (one multiply-add is two FLOP)."""
    return float(_parse(text, "FLOP rate", _FLOP_RATE, "312TFLOP/s"))


def _scaled(value: float, steps: list[tuple[str, float]]) -> str:
    """``value`` to four digits, in the largest unit of which that makes at least one (else in the smallest)."""
    candidates = ((float(f"{value / factor:.4g}"), unit) for unit, factor in steps)
    scaled, unit = next((c for c in candidates if abs(c[0]) >= 1), (float(f"{value / steps[-1][1]:.4g}"), steps[-1][0]))
    text = f"{scaled:.4g}"
    return f"{scaled:.0f} {unit}" if "e+" in text and scaled < 1e12 else f"{text} {unit}"


def format_size(size_bytes: float) -> str:
    """Bytes in binary units to four digits: 1073741824 → ``"1 GiB"``."""
    return _scaled(size_bytes, [(p + "B", float(f)) for p, f in reversed(_BINARY.items())] + [("B", 1.0)])


def format_bandwidth(bandwidth_bytes_per_s: float) -> str:
    """Bytes per second in decimal units: 5e10 → ``"50 GB/s"``."""
    if bandwidth_bytes_per_s == float("inf"):
        return "unlimited"
    decimal = {p: f for p, f in _DECIMAL.items() if p != "K"}
    return _scaled(bandwidth_bytes_per_s, [(p + "B/s", float(f)) for p, f in reversed(decimal.items())])


def format_duration(seconds: float) -> str:
    """Seconds in the unit that reads best: 5e-6 → ``"5 us"``."""
    if seconds == float("inf"):
        return "never"
    return _scaled(seconds, [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)])


def format_flop_rate(flop_per_s: float) -> str:
    """FLOP/s in decimal units: 3.12e14 → ``"312 TFLOP/s"``."""
    decimal = {p: f for p, f in _DECIMAL.items() if p != "K"}
    return _scaled(flop_per_s, [(p + "FLOP/s", float(f)) for p, f in reversed(decimal.items())])
