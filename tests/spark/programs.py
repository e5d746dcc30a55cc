"""Spark applications of a known simulator: what a program takes on any number of slots.

The simulator is as plain as can be, and shares no code with the model: it steps through time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from kongming.spark.application import (
    SUCCEEDED,
    TASK,
    Application,
    Execution,
    Executor,
    Job,
    Rdd,
    StageAttempt,
)


@dataclass(frozen=True)
class Stage:
    """Tasks of known seconds; ``parents`` are places in the job's stages."""

    lengths: tuple[float, ...]
    parents: tuple[int, ...] = ()
    rdds: tuple[Rdd, ...] = ()


@dataclass(frozen=True)
class Part:
    """A job that starts ``gap`` seconds after the jobs ``after`` (places) have ended."""

    stages: tuple[Stage, ...]
    gap: float = 1.0
    after: tuple[int, ...] = ()
    execution: int | None = None
    tail: float = 0.0


@dataclass(frozen=True)
class Program:
    """``first_s``: what an executor's first tasks of a stage take on top, ``start_s`` likewise of
    the application."""

    parts: tuple[Part, ...]
    end: float = 0.5
    first_s: float = 0.0
    start_s: float = 0.0
    settings: dict[str, str] = field(default_factory=dict)


def run(program: Program, executors: int, cores: int = 1, *, name: str = "job") -> Application:
    """Run a program: FIFO, slots of the executors taken in turn, lowest number first."""
    slots = executors * cores
    free = [0.0] * slots
    warm_app: set[int] = set()
    warm_stage: dict[int, set[int]] = {}
    job_end: dict[int, float] = {}
    stage_end: dict[tuple[int, int], float] = {}
    begun: dict[int, float] = {}
    submitted: dict[tuple[int, int], float] = {}
    left = {
        (j, s): list(enumerate(stage.lengths))
        for j, part in enumerate(program.parts)
        for s, stage in enumerate(part.stages)
    }
    rows: dict[tuple[int, int], list[tuple[float, float, int, int]]] = {key: [] for key in left}
    ids = {key: number for number, key in enumerate(sorted(left))}
    now = 0.0
    while len(job_end) < len(program.parts):
        moments = []
        for j, part in enumerate(program.parts):
            if j not in begun:
                if all(other in job_end for other in part.after):
                    begin = max([0.0, *(job_end[other] for other in part.after)]) + part.gap
                    if begin <= now + 1e-12:
                        begun[j] = begin
                    else:
                        moments.append(begin)
                if j not in begun:
                    continue
            for s, stage in enumerate(part.stages):
                ends = [stage_end.get((j, parent), np.inf) for parent in stage.parents]
                ready = max([begun[j], *ends])
                if ready > now + 1e-12:
                    if np.isfinite(ready):
                        moments.append(ready)
                    continue
                submitted.setdefault((j, s), ready)
                todo = left[j, s]
                while todo:
                    slot = min(range(slots), key=free.__getitem__)
                    if free[slot] > now + 1e-12:
                        moments.append(free[slot])
                        break
                    partition, length = todo.pop(0)
                    executor = slot % executors
                    seen = warm_stage.setdefault(ids[j, s], set())
                    # Slots of one executor that start together are all its first.
                    took = length
                    took += 0.0 if slot in seen else program.first_s
                    took += 0.0 if slot in warm_app else program.start_s
                    seen.add(slot)
                    warm_app.add(slot)
                    rows[j, s].append((now, now + took, executor, partition))
                    free[slot] = now + took
                if not todo and (j, s) not in stage_end:
                    stage_end[j, s] = max((row[1] for row in rows[j, s]), default=ready)
                    moments.append(now)
            if j not in job_end and all((j, s) in stage_end for s in range(len(part.stages))):
                last = max([begun[j], *(stage_end[j, s] for s in range(len(part.stages)))])
                job_end[j] = last + part.tail
                moments.append(now)
        if moments:
            now = min(moments)
    end = max(job_end.values()) + program.end
    return _application(
        program, executors, cores, name, ids, rows, begun, job_end, submitted, stage_end, end
    )


def _application(
    program, executors, cores, name, ids, rows, begun, job_end, submitted, stage_end, end
) -> Application:
    stages, jobs = [], []
    for j, part in enumerate(program.parts):
        for s, stage in enumerate(part.stages):
            tasks = np.zeros(len(stage.lengths), TASK)
            for row, (launch, finish, executor, partition) in zip(tasks, rows[j, s], strict=True):
                row["launch_s"], row["finish_s"] = launch, finish
                row["executor"], row["partition"] = executor, partition
                row["status"], row["compute_s"] = SUCCEEDED, finish - launch
            stages.append(
                StageAttempt(
                    stage=ids[j, s],
                    attempt=0,
                    name=f"stage {s}",
                    parents=tuple(ids[j, parent] for parent in stage.parents),
                    task_count=len(tasks),
                    submitted_s=submitted[j, s],
                    completed_s=stage_end[j, s],
                    tasks=tasks,
                    rdds=stage.rdds,
                )
            )
        jobs.append(
            Job(
                id=j,
                stages=tuple(ids[j, s] for s in range(len(part.stages))),
                submitted_s=begun[j],
                completed_s=job_end[j],
                succeeded=True,
                execution=part.execution,
            )
        )
    executions = tuple(
        Execution(number, f"query {number}", 0.0, end)
        for number in sorted({p.execution for p in program.parts if p.execution is not None})
    )
    return Application(
        id=f"app-{executors}x{cores}",
        attempt=None,
        name=name,
        user="someone",
        spark_version="4.0.0",
        started_ms=0,
        ended_s=end,
        last_s=end,
        settings={"spark.default.parallelism": "64", **program.settings},
        executors=tuple(
            Executor(str(k), f"host{k}", cores, 0.0, storage_bytes=1e9) for k in range(executors)
        ),
        jobs=tuple(jobs),
        stages=tuple(stages),
        executions=executions,
    )


def shuffled(application: Application, seed: int) -> Application:
    """The same application with its records in another order."""
    random = np.random.default_rng(seed)

    def other(records):
        return tuple(records[k] for k in random.permutation(len(records)))

    return replace(
        application,
        jobs=other(application.jobs),
        stages=other(application.stages),
        executions=other(application.executions),
    )


def random_program(seed: int, *, threads: bool = False, first_s: float = 0.0) -> Program:
    """A few jobs with a few stages each; with ``threads`` some of them overlap."""
    random = np.random.default_rng(seed)
    parts = []
    for j in range(int(random.integers(2, 6))):
        stages = []
        for s in range(int(random.integers(1, 5))):
            count = int(random.integers(1, 40))
            parents = tuple(p for p in range(s) if random.random() < 0.6)
            lengths = tuple(random.lognormal(0.5, 0.6, count).round(3).tolist())
            stages.append(Stage(lengths, parents))
        after = () if threads and j < 3 else tuple(range(j))
        parts.append(Part(tuple(stages), float(random.uniform(0.1, 2.0)), after, tail=0.1))
    return Program(tuple(parts), first_s=first_s)
