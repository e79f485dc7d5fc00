"""Every lesson runs from top to bottom, says what its pair says, and its exercises have answers that pass."""

import re
import runpy
from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")

LESSONS = Path(__file__).parent.parent / "lessons"
SOURCES = sorted(LESSONS.glob("[0-9][0-9]_*.py"))
PARTS = [
    "Question",
    "Picture",
    "Predict",
    "Build",
    "Simulate",
    "Measure",
    "Report",
    "Break it",
    "Exercises",
    "Where next",
]

pytestmark = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


@pytest.mark.timeout(110)
def test_lesson_runs(source):
    notebook = jupytext.read(source)
    client = nbclient.NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(LESSONS)}}
    )
    client.execute()
    errors = [o for cell in notebook.cells for o in cell.get("outputs", []) if o.output_type == "error"]
    assert not errors


def test_pair_agrees_and_is_executed(source):
    pair = source.with_suffix(".ipynb")
    code, paired = jupytext.read(source), jupytext.read(pair)
    assert [(c.cell_type, c.source) for c in code.cells] == [(c.cell_type, c.source) for c in paired.cells], (
        f"{pair.name} is stale: run `make lessons`"
    )
    assert any(c.get("outputs") for c in paired.cells), f"{pair.name} has no outputs: run `make lessons`"


def test_lesson_has_every_part(source):
    cells = jupytext.read(source).cells
    text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    headings = re.findall(r"^## (?:\d+\. )?(.*)$", text, flags=re.MULTILINE)
    assert headings == PARTS
    assert 8 <= sum(c.cell_type == "code" for c in cells) <= 14
    words = len(re.sub(r"[^\w\s]", " ", text).split())
    assert 900 <= words <= 1500, f"{words} words"


@pytest.mark.timeout(110)
def test_answers_pass(source):
    answers = LESSONS / "answers" / source.name
    names = runpy.run_path(str(answers))
    exercises = [value for name, value in names.items() if name.startswith("exercise_")]
    assert len(exercises) == 3
    for exercise in exercises:
        assert exercise() is None  # each raises where its answer is wrong
