"""What README.md shows is what happens: its Python runs, and its commands print what stands below them."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from llmsim.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    (command, output)
    for language, text in BLOCKS
    if language == "console"
    for command, output in re.findall(r"^\$ llmsim (.*)\n((?:(?!\$ ).*\n)*)", text, flags=re.MULTILINE)
]


def words(text):
    """Words, and numbers as such: their last digits are the machine's, as blanks are the terminal's."""
    return [float(w) if re.fullmatch(r"-?\d+\.\d+", w) else w for w in re.split(r"[\s,]+", text.strip())]


def printed(text):
    """What is shown, to compare with ``words`` of what happened."""
    return [pytest.approx(w, rel=1e-9) if isinstance(w, float) else w for w in words(text)]


@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=[c for c, _ in COMMANDS])
def test_commands_print_what_is_shown(command, output, capsys):
    assert main(command.split()) == 0
    assert words(capsys.readouterr().out) == printed(output)


def test_python_prints_what_is_shown():
    (code,) = [text for language, text in BLOCKS if language == "python"]
    (output,) = [text for language, text in BLOCKS if language == "text"]
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        exec(compile(code, "README.md", "exec"), {})
    assert words(stdout.getvalue()) == printed(output)


def test_targets_of_make_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)", README)) <= set(targets)


def test_links_and_pictures_are_there():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
