"""Spans of time by rank and stream: what every executor returns, simulated or real."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmsim.errors import InputError


class Span(NamedTuple):
    """One operation as it happened."""

    rank: int
    stream: str
    name: str
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, eq=False)
class Timeline:
    """Columns of spans, in the order of the program's operations.

    ``start_s`` is when the operation was reached and its dependencies were complete, ``end_s`` when it was complete: a
    receive that waits for its message spans the waiting. Times are seconds since the start of the run.
    """

    rank: NDArray[np.int32]
    stream: NDArray[np.int32]  # into `streams`
    name: NDArray[np.int32]  # into `names`
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    streams: tuple[str, ...]
    names: tuple[str, ...]
    meta: Mapping[str, object] = field(default_factory=dict)  # how it came about: program, cluster, engine, machine

    def __len__(self) -> int:
        return len(self.start_s)

    def __iter__(self) -> Iterator[Span]:
        return (self.span(i) for i in range(len(self)))

    def span(self, index: int) -> Span:
        """The span of one operation."""
        return Span(
            int(self.rank[index]),
            self.streams[self.stream[index]],
            self.names[self.name[index]],
            float(self.start_s[index]),
            float(self.end_s[index]),
        )

    @property
    def ranks(self) -> int:
        """One more than the highest rank that has a span (0 where there is none)."""
        return int(self.rank.max()) + 1 if len(self) else 0

    @property
    def makespan_s(self) -> float:
        """End of the last span (0 where there is none)."""
        return float(self.end_s.max()) if len(self) else 0.0

    def finish_by_rank_s(self) -> NDArray[np.float64]:
        """When each rank completes its last operation, shape (ranks,)."""
        finish = np.zeros(self.ranks)
        np.maximum.at(finish, self.rank, self.end_s)
        return finish

    def busy_by_rank_s(self, *streams: str) -> NDArray[np.float64]:
        """Seconds in which at least one of ``streams`` (all by default) has an operation under way, shape (ranks,).

        A receive that waits counts as under way.
        """
        return np.array([_length(self._intervals(rank, streams)) for rank in range(self.ranks)])

    def exposed_by_rank_s(self, streams: Sequence[str], behind: Sequence[str]) -> NDArray[np.float64]:
        """Seconds in which one of ``streams`` is busy and none of ``behind`` is, shape (ranks,).

        With the communication streams and ``["compute"]`` this is the exposed communication: what overlap does not
        hide.
        """
        exposed = []
        for rank in range(self.ranks):
            both = self._intervals(rank, tuple(streams) + tuple(behind))
            exposed.append(_length(both) - _length(self._intervals(rank, tuple(behind))))
        return np.array(exposed)

    def _intervals(self, rank: int, streams: Sequence[str]) -> NDArray[np.float64]:
        """The union of the spans of some streams of one rank, as disjoint intervals in order, shape (n, 2)."""
        unknown = set(streams) - set(self.streams)
        if unknown:
            raise InputError(f"no stream {sorted(unknown)[0]!r}", mend=f"choose from {', '.join(self.streams)}")
        keep = self.rank == rank
        if streams:
            keep &= np.isin(self.stream, [self.streams.index(s) for s in streams])
        order = np.argsort(self.start_s[keep], kind="stable")
        start, end = self.start_s[keep][order], self.end_s[keep][order]
        if not len(start):
            return np.zeros((0, 2))
        reach = np.maximum.accumulate(end)
        first = np.flatnonzero(np.concatenate([[True], start[1:] > reach[:-1]]))
        return np.stack([start[first], reach[np.append(first[1:], len(start)) - 1]], axis=1)

    @classmethod
    def from_spans(cls, spans: Sequence[Span], **meta: object) -> "Timeline":
        """A timeline of hand-made spans."""
        streams = {name: i for i, name in enumerate(dict.fromkeys(s.stream for s in spans))}
        names = {name: i for i, name in enumerate(dict.fromkeys(s.name for s in spans))}
        return cls(
            rank=np.array([s.rank for s in spans], dtype=np.int32),
            stream=np.array([streams[s.stream] for s in spans], dtype=np.int32),
            name=np.array([names[s.name] for s in spans], dtype=np.int32),
            start_s=np.array([s.start_s for s in spans], dtype=np.float64),
            end_s=np.array([s.end_s for s in spans], dtype=np.float64),
            streams=tuple(streams),
            names=tuple(names),
            meta=meta,
        )

    # trace viewers -----------------------------------------------------------------------------------------------

    def to_chrome(self, path: str | Path, *, messages: ArrayLike | None = None) -> None:
        """Write the JSON that Perfetto and ``chrome://tracing`` open: one process a rank, one thread a stream.

        Args:
            path: the file to write; equal timelines give equal bytes.
            messages: pairs (send, receive) of span indices, shape (m, 2), drawn as arrows.

        Raises:
            InputError: the file cannot be written.
        """
        path = Path(path)
        # Large ones take minutes: written beside, so that an interrupt leaves no half a trace. A device has no beside.
        beside = path.resolve().with_name(f"{path.name}.part") if path.is_file() or not path.exists() else path
        try:
            with open(beside, "w", encoding="utf-8", newline="\n") as file:
                file.write('{"displayTimeUnit":"ns",')
                file.write(f'"otherData":{_json({key: _plain(value) for key, value in self.meta.items()})},')
                file.write('"traceEvents":[\n')
                separator = ""
                for event in self._chrome_events(messages):
                    file.write(separator + _json(event))
                    separator = ",\n"
                file.write("\n]}\n")
            if beside != path:
                beside.replace(path.resolve())
        except OSError as error:
            raise InputError(f"cannot write the trace: {error.strerror}", where=str(path)) from error
        finally:
            if beside != path:
                beside.unlink(missing_ok=True)

    def _chrome_events(self, messages: ArrayLike | None) -> Iterator[dict[str, Any]]:
        for rank in np.unique(self.rank).tolist():
            yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
            yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
            for tid, stream in enumerate(self.streams):
                yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": stream}}
        columns = self.rank, self.stream, self.name, self.start_s * 1e6, (self.end_s - self.start_s) * 1e6
        for rank, stream, name, start, duration in zip(*(column.tolist() for column in columns), strict=True):
            yield {"ph": "X", "name": self.names[name], "pid": rank, "tid": stream, "ts": start, "dur": duration}
        pairs = np.asarray([] if messages is None else messages, dtype=np.int64).reshape(-1, 2)
        for i, (send, receive) in enumerate(pairs.tolist()):
            sent_s = float(self.start_s[send])
            # An arrow binds to the slice that encloses its time, and must not run backwards.
            for phase, span, at_s in (("s", send, sent_s), ("f", receive, max(sent_s, float(self.start_s[receive])))):
                event = {"ph": phase, "id": i, "name": "message", "cat": "message", "bp": "e", "ts": at_s * 1e6}
                yield event | {"pid": int(self.rank[span]), "tid": int(self.stream[span])}

    @classmethod
    def from_chrome(cls, path: str | Path) -> "Timeline":
        """Read a trace of complete (``"X"``) events back; ``pid`` is the rank, the thread's name the stream.

        Raises:
            InputError: the file cannot be read, or is no such trace.
        """
        where = str(path)
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read the trace: {error.strerror}", where=where) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON: {error}", where=where, mend="give a Chrome or Perfetto JSON trace") from error
        events = document.get("traceEvents") if isinstance(document, dict) else document
        if not isinstance(events, list):
            raise InputError("no list of traceEvents", where=where, mend="give a Chrome or Perfetto JSON trace")
        threads: dict[tuple[object, object], str] = {}
        spans: list[Span] = []
        for i, event in enumerate(events):
            try:
                if event["ph"] == "M" and event["name"] == "thread_name":
                    threads[event["pid"], event["tid"]] = str(event["args"]["name"])
            except (TypeError, KeyError) as error:
                raise InputError("not a trace event", where=f"{where}: traceEvents[{i}]") from error
        for i, event in enumerate(events):
            if event["ph"] == "X":
                spans.append(_span_of_event(event, threads, f"{where}: traceEvents[{i}]"))
        other = document.get("otherData") if isinstance(document, dict) else None
        timeline = cls.from_spans(spans)
        return timeline if not isinstance(other, dict) else _with_meta(timeline, other)


def _with_meta(timeline: Timeline, meta: Mapping[str, object]) -> Timeline:
    return Timeline(**{**vars(timeline), "meta": dict(meta)})


def _length(intervals: NDArray[np.float64]) -> float:
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def _plain(value: object) -> object:
    """``value`` if JSON can say it, else its text."""
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _span_of_event(event: Mapping[str, Any], threads: Mapping[tuple[object, object], str], where: str) -> Span:
    try:
        rank, thread = event["pid"], event.get("tid", 0)
        start_us, duration_us = float(event["ts"]), float(event["dur"])
        stream = threads.get((rank, thread), str(thread))
        name = str(event["name"])
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise InputError("a span needs name, pid, ts and dur", where=where) from error
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < 2**31:
        raise InputError(f"pid {rank!r} is not a rank", where=where, mend="give the number of the rank as pid")
    if not (np.isfinite(start_us) and 0 <= duration_us < float("inf")):
        raise InputError("ts and dur must be finite, and dur not negative", where=where)
    return Span(rank, stream, name, start_us / 1e6, (start_us + duration_us) / 1e6)


# comparison ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StreamDifference:
    """One stream of one rank in both timelines."""

    rank: int
    stream: str
    spans: int  # that both have
    predicted_finish_s: float
    measured_finish_s: float
    predicted_busy_s: float
    measured_busy_s: float
    worst_end_difference_s: float  # of its spans, the largest |predicted - measured| end


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two timelines span by span. Differences are predicted - measured; errors are differences over the measured.

    ``predicted_index[i]`` and ``measured_index[i]`` are the same operation. Spans without a counterpart are listed in
    ``only_predicted`` and ``only_measured``; nothing is compared for them.
    """

    predicted: Timeline
    measured: Timeline
    predicted_index: NDArray[np.int64]
    measured_index: NDArray[np.int64]
    only_predicted: NDArray[np.int64]
    only_measured: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.predicted_index)

    @property
    def start_difference_s(self) -> NDArray[np.float64]:
        """Predicted - measured start of each common span, shape (n,)."""
        return self.predicted.start_s[self.predicted_index] - self.measured.start_s[self.measured_index]

    @property
    def end_difference_s(self) -> NDArray[np.float64]:
        """Predicted - measured end of each common span, shape (n,)."""
        return self.predicted.end_s[self.predicted_index] - self.measured.end_s[self.measured_index]

    @property
    def duration_difference_s(self) -> NDArray[np.float64]:
        """Predicted - measured duration of each common span, shape (n,)."""
        return self.end_difference_s - self.start_difference_s

    @property
    def makespan_error(self) -> float:
        """(predicted - measured) / measured makespan; 0 where both are 0, infinite where only the measured one is."""
        predicted, measured = self.predicted.makespan_s, self.measured.makespan_s
        if measured == 0:
            return 0.0 if predicted == 0 else float("inf")
        return predicted / measured - 1

    def by_rank(self) -> NDArray[np.float64]:
        """Predicted - measured finish of each rank, shape (ranks,); a rank without spans finishes at 0."""
        ranks = max(self.predicted.ranks, self.measured.ranks)
        finish = [np.pad(t.finish_by_rank_s(), (0, ranks - t.ranks)) for t in (self.predicted, self.measured)]
        return finish[0] - finish[1]

    def by_stream(self) -> list[StreamDifference]:
        """One row for each stream of each rank that has common spans, by rank and then by stream."""
        predicted, measured = self.predicted, self.measured
        queue = predicted.rank[self.predicted_index].astype(np.int64) * len(predicted.streams)
        queue += predicted.stream[self.predicted_index]
        rows = []
        for value in np.unique(queue).tolist():
            here = queue == value
            p, m = self.predicted_index[here], self.measured_index[here]
            rows.append(
                StreamDifference(
                    rank=value // len(predicted.streams),
                    stream=predicted.streams[value % len(predicted.streams)],
                    spans=len(p),
                    predicted_finish_s=float(predicted.end_s[p].max()),
                    measured_finish_s=float(measured.end_s[m].max()),
                    predicted_busy_s=float((predicted.end_s[p] - predicted.start_s[p]).sum()),
                    measured_busy_s=float((measured.end_s[m] - measured.start_s[m]).sum()),
                    worst_end_difference_s=float(np.abs(predicted.end_s[p] - measured.end_s[m]).max()),
                )
            )
        return rows

    def summary(self) -> dict[str, float]:
        """The comparison in a few figures, for tables and JSON."""
        end = np.abs(self.end_difference_s)
        return {
            "predicted_s": self.predicted.makespan_s,
            "measured_s": self.measured.makespan_s,
            "makespan_error": self.makespan_error,
            "spans": len(self),
            "only_predicted": len(self.only_predicted),
            "only_measured": len(self.only_measured),
            "median_end_difference_s": float(np.median(end)) if len(end) else 0.0,
            "worst_end_difference_s": float(end.max()) if len(end) else 0.0,
        }


