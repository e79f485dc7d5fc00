"""Predict, write the predictions down, run for real, compare.

The order is the point: predictions follow from the profile and the cases alone, and are on disk before anything runs.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from llmsim_kernels.execute import execute
from llmsim_kernels.launch import WorkerPool
from llmsim_kernels.machine import busy_cores
from llmsim_kernels.netlab import as_built, netlab, shape_for

from llmsim.cluster import Cluster, build_topology, on_one_host
from llmsim.cost.costs import Costs
from llmsim.cost.profile import Profile
from llmsim.engine import simulate
from llmsim.errors import InputError
from llmsim.program import Builder, Contract, Program, collective
from llmsim.timeline import Timeline
from llmsim.validation import Case, Overlay, Pair, Point, Report

Progress = Callable[[str], None]

_TOPOLOGY = {"star": "switch", "two-racks": "two-racks"}
_UNSHAPED = 1e15  # bytes/s: here links never limit, only processors and what one message reaches
_ITEM_BYTES = 4
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
    def pool(self, timeout_s: float) -> Iterator[WorkerPool]:
        """Processes on it."""
        if self.name not in _TOPOLOGY:
            backend, device = ("nccl", "cuda") if self.name == "nccl" else ("gloo", "cpu")
            with WorkerPool(self.world_size, backend=backend, device=device, timeout_s=timeout_s) as pool:
                yield pool
            return
        with (
            netlab(self._plain()) as lab,
            WorkerPool(self.world_size, hosts=lab.hosts, timeout_s=timeout_s) as pool,
        ):
            yield pool


def program_of(case: Case) -> Program:
    """The program of a case, over float32."""
    count = case.size_bytes // _ITEM_BYTES
    return collective(case.collective, case.algorithm, case.world_size, count)


def predict(case: Case, profile: Profile) -> Timeline:
    """What the profile says that a case takes."""
    network = Network.of(case)
    costs = network.costs(profile, case.size_bytes)
    return simulate(program_of(case), network.cluster(), costs, send_mode="rendezvous")


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
    chosen = overlay if overlay is not None else cases[len(cases) // 2]
    predicted_at = _now()
    busy = busy_cores()
    _write_down(predictions, predicted_at, Path(directory) / f"{stem}-predictions.json")
    points: dict[Case, Point] = {}
    paired: dict[Case, Pair] = {}
    overlays: list[Overlay] = []
    for network in dict.fromkeys(Network.of(case) for case in (*cases, *pairs)):
        with network.pool(timeout_s=60.0) as pool:
            for case in (case for case in cases if Network.of(case) == network):
                progress(case.name)
                predicted_s = predictions[case].makespan_s
                run = execute(
                    program_of(case), pool=pool, repeats=repeats or _repeats(predicted_s), warmup=1, outputs=[]
                )
                points[case] = Point(case, predicted_s, tuple(run.times_s.tolist()))
                if case == chosen:
                    nearest = min(run.timelines, key=lambda t: abs(t.makespan_s - run.time_s))
                    overlays.append(Overlay(case, predictions[case], nearest))
            for case in (case for case in pairs if Network.of(case) == network):
                progress(f"{case.name} beside {pool.backend}'s own")
                paired[case] = _pair(case, pool, repeats)
    return Report(
        title=title,
        profile=profile,
        points=tuple(points[case] for case in cases),
        predicted_at=predicted_at,
        measured_at=_now(),
        pairs=tuple(paired[case] for case in pairs),
        overlays=tuple(overlays),
        settings={"warmup": 1, "repeats": repeats or "3 to 9", "busy_cores": busy},
        notes=(*notes, *_busy_note(busy)),
    )


def _busy_note(busy: float) -> tuple[str, ...]:
    if busy < _BUSY:
        return ()
    return (
        f"The machine was not idle: before the runs others kept {busy:.1f} of {os.cpu_count()} cores at work. Ranks "
        "that wait for a core are slower than predicted.",
    )


def _repeats(predicted_s: float) -> int:
    return 9 if predicted_s < 0.1 else 5 if predicted_s < 0.5 else 3


def _write_down(predictions: dict[Case, Timeline], predicted_at: str, path: Path) -> None:
    document = {
        "predicted_at": predicted_at,
        "predictions": [{**asdict(case), "predicted_s": t.makespan_s} for case, t in predictions.items()],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the predictions: {error.strerror}", where=str(path)) from error


def own_collective(case: Case) -> Program:
    """The case's collective as one operation, which the backend performs in its own way."""
    builder = Builder(f"{case.collective} by the backend", case.world_size)
    count = case.size_bytes // _ITEM_BYTES
    data = builder.buffer("data", count)
    builder.collective(Contract(case.collective, tuple(range(case.world_size)), data, 0, count))
    return builder.build()


def _pair(case: Case, pool: WorkerPool, repeats: "int | None") -> Pair:
    """Ours and theirs in turn, each first every other time."""
    programs = {"ours": program_of(case), "theirs": own_collective(case)}
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(repeats or 9):
        for whose in ("ours", "theirs") if turn % 2 == 0 else ("theirs", "ours"):
            run = execute(programs[whose], pool=pool, repeats=1, warmup=1, outputs=[])
            times[whose].append(run.time_s)
    return Pair(case, pool.backend or "", tuple(times["ours"]), tuple(times["theirs"]))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
