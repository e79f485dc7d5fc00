"""The catalog: complete, sourced, consistent with itself, and strict about what it reads."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim import catalog
from llmsim.catalog.load import parse_devices, parse_links
from llmsim.catalog.schema import parse_op_rate, parse_power
from llmsim.errors import InputError

DEVICES = catalog.names()["devices"]
LINKS = catalog.names()["links"]
CLUSTERS = catalog.names()["clusters"]


def test_what_must_be_there():
    assert {
        "v100-sxm2-16gb", "v100-sxm2-32gb", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm", "l4",
        "rtx-4090", "mi300x", "tpu-v4", "tpu-v5e", "tpu-v5p", "ascend-910b", "cpu-core",
    } <= set(DEVICES)  # fmt: skip
    assert {
        "nvlink-2", "nvlink-3", "nvlink-4", "nvlink-5", "nvswitch-h100", "pcie-3", "pcie-4", "pcie-5", "infiniband-hdr",
        "infiniband-ndr", "roce-400g", "ethernet-1g", "ethernet-10g", "ethernet-25g", "ethernet-100g", "hccs",
    } <= set(LINKS)  # fmt: skip
    assert set(CLUSTERS) == {
        "dgx-a100", "dgx-h100", "dgx-h200", "gb200-nvl72", "tpu-v4-pod", "ascend-910b-server", "laptop",
    }  # fmt: skip


@pytest.mark.parametrize("name", DEVICES + LINKS)
def test_every_figure_names_its_source(name):
    entry = catalog.device(name) if name in DEVICES else catalog.link(name)
    assert entry.figures
    for figure in entry.figures.values():
        assert len(figure.source) > 10
        assert figure.confidence in {"vendor", "secondary", "measured", "derived", "disputed", "nominal"}
        assert re.match(r"\d", figure.text)
    stated = {field.partition(".")[0] for field in entry.figures}
    assert stated <= {
        "memory", "memory_bandwidth", "scale_up_bandwidth", "power", "peak",
        "bandwidth", "unit_bandwidth", "latency", "switch_latency",
    }  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_is_plausible(name):
    """Catches a slipped unit or a sparse peak: balance of compute, memory and power within what machines are."""
    device = catalog.device(name)
    best = max(device.peaks_flop_per_s.values())
    assert 3 < best / device.memory_bandwidth_bytes_per_s < 2000  # FLOP per byte
    assert 0.4e-3 < device.memory_bytes / device.memory_bandwidth_bytes_per_s < 0.5  # seconds to read it all
    if device.power_w is not None:
        assert 1e10 < best / device.power_w < 2e13
    peaks = device.peaks_flop_per_s
    narrow = [peaks[dtype] for dtype in ("fp64", "fp32", "tf32", "bf16", "fp8", "fp4") if dtype in peaks]
    assert narrow == sorted(narrow)
    if {"bf16", "fp8"} <= set(peaks) and name != "tpu-v5p":  # it computes fp8 in bf16 units
        assert peaks["fp8"] == pytest.approx(2 * peaks["bf16"], rel=0.01)
    if {"fp16", "bf16"} <= set(peaks):
        assert peaks["fp16"] == peaks["bf16"]


def test_figures_in_si_units():
    a100 = catalog.device("a100-sxm-80gb")
    assert a100.peak_flop_per_s("bf16") == a100.peak_flop_per_s("bfloat16") == 312e12
    assert a100.memory_bandwidth_bytes_per_s == 2039e9
    assert a100.memory_bytes == 80_000_000_000
    assert a100.power_w == 400
    assert catalog.device("tpu-v4").memory_bytes == 32 * 2**30
    assert catalog.device("h100-sxm").figures["peak.bf16"].text == "989TFLOP/s"
    assert catalog.link("infiniband-ndr").bandwidth_bytes_per_s == 50e9
    assert catalog.link("pcie-4").bandwidth_bytes_per_s == pytest.approx(16e9 * 16 * 128 / 130 / 8, rel=1e-3)


@pytest.mark.parametrize(
    ("device", "link"),
    [
        ("v100-sxm2-16gb", "nvlink-2"),
        ("a100-sxm-80gb", "nvlink-3"),
        ("a100-sxm-80gb", "nvswitch-a100"),
        ("h100-sxm", "nvswitch-h100"),
        ("h200-sxm", "nvlink-4"),
        ("b200-sxm", "nvswitch-b200"),
        ("gb200", "nvlink-5"),
    ],
)
def test_devices_and_their_links_agree(device, link):
    assert catalog.device(device).scale_up_bandwidth_bytes_per_s == catalog.link(link).bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("device", "link", "count"), [("mi300x", "xgmi-mi300x", 7), ("ascend-910b", "hccs", 7), ("tpu-v4", "tpu-v4-ici", 6)]
)
def test_meshes_add_up(device, link, count):
    total = count * catalog.link(link).bandwidth_bytes_per_s
    assert catalog.device(device).scale_up_bandwidth_bytes_per_s == total


def test_doubtful_figures_say_so():
    assert catalog.device("ascend-910b").figures["peak.fp16"].confidence == "disputed"
    assert "256 to 376" in catalog.device("ascend-910b").figures["peak.fp16"].note
    assert {figure.confidence for figure in catalog.device("cpu-core").figures.values()} == {"nominal"}


def test_a_latency_without_source_is_left_out():
    link = catalog.link("ethernet-10g")
    assert link.latency_s is None
    with pytest.raises(InputError, match="ethernet-10g: the catalog has no latency for this link; give one"):
        link.stated_latency_s()


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_are_of_catalog_devices(name):
    cluster = catalog.cluster(name, **({"shape": "4x4x4"} if name == "tpu-v4-pod" else {}))
    for node in cluster.devices:
        assert cluster.graph.nodes[node]["device"] in DEVICES
    assert cluster.name == name
    assert catalog.describe_cluster(name).endswith("]")


def test_dgx_h100_inside_and_between_nodes():
    cluster = catalog.cluster("dgx-h100", nodes=4)
    assert len(cluster.devices) == 32
    assert len({cluster.host_of(d).name for d in cluster.devices}) == 4

    def path(a, b):
        links = [cluster.links[i] for i in cluster.route(a, b)]
        return min(link.bandwidth_bytes_per_s for link in links), sum(link.latency_s for link in links)

    assert path("d0", "d7") == (450e9, pytest.approx(600e-9))
    assert path("d0", "d8") == (50e9, pytest.approx(730e-9))  # same rail, one switch: adapters 600 ns + switch 130 ns
    assert path("d0", "d9") == (50e9, pytest.approx(990e-9))  # three switches


def test_other_clusters():
    assert len(catalog.cluster("tpu-v4-pod").devices) == 4096
    nvl = catalog.cluster("gb200-nvl72")
    assert sum(link.bandwidth_bytes_per_s for link in nvl.links if link.destination.endswith("nvswitch")) == 64.8e12
    servers = catalog.cluster("ascend-910b-server", nodes=2)
    assert len(servers.route("d0", "d7")) == 1
    assert servers.links[servers.route("d0", "d8")[0]].bandwidth_bytes_per_s == 25e9
    laptop = catalog.cluster("laptop", ranks=3, cores=2)
    assert {laptop.host_of(d).cores for d in laptop.devices} == {2}
    assert sum(laptop.links[i].latency_s for i in laptop.route("d0", "d2")) == catalog.link("loopback").latency_s


def test_tpu_slices_wrap_around_only_in_whole_cubes():
    assert len(catalog.cluster("tpu-v4-pod", shape=(4, 4, 4)).links) == 64 * 6
    small = catalog.cluster("tpu-v4-pod", shape="2x2x4")
    assert len(small.links) == 2 * (4 * 4 + 2 * (2 * 4) * 1)  # rings of 4 along the third axis, cables along the others


@pytest.mark.parametrize(
    ("option", "one", "other"),
    [("nodes", 2, 3), ("spines", 1, 2), ("oversubscription", 1, "2:1"), ("seed", 0, 1)],
)
def test_options_of_gpu_clusters_change_them(option, one, other):
    def meaning(value):
        options = {"nodes": 4, option: value}
        cluster = catalog.cluster("dgx-a100", **options)
        return [[cluster.links[i] for i in cluster.route("d0", d)] for d in cluster.devices]

    assert meaning(one) != meaning(other)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: catalog.device("h100"), "there is no device 'h100' in the catalog; did you mean h100-sxm"),
        (lambda: catalog.device("abacus"), "choose among v100-sxm2-16gb, "),
        (lambda: catalog.device("A100-SXM-80GB"), "did you mean a100-sxm-80gb"),
        (lambda: catalog.device("A100"), r"did you mean a100-sxm-40gb or a100-sxm-80gb\?"),  # not h100, spelt alike
        (lambda: catalog.device("ascend 910b"), r"did you mean ascend-910b\?"),
        (lambda: catalog.link("nvlink"), "there is no link 'nvlink' in the catalog; did you mean nvlink-"),
        (lambda: catalog.cluster("dgx"), "there is no cluster 'dgx' in the catalog; did you mean dgx-"),
        (lambda: catalog.device("l4").peak_flop_per_s("fp64"), "l4: no peak for 'fp64'; it has fp32, tf32"),
        (lambda: catalog.cluster("dgx-a100", node=2), "dgx-a100: unknown option 'node'; it takes nodes"),
        (lambda: catalog.cluster("laptop", nodes=2), "laptop: unknown option 'nodes'; it takes ranks, cores"),
        (lambda: catalog.cluster("dgx-a100", nodes=0), "dgx-a100: nodes is 0; take 1 or more"),
        (lambda: catalog.cluster("dgx-a100", nodes="two"), "dgx-a100: nodes: 'two' is not a whole number"),
        (lambda: catalog.cluster("tpu-v4-pod", shape="4by4"), "tpu-v4-pod: shape: '4by4' is not a whole number"),
        (lambda: catalog.cluster("tpu-v4-pod", shape=(0, 4, 4)), "'0x4x4' is no shape of a tpu-v4-pod"),
        (lambda: catalog.cluster("laptop", cores="x"), "laptop: cores: 'x' is not a number of cores; write 4 or 0.5"),
        (lambda: catalog.cluster("laptop", cores="4:1"), "'4:1' is not a number of cores"),
        (lambda: catalog.cluster("laptop", cores=0), "0 is not a number of cores"),
    ],
)
def test_unknown_names_and_options(ask, message):
    with pytest.raises(InputError, match=message):
        ask()


def test_cluster_for_a_number_of_ranks():
    assert len(catalog.cluster_for("dgx-h100", 9).devices) == 16
    assert len(catalog.cluster_for("laptop", 6).devices) == 6
    assert len(catalog.cluster_for("tpu-v4-pod", 8, shape="2x2x2").devices) == 8
    with pytest.raises(InputError, match="8 devices cannot hold 9 ranks"):
        catalog.cluster_for("dgx-h100", 9, nodes=1)


ENTRY = """
[sources]
s = { text = "a document", confidence = "vendor" }
[x]
description = "x"
kind = "gpu"
memory = { value = "1GB", source = "s" }
memory_bandwidth = { value = "1GB/s", source = "s" }
peak.fp32 = { value = "1TFLOP/s", source = "s" }
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('value = "1GB",', 'value = "1GB/s",', r"devices.toml: x: memory: 'GB/s' in '1GB/s' is not a unit of size"),
        ('value = "1GB/s", source = "s"', 'value = "1GB/s"', "x: memory_bandwidth.source: is missing"),
        ('kind = "gpu"', 'kind = "cat"', "x: kind: Input should be 'gpu', 'tpu', 'npu' or 'cpu'"),
        ('kind = "gpu"', 'kind = "gpu"\ncolour = "red"', "x: colour: unknown field"),
        ("peak.fp32", "peak.fp33", "x: peak.fp33"),
        ('source = "s" }\npeak', 'source = "t" }\npeak', "x.memory_bandwidth: there is no source 't'"),
        ("[x]", "[x", "devices.toml: not valid TOML"),
        ('confidence = "vendor"', 'confidence = "sure"', "devices.toml: sources.s: confidence: Input should be"),
        ("1TFLOP/s", "1TFLOPS", "x: peak.fp32: 'TFLOPS' in '1TFLOPS' is not a unit of FLOP rate"),
    ],
)
def test_a_wrong_entry_is_refused(old, new, message):
    assert parse_devices(ENTRY)["x"].memory_bytes == 10**9
    assert old in ENTRY
    with pytest.raises(InputError, match=message):
        parse_devices(ENTRY.replace(old, new, 1))


@given(start=st.integers(0, len(ENTRY) - 1), length=st.integers(0, 12), put_in=st.text(max_size=4))
@settings(max_examples=200, deadline=None)
def test_damaged_files_never_crash(start, length, put_in):
    text = ENTRY[:start] + put_in + ENTRY[start + length :]
    for parse in (parse_devices, parse_links):
        try:
            result = parse(text)
        except InputError as error:
            result = str(error)
        assert isinstance(result, dict) or "\n" not in result


def test_parsers_of_the_catalog():
    assert parse_op_rate("624TOP/s") == 624e12
    assert parse_op_rate("40GFLOP/s") == 40e9
    assert parse_power("72.5 W") == 72.5
    with pytest.raises(InputError, match="'7kW' is not a power"):
        parse_power("7kW")
