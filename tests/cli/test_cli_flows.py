"""``llmsim flows``: completion times of flows that share links, against times worked out by hand."""

import pytest

FILE = """
links:
  - {from: a, to: b, bandwidth: 10MB/s, latency: 5ms}
  - {from: b, to: c, bandwidth: 5MB/s, latency: 1ms}
flows:
  - {name: long, size: 10MB, route: [a, b, c]}
  - {name: short, size: 3MB, route: [a, b], start: 1s}
  - {name: back, size: 5MB, route: [c, b]}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_completion_times(llmsim, file, engine):
    found = llmsim(f"flows {file} --engine {engine} --json").json
    flows = {flow["name"]: flow for flow in found["flows"]}
    # long is held to 5 MB/s by b-c all along; short has the other 5 MB/s of a-b; back goes the other way, alone
    assert flows["long"]["completion_s"] == pytest.approx(10 / 5 + 6e-3, rel=1e-9)
    assert flows["short"]["completion_s"] == pytest.approx(1 + 3 / 5 + 5e-3, rel=1e-9)
    assert flows["back"]["completion_s"] == pytest.approx(5 / 5 + 1e-3, rel=1e-9)
    assert flows["short"]["duration_s"] == pytest.approx(0.605, rel=1e-9)
    assert flows["short"]["duration_alone_s"] == pytest.approx(0.305, rel=1e-9)
    assert flows["short"]["mean_rate_bytes_per_s"] == pytest.approx(3e6 / 0.605, rel=1e-9)
    assert found["makespan_s"] == flows["long"]["completion_s"]


def test_for_people_the_same_is_a_table(llmsim, file):
    out = llmsim(f"flows {file}").out
    assert all(text in out for text in ("long", "short", "back", "2.006 s", "1.605 s", "1.98"))


@pytest.mark.parametrize(
    ("before", "after", "finding"),
    [
        ("5MB/s", "5MB", "links[1].bandwidth"),
        ("size: 3MB", "size: -3MB", "flows[1].size"),
        ("[a, b, c]", "[a, c]", "flows[0].route"),
        ("start: 1s", "starts: 1s", "flows[1].starts: unknown field"),
        ("links:", "links: [", "not valid YAML"),
    ],
)
def test_mistakes_name_file_and_field(refused, file, before, after, finding):
    file.write_text(FILE.replace(before, after, 1), encoding="utf-8")
    line = refused(f"flows {file}")
    assert line.startswith("net.yaml")
    assert finding in line


def test_a_file_that_is_not_there_is_refused(refused, tmp_path):
    assert "none.yaml" in refused(f"flows {tmp_path / 'none.yaml'}")
    assert "Missing argument" in refused("flows")
