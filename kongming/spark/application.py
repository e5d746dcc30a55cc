"""Record of one attempt of a Spark application, once its event log is read.

All moments are seconds since the application's start, all sizes are bytes. Tasks are rows of one
array a stage attempt, since there may be a million of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: How a task ended. A failed, killed or lost task held its slot as any other.
SUCCEEDED, FAILED, KILLED, UNFINISHED = range(4)

#: Where a task's data was, nearest first.
LOCALITIES = ("PROCESS_LOCAL", "NODE_LOCAL", "NO_PREF", "RACK_LOCAL", "ANY")

#: One task attempt. Its parts, `scheduler_delay_s` to `getting_result_s`, are disjoint and add up
#: to `finish_s - launch_s`; `compute_s` is what is left of the run time without fetch wait, GC and
#: shuffle write.
TASK = np.dtype(
    [
        ("launch_s", "f8"),
        ("finish_s", "f8"),
        ("executor", "i4"),  # place in Application.executors; -1: not known
        ("partition", "i4"),
        ("attempt", "i2"),
        ("status", "u1"),
        ("locality", "u1"),
        ("speculative", "?"),
        ("filled_in", "?"),  # its end was dropped from the log: taken from its like
        ("scheduler_delay_s", "f4"),
        ("deserialize_s", "f4"),
        ("fetch_wait_s", "f4"),
        ("compute_s", "f4"),
        ("gc_s", "f4"),
        ("shuffle_write_s", "f4"),
        ("serialize_s", "f4"),
        ("getting_result_s", "f4"),
        ("input_bytes", "f4"),
        ("output_bytes", "f4"),
        ("shuffle_local_bytes", "f4"),
        ("shuffle_remote_bytes", "f4"),
        ("shuffle_write_bytes", "f4"),
        ("memory_spill_bytes", "f4"),
        ("disk_spill_bytes", "f4"),
        ("peak_execution_bytes", "f4"),
        ("result_bytes", "f4"),
    ]
)


@dataclass(frozen=True)
class Executor:
    """One executor, from its registration to its loss or the application's end."""

    id: str
    host: str
    cores: int
    added_s: float
    removed_s: float | None = None
    removed_reason: str | None = None
    excluded_s: tuple[tuple[float, float | None], ...] = ()
    resource_profile: int = 0
    # Bytes of unified storage memory, from its block manager; None: not in the log.
    storage_bytes: float | None = None
    # The most that it was seen to use of it, from executor metrics; None: not in the log.
    peak_storage_bytes: float | None = None


@dataclass(frozen=True)
class Rdd:
    """One RDD of a stage: what it keeps, and how it was cut."""

    id: int
    name: str
    partitions: int
    # Is it to be kept (its storage level)? The cached sizes are 0 in many logs all the same.
    persisted: bool = False
    cached_partitions: int = 0
    memory_bytes: float = 0.0
    disk_bytes: float = 0.0
    barrier: bool = False


@dataclass(frozen=True)
class StageAttempt:
    """One attempt of one stage with its tasks (TASK, in order of launch)."""

    stage: int
    attempt: int
    name: str
    parents: tuple[int, ...]
    task_count: int
    submitted_s: float | None
    completed_s: float | None
    tasks: np.ndarray
    failure: str | None = None
    rdds: tuple[Rdd, ...] = ()
    resource_profile: int = 0
    barrier: bool = False
    shuffle_dependency: bool | None = None  # does it write a shuffle; None: not in the log


@dataclass(frozen=True)
class Job:
    """One job; `execution` is its spark.sql.execution.id, None where it stands alone."""

    id: int
    stages: tuple[int, ...]  # as planned; those without an attempt were skipped
    submitted_s: float
    completed_s: float | None
    succeeded: bool | None
    execution: int | None = None
    pool: str | None = None
    group: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class Execution:
    """One SQL execution (query); `root` is the one that it belongs to."""

    id: int
    description: str
    started_s: float
    finished_s: float | None
    root: int | None = None
    adaptive: bool = False


@dataclass(frozen=True)
class ResourceProfile:
    id: int
    executor_cores: int | None
    task_cpus: float
    other: dict[str, float] = field(default_factory=dict)  # GPUs and the like


@dataclass(frozen=True)
class Finding:
    """Something that was wrong or unusual in a log: counted, never hidden, never invented."""

    kind: str
    count: int
    message: str


@dataclass(frozen=True)
class Application:
    """One attempt of one application. Unfinished: `ended_s` is None, `last_s` the last event."""

    id: str
    attempt: str | None
    name: str
    user: str
    spark_version: str
    started_ms: int  # since the epoch
    ended_s: float | None
    last_s: float
    settings: dict[str, str]
    executors: tuple[Executor, ...]
    jobs: tuple[Job, ...]
    stages: tuple[StageAttempt, ...]
    executions: tuple[Execution, ...]
    resource_profiles: tuple[ResourceProfile, ...] = ()
    driver_gc_s: float | None = None
    findings: tuple[Finding, ...] = ()
    source: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.ended_s is not None

    @property
    def run(self) -> tuple[object, ...]:
        """Return what logs of the same run have in common, and of no two runs."""
        return self.id, self.attempt, self.started_ms, self.last_s
