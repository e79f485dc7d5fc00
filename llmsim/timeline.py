"""Spans of time by rank and stream: what every executor returns, simulated or real."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


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
    def makespan_s(self) -> float:
        """End of the last span (0 where there is none)."""
        return float(self.end_s.max()) if len(self) else 0.0

    def finish_by_rank_s(self) -> NDArray[np.float64]:
        """When each rank completes its last operation, shape (ranks,)."""
        finish = np.zeros(int(self.rank.max()) + 1 if len(self) else 0)
        np.maximum.at(finish, self.rank, self.end_s)
        return finish

    @classmethod
    def from_spans(cls, spans: Sequence[Span], **meta: object) -> "Timeline":
        """A timeline of hand-made spans."""
        streams = tuple(dict.fromkeys(s.stream for s in spans))
        names = tuple(dict.fromkeys(s.name for s in spans))
        return cls(
            rank=np.array([s.rank for s in spans], dtype=np.int32),
            stream=np.array([streams.index(s.stream) for s in spans], dtype=np.int32),
            name=np.array([names.index(s.name) for s in spans], dtype=np.int32),
            start_s=np.array([s.start_s for s in spans], dtype=np.float64),
            end_s=np.array([s.end_s for s in spans], dtype=np.float64),
            streams=streams,
            names=names,
            meta=meta,
        )

    def to_chrome(self, path: str | Path) -> None:
        """Write the JSON that Perfetto and ``chrome://tracing`` open: one process a rank, one thread a stream."""
        events: list[dict] = []
        for rank in np.unique(self.rank).tolist():
            events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
            events += [
                {"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": stream}}
                for tid, stream in enumerate(self.streams)
            ]
        events += [
            {
                "ph": "X",
                "name": span.name,
                "pid": span.rank,
                "tid": int(self.stream[i]),
                "ts": span.start_s * 1e6,
                "dur": span.duration_s * 1e6,
            }
            for i, span in enumerate(self)
        ]
        meta = {key: str(value) for key, value in self.meta.items()}
        document = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": meta}
        Path(path).write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
