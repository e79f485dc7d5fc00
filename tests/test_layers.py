"""The dependency rules: who may import whom, and what may not be imported at all."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import llmsim

ROOT = Path(__file__).parent.parent

# a module may import from its own group and from those before it
GROUPS = [
    ("errors", "units", "timeline"),
    ("catalog", "cluster", "model"),
    ("program",),
    ("engine", "cost"),
    ("training", "serving"),
    ("plots",),
    ("validation",),
    ("cli", "__main__"),
]
GROUP_OF = {part: i for i, parts in enumerate(GROUPS) for part in parts}


def modules(folder):
    return sorted(p for p in (ROOT / folder).rglob("*.py") if p.name != "__init__.py" or p.parent != ROOT / "llmsim")


def imported(path):
    """Dotted names that a file imports anywhere, also inside functions; ``from a import b`` counts as ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(name):
    """The part of llmsim that a dotted name belongs to, None if it is of another package."""
    first, *rest = name.split(".")
    return (rest[0] if rest else "") if first == "llmsim" else None


def test_every_part_has_its_place():
    parts = {p.relative_to(ROOT / "llmsim").parts[0].removesuffix(".py") for p in modules("llmsim")}
    assert parts <= set(GROUP_OF), "state where the new part stands in GROUPS"


@pytest.mark.parametrize("path", modules("llmsim"), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_downwards(path):
    mine = path.relative_to(ROOT / "llmsim").parts[0].removesuffix(".py")
    for name in imported(path):
        part = part_of(name)
        if part is None:
            continue
        assert part in GROUP_OF, f"{name}: import from the part itself, not from the package"
        assert GROUP_OF[part] <= GROUP_OF[mine], f"{mine} imports {name}"


@pytest.mark.parametrize("path", modules("llmsim"), ids=lambda p: str(p.relative_to(ROOT)))
def test_predicting_needs_no_torch_and_no_kernels(path):
    assert not {name.split(".")[0] for name in imported(path)} & {"torch", "llmsim_kernels", "kernels"}


def loaded_after(statement):
    code = f"import sys; {statement}; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()} | set(done.stdout.split())


HEAVY = {"torch", "numba", "matplotlib", "simpy", "pydantic", "networkx", "scipy", "typer", "rich", "yaml"}


def test_import_llmsim_loads_nothing_heavy():
    assert not loaded_after("import llmsim") & (HEAVY | {"llmsim_kernels", "numpy"})


def test_building_a_program_loads_no_engine():
    loaded = loaded_after("import llmsim; llmsim.collective('all-reduce', 'ring', 4, 16)")
    assert not loaded & (HEAVY - {"networkx"})


@pytest.mark.parametrize("name", llmsim.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(llmsim, name) is not None
    assert name in dir(llmsim)


def test_the_list_of_exports_is_their_homes():
    assert list(llmsim.__all__) == sorted(llmsim._HOME)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        llmsim.nonsense  # noqa: B018


def test_everything_about_programs_that_a_lesson_needs_is_exported():
    """The few names a lesson needs are importable from ``llmsim`` itself."""
    names = {"check_collective", "collective", "data_parallel_step", "lower", "parameter_server", "staleness"}
    assert names <= set(llmsim.__all__)
