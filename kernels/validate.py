"""Predict, write the predictions down, run for real, compare.

The order is the point: predictions follow from the profile and the cases alone, and are on disk before anything runs.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path

from llmsim_kernels import priority
from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.machine import busy_cores
from llmsim_kernels.netlab import as_built, netlab, shape_for

from llmsim.cluster import Cluster, build_topology, on_one_host
from llmsim.cost.costs import Costs
from llmsim.cost.profile import Profile
from llmsim.engine import simulate
from llmsim.errors import InputError
from llmsim.program import Builder, Contract, Program, lower
from llmsim.program.promises import ROOTED, output_count
from llmsim.timeline import Timeline
from llmsim.validation import Case, Overlay, Pair, Point, Report

Progress = Callable[[str], None]

_TOPOLOGY = {"star": "switch", "two-racks": "two-racks"}
_UNSHAPED = 1e15  # bytes/s: here links never limit, only processors and what one message reaches
_ITEM_BYTES = 4
_RUN_S = 0.1  # a run takes this long at least, or else it is of several collectives in a row,
_MOST_ROUNDS = 200
_BUSY = 0.15  # cores; a machine that does nothing else stays below


@dataclass(frozen=True)
class Network:
    """What a case runs on: everything about a lab but the lab itself, so that it can be predicted without one."""

    name: str
    world_size: int
    bandwidth_bytes_per_s: float | None

    @classmethod
    def of(cls, case: Case) -> "Network":
        return cls(case.network, case.world_size, case.bandwidth_bytes_per_s)

    def cluster(self) -> Cluster:
        """The model of it; CPU ranks share the cores of this machine."""
        if self.name in _TOPOLOGY:
            return as_built(self._plain(), shape_for(self._plain()))
        cluster = build_topology("switch", self.world_size, _UNSHAPED, 0.0)
        return cluster if self.name == "nccl" else on_one_host(cluster, float(os.cpu_count() or 1))

    def _plain(self) -> Cluster:
        return build_topology(_TOPOLOGY[self.name], self.world_size, self.rate(), 0.0)

    def rate(self) -> float:
        if self.bandwidth_bytes_per_s is None:
            raise InputError(f"{self.name} has no rate", mend="give bandwidth_bytes_per_s")
        return self.bandwidth_bytes_per_s

    def costs(self, profile: Profile, size_bytes: float) -> Costs:
        """What operations cost there, by the profile."""
        if self.name not in _TOPOLOGY:
            return profile.costs(self.name, size_bytes=size_bytes)
        shape = shape_for(self._plain())
        return profile.costs(
            "netlab",
            size_bytes=size_bytes,
            header_efficiency=shape.protocol_efficiency,
            packet_bytes=shape.bundle_bytes,
        )

    @contextmanager
    def pool(self, timeout_s: float, realtime: bool) -> Iterator[WorkerPool]:
        """Processes on it."""
        if self.name not in _TOPOLOGY:
            backend, device = ("nccl", "cuda") if self.name == "nccl" else ("gloo", "cpu")
            options = {"backend": backend, "device": device, "timeout_s": timeout_s}
            with priority.pool(self.world_size, realtime=realtime, **options) as pool:
                yield pool
            return
        with (
            netlab(self._plain()) as lab,
            priority.pool(self.world_size, realtime=realtime, hosts=lab.hosts, timeout_s=timeout_s) as pool,
        ):
            yield pool


def own_collective(case: Case, rounds: int = 1) -> Program:
    """The case's collective, ``rounds`` times in a row over float32, each as one operation, which the backend performs
    in its own way."""
    builder = Builder(f"{case.collective} by the backend", case.world_size)
    count = case.size_bytes // _ITEM_BYTES
    data, output = builder.buffer("data", count), None
    if case.collective == "all-to-all":
        output = builder.buffer("output", output_count(count, case.world_size))
    root = 0 if case.collective in ROOTED else None
    for _ in range(rounds):
        ranks = tuple(range(case.world_size))
        builder.collective(Contract(case.collective, ranks, data, 0, count, root=root, output=output))
    return builder.build()


def program_of(case: Case, rounds: int = 1) -> Program:
    """The same by the case's algorithm, in messages."""
    return replace(lower(own_collective(case, rounds), case.algorithm), name=f"{case.collective} {case.algorithm}")


@dataclass(frozen=True)
class Prediction:
    """A case as it will be run: ``rounds`` collectives in a row, so that what the start of a run takes is a small part
    of it; their timeline, and the time of one."""

    rounds: int
    timeline: Timeline

    @property
    def time_s(self) -> float:
        return self.timeline.makespan_s / self.rounds


def predict(case: Case, profile: Profile, rounds: "int | None" = None) -> Prediction:
    """What the profile says that a case takes; ``rounds`` by default so many that the run takes about 0.1 s."""
    network = Network.of(case)
    costs, cluster = network.costs(profile, case.size_bytes), network.cluster()
    if rounds is None:
        one_s = simulate(program_of(case), cluster, costs, send_mode="rendezvous").makespan_s
        rounds = min(_MOST_ROUNDS, ceil(_RUN_S / one_s))
    return Prediction(rounds, simulate(program_of(case, rounds), cluster, costs, send_mode="rendezvous"))


