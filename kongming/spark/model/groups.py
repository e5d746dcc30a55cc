"""Job groups, their subgroups, and what each job waits for (Spark thesis, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kongming.spark.application import Application, Job
from kongming.spark.model.driver import job_end

TICK_S = 0.0005
"""Half of a log's tick: what ends and what begins within it are one after the other."""


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs of one SQL execution, or one job that has none; places in the order of submission."""

    execution: int | None
    jobs: tuple[int, ...]


def in_order(application: Application) -> tuple[Job, ...]:
    """Return the jobs in the order of their submission."""
    return tuple(sorted(application.jobs, key=lambda job: (job.submitted_s, job.id)))


def job_groups(jobs: Sequence[Job]) -> tuple[JobGroup, ...]:
    """Group jobs by spark.sql.execution.id (equation 3.1b), in the order of their first jobs."""
    members: dict[tuple[bool, int], list[int]] = {}
    for place, job in enumerate(jobs):
        alone = job.execution is None
        members.setdefault((alone, place if job.execution is None else job.execution), []).append(
            place
        )
    return tuple(
        JobGroup(None if alone else key, tuple(places)) for (alone, key), places in members.items()
    )


def subgroups(
    group: JobGroup, jobs: Sequence[Job], ends: Sequence[float]
) -> tuple[tuple[int, ...], ...]:
    """Split a group into sets of jobs that overlap in time (equation 3.1c): a job that starts
    after all before it have ended depends on them."""
    sets: list[list[int]] = []
    latest = float("-inf")
    for place in group.jobs:
        if not sets or jobs[place].submitted_s >= latest - TICK_S:
            sets.append([])
        sets[-1].append(place)
        latest = max(latest, ends[place])
    return tuple(map(tuple, sets))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job starts ``gap_s``, its own driver time, after the last of ``after`` has ended; with
    none, after the application's start."""

    after: tuple[int, ...]
    gap_s: float


def dependencies(application: Application, jobs: Sequence[Job]) -> tuple[Waiting, ...]:
    """Infer what each job waited for; the log has times and executions only.

    - A job waits for the jobs of its own execution that had ended.
    - Without such, it waits for what its execution's first job waited for.
    - The first of an execution that was submitted while nothing ran waits for all before it.
    - One that was submitted while others ran comes from a thread of its own, and follows the job
      that ended last: waiting for all that had ended would tie threads to each other.
    """
    ends = [job_end(job, application) for job in jobs]
    group_of = {
        place: number for number, group in enumerate(job_groups(jobs)) for place in group.jobs
    }
    earlier: dict[int, list[int]] = {}
    first_after: dict[int, tuple[int, ...]] = {}
    followed: set[int] = set()
    pending: list[int] = []  # jobs that may still run
    sinks: list[int] = []  # ended jobs that nothing follows yet
    last: int | None = None  # the job that ended last
    waits = []
    for place, job in enumerate(jobs):
        now = job.submitted_s + TICK_S
        for other in [other for other in pending if ends[other] <= now]:
            pending.remove(other)
            if other not in followed:
                sinks.append(other)
            if last is None or ends[other] >= ends[last]:
                last = other
        own = earlier.setdefault(group_of[place], [])
        ended = [other for other in own if ends[other] <= now]
        after: tuple[int, ...]
        if ended:
            newest = max(jobs[other].submitted_s for other in ended)
            after = tuple(other for other in ended if ends[other] > newest or other == ended[-1])
        elif own:
            after = first_after[group_of[place]]
        elif not pending:
            after = tuple(sinks)
        else:
            after = () if last is None else (last,)
        if not own:
            first_after[group_of[place]] = after
        own.append(place)
        followed.update(after)
        sinks = [other for other in sinks if other not in followed]
        pending.append(place)
        before = max((ends[other] for other in after), default=0.0)
        waits.append(Waiting(after, max(job.submitted_s - before, 0.0)))
    return tuple(waits)
