"""An unfinished run, judged by a finished one of the same application: what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kongming.records.errors import CannotAnswerError, InputError
from kongming.spark.application import SUCCEEDED, Application
from kongming.spark.estimation import Estimator, Size
from kongming.spark.finished_runs import require_finished
from kongming.spark.model.cluster import recorded_cluster


@dataclass(frozen=True, slots=True)
class Left:
    """Seconds that are left with ``executors`` from now on; ``total_s`` from the start."""

    executors: int
    cores: int
    left_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` jobs of ``of``; ``pace``: seconds so far over those of the earlier run's replay."""

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
    if finished.name and running.name and finished.name != running.name:
        raise InputError(
            "is a run of another application.",
            field="--like",
            value=finished.name,
            allowed=f"an earlier run of {running.name!r}",
        )
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
    part = _part_of_next(earlier, running, done)
    now = running.last_s
    waited_s = max(now - max(ends, default=0.0), 0.0)
    own = Size(cluster.executors, cluster.cores, cluster.memory_bytes)
    reached = _reached(earlier, own, done, part, waited_s)
    pace = now / reached[0] if reached[0] > 0.0 else 1.0
    left = []
    for size in sizes:
        # Executors are as those of this run, not of the earlier one.
        cores, memory = size.cores or cluster.cores, size.memory_bytes or cluster.memory_bytes
        wanted = replace(size, cores=cores, memory_bytes=memory)
        at, total = _reached(earlier, wanted, done, part, waited_s)
        rest = max(total - at, 0.0) * pace
        left.append(Left(size.executors, cores, rest, now + rest))
    return Progress(now, done, of, pace, tuple(left))


def _part_of_next(earlier: Estimator, running: Application, done: int) -> float | None:
    """Share of the next job's tasks that have succeeded; None where no job runs."""
    open_stages = {stage for job in running.jobs if job.completed_s is None for stage in job.stages}
    if not open_stages or done >= len(earlier.workload.jobs):
        return None
    expected = sum(
        len(earlier.workload.stages[place].lengths) for place in earlier.workload.jobs[done].stages
    )
    finished = sum(
        int(np.count_nonzero(stage.tasks["status"] == SUCCEEDED))
        for stage in running.stages
        if stage.stage in open_stages
    )
    return min(finished / expected, 1.0) if expected else 0.0


def _reached(
    earlier: Estimator, size: Size, done: int, part: float | None, waited_s: float
) -> tuple[float, float]:
    """When the earlier run's replay has done as much, and when it ends. Where no job runs the
    driver has worked for ``waited_s``, which takes as long at any size."""
    replayed = earlier.pipeline.replay(earlier.cluster(size)).replayed
    spans = replayed.job_spans
    at = float(np.sort(spans[:, 1])[done - 1]) if done else 0.0
    begin, end = spans[done].tolist() if done < len(spans) else (replayed.end_s, replayed.end_s)
    ahead = min(at + waited_s, begin) if part is None else begin + part * (end - begin)
    return max(at, ahead), replayed.end_s
