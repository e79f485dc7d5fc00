"""The commands that run on real hardware: what they print and write, and what they refuse."""

import json

import pytest
from llmsim_kernels import cases, cli
from llmsim_kernels.calibrate import Effort
from llmsim_kernels.netlab import netlab_unavailable

from llmsim.cli import run
from llmsim.cost.profile import Profile

pytestmark = pytest.mark.timeout(100)
TINY = Effort((4, 1 << 16), (4,), 1 << 16, (1 << 12, 1 << 16), (32,), repeats=1, memory_bytes=1 << 20, probe_s=0.01)
needs_lab = pytest.mark.skipif(netlab_unavailable() is not None, reason=str(netlab_unavailable()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder of one's own, and measurements that take a second instead of minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("llmsim_kernels.calibrate.QUICK", TINY)
    monkeypatch.setattr(cases, "quick_cases", lambda: cases.loopback_cases(2)[:2])
    monkeypatch.setattr(cases, "loopback_cases", lambda cores: real(cores)[:2])
    monkeypatch.setattr(cases, "pair_cases", lambda quick: ())
    return tmp_path


real = cases.loopback_cases


def test_calibrate_writes_what_it_prints(folder, capsys):
    assert run(cli.app, ["calibrate", "--quick", "--no-lab", "--no-realtime", "--output", "here/p.json", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("profile") == "here/p.json"
    profile = Profile.load("here/p.json")
    assert printed == json.loads(json.dumps(profile.to_dict()))
    assert profile.quick
    assert not profile.machine.realtime
    assert set(profile.transports) == {"loopback"}


def test_calibrate_for_people(folder, capsys):
    assert run(cli.app, ["calibrate", "--quick", "--no-lab"]) == 0
    out = capsys.readouterr().out
    assert "loopback" in out
    assert "matrix products" in out
    assert "Written to runs/profile.json." in out


def test_demo_without_a_lab_says_so_and_writes_everything(folder, capsys, monkeypatch):
    monkeypatch.setattr("llmsim_kernels.netlab.netlab_unavailable", lambda: "no namespaces today")
    monkeypatch.setattr("llmsim_kernels.calibrate.netlab_unavailable", lambda: "no namespaces today")
    assert run(cli.app, ["demo", "--output", "figures"]) == 0
    out = capsys.readouterr().out
    assert "No netlab here (no namespaces today)" in out
    written = {path.name for path in (folder / "figures").iterdir()}
    assert written >= {"demo-profile.json", "demo-predictions.json", "demo.json", "demo.png", "demo.html"}
    assert len(json.loads((folder / "figures" / "demo.json").read_text())["points"]) == 2


def test_validate_uses_the_profile_that_is_there(folder, capsys):
    assert run(cli.app, ["calibrate", "--quick", "--no-lab"]) == 0
    capsys.readouterr()
    assert run(cli.app, ["validate", "--quick", "--repeats", "1", "--output", "out", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["profile"] == json.loads((folder / "runs" / "profile.json").read_text())
    assert [len(point["repeats_s"]) for point in answer["points"]] == [1, 1]
    assert (folder / answer["files"]["html"]).exists()


@needs_lab
def test_netlab_runs_a_collective_and_compares(folder, capsys):
    options = ["--hosts", "2", "--bandwidth", "100Mb/s", "--size", "256KiB", "--repeats", "2", "--trace", "t.json"]
    assert run(cli.app, ["netlab", "all-reduce", *options, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert not answer["calibrated"]
    # Two steps of half the buffer at 12.5 MB/s.
    assert answer["predicted_s"] == pytest.approx((256 << 10) / 12.5e6, rel=0.1)
    assert answer["measured_s"] > 0.7 * answer["predicted_s"]
    assert answer["error"] == pytest.approx(answer["predicted_s"] / answer["measured_s"] - 1)
    assert len(answer["repeats_s"]) == 2
    assert json.loads((folder / "t.json").read_text())["traceEvents"]


@needs_lab
def test_netlab_ping(folder, capsys):
    options = ["--hosts", "3", "--bandwidth", "100Mb/s", "--size", "256KiB", "--repeats", "1"]
    assert run(cli.app, ["netlab", *options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["host"] for row in rows] == ["d1", "d2"]
    for row in rows:
        assert 0 < row["round_trip_s"] < 1
        assert row["bandwidth_bytes_per_s"] < 12.5e6 * 1.3


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("netlab frob", "no collective 'frob'"),
        ("netlab --hosts 99", "99 hosts"),
        ("netlab --hosts 1", "1 hosts"),
        ("netlab all-reduce --algorithm foo", "no algorithm 'foo'"),
        ("netlab --algorithm ring", "ping"),
        ("netlab --bandwidth 3", "--bandwidth: '3' has no unit"),
        ("netlab --topology bus", "'bus'"),
        ("netlab --size -3", "--size: '-3' is negative"),
        ("netlab all-reduce --topology ring --uplink 3Mb/s", "uplink"),
        ("netlab --profile none.json", "none.json: cannot read the profile"),
        ("calibrate --backend foo", "'foo' on 'cpu'"),
        ("calibrate --device cuda", "'gloo' on 'cuda'"),
        ("calibrate --output /proc/no/p.json", "/proc/no"),
        ("validate --profile none.json", "none.json: cannot read the profile"),
        ("validate --repeats 0", "--repeats"),
        ("demo --output /proc/no", "/proc/no"),
        ("frob", "frob"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(folder, capsys, arguments, line):
    assert run(cli.app, arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err
    assert err.count("\n") == 1
    assert err.startswith("llmsim: error: ")
