"""Cluster files: what they say, where they are wrong, and that writing and reading is the identity."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim import catalog
from llmsim.cluster import (
    Cluster,
    build_topology,
    leaf_spine,
    load_cluster,
    on_one_host,
    parse_cluster,
    ring,
    save_cluster,
    to_dict,
    torus,
)
from llmsim.errors import InputError

TWO_HOSTS = """
name: two hosts
devices: [d0, {name: d1, host: b, device: cpu-core}]
switches: [s0]
hosts: {b: {cores: 2}}
links:
  - {from: d0, to: s0, bandwidth: 10Gb/s, latency: 5us}
  - {from: d1, to: s0, bandwidth: 400Mb/s, latency: 1ms, bidirectional: false}
  - {from: s0, to: d1, bandwidth: 1GB/s, latency: 0s, bidirectional: false}
"""


def written(tmp_path: Path, text: str, name: str = "net.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def same(a: Cluster, b: Cluster) -> bool:
    """Equal in everything that a simulation could see."""
    return (
        (a.name, a.devices, a.seed, dict(a.hosts)) == (b.name, b.devices, b.seed, dict(b.hosts))
        and set(a.links) == set(b.links)
        and dict(a.graph.nodes) == dict(b.graph.nodes)
    )


def routes(cluster: Cluster) -> dict:
    pairs = itertools.permutations(cluster.devices, 2)
    return {pair: [cluster.links[i] for i in cluster.route(*pair)] for pair in pairs}


def test_link_by_link(tmp_path):
    cluster = load_cluster(written(tmp_path, TWO_HOSTS))
    assert cluster.name == "two hosts"
    assert {link[:4] for link in cluster.links} == {
        ("d0", "s0", 1.25e9, 5e-6),
        ("s0", "d0", 1.25e9, 5e-6),
        ("d1", "s0", 5e7, 1e-3),
        ("s0", "d1", 1e9, 0.0),
    }
    assert cluster.host_of("d1").cores == 2
    assert cluster.host_of("d0").name == "d0"
    assert cluster.graph.nodes["d1"]["device"] == "cpu-core"
    assert load_cluster(written(tmp_path, TWO_HOSTS.replace("name: two hosts", ""), "racks.yaml")).name == "racks"


def test_by_topology_in_three_languages(tmp_path):
    fields = {"topology": "leaf-spine", "ranks": 16, "bandwidth": "50GB/s", "latency": "500ns"}
    fields |= {"oversubscription": "4:1", "leaves": 4, "uplink_bandwidth": "1GB/s"}
    toml = "\n".join(f"{key} = {json.dumps(value)}" for key, value in fields.items())
    for text, name in ((yaml.safe_dump(fields), "a.yml"), (json.dumps(fields), "a.json"), (toml, "a.toml")):
        cluster = load_cluster(written(tmp_path, text, name))
        expected = leaf_spine(16, 50e9, 5e-7, leaves=4, oversubscription=4, uplink_bandwidth_bytes_per_s=1e9)
        assert same(cluster, expected)


def test_by_catalog(tmp_path):
    path = written(tmp_path, "catalog: dgx-h100\nnodes: 2\nname: mine\n")
    assert load_cluster(path).links == catalog.cluster("dgx-h100", nodes=2).links
    assert load_cluster(path).name == "mine"
    assert load_cluster("dgx-h100", nodes=2).links == load_cluster(path).links


@pytest.mark.parametrize(
    "cluster",
    [
        ring(5, 50e9, 5e-7),
        torus((3, 2), 1e9 / 3, 1e-7 / 3),
        leaf_spine(16, 123456789.123, 1.5e-6, leaves=4, spines=2, seed=7),
        on_one_host(build_topology("two-racks", 4, 1e8, 2e-5), cores=2),
        catalog.cluster("dgx-a100", nodes=2),
        catalog.cluster("ascend-910b-server", nodes=2),
        build_topology("dragonfly", 72, 1e9, 1e-6),  # its global cables count as several hops
    ],
    ids=lambda cluster: cluster.name,
)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_round_trip(tmp_path, cluster, suffix):
    path = tmp_path / f"net.{suffix}"
    save_cluster(cluster, path)
    again = load_cluster(path)
    assert same(again, cluster)
    assert routes(again) == routes(cluster)
    before = path.read_text()
    save_cluster(again, path)
    assert path.read_text() == before


@given(
    bandwidth=st.floats(1e-3, 1e18),
    latency=st.floats(0, 1e6) | st.floats(1e-12, 1e-3),
    back=st.floats(1.0, 1e12),
)
@settings(max_examples=100, deadline=None)
def test_figures_are_written_exactly(bandwidth, latency, back):
    cluster = build_topology("line", 2, bandwidth, latency)
    cluster.graph.edges["d1", "d0"]["bandwidth_bytes_per_s"] = back
    lopsided = Cluster("x", cluster.graph, cluster.devices)
    assert set(parse_cluster(json.loads(json.dumps(to_dict(lopsided)))).links) == set(lopsided.links)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices: [a, b]", "net.yaml: net: no path from a to b"),
        ("devices: []", r"net.yaml: devices: List should have at least 1 item"),
        ("{}", "net.yaml: has none of topology, catalog, devices"),
        ("topology: ring\ncatalog: dgx-a100", "net.yaml: has both topology and catalog"),
        ("- 1", "net.yaml: is not a table of fields"),
        ("1: 2", "net.yaml: is not a table of fields"),
        ("", "net.yaml: is not a table of fields"),
        ("a: [1", "net.yaml: line 1: not valid YAML"),
        ("devices: [a]\ndevices: [b]", "net.yaml: line 2: not valid YAML: field 'devices' stands twice"),
        (TWO_HOSTS.replace("10Gb/s", "10 parsec"), r"net.yaml: links\[0\].bandwidth: 'parsec' in '10 parsec'"),
        (TWO_HOSTS.replace("10Gb/s", "0Gb/s"), r"net.yaml: links\[0\].bandwidth: '0Gb/s' is no bandwidth to send with"),
        (TWO_HOSTS.replace("1ms", "7"), r"net.yaml: links\[1\].latency: 7 is not a duration"),
        (TWO_HOSTS.replace("from: d1", "frm: d1"), r"links\[1\].from: is missing; links\[1\].frm: unknown field"),
        (TWO_HOSTS.replace("from: d1", "from: d9"), r"links\[1\].from: there is no device or switch 'd9'"),
        (TWO_HOSTS.replace("from: d1", "from: s0"), r"links\[1\]: 's0' is joined to itself"),
        (TWO_HOSTS.replace(", bidirectional: false", "", 1), r"links\[2\]: a link s0 → d1 is there already"),
        (TWO_HOSTS.replace("cores: 2", "cores: 0"), "hosts.b.cores: Input should be greater than 0"),
        (TWO_HOSTS.replace("host: b", "host: c"), r"devices\[1\].host: there is no host 'c'"),
        (TWO_HOSTS.replace("[s0]", "[s0, d1]"), r"switches\[1\]: 'd1' is there already"),
        (TWO_HOSTS + "color: red", "net.yaml: color: unknown field"),
        (
            "topology: ring\nranks: 4\nbandwidth: 1GB/s\nlatency: 1us\nspines: 2",
            "net.yaml: ring: unknown option 'spines'",
        ),
        ("topology: ring\nranks: four\nbandwidth: 1GB/s\nlatency: 1us", "net.yaml: ranks: Input should be a valid int"),
        ("topology: ring\nranks: 4\nbandwidth: 1GB/s", "net.yaml: latency: is missing"),
        ("topology: rang\nranks: 4\nbandwidth: 1GB/s\nlatency: 1us", "did you mean ring"),
        ("topology: ring\nranks: 99999999999\nbandwidth: 1GB/s\nlatency: 1us", "too many for a graph"),
        ("topology: fully-connected\nranks: 99999\nbandwidth: 1GB/s\nlatency: 1us", "too many for a full mesh"),
        ("catalog: dgx-h100\nnode: 2", "net.yaml: dgx-h100: unknown option 'node'; it takes nodes"),
        ("catalog: dgx-z100", "did you mean dgx-h100 or dgx-a100"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        load_cluster(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("a = ", "net.toml", "net.toml: not valid TOML"),
        ("{", "net.json", "net.json: line 1: not valid JSON"),
        ('{"devices": ["a"], "devices": ["b"]}', "net.json", "field 'devices' stands twice"),
        ("x", "net.txt", "use .yaml, .yml, .toml, .json"),
    ],
)
def test_other_languages(tmp_path, text, name, message):
    with pytest.raises(InputError, match=message):
        load_cluster(written(tmp_path, text, name))


def test_no_such_file_or_name(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_cluster(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="there is no file 'a/b'; give a"):
        load_cluster("a/b")
    with pytest.raises(InputError, match="there is no cluster 'dgx-h10' in the catalog; did you mean"):
        load_cluster("dgx-h10")
    with pytest.raises(InputError, match="unknown option 'nodes'; write it into the file"):
        load_cluster(written(tmp_path, TWO_HOSTS), nodes=2)
    with pytest.raises(InputError, match="cannot write a"):
        save_cluster(ring(2, 1e9, 0.0), tmp_path / "net.toml")
    with pytest.raises(InputError, match="no suffix; use"):
        load_cluster(tmp_path)


def outcome(load: Callable[[], Cluster]) -> "Cluster | str":
    """The cluster, or the message of the one error that is allowed."""
    try:
        return load()
    except InputError as error:
        return str(error)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 70)
    | st.floats()
    | st.sampled_from(["d0", "s0", "1GB/s", "5us", "ring"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "from", "to", "bandwidth", "latency", "cores", "host"]), inner)
    ),
    max_leaves=8,
)
documents = st.dictionaries(
    st.sampled_from(
        [
            "name",
            "topology",
            "catalog",
            "ranks",
            "bandwidth",
            "latency",
            "devices",
            "switches",
            "hosts",
            "links",
            "seed",
        ]
    ),
    values,
    max_size=6,
)


@given(documents)
@settings(max_examples=150, deadline=None)
def test_any_document_is_a_cluster_or_one_line(document):
    result = outcome(lambda: parse_cluster(document, "net.yaml"))
    if isinstance(result, str):
        assert result.startswith("net.yaml: ")
        assert "\n" not in result
    else:
        assert result.devices


@given(text=st.text(max_size=60) | st.text(alphabet="{}[]:,-&*!?|>'\"% \n#@ab01", max_size=60))
@settings(max_examples=150, deadline=None)
@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
def test_noise_is_refused_in_one_line(tmp_path_factory, suffix, text):
    path = tmp_path_factory.getbasetemp() / f"noise.{suffix}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    result = outcome(lambda: load_cluster(path))
    assert isinstance(result, str)
    assert "\n" not in result


@pytest.mark.parametrize(
    "text",
    [
        "topology: !!timestamp 99999-99-99\n",
        "topology: !!binary '@@@'\n",
        "topology: ring\nranks: 4\nbandwidth: 1GB/s\nlatency: 1us\nlatency_s: 1\n",
        "topology: ring\nranks: 4\nbandwidth: 1GB/s\nlatency: 1us\nbandwidth_bytes_per_s: 1\n",
    ],
)
def test_tags_and_fields_by_their_inner_name_are_refused(tmp_path, text):
    path = tmp_path / "net.yaml"
    path.write_text(text)
    result = outcome(lambda: load_cluster(path))
    assert isinstance(result, str)
    assert result.startswith("net.yaml: ")


def test_aliases_that_unfold_to_billions_of_items_make_a_short_message(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    path = tmp_path / "net.yaml"
    path.write_text("\n".join([*lines, "topology: ring", "ranks: *a11", "bandwidth: *a11", "latency: *a11"]))
    result = outcome(lambda: load_cluster(path))
    assert isinstance(result, str)
    assert len(result) < 2000
