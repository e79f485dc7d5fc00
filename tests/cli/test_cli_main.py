"""The frame around all commands: exit codes, complaints, pipes, signals, help."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from llmsim.cli.app import app


def shell(command, **options):
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, **options)


COMMANDS = sorted(get_command(app).commands)
OURS = [c for c in COMMANDS if c not in ("calibrate", "validate", "netlab", "demo")]


def test_alone_it_prints_help(llmsim):
    ran = llmsim([])
    assert ran.code == 0
    assert all(command in ran.out for command in COMMANDS)


@pytest.mark.parametrize("command", OURS)
def test_every_command_has_help_and_json(llmsim, command):
    ran = llmsim([command, "--help"])
    assert ran.code == 0
    assert "--json" in ran.out


def test_version(llmsim):
    assert llmsim("--version").out.strip()[0].isdigit()


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ("colective", "No such command 'colective'"),
        ("collective --nonsense 3", "No such option"),
        ("collective all-reduce --ranks many", "--ranks"),
        ("collective all-reduce --engine quick", "--engine"),
        ("collective all-reduce --size", "--size"),
        ("topology ring extra words", "extra"),
    ],
)
def test_a_mistake_in_the_usage_is_one_line(refused, arguments, finding):
    assert finding in refused(arguments)


def test_our_own_mistakes_stay_tracebacks(llmsim, monkeypatch):
    monkeypatch.setattr("llmsim.catalog.glossary.explain", lambda name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        llmsim("explain LoRA")


def test_ctrl_c_is_130_and_quiet():
    code = "import sys, llmsim.cli, llmsim.catalog.glossary as g, time\n"
    code += "g.terms = lambda: (print('started', flush=True), time.sleep(30))\n"
    code += "sys.exit(llmsim.cli.main(['explain']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert process.returncode == 130
    assert complaint.strip() == ""


def test_a_reader_that_leaves_is_no_error():
    ran = shell(f"{sys.executable} -m llmsim explain --json | head -c 20")
    assert ran.stdout.startswith("[")
    assert ran.stderr == ""


def test_json_is_the_same_bytes_every_time_and_in_every_place():
    command = f"{sys.executable} -m llmsim collective all-reduce --ranks 5 --topology leaf-spine --json"
    first, second = shell(command), shell(command, env={"PATH": "/usr/bin:/bin", "COLUMNS": "40", "HOME": "/tmp"})
    assert first.returncode == second.returncode == 0
    assert first.stdout == second.stdout
    assert first.stderr == second.stderr == ""


# hand-over to real hardware -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["calibrate", "validate", "netlab", "demo"])
def test_real_commands_are_handed_over_with_all_their_arguments(llmsim, monkeypatch, command):
    became = []
    monkeypatch.setattr("os.execv", lambda path, arguments: became.append((path, arguments)))
    monkeypatch.setattr("llmsim.cli.hardware.find_spec", lambda name: object())
    assert llmsim([command, "--json", "--help", "-x", "one two", "star"]).code == 0
    arguments = [sys.executable, "-m", "llmsim_kernels", command, "--json", "--help", "-x", "one two", "star"]
    assert became == [(sys.executable, arguments)]


@pytest.mark.parametrize("missing", ["torch", "llmsim_kernels"])
def test_without_torch_real_commands_say_what_to_install(refused, monkeypatch, missing):
    monkeypatch.setattr("llmsim.cli.hardware.find_spec", lambda name: None if name == missing else object())
    complaint = refused("validate --quick")
    assert f"needs {missing}" in complaint
    assert "pip install 'llmsim[kernels]'" in complaint


def test_progress_is_silent_where_nobody_watches():
    ran = shell(f"{sys.executable} -m llmsim collective all-reduce --ranks 16 --json")
    assert ran.stderr == ""
    assert ran.stdout.startswith("{")


def test_a_closed_output_is_no_traceback():
    closed = shell(f"{sys.executable} -m llmsim topology --json >&-")
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_that_is_full_is_one_line():
    full = shell(f"{sys.executable} -m llmsim devices > /dev/full")
    assert full.returncode == 2
    assert full.stderr == "llmsim: error: cannot write the output: No space left on device\n"
