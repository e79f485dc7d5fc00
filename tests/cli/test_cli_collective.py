"""``llmsim collective``: its contract, its options, and that they agree with the library."""

import json
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmsim.cluster import build_topology
from llmsim.cost import Costs, closed_form_s
from llmsim.engine import simulate
from llmsim.program import ALGORITHMS, collective
from llmsim.timeline import Timeline

CONTRACT = (
    "collective all-reduce --algorithm ring --topology ring --ranks 64 --bandwidth 50GB/s --latency 500ns --size 1GiB"
)


@pytest.mark.parametrize("engine", ["closed-form", "compiled", "simpy"])
def test_the_contract(llmsim, engine):
    ran = llmsim(f"{CONTRACT} --engine {engine} --json")
    assert (ran.code, ran.err) == (0, "")
    found = ran.json
    time_s = 2 * 63 * (500e-9 + 2**30 / (64 * 50e9))
    assert found["time_s"] == pytest.approx(time_s, rel=1e-9)
    assert found["algbw_bytes_per_s"] == pytest.approx(2**30 / time_s, rel=1e-9)
    assert found["busbw_bytes_per_s"] == pytest.approx(2**30 / time_s * 2 * 63 / 64, rel=1e-9)
    assert found["messages"] == 2 * 63 * 64
    assert found["closed_form_s"] == pytest.approx(time_s, rel=1e-9)
    assert found["latency_share"] == pytest.approx(126 * 500e-9 / time_s, rel=1e-6)
    assert 0 < found["lower_bound_s"] <= found["time_s"]


def test_for_people_the_same_is_a_table(llmsim):
    out = llmsim(CONTRACT).out
    for text in ("predicted", "closed form", "lower bound", "42.34 ms", "8,064 messages", "63 us of latency"):
        assert text in out


BASE = "collective all-reduce --algorithm ring --topology leaf-spine --ranks 16 --size 1MiB"


@pytest.mark.parametrize(
    "option",
    [
        "--ranks 8",
        "--size 2MiB",
        "--bandwidth 10GB/s",
        "--latency 5us",
        "--topology ring",
        "--algorithm tree",
        "--placement random:3",
        "--placement d0,d4,d8,d12,d1,d5,d9,d13,d2,d6,d10,d14,d3,d7,d11,d15",
        "--oversubscription 8",
        "--set spines=1 --set uplink_bandwidth_bytes_per_s=1GB/s",
    ],
)
def test_every_option_changes_the_time(llmsim, option):
    before, after = (llmsim(f"{command} --json").json["time_s"] for command in (BASE, f"{BASE} {option}"))
    assert before != pytest.approx(after, rel=1e-6)


@pytest.mark.parametrize(
    ("base", "option"),
    [
        ("all-reduce --algorithm tree --size 1MiB", "--chunks 8"),
        ("all-reduce --algorithm hierarchical --ranks 16 --topology two-racks", "--group-size 2"),
        ("all-reduce --algorithm hierarchical --ranks 16 --topology two-racks", "--inter tree"),
        ("all-reduce --algorithm torus --topology torus --ranks 16", "--dims 2x8"),
        ("all-reduce --algorithm ring --ranks 4 --size 24", "--dtype uint8"),
        ("broadcast --algorithm chain --topology two-racks --ranks 6", "--root 2"),
        ("all-to-all --algorithm pairwise --topology two-racks --ranks 6", "--send-mode rendezvous"),
        (
            "all-reduce --algorithm ring --topology dgx-a100 --ranks 16",
            "--set oversubscription=4 --placement round-robin",
        ),
    ],
)
def test_every_special_option_changes_the_time(llmsim, base, option):
    before, after = (llmsim(f"collective {c} --json").json["time_s"] for c in (base, f"{base} {option}"))
    assert before != pytest.approx(after, rel=1e-6)


def test_it_agrees_with_the_library(llmsim):
    found = llmsim("collective all-gather --algorithm hierarchical --topology switch --ranks 12 --size 3MB --json").json
    program = collective("all-gather", "hierarchical", 12, 750_000)
    assert found["time_s"] == simulate(program, build_topology("switch", 12, 50e9, 500e-9)).makespan_s
    assert found["message_bytes"] == program.message_bytes


def test_without_an_algorithm_all_are_compared(llmsim):
    found = llmsim("collective all-reduce --ranks 6 --json").json
    assert {row["algorithm"] for row in found["results"]} | set(found["not_defined"]) == set(ALGORITHMS["all-reduce"])
    times = [row["time_s"] for row in found["results"]]
    assert times == sorted(times)
    assert all(row["time_s"] >= row["lower_bound_s"] * (1 - 1e-9) for row in found["results"])
    out = llmsim("collective all-reduce --ranks 6").out
    assert all(algorithm in out for algorithm in ALGORITHMS["all-reduce"])


def test_an_algorithm_that_is_not_defined_is_listed_with_the_reason(llmsim):
    ran = llmsim("collective all-reduce --ranks 7 --group-size 3 --json")
    assert "hierarchical" in ran.json["not_defined"]
    assert "divi" in ran.json["not_defined"]["hierarchical"]


