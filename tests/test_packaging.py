"""What is installed is what is in the tree."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_in_the_tree():
    for folder, name in (("llmsim", "llmsim"), ("kernels", "llmsim_kernels")):
        for file in (ROOT / folder).rglob("__init__.py"):
            inside = file.parent.relative_to(ROOT / folder).parts
            yield ".".join([name, *inside])


def test_the_list_of_packages_is_the_tree():
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(packages_in_the_tree())


def test_no_module_is_outside_a_package():
    for folder in ("llmsim", "kernels"):
        for file in (ROOT / folder).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), f"{file.parent} has no __init__.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of the tree, so that nothing is left behind in it and nothing old gets in."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("llmsim", "kernels"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(target), str(source)], check=True, timeout=110)
    (file,) = target.glob("llmsim-*.whl")
    with zipfile.ZipFile(file) as archive:
        yield set(archive.namelist())


def test_the_wheel_holds_every_module_and_data_file(wheel):
    for folder, name in (("llmsim", "llmsim"), ("kernels", "llmsim_kernels")):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".py", ".toml", ".typed"):
                assert str(Path(name) / file.relative_to(ROOT / folder)) in wheel


def test_the_wheel_holds_nothing_else(wheel):
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"llmsim", "llmsim_kernels"}
    assert not [name for name in wheel if "test" in name or name.endswith(".ipynb")]


def test_the_core_is_light():
    core = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert core == {"numpy", "networkx", "simpy", "numba", "matplotlib", "pydantic", "typer", "rich", "pyyaml"}


def test_every_requirement_is_locked():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    locked = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, version = line.split("==")
            locked[name.lower().replace("_", "-").replace(".", "-")] = version
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *extras["kernels"], *extras["lessons"], *extras["dev"]]
    for requirement in map(Requirement, wanted):
        version = locked[requirement.name.lower().replace("_", "-")]
        assert requirement.specifier.contains(version), f"{requirement} is locked to {version}"
    assert locked["torch"] == "2.13.0"