def compare(predicted: Timeline, measured: Timeline) -> Comparison:
    """Pair the spans of two timelines: the k-th span of a (rank, stream, name) with the k-th of the other, by start.

    Two runs of one program therefore pair operation by operation, whatever order their timelines list them in.
    """
    counterpart: dict[tuple[int, str, str, int], int] = {
        key: int(i) for key, i in zip(_occurrences(measured), _by_start(measured), strict=True)
    }
    pairs, only_predicted = [], []
    for key, i in zip(_occurrences(predicted), _by_start(predicted), strict=True):
        j = counterpart.pop(key, None)
        if j is None:
            only_predicted.append(int(i))
        else:
            pairs.append((int(i), j))
    paired = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return Comparison(
        predicted,
        measured,
        predicted_index=paired[:, 0],
        measured_index=paired[:, 1],
        only_predicted=np.array(sorted(only_predicted), dtype=np.int64),
        only_measured=np.array(sorted(counterpart.values()), dtype=np.int64),
    )


def _by_start(timeline: Timeline) -> NDArray[np.int64]:
    """Span indices by start, end and place: operations of no duration keep the order in which they are listed."""
    return np.lexsort((np.arange(len(timeline)), timeline.end_s, timeline.start_s))


def _occurrences(timeline: Timeline) -> Iterator[tuple[int, str, str, int]]:
    """(rank, stream, name, k) of each span, in order of start."""
    seen: dict[tuple[int, str, str], int] = {}
    order = _by_start(timeline)
    columns = (c[order].tolist() for c in (timeline.rank, timeline.stream, timeline.name))
    for rank, stream, name in zip(*columns, strict=True):
        key = (rank, timeline.streams[stream], timeline.names[name])
        k = seen.get(key, 0)
        seen[key] = k + 1
        yield *key, k
