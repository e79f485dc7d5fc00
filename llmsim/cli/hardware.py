"""Commands that run on real hardware. They belong to ``llmsim_kernels``, which needs torch; here they are only handed
over, so that predicting needs neither."""

import os
import sys
from importlib.util import find_spec
from typing import Any

import typer

from llmsim.errors import ExecutionError

PASS_ON: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    "add_help_option": False,
}


def calibrate(context: typer.Context) -> None:
    """Measure this machine into a profile: messages, copies, reductions, matrix products."""
    _hand_over("calibrate", context.args)


def validate(context: typer.Context) -> None:
    """Predict, then run for real, then report the difference."""
    _hand_over("validate", context.args)


def netlab(context: typer.Context) -> None:
    """A small cluster of network namespaces with shaped links on this machine."""
    _hand_over("netlab", context.args)


def demo(context: typer.Context) -> None:
    """A quick calibrate and validate on this machine."""
    _hand_over("demo", context.args)


def _hand_over(command: str, arguments: list[str]) -> None:
    """Become ``python -m llmsim_kernels COMMAND``: its output, signals and exit code are then ours."""
    for module in ("torch", "llmsim_kernels"):
        if find_spec(module) is None:
            raise ExecutionError(
                f"it runs on real hardware and needs {module}, which is not installed",
                where=command,
                mend="pip install 'llmsim[kernels]'",
            )
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "llmsim_kernels", command, *arguments])