def test_options_go_to_the_algorithms_that_they_concern(llmsim):
    plain, chunked = (
        llmsim(f"collective broadcast --size 1MiB {o} --json").json["results"] for o in ("", "--chunks 4")
    )
    before, after = ({row["algorithm"]: row["time_s"] for row in rows} for rows in (plain, chunked))
    assert before["binomial"] == after["binomial"]
    assert before["chain"] > after["chain"]


def test_a_catalog_cluster_is_as_large_as_the_ranks_need(llmsim):
    for ranks, devices in ((8, 8), (9, 16)):
        found = llmsim(f"collective all-reduce --algorithm ring --topology dgx-h100 --ranks {ranks} --json").json
        assert (found["ranks"], found["cluster"]) == (ranks, "dgx-h100")
        assert found["closed_form_s"] is None or devices == 8


def test_a_cluster_from_a_file(llmsim, tmp_path):
    file = tmp_path / "net.yaml"
    file.write_text("topology: switch\nranks: 4\nbandwidth: 1GB/s\nlatency: 1us\n", encoding="utf-8")
    found = llmsim(
        ["collective", "all-reduce", "--algorithm", "ring", "--topology", str(file), "--size", "4MB", "--json"]
    )
    expected = closed_form_s("all-reduce", "ring", 4, 4e6, latency_s=2e-6, bandwidth_bytes_per_s=1e9)
    assert found.json["ranks"] == 4
    assert found.json["time_s"] == pytest.approx(expected, rel=1e-9)


def test_one_rank_has_nothing_to_do(llmsim):
    found = llmsim("collective all-reduce --algorithm ring --ranks 1 --topology ring --json").json
    assert (found["time_s"], found["messages"], found["lower_bound_s"], found["algbw_bytes_per_s"]) == (0, 0, 0, 0)
    assert llmsim("collective all-reduce --algorithm ring --ranks 1 --topology ring").code == 0


def test_no_bytes_still_take_latency(llmsim):
    found = llmsim(
        "collective all-reduce --algorithm ring --ranks 4 --size 0 --topology ring --latency 1us --json"
    ).json
    assert found["time_s"] == pytest.approx(6e-6)
    assert llmsim("collective all-reduce --ranks 4 --size 0").code == 0


class Calibrated:
    """Stands for a profile: what it says of messages, by transport."""

    loopback = Costs(
        send_overhead_s=1e-5,
        receive_overhead_s=2e-5,
        latency_s=3e-5,
        protocol_efficiency=0.9,
        reduce_bandwidth_bytes_per_s=1e10,
    )
    costs_of = MappingProxyType({"loopback": loopback, "wire": replace(loopback, latency_s=1e-3)})

    def costs(self, transport, *, size_bytes):
        assert size_bytes == 1_000_000  # of a segment: what is reduced at a time
        return self.costs_of[transport or "loopback"]


@pytest.mark.parametrize("engine", ["closed-form", "compiled", "simpy"])
def test_a_profile_adds_what_messages_cost(llmsim, monkeypatch, engine):
    monkeypatch.setattr("llmsim.cost.profile.Profile.load", lambda path: Calibrated())
    command = f"collective all-reduce --algorithm ring --topology ring --ranks 4 --size 4MB --engine {engine} --json"
    command += " --bandwidth 100MB/s --latency 1us --profile any.json"
    found = llmsim(command).json
    step_s = 1e-6 + 6e-5 + 1e6 / 0.9e8
    assert found["time_s"] == pytest.approx(6 * step_s + 3 * 1e6 / 1e10, rel=1e-9)
    assert found["latency_share"] == pytest.approx(6 * 6.1e-5 / found["time_s"], rel=1e-6)
    assert found["lower_bound_s"] <= found["time_s"]
    other = llmsim(f"{command} --transport wire").json
    assert other["time_s"] == pytest.approx(found["time_s"] + 6 * (1e-3 - 3e-5), rel=1e-9)


def test_a_profile_that_is_none_is_refused(refused, tmp_path):
    command = "collective all-reduce --algorithm ring"
    assert "no effect without a profile" in refused(f"{command} --transport wire")
    assert "none.json" in refused(f"{command} --profile {tmp_path / 'none.json'}")
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    assert "bad.json" in refused(f"{command} --profile {tmp_path / 'bad.json'}")


