"""Quantities are read exactly and printed as people write them; whatever is not one is refused."""

import contextlib
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsim import units
from llmsim.errors import InputError

PARSERS = (units.parse_size, units.parse_bandwidth, units.parse_duration, units.parse_flop_rate)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1GiB", 2**30),
        ("1GB", 10**9),
        ("1Gb", 10**9 // 8),
        ("1Gibit", 2**30 // 8),
        ("64 KiB", 65536),
        ("1.5kB", 1500),
        ("1.5KB", 1500),
        ("8b", 1),
        ("0", 0),
        ("17", 17),
        ("1e3", 1000),
        (" .5 KiB ", 512),
        (4096, 4096),
    ],
)
def test_sizes(text, size_bytes):
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "bandwidth_bytes_per_s"),
    [
        ("400Gb/s", 5e10),
        ("400Gbit/s", 5e10),
        ("400Gbps", 5e10),
        ("50GB/s", 5e10),
        ("1GiB/s", 2.0**30),
        ("100 Mb/s", 1.25e7),
        ("3.35TB/s", 3.35e12),
    ],
)
def test_bandwidths(text, bandwidth_bytes_per_s):
    assert units.parse_bandwidth(text) == bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ns", 5e-7), ("5us", 5e-6), ("5µs", 5e-6), ("5μs", 5e-6), ("1.5ms", 1.5e-3), ("2min", 120.0), ("1d", 86400.0)],
)
def test_durations_are_the_nearest_float(text, seconds):
    assert units.parse_duration(text) == seconds


def test_flop_rates():
    assert units.parse_flop_rate("312TFLOP/s") == 3.12e14
    assert units.format_flop_rate(989e12) == "989 TFLOP/s"


@pytest.mark.parametrize(
    ("parse", "text", "finding"),
    [
        (units.parse_size, "-1GiB", "negative"),
        (units.parse_size, "3b", "whole number of bytes"),
        (units.parse_size, "0.1B", "whole number of bytes"),
        (units.parse_size, "50GB/s", "not a unit of size"),
        (units.parse_size, "five", "is not a size"),
        (units.parse_size, True, "is not a size"),
        (units.parse_size, 1.5, "is not a size"),
        (units.parse_size, "1e31", "too large"),
        (units.parse_bandwidth, "50GB", "not a unit of bandwidth"),
        (units.parse_bandwidth, "50", "no unit"),
        (units.parse_bandwidth, "50gb/s", "not a unit of bandwidth"),
        (units.parse_bandwidth, "50GBps", "not a unit of bandwidth"),
        (units.parse_bandwidth, None, "is not a bandwidth"),
        (units.parse_duration, "5", "no unit"),
        (units.parse_duration, "5GB", "not a unit of duration"),
        (units.parse_duration, "nan s", "is not a duration"),
        (units.parse_duration, "inf", "is not a duration"),
        (units.parse_duration, "٣s", "is not a duration"),
        (units.parse_flop_rate, "312TFLOPS", "not a unit of FLOP rate"),
    ],
)
def test_nonsense_is_refused_with_an_example(parse, text, finding):
    with pytest.raises(InputError, match=finding) as error:
        parse(text)
    assert "write a" in error.value.line()


def test_a_number_too_long_to_print_is_refused():
    with pytest.raises(InputError, match="is too large"):
        units.parse_size(10**5000)


def test_bits_are_eighths_of_bytes_and_binary_prefixes_exceed_decimal_ones():
    for prefix in ("", "k", "M", "G", "T", "P"):
        assert 8 * units.parse_bandwidth(f"1{prefix}b/s") == units.parse_bandwidth(f"1{prefix}B/s")
    for exponent, prefix in enumerate("KMGTP", start=1):
        assert units.parse_size(f"1{prefix}iB") == 1024**exponent
        assert units.parse_size(f"1{prefix}B") == 1000**exponent


@given(st.decimals(min_value=0, max_value=10**9, places=3), st.sampled_from(sorted(units._BANDWIDTH)))
def test_the_parsed_value_is_the_exact_product(number, unit):
    expected = float(Fraction(number) * units._BANDWIDTH[unit])
    assert units.parse_bandwidth(f"{number}{unit}") == expected
    assert units.parse_bandwidth(f" {number} {unit} ") == expected


@given(st.floats(1e-9, 1e29))
def test_printing_then_reading_keeps_four_digits(value):
    assert units.parse_bandwidth(units.format_bandwidth(value)) == pytest.approx(value, rel=1e-3 if value < 1 else 5e-4)
    assert units.parse_flop_rate(units.format_flop_rate(value)) == pytest.approx(value, rel=1e-3 if value < 1 else 5e-4)


@given(st.floats(1e-12, 1e20))
def test_printing_then_reading_keeps_four_digits_of_a_duration(seconds):
    assert units.parse_duration(units.format_duration(seconds)) == pytest.approx(seconds, rel=5e-4)


@given(st.integers(1, 9999), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB", "PiB"]))
def test_printing_then_reading_a_size_of_few_digits_is_exact_enough(number, unit):
    size_bytes = units.parse_size(f"{number}{unit}")
    printed, printed_unit = units.format_size(size_bytes).split()
    assert float(printed) * units.parse_size(f"1{printed_unit}") == pytest.approx(size_bytes, rel=5e-4)


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (units.format_size(0), "0 B"),
        (units.format_size(65536), "64 KiB"),
        (units.format_size(1023.999 * 2**20), "1 GiB"),
        (units.format_size(1023 * 2**20), "1023 MiB"),
        (units.format_bandwidth(5e10), "50 GB/s"),
        (units.format_bandwidth(999.97e6), "1 GB/s"),
        (units.format_bandwidth(math.inf), "unlimited"),
        (units.format_duration(0.0), "0 ns"),
        (units.format_duration(5e-6), "5 us"),
        (units.format_duration(12345.6), "12350 s"),
        (units.format_duration(math.inf), "never"),
        (units.format_duration(1e29), "1e+29 s"),
        (units.format_duration(-2e-3), "-2 ms"),
    ],
)
def test_printed_as_people_write(printed, text):
    assert printed == text


@given(st.text() | st.binary() | st.floats() | st.integers() | st.none() | st.lists(st.integers()))
def test_anything_is_read_or_refused(value):
    for parse in PARSERS:
        try:
            result = parse(value)
        except InputError:
            continue
        assert result >= 0


@given(st.from_regex(r"[+-]?[0-9]{0,3}\.?[0-9]{0,3}(e[+-]?[0-9]{1,4})? ?[kKMGTPEi]{0,2}[bBs]?(ps|/s)?", fullmatch=True))
def test_near_quantities_are_read_or_refused(text):
    for parse in PARSERS:
        with contextlib.suppress(InputError):
            assert 0 <= parse(text) <= 1e30
