"""Profiles: to a file and back, costs, and files that are none."""

import json
from dataclasses import replace
from math import inf

import pytest
from example_report import PROFILE, TRANSPORT
from hypothesis import given
from hypothesis import strategies as st

from llmsim.cost.profile import Profile, Rate, rate_at
from llmsim.errors import InputError


def test_a_profile_comes_back_from_its_file_as_it_was(tmp_path):
    PROFILE.save(tmp_path / "deep" / "p.json")
    again = Profile.load(tmp_path / "deep" / "p.json")
    assert again == PROFILE
    again.save(tmp_path / "q.json")
    assert (tmp_path / "q.json").read_bytes() == (tmp_path / "deep" / "p.json").read_bytes()


def test_costs_say_what_the_profile_says():
    costs = PROFILE.costs("netlab", size_bytes=1 << 20, header_efficiency=0.9, packet_bytes=9000.0)
    assert costs.receive_overhead_s + costs.latency_s == pytest.approx(1.3e-4)
    assert costs.receive_overhead_s * costs.receive_cores == pytest.approx(5e-5)
    assert costs.protocol_efficiency == pytest.approx(0.98 * 0.9)
    assert costs.cpu_send_s_per_byte + costs.cpu_receive_s_per_byte == pytest.approx(1e-9 + 6e-6 / 9000)
    assert costs.message_bandwidth_bytes_per_s == 1e9
    assert costs.reduce_bandwidth_bytes_per_s == 3e10
    assert costs.flop_per_s == 9e10
    assert PROFILE.costs(dtype="bfloat16").flop_per_s == 1.2e11
    assert PROFILE.costs().reduce_bandwidth_bytes_per_s == 8e9  # of what fits no cache
    assert PROFILE.costs().cpu_send_s_per_byte == pytest.approx(0.5e-9)


@given(st.floats(1e-6, 1e-3), st.floats(0, 1e-3))
def test_a_message_takes_alpha_and_all_its_processor_time(alpha_s, cpu_s):
    """Whether the work for a message is shorter than α, or longer as both ends are at work at once."""
    transport = replace(TRANSPORT, alpha_s=alpha_s, cpu_s_per_message=cpu_s)
    costs = replace(PROFILE, transports={"some": transport}).costs()
    assert costs.receive_overhead_s + costs.latency_s == pytest.approx(alpha_s)
    assert costs.receive_overhead_s * costs.receive_cores == pytest.approx(cpu_s, abs=1e-12)


@given(st.floats(1, 1e12))
def test_rates_lie_between_their_neighbours(size):
    rate = rate_at(PROFILE.reduce, size)
    below = [r for r in PROFILE.reduce if r.size <= size][-1:] or [PROFILE.reduce[0]]
    above = [r for r in PROFILE.reduce if r.size >= size][:1] or [PROFILE.reduce[-1]]
    ends = sorted((below[0].rate_per_s, above[0].rate_per_s))
    assert ends[0] * (1 - 1e-12) <= rate <= ends[1] * (1 + 1e-12)


def test_rates_need_no_order():
    assert rate_at((Rate(100, 2.0), Rate(1, 1.0)), 10) == pytest.approx(1.5)
    assert rate_at((Rate(100, 2.0), Rate(1, 1.0)), inf) == 2.0


def test_unknown_transports_and_types_are_refused():
    with pytest.raises(InputError, match=r"'wifi' was not calibrated; the profile has loopback, netlab"):
        PROFILE.costs("wifi")
    with pytest.raises(InputError, match=r"no matrix products of 'int8'"):
        PROFILE.costs(dtype="int8")
    with pytest.raises(InputError, match="the profile has none"):
        replace(PROFILE, transports={}).costs()


def spoilt(**changes) -> str:
    """The text of a profile with some fields of its first transport, or of itself, replaced."""
    document = json.loads(json.dumps(PROFILE.to_dict()))
    for path, value in changes.items():
        place = document
        *names, last = path.split("__")
        for name in names:
            place = place[int(name) if name.isdigit() else name]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "Invalid JSON"),
        ("[]", "p.json"),
        ("{}", "machine: is missing"),
        ("\x00", "Invalid JSON"),
        (spoilt(surprise=1), "surprise: unknown field"),
        (spoilt(transports__loopback__surprise=1), r"transports.loopback.surprise: unknown field"),
        (spoilt(transports__loopback__fits__0__points__0__surprise=1), r"points\[0\].surprise: unknown field"),
        (spoilt(transports__loopback__alpha_s=...), r"transports.loopback.alpha_s: is missing"),
        (spoilt(transports__loopback__alpha_s=-1e-6), "alpha_s is -1e-06"),
        (spoilt(transports__loopback__bandwidth_bytes_per_s=0), "bandwidth_bytes_per_s is 0"),
        (spoilt(transports__loopback__link_efficiency=1.5), "link_efficiency is 1.5"),
        (spoilt(transports__loopback__alpha_s="soon"), r"transports.loopback.alpha_s"),
        (spoilt(reduce=[]), "reduce needs one entry"),
        (spoilt(copy=[{"size": 8, "rate_per_s": 1.0}] * 2), "copy needs one entry"),
        (spoilt(reduce__0__rate_per_s=float("inf")), "rate_per_s is inf"),
        (spoilt(format=99), "format 99 is not"),
    ],
)
def test_files_that_are_no_profiles_give_one_line_with_the_field(tmp_path, text, match):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError, match=match) as error:
        Profile.load(path)
    assert error.value.line().startswith(str(path))
    assert "\n" not in error.value.line()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="llmsim calibrate"):
        Profile.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot write the profile"):
        PROFILE.save(tmp_path)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_an_input_error(data):
    with pytest.raises(InputError):
        Profile.from_json(data)
