"""Execute every lesson's source and write its notebook beside it: ``python lessons/build.py [NN …]``."""

import sys
from pathlib import Path

import jupytext
import nbclient

LESSONS = Path(__file__).parent


def build(source: Path) -> Path:
    """Run ``source`` (percent format) from top to bottom and write the notebook with its outputs."""
    notebook = jupytext.read(source)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(LESSONS)}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{source.stem[:2]}-{number:02}"  # not random: the same lesson gives the same ids
        cell.metadata.pop("execution", None)  # when each cell ran
    jupytext.write(notebook, source.with_suffix(".ipynb"))
    return source.with_suffix(".ipynb")


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for path in sorted(LESSONS.glob("[0-9][0-9]_*.py")):
        if not wanted or path.name[:2] in wanted:
            print(build(path))
