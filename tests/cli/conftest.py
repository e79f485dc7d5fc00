"""Running commands inside the test process: the output, the complaint and the exit code."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from llmsim.cli import main


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def llmsim(capsys):
    """``llmsim("collective all-reduce --json")``; a list where an argument has spaces."""

    def run(arguments: str | list[str]) -> Ran:
        capsys.readouterr()
        code = main(arguments.split() if isinstance(arguments, str) else arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def refused(llmsim):
    """Runs a command that must fail as a mistake of the user: one line on the standard error, nothing else."""

    def run(arguments: str | list[str]) -> str:
        ran = llmsim(arguments)
        assert ran.code == 2, ran
        assert ran.out == ""
        assert ran.err.startswith("llmsim: error: ")
        assert ran.err.count("\n") == 1
        return ran.err.removeprefix("llmsim: error: ").strip()

    return run
