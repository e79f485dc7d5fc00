"""The command line: ``llmsim COMMAND …``. One file for each group of commands."""

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmsim.errors import LlmsimError

if TYPE_CHECKING:
    from typer import Typer

USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        from llmsim.cli.app import app
    except KeyboardInterrupt:
        return INTERRUPTED
    return run(app, None if arguments is None else list(arguments))


def run(app: "Typer", arguments: list[str] | None) -> int:
    """Run one command of a typer application and return its exit code.

    A mistake of the user is one line on the standard error and exit code 2; anything else that is raised is a mistake
    of ours and stays a traceback.
    """
    try:
        code = app(args=arguments, prog_name="llmsim", standalone_mode=False)
        if sys.stdout is not None:  # as it is where the caller has closed it
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except LlmsimError as error:
        return _complain(error.line())
    except BrokenPipeError:
        return _leave_the_pipe()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _leave_the_pipe()  # else Python complains once more at exit
        return _complain(f"cannot write the output: {error.strerror}")
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except Exception as error:
        if type(error).__name__ == "Abort":  # what typer makes of Ctrl-C
            return INTERRUPTED
        if hasattr(error, "format_message"):  # the usage errors of typer, whichever version
            context = getattr(error, "ctx", None)
            hint = f"; see {context.command_path} --help" if context is not None else ""
            return _complain(f"{error.format_message().rstrip('.')}{hint}")
        raise


def _complain(line: str) -> int:
    print(f"llmsim: error: {' '.join(line.split())}", file=sys.stderr)
    return USER_ERROR


def _leave_the_pipe() -> int:
    """The reader has gone, as ``head`` does: say nothing, also not when Python flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