def test_the_trace_is_the_timeline_with_its_messages(llmsim, tmp_path):
    path = tmp_path / "trace.json"
    found = llmsim(f"collective all-reduce --algorithm ring --ranks 4 --trace {path} --json").json
    assert Timeline.from_chrome(path).makespan_s == pytest.approx(found["time_s"])
    phases = [event["ph"] for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"]]
    assert phases.count("s") == phases.count("f") == found["messages"]


def test_plots_are_written(llmsim, tmp_path):
    for name, arguments in (("one.png", "--algorithm ring"), ("all.svg", "--size 64KiB")):
        assert llmsim(f"collective all-gather --ranks 4 {arguments} --plot {tmp_path / name}").code == 0
        assert (tmp_path / name).stat().st_size > 1000


def test_alone_it_lists_all_algorithms_with_their_options(llmsim):
    found = llmsim("collective --json").json
    assert {name: set(algorithms) for name, algorithms in found.items()} == {n: set(a) for n, a in ALGORITHMS.items()}
    assert found["all-reduce"]["hierarchical"] == ["group_size", "inter"]
    assert "double-tree" in llmsim("collective").out


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ("all-reduse", "there is no collective 'all-reduse'"),
        ("all-reduce --algorithm rind", "no algorithm 'rind'"),
        ("all-reduce --topology rign", "did you mean ring"),
        ("all-reduce --topology none.yaml", "none.yaml"),
        ("all-reduce --size -1MiB", "--size: '-1MiB' is negative"),
        ("all-reduce --size 3", "--size: 3 B is no whole number of float32"),
        ("all-reduce --size 1e29B", "--size: 8.882e+13 PiB is too large; take up to 1 EB"),
        ("all-reduce --dtype float33", "--dtype"),
        ("all-reduce --dtype object", "--dtype"),
        ("all-reduce --algorithm ring --ranks 100000", "--ranks: ring on 100,000 ranks has about 2e+10 messages"),
        ("all-reduce --ranks 0", "0"),
        ("all-reduce --ranks -4", "-4"),
        ("all-reduce --bandwidth 50GB", "--bandwidth"),
        ("all-reduce --bandwidth 0GB/s", "bandwidth"),
        ("all-reduce --latency -1us", "--latency"),
        ("all-reduce --algorithm ring --chunks 4 --topology dgx-h100 --bandwidth 1GB/s", "--bandwidth"),
        ("all-reduce --algorithm ring --chunks 4 --ranks 4 --group-size 2", "group_size"),
        ("broadcast --group-size 2", "--group-size"),
        ("all-reduce --algorithm ring --dims 2x4", "--dims"),
        ("all-reduce --algorithm ring --oversubscription 4", "oversubscription"),
        ("all-reduce --algorithm ring --set nonsense", "--set"),
        ("all-reduce --algorithm ring --set color=red", "color"),
        ("all-reduce --algorithm ring --placement d0,d0,d1,d2,d3,d4,d5,d6", "d0"),
        ("all-reduce --algorithm ring --placement random:x", "--placement"),
        ("all-reduce --algorithm ring --root 3", "root"),
        ("broadcast --algorithm tree --root 9", "root"),
        ("all-reduce --trace t.json", "--trace: needs one algorithm"),
        ("all-reduce --algorithm ring --engine closed-form --trace t.json", "--trace: a closed form has no timeline"),
        ("all-reduce --algorithm ring --engine closed-form --plot t.png", "--plot"),
        ("all-reduce --algorithm ring --plot t.docx", "t.docx"),
        ("all-reduce --algorithm ring --trace /no/such/folder/t.json", "/no/such/folder"),
        ("all-reduce --algorithm ring --engine closed-form --topology dgx-a100 --ranks 16", "differ"),
        ("all-reduce --algorithm torus --engine closed-form --ranks 16", "a link of its own"),
        ("all-reduce --algorithm hierarchical --group-size 3", "3"),
    ],
)
def test_mistakes_are_one_line_and_name_the_place(refused, arguments, finding, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert finding in refused(f"collective {arguments}")


OPTIONS = [
    "size",
    "bandwidth",
    "latency",
    "topology",
    "placement",
    "oversubscription",
    "dims",
    "dtype",
    "set",
    "chunks",
]
QUANTITY = r"[0-9]{1,3}(\.[0-9])?(e[0-9]{1,2})?[kMGTi]{0,2}[bBs]?(/s)?"


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    option=st.sampled_from([*OPTIONS, "group-size", "root"]),
    text=st.text(max_size=12) | st.from_regex(QUANTITY, fullmatch=True),
)
def test_any_text_for_any_option_is_used_or_refused(llmsim, option, text):
    ran = llmsim(["collective", "all-reduce", "--algorithm", "ring", "--ranks", "3", "--json", f"--{option}={text}"])
    assert ran.code in (0, 2)
    assert (ran.code == 0) == ran.out.startswith("{") == (ran.err == "")
    assert ran.err.count("\n") == (ran.code == 2)


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ("collective --ranks 4", "--ranks: has no effect without a collective"),
        ("collective --json --trace t.json", "--trace: has no effect without a collective"),
        ("collective all-reduce --algorithm ring --engine closed-form --send-mode rendezvous", "--send-mode"),
        (f"collective all-reduce --algorithm ring --placement random:{'9' * 5000}", "--placement"),
    ],
)
def test_an_option_without_effect_is_refused(refused, arguments, finding, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert finding in refused(arguments)
    assert not list(tmp_path.iterdir())


def test_a_mistake_that_concerns_all_algorithms_is_told_once(refused):
    assert (
        refused("collective all-reduce --root 3") == "all-reduce: root is 3, but all-reduce has no root; leave root out"
    )