def validate(
    profile: Profile,
    cases: Sequence[Case],
    *,
    pairs: Sequence[Case] = (),
    directory: str | Path,
    stem: str = "report",
    title: str = "Predicted and measured",
    repeats: "int | None" = None,
    overlay: "Case | None" = None,
    notes: Sequence[str] = (),
    progress: Progress = lambda what: None,
) -> Report:
    """Predict all ``cases``, write ``directory/STEM-predictions.json``, run them, and report.

    Args:
        profile: one calibration for all cases.
        cases: what to predict and to run.
        pairs: ring all-reduces to run in turn with the backend's own.
        repeats: measured runs of each case; by default 3 to 9, fewer of those that take long. One run before them
            does not count.
        overlay: whose timelines are put over each other; by default a case in the middle.
        progress: told what comes next, ``len(cases) + len(pairs)`` times.

    Raises:
        InputError: no cases, or a profile without what they need.
        ExecutionError: a run failed.
    """
    if not cases:
        raise InputError("there are no cases to validate")
    predictions = {case: predict(case, profile) for case in cases}
    chosen = overlay if overlay is not None else _clearest(predictions)
    predicted_at = _now()
    busy = busy_cores()
    realtime = profile.machine.realtime
    if realtime and not priority.permitted():
        raise InputError(
            "the profile is of ranks with real-time priority, which is not permitted now",
            mend="run as the user who calibrated, or calibrate anew",
        )
    _write_down(predictions, predicted_at, Path(directory) / f"{stem}-predictions.json")
    points: dict[Case, Point] = {}
    paired: dict[Case, Pair] = {}
    overlays: list[Overlay] = []
    for network in dict.fromkeys(Network.of(case) for case in (*cases, *pairs)):
        with network.pool(60.0, realtime) as pool:
            for case in (case for case in cases if Network.of(case) == network):
                progress(case.name)
                rounds, predicted_s = predictions[case].rounds, predictions[case].time_s
                run = execute(
                    program_of(case, rounds), pool=pool, repeats=repeats or _repeats(predicted_s * rounds), warmup=1,
                    outputs=[],
                )  # fmt: skip
                points[case] = Point(case, predicted_s, tuple((run.times_s / rounds).tolist()), rounds)
                if case == chosen:
                    nearest = min(run.timelines, key=lambda t: abs(t.makespan_s - run.time_s))
                    overlays.append(Overlay(case, predictions[case].timeline, nearest))
            for case in (case for case in pairs if Network.of(case) == network):
                progress(f"{case.name} beside {pool.backend}'s own")
                rounds = predictions[case].rounds if case in predictions else predict(case, profile).rounds
                paired[case] = _pair(case, pool, rounds, repeats)
    return Report(
        title=title,
        profile=profile,
        points=tuple(points[case] for case in cases),
        predicted_at=predicted_at,
        measured_at=_now(),
        pairs=tuple(paired[case] for case in pairs),
        overlays=tuple(overlays),
        settings={
            "warmup": 1,
            "run_s": _RUN_S,
            "repeats": repeats or "3 to 9",
            "busy_cores": busy,
            "realtime": realtime,
        },
        notes=(*notes, *_priority_note(busy, realtime)),
    )


def _priority_note(busy: float, realtime: bool) -> tuple[str, ...]:
    if realtime:
        others = f", which kept {busy:.1f} of {os.cpu_count()} cores at work before the runs" if busy >= _BUSY else ""
        return (
            "Ranks ran at real-time priority, in the calibration too, so that other processes"
            f"{others}{',' if others else ''} could hardly delay them.",
        )
    if busy < _BUSY:
        return ()
    return (
        f"The machine was not idle: before the runs others kept {busy:.1f} of {os.cpu_count()} cores at work. Ranks "
        "that wait for a core are slower than predicted.",
    )


def _repeats(run_s: float) -> int:
    return 9 if run_s < 0.25 else 5 if run_s < 0.5 else 3


def _clearest(predictions: "Mapping[Case, Prediction]") -> Case:
    """The case whose timelines are best to look at: a ring of four ranks, once."""

    def rank(case: Case) -> tuple[bool, bool, int, int]:
        made = predictions[case]
        ring = (case.collective, case.algorithm) == ("all-reduce", "ring")
        return case.world_size != 4, not ring, made.rounds, len(made.timeline)

    return min(predictions, key=rank)


def _write_down(predictions: "Mapping[Case, Prediction]", predicted_at: str, path: Path) -> None:
    document = {
        "predicted_at": predicted_at,
        "predictions": [
            {**asdict(case), "rounds": p.rounds, "predicted_s": p.time_s} for case, p in predictions.items()
        ],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the predictions: {error.strerror}", where=str(path)) from error


def _pair(case: Case, pool: WorkerPool, rounds: int, repeats: "int | None") -> Pair:
    """Ours and theirs in turn, each first every other time."""
    programs = {"ours": program_of(case, rounds), "theirs": own_collective(case, rounds)}
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(repeats or 9):
        for whose in ("ours", "theirs") if turn % 2 == 0 else ("theirs", "ours"):
            run = execute(programs[whose], pool=pool, warmup=int(turn == 0), outputs=[])
            times[whose].append(run.time_s / rounds)
    return Pair(case, pool.backend or "", tuple(times["ours"]), tuple(times["theirs"]))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
