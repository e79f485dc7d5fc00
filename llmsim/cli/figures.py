"""``llmsim figures``: draw the repository's figures anew."""

import runpy
from pathlib import Path
from typing import Annotated

import typer

from llmsim.cli.output import Json, console, print_json, progress, table
from llmsim.errors import InputError


def figures(
    names: Annotated[list[str] | None, typer.Argument(help="Which; without one, all.")] = None,
    folder: Annotated[Path, typer.Option(help="Where build.py is and the pictures go.")] = Path("figures"),
    suffix: Annotated[str, typer.Option(help="png, svg or pdf.")] = "png",
    as_json: Json = False,
) -> None:
    """Draw all figures of the repository anew; with --json, print what they show."""
    source = folder / "build.py"
    if not source.is_file():
        mend = "run it in a checkout of the repository, or name the folder with --folder"
        raise InputError("there is no build.py, which makes the figures", where=str(folder), mend=mend)
    known = runpy.run_path(str(source))["FIGURES"]
    for name in names or ():
        if name not in known:
            raise InputError(f"there is no figure {name!r}", where=str(source), mend=f"choose among {', '.join(known)}")
    drawn = {}
    with progress("drawing", total=len(names or known)) as step:
        for name in names or known:
            picture = known[name]()
            path = folder / f"{name}.{suffix}"
            picture.save(path, dpi=100)
            drawn[name] = {"path": str(path), "data": picture.data}
            step()
    if as_json:
        print_json(drawn)
    else:
        rows = [(name, entry["path"], (known[name].__doc__ or "").splitlines()[0]) for name, entry in drawn.items()]
        console().print(table(("figure", "file", ""), rows, left=range(3)))
