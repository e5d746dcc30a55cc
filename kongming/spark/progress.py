"""An unfinished run, judged by a finished one of the same application: what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kongming.records.errors import CannotAnswerError, InputError
from kongming.spark.application import SUCCEEDED, Application, Job
from kongming.spark.estimation import Estimator, Size
from kongming.spark.finished_runs import require_finished, require_same_application
from kongming.spark.model.cluster import Cluster, recorded_cluster
from kongming.spark.model.driver import job_end
from kongming.spark.model.replay import Replayed


@dataclass(frozen=True, slots=True)
class Left:
    """Seconds that are left with ``executors`` from now on; ``total_s`` from the start."""

    executors: int
    cores: int
    left_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` jobs of ``of``; ``pace``: seconds since the first task over those of the earlier
    run's replay since its own. How long either waited for executors says nothing of tasks."""

    elapsed_s: float
    done: int
    of: int
    pace: float
    left: tuple[Left, ...]

    def meeting(self, deadline_s: float) -> Left | None:
        """The fewest slots that end by a moment, in seconds from the start."""
        ending = [each for each in self.left if each.total_s <= deadline_s]
        return min(ending, key=lambda each: each.executors * each.cores, default=None)

    def document(self, deadline_s: float | None) -> dict[str, Any]:
        meeting = None if deadline_s is None else self.meeting(deadline_s)
        return {
            "elapsed_s": self.elapsed_s,
            "jobs_done": self.done,
            "jobs": self.of,
            "pace": self.pace,
            "left": [
                {
                    "executors": each.executors,
                    "cores": each.cores,
                    "left_s": each.left_s,
                    "total_s": each.total_s,
                }
                for each in self.left
            ],
            "deadline_s": deadline_s,
            "meets_deadline": None
            if meeting is None
            else {"executors": meeting.executors, "cores": meeting.cores},
        }


def progress(earlier: Estimator, running: Application, sizes: Sequence[Size]) -> Progress:
    """Tell what is left of ``running``, whose jobs come in the order of the earlier run's.

    Raises:
        InputError: the log is complete, the earlier one is not, or they are of two applications.
        CannotAnswerError: it has done more jobs than the earlier run.
    """
    if running.complete:
        raise InputError(
            "is of a complete run; --like is for one that still runs.",
            field="LOG",
            hint="Leave --like out.",
        )
    finished = earlier.workload.application
    require_finished([finished], "--like")
    require_same_application(finished, running, "--like")
    jobs = sorted(running.jobs, key=lambda job: (job.submitted_s, job.id))
    ends = [job.completed_s for job in jobs if job.completed_s is not None]
    done = len(ends)
    of = len(earlier.workload.jobs)
    if done > of:
        raise CannotAnswerError(
            f"This run has done {done} jobs, the earlier one had {of}: it is another program.",
            hint="Give --like the log of an earlier run of the same program.",
        )
    cluster = recorded_cluster(running)
    now = running.last_s
    waited_s = max(now - max(ends, default=0.0), 0.0)
    own = _replayed(earlier, Size(cluster.executors, cluster.cores, cluster.memory_bytes))
    # Of several jobs that run the one that was submitted first.
    place = next((each for each, job in enumerate(jobs) if job.completed_s is None), of)
    share = _share(earlier, own, running, jobs[place], place, cluster) if place < of else None
    reached = _reached(own, done, place, share, waited_s)
    begun = _first_launch(running)
    pace = 1.0
    if begun is not None and reached > own.first_launch_s and now > begun:
        pace = (now - begun) / (reached - own.first_launch_s)
    left = []
    for size in sizes:
        # Executors are as those of this run, not of the earlier one.
        cores, memory = size.cores or cluster.cores, size.memory_bytes or cluster.memory_bytes
        wanted = replace(size, cores=cores, memory_bytes=memory)
        replayed = _replayed(earlier, wanted)
        at = _reached(replayed, done, place, share, waited_s)
        rest = max(replayed.end_s - at, 0.0) * pace
        left.append(Left(size.executors, cores, rest, now + rest))
    return Progress(now, done, of, pace, tuple(left))


def _replayed(earlier: Estimator, size: Size) -> Replayed:
    return earlier.pipeline.replay(earlier.cluster(size)).replayed


def _first_launch(running: Application) -> float | None:
    """Return when the first of the tasks that have ended began; None where none has."""
    launches = [float(each.tasks["launch_s"].min()) for each in running.stages if len(each.tasks)]
    return min(launches, default=None)


def _share(
    earlier: Estimator, own: Replayed, running: Application, job: Job, place: int, cluster: Cluster
) -> float:
    """Return how much of a job that runs is done: by its time, between the shares of it that had
    passed in the earlier run when as many tasks had ended, and when as many more as there are slots
    had: the first tasks are few and take long. Each job counts from its run's first task on, before
    which it may have waited for executors."""
    work = earlier.workload
    recorded = work.jobs[place]
    ended = [work.stages[each].tasks["finish_s"] for each in recorded.stages]
    since = max(recorded.job.submitted_s, _first_launch(work.application) or 0.0)
    ends = np.sort(np.concatenate([np.zeros(0), *ended])) - since
    span = job_end(recorded.job, work.application) - since
    passed = np.clip(ends / span, 0.0, 1.0) if span > 0.0 else np.ones(len(ends))
    finished = sum(
        int(np.count_nonzero(stage.tasks["status"] == SUCCEEDED))
        for stage in running.stages
        if stage.stage in job.stages
    )
    least = float(passed[min(finished, len(passed)) - 1]) if finished and len(passed) else 0.0
    # The last tasks are not the job's end.
    most_ended = finished + cluster.slots
    most = float(passed[most_ended - 1]) if most_ended < len(passed) else 1.0
    begin, end = _span(own, place)
    launched = _first_launch(running)
    if launched is None:
        # Not before there were executors, and no sooner after its submission than in the replay.
        lag_s = min([float(own.stage_spans[each, 0]) for each in recorded.stages], default=begin)
        lag_s -= float(own.job_spans[place, 0])
        launched = max(job.submitted_s + lag_s, min(each for each, _ in cluster.arrivals))
    since = max(job.submitted_s, launched)
    by_time = (running.last_s - since) / (end - begin) if end > begin else 0.0
    return min(max(by_time, least), most)


def _reached(
    replayed: Replayed, done: int, place: int, share: float | None, waited_s: float
) -> float:
    """Return when the earlier run's replay has done as much. Where no job runs (``share`` is None)
    the driver has worked for ``waited_s``, which takes as long at any size."""
    spans = replayed.job_spans
    at = float(np.sort(spans[:, 1])[done - 1]) if done else 0.0
    if share is None:
        return min(at + waited_s, float(spans[done, 0]) if done < len(spans) else replayed.end_s)
    begin, end = _span(replayed, place)
    return max(at, begin + share * (end - begin))


def _span(replayed: Replayed, place: int) -> tuple[float, float]:
    """Return when a job of a replay began, or the first task if that was later, and its end."""
    begin, end = replayed.job_spans[place].tolist()
    return min(max(begin, replayed.first_launch_s), end), end
