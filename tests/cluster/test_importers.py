"""``nvidia-smi topo -m``: NVSwitch, NVLink meshes and PCIe trees; nothing else gets in."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim import catalog
from llmsim.cluster import Cluster, import_topo
from llmsim.cluster.importers import LEGEND, parse_topo
from llmsim.errors import InputError

PCIE4 = catalog.link("pcie-4").bandwidth_bytes_per_s
TAIL = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""


def topo(rows: dict[str, str], numa: dict[str, str] | None = None, tail: str = TAIL) -> str:
    """Text as the tool prints it: columns by tabs, cells by blanks in ``rows``."""
    affinity = "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID" if numa is not None else "\tCPU Affinity"
    lines = ["\t" + "\t".join(rows) + affinity]
    for name, cells in rows.items():
        line = f"{name}\t" + "\t".join(cell.rjust(3) for cell in cells.split())
        if numa and name in numa:
            line += f"\t{48 * int(numa[name])}-{48 * int(numa[name]) + 47}\t{numa[name]}\t\tN/A"
        lines.append(line)
    return "\n".join(lines) + "\n" + tail


def all_to_all(count: int, cell: str) -> dict[str, str]:
    return {f"GPU{i}": " ".join("X" if i == j else cell for j in range(count)) for i in range(count)}


DGX_A100 = topo(
    {
        "GPU0": "X NV12 NV12 NV12 NV12 NV12 NV12 NV12 PXB SYS",
        "GPU1": "NV12 X NV12 NV12 NV12 NV12 NV12 NV12 PXB SYS",
        "GPU2": "NV12 NV12 X NV12 NV12 NV12 NV12 NV12 SYS SYS",
        "GPU3": "NV12 NV12 NV12 X NV12 NV12 NV12 NV12 SYS SYS",
        "GPU4": "NV12 NV12 NV12 NV12 X NV12 NV12 NV12 SYS PXB",
        "GPU5": "NV12 NV12 NV12 NV12 NV12 X NV12 NV12 SYS PXB",
        "GPU6": "NV12 NV12 NV12 NV12 NV12 NV12 X NV12 SYS SYS",
        "GPU7": "NV12 NV12 NV12 NV12 NV12 NV12 NV12 X SYS SYS",
        "NIC0": "PXB PXB SYS SYS SYS SYS SYS SYS X SYS",
        "NIC1": "SYS SYS SYS SYS PXB PXB SYS SYS SYS X",
    },
    numa={f"GPU{i}": str(i // 4) for i in range(8)},
)
PCIE_BOX = topo(
    {
        "GPU0": "X PIX PHB SYS",
        "GPU1": "PIX X PHB SYS",
        "GPU2": "PHB PHB X SYS",
        "mlx5_0": "SYS SYS SYS X",
    },
    tail="",
)
HYBRID_CUBE_MESH = topo(  # 8 V100: two quads of NV1 and NV2, and one NVLink pair from each GPU to the other quad
    {
        "GPU0": "X NV1 NV1 NV2 NV2 SYS SYS SYS",
        "GPU1": "NV1 X NV2 NV1 SYS NV2 SYS SYS",
        "GPU2": "NV1 NV2 X NV2 SYS SYS NV1 SYS",
        "GPU3": "NV2 NV1 NV2 X SYS SYS SYS NV1",
        "GPU4": "NV2 SYS SYS SYS X NV1 NV1 NV2",
        "GPU5": "SYS NV2 SYS SYS NV1 X NV2 NV1",
        "GPU6": "SYS SYS NV1 SYS NV1 NV2 X NV2",
        "GPU7": "SYS SYS SYS NV1 NV2 NV1 NV2 X",
    },
    numa={f"GPU{i}": str(i // 4) for i in range(8)},
)


def nodes_on(cluster: Cluster, a: str, b: str) -> list[str]:
    return [a, *(cluster.links[i].destination for i in cluster.route(a, b))]


def slowest(cluster: Cluster, a: str, b: str) -> float:
    return min(cluster.links[i].bandwidth_bytes_per_s for i in cluster.route(a, b))


def test_dgx_a100_is_an_nvswitch_node():
    cluster = import_topo(DGX_A100, name="dgx", device="a100-sxm-80gb")
    assert cluster.devices == tuple(f"GPU{i}" for i in range(8))
    for a, b in itertools.permutations(cluster.devices, 2):
        assert nodes_on(cluster, a, b) == [a, "nvswitch", b]
        assert slowest(cluster, a, b) == catalog.device("a100-sxm-80gb").scale_up_bandwidth_bytes_per_s
    assert cluster.graph.nodes["GPU3"]["device"] == "a100-sxm-80gb"
    # two GPUs and a NIC meet at a PCIe switch; the other quad's NIC is beyond both sockets
    assert nodes_on(cluster, "GPU0", "NIC0") == ["GPU0", "GPU0.slot", "pcie0", "NIC0"]
    assert "system0" in nodes_on(cluster, "GPU0", "NIC1")
    assert slowest(cluster, "GPU0", "NIC1") == PCIE4


def test_dgx_h100_has_18_links():
    cluster = import_topo(topo(all_to_all(8, "NV18")), nvlink="nvlink-4", pcie="pcie-5")
    assert slowest(cluster, "GPU0", "GPU7") == 450e9
    assert slowest(import_topo(topo(all_to_all(8, "NV18")), nvlink="nvlink-5"), "GPU0", "GPU7") == 900e9
    assert sum(cluster.links[i].latency_s for i in cluster.route("GPU0", "GPU7")) == pytest.approx(600e-9)


def test_four_a100_are_a_mesh_and_not_a_switch():
    cluster = import_topo(topo(all_to_all(4, "NV4")))
    assert nodes_on(cluster, "GPU0", "GPU3") == ["GPU0", "GPU3"]
    assert slowest(cluster, "GPU0", "GPU3") == 100e9
    # three A800 show NV8 each: 16 links would fit some GPU, but not one of NVLink 3
    three = topo(all_to_all(3, "NV8"))
    assert len(import_topo(three).route("GPU0", "GPU1")) == 1
    assert len(import_topo(three, nvlink="nvlink-3").route("GPU0", "GPU1")) == 2


def test_hybrid_cube_mesh_of_v100():
    cluster = import_topo(HYBRID_CUBE_MESH, nvlink="nvlink-2", pcie="pcie-3", device="v100-sxm2-16gb")
    assert slowest(cluster, "GPU0", "GPU1") == 25e9
    assert slowest(cluster, "GPU0", "GPU3") == 50e9
    assert nodes_on(cluster, "GPU0", "GPU4") == ["GPU0", "GPU4"]
    far = nodes_on(cluster, "GPU0", "GPU5")  # no NVLink: over PCIe and the sockets, not through another GPU
    assert not any(node.startswith("GPU") and not node.endswith("slot") for node in far[1:-1])
    assert slowest(cluster, "GPU0", "GPU5") == catalog.link("pcie-3").bandwidth_bytes_per_s
    nvlinks = [link for link in cluster.links if link.source == "GPU0" and "slot" not in link.destination]
    assert sum(link.bandwidth_bytes_per_s for link in nvlinks) == 150e9


def test_pcie_box_without_nvlink():
    cluster = import_topo(PCIE_BOX)
    assert nodes_on(cluster, "GPU0", "GPU1") == ["GPU0", "GPU0.slot", "pcie0", "GPU1.slot", "GPU1"]
    assert nodes_on(cluster, "GPU0", "GPU2") == ["GPU0", "GPU0.slot", "pcie0", "bridge0", "GPU2.slot", "GPU2"]
    assert cluster.graph.nodes["mlx5_0"]["kind"] == "nic"
    assert cluster.devices == ("GPU0", "GPU1", "GPU2")


def test_escapes_prompts_and_one_gpu():
    single = "$ nvidia-smi topo -m\n\x1b[4m\tGPU0\tCPU Affinity\tNUMA Affinity\x1b[0m\nGPU0\t X \t0-15\t0\n" + TAIL
    assert import_topo(single).devices == ("GPU0",)


def test_old_names_of_distances():
    assert parse_topo(PCIE_BOX.replace("SYS", "SOC")).cells == parse_topo(PCIE_BOX).cells


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line of column names"),
        ("hello\nworld", "no line of column names"),
        (PCIE_BOX.replace("PHB", "PHX", 1), "line 2: 'PHX' between GPU0 and GPU2; expected NV# or PIX"),
        (PCIE_BOX.replace("PHB", "SYS", 1), "GPU0 to GPU2 is SYS, but GPU2 to GPU0 is PHB"),
        (PCIE_BOX.replace("GPU1\tPIX\t  X\tPHB\tSYS", "GPU1\tPIX"), "line 3: GPU1 has 1 cells for 4 columns"),
        (PCIE_BOX.replace("GPU2\tPHB", "GPU9\tPHB"), "line 4: there is no column 'GPU9'"),
        (PCIE_BOX.replace("GPU2\tPHB", "GPU1\tPHB"), "line 4: GPU1 has two rows"),
        (PCIE_BOX.replace("mlx5_0\tSYS", "\tSYS"), "line 1: mlx5_0 has a column but no row"),
        (PCIE_BOX.replace("  X", "PIX", 1), "line 2: 'PIX' between GPU0 and GPU0"),
        (PCIE_BOX.replace("GPU1\tGPU2", "GPU1\tGPU1", 1), "line 1: a column stands twice"),
        (PCIE_BOX.replace("GPU1\tGPU2", "GPU1\t***", 1), "line 1: '\\*\\*\\*' is neither a GPU nor a NIC"),
    ],
)
def test_malformed_tables(text, message):
    with pytest.raises(InputError, match=message):
        import_topo(text)


def test_names_that_the_catalog_lacks():
    with pytest.raises(InputError, match="there is no link 'pcie-9'"):
        import_topo(PCIE_BOX, pcie="pcie-9")
    with pytest.raises(InputError, match="pcie-4 is no NVLink"):
        import_topo(PCIE_BOX, nvlink="pcie-4")
    with pytest.raises(InputError, match="there is no device 'a101'"):
        import_topo(PCIE_BOX, device="a101")


@st.composite
def matrices(draw):
    """Any symmetric table, sensible or not."""
    gpus = draw(st.integers(1, 6))
    nics = draw(st.integers(0, 2))
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    cell = st.sampled_from([*LEGEND, "NV1", "NV4", "NV12"])
    table = {(a, b): draw(cell) for a, b in itertools.combinations(names, 2)}
    return {a: " ".join("X" if a == b else table.get((a, b), table.get((b, a))) for b in names) for a in names}


@given(matrices())
@settings(max_examples=60, deadline=None)
def test_any_symmetric_table_becomes_a_connected_node(rows):
    text = topo(rows)
    assert {a: " ".join(parse_topo(text).cells.get((a, b), "X") for b in rows) for a in rows} == rows
    cluster = import_topo(text)
    for a, b in itertools.permutations(cluster.devices, 2):
        assert not set(nodes_on(cluster, a, b)[1:-1]) & set(cluster.devices)
        if parse_topo(text).cells[a, b].startswith("NV"):
            assert len(cluster.route(a, b)) <= 2
            assert slowest(cluster, a, b) >= 25e9


def outcome(text: str) -> "Cluster | str":
    """The cluster, or the message of the one error that is allowed."""
    try:
        return import_topo(text)
    except InputError as error:
        return str(error)


@given(st.text(alphabet="GPUNIC01X VPBHSY\t\n:=#", max_size=200))
@settings(max_examples=200, deadline=None)
def test_noise_is_refused_in_one_line(text):
    result = outcome(text)
    assert "\n" not in result if isinstance(result, str) else result.devices


@given(st.integers(0, len(DGX_A100) - 1), st.integers(1, 40), st.text(alphabet="GXNV12\t\n ", max_size=4))
@settings(max_examples=100, deadline=None)
def test_damaged_tables_never_crash(start, length, put_in):
    result = outcome(DGX_A100[:start] + put_in + DGX_A100[start + length :])
    assert "nvidia-smi" in result if isinstance(result, str) else 1 <= len(result.devices) <= 10
