"""Driver time: what of an application no job covers (Spark thesis, equation 4.1)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kongming.spark.application import Application, Job

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class DriverTime:
    """Seconds without a job: before the first, between two, after the last. Never negative.

    ``between_stages_s`` is inside the jobs: time in which a job runs and none of its stages does.
    """

    startup_s: float
    between_jobs_s: float
    end_s: float
    between_stages_s: float

    @property
    def total_s(self) -> float:
        """T(Job_d): the application less the union of its jobs."""
        return self.startup_s + self.between_jobs_s + self.end_s


def driver_time(application: Application) -> DriverTime:
    """Split the driver's time. Overlapping jobs count once, which equation 4.1 does not do."""
    end = measured_s(application)
    jobs = merged(
        (min(job.submitted_s, end), min(job_end(job, application), end)) for job in application.jobs
    )
    stages = merged(
        (stage.submitted_s, stage.completed_s)
        for stage in application.stages
        if stage.submitted_s is not None and stage.completed_s is not None
    )
    if not jobs:
        return DriverTime(end, 0.0, 0.0, 0.0)
    covered = sum(last - first for first, last in jobs)
    startup, tail = max(jobs[0][0], 0.0), max(end - jobs[-1][1], 0.0)
    return DriverTime(
        startup_s=startup,
        between_jobs_s=max(end - startup - tail - covered, 0.0),
        end_s=tail,
        between_stages_s=max(covered - _common(jobs, stages), 0.0),
    )


def between_jobs_s(jobs: Sequence[Job], application: Application) -> float:
    """Return the seconds from the first job's start to the last's end in which none of them ran."""
    spans = merged((job.submitted_s, job_end(job, application)) for job in jobs)
    return sum(after[0] - before[1] for before, after in itertools.pairwise(spans))


def measured_s(application: Application) -> float:
    """Seconds from the start of the application to its end, or to its last event."""
    return application.last_s if application.ended_s is None else application.ended_s


def job_end(job: Job, application: Application) -> float:
    """Return when a job ended; an unfinished one ends with the log."""
    end = measured_s(application) if job.completed_s is None else job.completed_s
    return max(end, job.submitted_s)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the union of spans as disjoint spans, in order."""
    union: list[Span] = []
    for first, last in sorted(spans):
        if union and first <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], last))
        else:
            union.append((first, max(first, last)))
    return union


def _common(some: Sequence[Span], others: Sequence[Span]) -> float:
    """Seconds that lie in both of two lists of disjoint spans."""
    total, i, j = 0.0, 0, 0
    while i < len(some) and j < len(others):
        total += max(min(some[i][1], others[j][1]) - max(some[i][0], others[j][0]), 0.0)
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return total
