"""``llmsim explain`` and ``llmsim devices``: every entry is complete, and what it points to is there."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from llmsim import catalog
from llmsim.catalog.glossary import explain, terms
from llmsim.cli.app import app
from llmsim.errors import InputError
from llmsim.program import ALGORITHMS

LESSONS = Path(__file__).parents[2] / "lessons"

# the 34 terms that the project covers
COVERED = {
    "1.1": ("data parallelism", "数据并行"),
    "1.2": ("model parallelism", "模型并行"),
    "1.3": ("pipeline parallelism", "流水线并行"),
    "1.4": ("parameter server", "参数服务器"),
    "1.5": ("ring all-reduce", "Ring AllReduce"),
    "2.1": ("ZeRO", "ZeRO-1"),
    "2.2": ("gradient checkpointing", "梯度检查点"),
    "2.3": ("mixed precision", "混合精度训练"),
    "2.4": ("activation recomputation", "激活重计算"),
    "3.1": ("LoRA", "lora"),
    "3.2": ("prefix tuning", "Prefix Tuning"),
    "3.3": ("adapter layers", "Adapter Layers"),
    "4.1": ("gradient accumulation", "梯度累积"),
    "4.2": ("dynamic batching", "动态批处理"),
    "4.3": ("FlashAttention", "Flash Attention"),
    "5.1": ("mixture of experts", "MoE"),
    "5.2": ("tensor parallelism", "张量并行"),
    "5.3": ("3D parallelism", "3D并行"),
    "5.4": ("checkpointing", "Checkpointing"),
    "5.5": ("warm-up", "Warmup & 学习率调度"),
    "5.6": ("BF16", "bf16"),
    "6.1": ("prefill", "Prefill阶段"),
    "6.2": ("decode", "Decoder阶段"),
    "6.3": ("PD disaggregation", "PD分离"),
    "6.4": ("KV cache", "kv-cache"),
    "6.5": ("PagedAttention", "PA"),
    "6.6": ("block_table", "block table"),
    "6.7": ("request", "请求"),
    "6.8": ("role", "Role"),
    "6.9": ("cluster_id", "cluster id"),
    "6.10": ("elastic scaling", "集群动态扩缩容"),
    "6.11": ("D2D", "D2D transfer"),
    "6.12": ("D2H", "D2H transfer"),
    "6.13": ("H2D", "H2D transfer"),
}


def test_all_covered_terms_are_there_under_both_names():
    numbered = {term.number: term for term in terms() if term.number}
    assert set(numbered) == set(COVERED)
    for number, names in COVERED.items():
        for name in names:
            assert explain(name) is numbered[number]
    assert explain("增量推理") is numbered["6.2"]


@pytest.mark.parametrize("term", terms(), ids=lambda term: term.name)
def test_every_entry_is_complete(term):
    assert term.zh, "no Chinese name"
    assert re.search("[一-鿿]", "".join(term.zh)), "no Chinese character in the Chinese names"
    assert 40 <= len(term.definition) <= 700
    assert term.definition.endswith((".", ")"))
    assert bool(term.claim) == bool(term.verdict)
    for name in (*term.en, *term.zh):
        assert explain(name) is term, f"{name} is another term's name too"
    for other in term.see:
        assert explain(other) is not term
        assert explain(other).name == other, "refer to a term by its first name"
    if term.number:
        assert term.formula or term.number in ("6.8", "6.9"), "one of the 34 needs a formula"


@pytest.mark.parametrize("place", sorted({place for term in terms() for place in term.shown_by}))
def test_what_an_entry_points_to_exists(place):
    if place.startswith("lesson "):
        assert list(LESSONS.glob(f"{place.removeprefix('lesson ')}_*.py")), "no such lesson"
        return
    program, command, *arguments = shlex.split(place)
    assert program == "llmsim"
    known = get_command(app).commands
    assert command in known
    options = {name for parameter in known[command].params for name in parameter.opts}
    for option in (a for a in arguments if a.startswith("--")):
        assert option in options, f"{command} has no {option}"
    if command == "collective" and arguments:
        assert arguments[0] in ALGORITHMS
        if "--algorithm" in arguments:
            assert arguments[arguments.index("--algorithm") + 1] in ALGORITHMS[arguments[0]]


@pytest.mark.parametrize("name", sorted({*ALGORITHMS, *(each for ways in ALGORITHMS.values() for each in ways)}))
def test_every_collective_and_algorithm_is_explained(name):
    assert explain(name)


@given(st.text(max_size=30))
def test_any_text_is_explained_or_refused(text):
    with contextlib.suppress(InputError):
        assert explain(text) in terms()


# the commands ---------------------------------------------------------------------------------------------------------


def test_explain_prints_the_entry(llmsim):
    out = llmsim("explain ring allreduce").out
    for text in ("ring all-reduce", "2 (N − 1) (α + S / (N · B))", "People say:", "In fact:", "Shown by: lesson 02"):
        assert text in out
    assert "Shown by" not in llmsim("explain LoRA").out
    assert llmsim("explain PD分离 --json").json["number"] == "6.3"


def test_explain_alone_lists_all(llmsim):
    out = llmsim("explain").out
    assert all(term.name in out for term in terms())
    assert len(llmsim("explain --json").json) == len(terms())


def test_explain_suggests_what_may_be_meant(refused):
    assert "did you mean tensor parallelism" in refused(["explain", "tensor paralelism"])
    assert "lists all terms" in refused("explain qqqqqqqq")


def test_devices_lists_the_catalog(llmsim):
    found = llmsim("devices --json").json
    assert [d["name"] for d in found["devices"]] == list(catalog.names()["devices"])
    assert [x["name"] for x in found["links"]] == list(catalog.names()["links"])
    assert list(found["clusters"]) == list(catalog.names()["clusters"])
    out = llmsim("devices").out
    assert all(name in out for names in catalog.names().values() for name in names)


def test_one_device_or_link_has_all_figures_with_their_sources(llmsim):
    for name in ("h100-sxm", "nvlink-4"):
        found = llmsim(f"devices {name} --json").json
        assert found["figures"]
        assert all(figure["source"] for figure in found["figures"].values())
        out = llmsim(f"devices {name}").out
        assert all(key in out for key in found["figures"])


def test_an_unknown_device_is_refused(refused):
    assert "did you mean h100-sxm" in refused("devices h100")
