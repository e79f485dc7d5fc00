"""``llmsim calibrate``, ``validate``, ``netlab`` and ``demo``: the commands that need torch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from llmsim.cli.output import Json, console, parsed, print_json, table
from llmsim.cost.profile import Profile
from llmsim.errors import InputError
from llmsim.units import (
    format_bandwidth,
    format_duration,
    format_flop_rate,
    format_size,
    parse_bandwidth,
    parse_size,
)

PROFILE = Path("runs/profile.json")

app = typer.Typer(name="llmsim", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

ProfileFile = Annotated[Path | None, typer.Option("--profile", help=f"From llmsim calibrate; {PROFILE} if there is.")]


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on the standard error that names the step under way; nothing where that is no terminal."""
    stderr = Console(stderr=True)
    columns = [BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")]
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as shown:
        task = shown.add_task("", total=total)
        done = -1

        def step(what: str) -> None:
            nonlocal done
            done += 1
            shown.update(task, completed=done, description=what)

        yield step


def _calibrated(
    quick: bool,
    backend: str = "gloo",
    device: str = "cpu",
    lab: "bool | None" = None,
    realtime: "bool | None" = None,
) -> Profile:
    from llmsim_kernels.calibrate import calibrate, steps

    with _bar(steps(backend, lab)) as step:
        return calibrate(quick, backend=backend, device=device, lab=lab, realtime=realtime, progress=step)


def _folder(output: Path) -> None:
    """Make it now: after minutes of measuring is no time to learn that it cannot be written."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make this folder: {error.strerror}", where=str(output)) from error


def _profile(path: Path | None, quick: bool) -> Profile:
    """The profile of the file, the one that lies where calibrate writes it, or a new one."""
    if path is not None or PROFILE.exists():
        return Profile.load(path or PROFILE)
    return _calibrated(quick)


@app.command()
def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats: under half a minute.")] = False,
    backend: Annotated[str, typer.Option(help="gloo or nccl.")] = "gloo",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    lab: Annotated[
        bool | None, typer.Option("--lab/--no-lab", help="Messages in a netlab too; by default if permitted.")
    ] = None,
    realtime: Annotated[
        bool | None,
        typer.Option("--realtime/--no-realtime", help="Ranks before all else on the machine; by default if permitted."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the profile goes.")] = PROFILE,
    as_json: Json = False,
) -> None:
    """Measure this machine into a profile: messages, copies, additions, matrix products."""
    _folder(output.parent)
    profile = _calibrated(quick, backend, device, lab, realtime)
    profile.save(output)
    if as_json:
        print_json({"profile": str(output), **profile.to_dict()})
        return
    _show_profile(profile)
    for name, fit in profile.fits():
        if fit.median_residual > 0.25:
            console().print(f"{name}: {fit.quantity}: residuals of {fit.median_residual:.0%}; measure again when idle.")
    console().print(f"Written to {output}.")


def _show_profile(profile: Profile) -> None:
    out = console()
    machine = profile.machine
    out.print(f"{machine.cpu}, {machine.cores} cores, {machine.kernel}, PyTorch {machine.torch}")
    if machine.busy_cores >= 0.15 and not machine.realtime:
        out.print(f"  not idle: others kept {machine.busy_cores:.1f} cores at work, which spoils figures")
    for accelerator in machine.accelerators:
        out.print(f"  {accelerator}")
    rows = [
        [
            name,
            format_duration(t.alpha_s),
            format_bandwidth(t.bandwidth_bytes_per_s),
            f"{t.link_efficiency:.1%}",
            f"{t.cpu_s_per_byte * 1e9:.2f} ns",
            format_duration(t.cpu_s_per_message),
            f"{max(fit.median_residual for fit in t.fits):.0%}" if t.fits else None,
        ]
        for name, t in profile.transports.items()
    ]
    columns = ["messages over", "α", "bandwidth", "of a link", "core time a byte", "a message", "residual"]
    if rows:
        out.print(table(columns, rows))
    rates = [
        [
            what,
            format_size(first.size),
            format_bandwidth(first.rate_per_s),
            format_size(last.size),
            format_bandwidth(last.rate_per_s),
        ]
        for what, (first, *_, last) in (("additions", profile.reduce), ("copies", profile.copy))
    ]
    out.print(table(["", "at", "rate", "at", "rate"], rates))
    best = max(profile.matmul, key=lambda rate: rate.rate_per_s)
    out.print(f"matrix products: {format_flop_rate(best.rate_per_s)} at {best.size} × {best.size}, {best.dtype}")
    for kind, transfers in profile.transfers.items():
        out.print(f"copies {kind}: {format_bandwidth(max(rate.rate_per_s for rate in transfers))}")


@app.command()
def validate(
    quick: Annotated[bool, typer.Option("--quick", help="A dozen cases instead of all.")] = False,
    profile: ProfileFile = None,
    output: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("figures/validation"),
    repeats: Annotated[int | None, typer.Option(min=1, help="Runs of each case; by default 3 to 9.")] = None,
    as_json: Json = False,
) -> None:
    """Predict, then run for real, then report the difference, as a table, JSON, a figure and a page."""
    from llmsim_kernels.cases import full_cases, pair_cases
    from llmsim_kernels.netlab import netlab_unavailable

    _folder(output)
    calibrated = _profile(profile, quick)
    reason = netlab_unavailable()
    if quick or reason is not None:
        _validate(calibrated, output, "report", reason, as_json, repeats)
        return
    _run(calibrated, full_cases(), pair_cases(quick=False), output, "report", (), as_json, repeats)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("figures"),
    as_json: Json = False,
) -> None:
    """Measure this machine, predict, run for real, compare; under two minutes."""
    import torch
    from llmsim_kernels.netlab import netlab_unavailable

    _folder(output)
    several = torch.cuda.is_available() and torch.cuda.device_count() > 1
    backend, device = ("nccl", "cuda") if several else ("gloo", "cpu")
    profile = _calibrated(True, backend, device)
    profile.save(output / "demo-profile.json")
    if not as_json:
        _show_profile(profile)
    _validate(profile, output, "demo", None if several else netlab_unavailable(), as_json, None)
    if torch.cuda.is_available() and not several and not as_json:
        console().print("One GPU: its own rates, as there is nobody it could talk to.")
        _show_profile(_calibrated(True, "nccl", "cuda"))


def _validate(
    profile: Profile, output: Path, stem: str, reason: str | None, as_json: bool, repeats: int | None
) -> None:
    """A quick validation on what there is: GPUs, a netlab, or the loopback interface."""
    from llmsim_kernels.cases import gpu_cases, loopback_cases, pair_cases, quick_cases

    if profile.backend == "nccl":
        import torch

        cases, pairs, notes = gpu_cases(torch.cuda.device_count()), (), ("GPUs of this machine, over NCCL.",)
    elif reason is None:
        cases, pairs = quick_cases(), pair_cases(quick=True)
        notes = ("Ranks are processes in network namespaces of one machine, joined by links of a set rate.",)
    else:
        cases, pairs = loopback_cases(profile.machine.cores), ()
        notes = (f"No netlab here ({reason}); ranks talk through the loopback interface.",)
    _run(profile, cases, pairs, output, stem, notes, as_json, repeats)


def _run(profile, cases, pairs, output: Path, stem: str, notes, as_json: bool, repeats: int | None) -> None:
    from llmsim_kernels.validate import validate as run_validation

    out = console()
    if not as_json:
        for note in notes:
            out.print(note)
    with _bar(len(cases) + len(pairs)) as step:
        report = run_validation(
            profile, cases, pairs=pairs, directory=output, stem=stem, notes=notes, repeats=repeats, progress=step
        )
    files = report.write(output, stem)
    if as_json:
        print_json({"files": {kind: str(path) for kind, path in files.items()}, **report.to_dict()})
        return
    for one in report.tables():
        out.print()
        out.print(one)
    out.print()
    out.print(f"Report: {files['html']} (also {', '.join(p.name for k, p in files.items() if k != 'html')}).")
    if "trace" in files:
        out.print("The trace opens in https://ui.perfetto.dev: prediction and measurement of one case, side by side.")


@app.command("netlab")
def lab(
    name: Annotated[str, typer.Argument(help="A collective, or ping.")] = "ping",
    algorithm: Annotated[str | None, typer.Option(help="Of the collective; by default its first.")] = None,
    size: Annotated[str, typer.Option(help="Bytes on each rank.")] = "4MiB",
    topology: Annotated[str, typer.Option(help="star, two-racks, line or ring.")] = "star",
    hosts: Annotated[int, typer.Option(help="2 to 16.")] = 4,
    bandwidth: Annotated[str, typer.Option(help="Of each link and direction.")] = "200Mb/s",
    uplink: Annotated[str | None, typer.Option(help="Of the cable between two racks.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Measured runs.")] = 5,
    profile: ProfileFile = None,
    trace: Annotated[Path | None, typer.Option(help="Write both timelines here, for Perfetto.")] = None,
    as_json: Json = False,
) -> None:
    """Build a small cluster of network namespaces, run one collective on it for real, and compare.

    ``ping`` measures round trips of 4 bytes and of --size from the first host to each other one.
    """
    from llmsim_kernels import lab_run

    size_bytes = parsed("--size", parse_size, size)
    rate = parsed("--bandwidth", parse_bandwidth, bandwidth)
    uplink_rate = None if uplink is None else parsed("--uplink", parse_bandwidth, uplink)
    known = Profile.load(profile or PROFILE) if profile is not None or PROFILE.exists() else None
    if not 2 <= hosts <= 16:
        raise InputError(f"{hosts} hosts", where="--hosts", mend="take 2 to 16")
    if size_bytes < 4 or size_bytes % 4:
        raise InputError(f"{size_bytes} B is no whole number of float32", where="--size", mend="take a multiple of 4 B")
    with _bar(1) as step:
        step("building the lab and running")
        if name == "ping":
            if algorithm is not None or trace is not None or profile is not None:
                raise InputError("ping takes no --algorithm, --trace or --profile", where="netlab")
            rows = lab_run.ping(topology, hosts, rate, uplink_rate, size_bytes, repeats)
        else:
            if trace is not None:
                _folder(trace.parent)
            result = lab_run.run(name, algorithm, topology, hosts, rate, uplink_rate, size_bytes, repeats, known)
    if name == "ping":
        _show_ping(rows, size_bytes, as_json)
        return
    if trace is not None:
        from llmsim.validation.report import side_by_side

        side_by_side(result.predicted, result.measured).to_chrome(trace)
    answer: dict[str, Any] = {
        "case": result.name,
        "predicted_s": result.predicted.makespan_s,
        "measured_s": result.time_s,
        "error": result.predicted.makespan_s / result.time_s - 1,
        "repeats_s": result.repeats_s,
        "calibrated": known is not None,
    }
    if as_json:
        print_json(answer)
        return
    out = console()
    what = "predicted" if known is not None else "ideal, wire only"
    rows_ = [
        [what, format_duration(answer["predicted_s"])],
        ["measured", f"{format_duration(result.time_s)} (median of {len(result.repeats_s)})"],
        ["error", f"{answer['error']:+.1%}"],
    ]
    out.print(result.name)
    out.print(table(["", ""], rows_))
    if known is None:
        out.print("Run llmsim calibrate once to have overheads and processor time in the prediction.")


def _show_ping(rows: "list[tuple[str, float, float, float]]", size_bytes: int, as_json: bool) -> None:
    if as_json:
        keys = ("host", "round_trip_s", "transfer_s", "bandwidth_bytes_per_s")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    columns = ["from d0 to", "round trip of 4 B", f"one way of {format_size(size_bytes)}", "bandwidth"]
    cells = [[h, format_duration(t), format_duration(s), format_bandwidth(b)] for h, t, s, b in rows]
    console().print(table(columns, cells))
