"""Stages of jobs that succeeded, and thus succeeded themselves, of which the log lacks lines.

A queue of events that overflows drops the end of a stage as it drops those of tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping

from kongming.spark.reading.events import PlannedStage, StageInfo
from kongming.spark.reading.seen import SeenJob, SeenStage

Stages = MutableMapping[tuple[int, int], SeenStage]
"""By number and attempt."""


def planned_stages(jobs: Iterable[SeenJob]) -> dict[int, PlannedStage]:
    """Return what the starts of jobs say of stages that the log may lack, by their numbers."""
    return {each.stage_id: each for job in jobs for each in job.start.stage_infos or ()}


def complete_stages(
    stages: Stages, jobs: Iterable[SeenJob], planned: Mapping[int, PlannedStage]
) -> int:
    """Set in ``stages`` what their dropped lines would have said: how many tasks, which parents,
    and by when they had ended. Return of how many the end was dropped."""
    for (number, attempt), seen in stages.items():
        plan = planned.get(number)
        if seen.info is None and attempt == 0 and plan is not None:
            seen.info = StageInfo(
                number, plan.number_of_tasks, 0, plan.stage_name, parent_ids=plan.parent_ids
            )
    attempts = Counter(number for number, _ in stages)
    dropped: dict[int, SeenStage] = {}
    for job in jobs:
        if not job.succeeded or job.completed_ms is None:
            continue
        for number in job.start.stage_ids:
            # A job does not wait for each further attempt.
            seen_once = stages.get((number, 0)) if attempts[number] == 1 else None
            if seen_once is None or seen_once.completed_ms is not None:
                continue
            dropped[number] = seen_once
            _ended_by(seen_once, job.completed_ms)
    for child in stages.values():
        parents = () if child.info is None else child.info.parent_ids
        for number in parents:
            if number in dropped and child.submitted_ms is not None:
                _ended_by(dropped[number], child.submitted_ms)
    return len(dropped)


def _ended_by(stage: SeenStage, ms: int) -> None:
    """Note that a stage had ended by this moment, which is after its submission."""
    if ms >= (stage.submitted_ms or 0):
        stage.ended_by_ms = min(ms, ms if stage.ended_by_ms is None else stage.ended_by_ms)


def absent_stages(stages: Stages, jobs: Iterable[SeenJob]) -> set[int]:
    """Return the stages that ran and of which no line is there. Spark skips no job's last stage,
    which has the highest number; of others nothing tells."""
    seen = {number for number, _ in stages}
    last = {max(job.start.stage_ids) for job in jobs if job.succeeded and job.start.stage_ids}
    return last - seen
