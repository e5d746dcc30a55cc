"""State of a stage, an executor, a job and an execution, by the events of a log so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from kongming.spark import application as records
from kongming.spark.reading import events


@dataclass
class SeenStage:
    place: int
    info: events.StageInfo | None = None
    rdds: tuple[records.Rdd, ...] = ()
    submitted_ms: int | None = None
    completed_ms: int | None = None
    ended_by_ms: int | None = None  # it had succeeded then; its end is in no line
    shuffle: bool | None = None
    run_time_s: float | None = None  # of all its tasks, by its accumulables

    @property
    def ended_ms(self) -> int | None:
        """Return when it had ended; None while it runs."""
        return self.ended_by_ms if self.completed_ms is None else self.completed_ms

    @property
    def succeeded(self) -> bool:
        return self.info is not None and self.ended_ms is not None and not self.info.failure_reason


@dataclass
class SeenExecutor:
    id: str
    host: str = ""
    cores: int = 0
    added_ms: int | None = None
    removed_ms: int | None = None
    reason: str | None = None
    profile: int = 0
    storage: int | None = None
    exclusions: list[tuple[int, bool]] = field(default_factory=list)  # moment; False: readmitted

    @property
    def excluded(self) -> list[tuple[int, int | None]]:
        """Spans in their order; Spark since 3.1 writes each twice, under its old name too."""
        spans: list[tuple[int, int | None]] = []
        for moment, out in sorted(self.exclusions):
            is_open = bool(spans) and spans[-1][1] is None
            if out and not is_open:
                spans.append((moment, None))
            elif not out and is_open:
                spans[-1] = (spans[-1][0], moment)
        return spans


@dataclass
class SeenJob:
    start: events.JobStart
    submitted_ms: int | None
    completed_ms: int | None = None
    succeeded: bool | None = None


@dataclass
class SeenExecution:
    started_ms: int
    description: str
    root: int | None
    finished_ms: int | None = None
    adaptive: bool = False
