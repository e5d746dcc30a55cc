"""Tasks that a failed job had left to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kongming.spark.application import SUCCEEDED, Job, StageAttempt


def left_tasks(
    failed: Iterable[Job], stages: Sequence[StageAttempt], planned: Mapping[int, int]
) -> int:
    """Return how many tasks of the failed jobs' stages never succeeded.

    ``planned``: the tasks of stages by the start of their job. A stage that was not submitted is
    left where a job's later ones were not either, and was skipped otherwise: Spark gives a stage a
    higher number than those that it reads.
    """
    latest: dict[int, StageAttempt] = {}
    for stage in stages:
        # A further attempt is of what the ones before it did not do.
        if stage.stage not in latest or stage.attempt > latest[stage.stage].attempt:
            latest[stage.stage] = stage
    left: dict[int, int] = {}
    for job in failed:
        last = max((number for number in job.stages if number in latest), default=-1)
        for number in job.stages:
            if number in latest:
                left[number] = _left(latest[number])
            elif number > last:
                left[number] = max(1, planned.get(number, 1))
    return sum(left.values())


def _left(stage: StageAttempt) -> int:
    if stage.completed_s is not None and stage.failure is None:
        return 0
    done = np.unique(stage.tasks["partition"][stage.tasks["status"] == SUCCEEDED])
    return max(0, stage.task_count - len(done))
