"""What all commands share: JSON or tables on the standard output, progress on the standard error."""

import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from llmsim.errors import InputError, LlmsimError

T = TypeVar("T")

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
_PIPE_COLUMNS = 110  # where the output is no terminal, so that a file looks the same on every machine


def console() -> Console:
    """The standard output for people."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False, markup=False)


def print_json(data: object) -> None:
    """One JSON document; what JSON cannot say (infinity, NaN) becomes null."""
    print(json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", *, left: Collection[int] = (0,)
) -> Table:
    """A table in which the columns ``left`` are text and all others are figures, set to the right."""
    result = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        result.add_column(column, justify="left" if i in left else "right", overflow="fold")
    for row in rows:
        result.add_row(*("" if cell is None else str(cell) for cell in row))
    return result


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar (a spinner where ``total`` is unknown) on the standard error while something takes its time; it leaves
    nothing behind, and nothing at all is written where the standard error is no terminal. Yields "one step is done"."""
    bars = [SpinnerColumn(), TextColumn("{task.description}"), *([BarColumn()] if total else []), TimeElapsedColumn()]
    stderr = Console(stderr=True)
    with Progress(*bars, console=stderr, transient=True, disable=not stderr.is_terminal) as shown:
        task = shown.add_task(text, total=total)
        yield lambda: shown.advance(task)


def alone(context: typer.Context, missing: str) -> None:
    """Refuse all options but ``--json``, which have no effect where the command, without ``missing``, only lists."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name != "as_json" and source is not None and source.name == "COMMANDLINE":
            raise InputError(f"has no effect without {missing}", where=parameter.opts[0], mend="name one")


def parsed(option: str, parse: Callable[[str], T], text: str) -> T:
    """``parse(text)``; an error names the option."""
    try:
        return parse(text)
    except LlmsimError as error:
        raise error.at(option) from None
