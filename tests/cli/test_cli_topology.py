"""``llmsim topology``: describe, draw, save, import."""

import pytest

from llmsim.cluster import TOPOLOGIES, load_cluster

TOPO = """\
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\t0-15\t0
GPU1\tNV4\t X \t0-15\t0
"""


def test_it_describes_and_draws(llmsim, tmp_path):
    ran = llmsim(f"topology leaf-spine --ranks 16 --oversubscription 4:1 --plot {tmp_path / 'net.png'}")
    assert ran.code == 0
    assert "bisection" in ran.out
    assert (tmp_path / "net.png").stat().st_size > 1000


def test_figures_of_a_ring(llmsim):
    found = llmsim("topology ring --ranks 8 --bandwidth 10GB/s --latency 1us --json").json
    assert (found["devices"], found["links"], found["diameter_links"]) == (8, 16, 4)
    assert found["diameter_latency_s"] == pytest.approx(4e-6)
    assert found["bisection_bandwidth_bytes_per_s"] == pytest.approx(20e9)
    assert len(found["cluster"]["devices"]) == 8


def test_a_large_cluster_is_described_without_what_takes_long(llmsim):
    found = llmsim("topology switch --ranks 500 --json").json
    assert found["devices"] == 500
    assert found["diameter_links"] is found["bisection_bandwidth_bytes_per_s"] is None
    assert "500" in llmsim("topology switch --ranks 500").out


def test_saved_and_read_back_it_is_the_same(llmsim, tmp_path):
    path = tmp_path / "saved.yaml"
    first = llmsim(f"topology torus --ranks 12 --dims 3x4 --save {path} --json").json
    again = llmsim(["topology", str(path), "--json"]).json
    assert first == again
    assert len(load_cluster(path).devices) == 12


def test_a_catalog_cluster_and_its_options(llmsim):
    assert llmsim("topology dgx-h100 --ranks 20 --json").json["devices"] == 24
    assert llmsim("topology dgx-h100 --set nodes=2 --json").json["devices"] == 16


def test_nvidia_smi(llmsim, tmp_path):
    file = tmp_path / "topo.txt"
    file.write_text(TOPO, encoding="utf-8")
    found = llmsim(["topology", "--nvidia-smi", str(file), "--json"]).json
    assert found["devices"] == 2


def test_alone_it_lists_all(llmsim):
    assert set(llmsim("topology --json").json["topologies"]) == set(TOPOLOGIES)
    out = llmsim("topology").out
    assert all(name in out for name in [*TOPOLOGIES, "dgx-h100"])


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ("torrus", "did you mean torus"),
        ("torus --ranks 7", "7"),
        ("torus --ranks 6 --dims 2x2", "--"),
        ("none.toml", "none.toml"),
        ("dgx-h100 --latency 1us", "--latency"),
        ("ring --nvidia-smi topo.txt", "--nvidia-smi"),
        ("--nvidia-smi missing.txt", "missing.txt"),
        ("ring --save ring.doc", "ring.doc"),
        ("ring --save /no/such/folder/ring.yaml", "/no/such/folder"),
        ("ring --plot ring.doc", "ring.doc"),
    ],
)
def test_mistakes_are_one_line(refused, arguments, finding, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(f"topology {arguments}")
    assert finding.strip("-") in line


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ("topology --ranks 4", "--ranks: has no effect without a topology"),
        ("topology --json --save t.yaml", "--save: has no effect without a topology"),
        ("topology dgx-h100 --set nodes=2 --set nodes=3", "nodes is given twice"),
        ("topology leaf-spine --set oversubscription=2 --oversubscription 4", "--oversubscription"),
        ("topology torus --set dims=2x4 --dims 4x2", "--dims"),
        ("topology two-racks --set ranks=4", "use --ranks"),
        ("topology two-racks --set latency-s=1us", "use --latency"),
        ("topology two-racks --set name=x", "name cannot be set"),
        ("topology dgx-h100 --set name=x", "name cannot be set"),
        (["topology", "ring", "--bandwidth", ""], "'' is not a bandwidth"),
        (["topology", "ring", "--latency", ""], "'' is not a duration"),
        ("topology ring --plot ring.pgf", "not a picture format"),
        ("topology ring --plot ring.rgba", "not a picture format"),
    ],
)
def test_an_option_without_effect_or_given_twice_is_refused(refused, arguments, finding, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert finding in refused(arguments)
    assert not list(tmp_path.iterdir())


def test_one_device_has_no_bisection(llmsim):
    assert llmsim("topology ring --ranks 1 --json").json["bisection_bandwidth_bytes_per_s"] == 0
