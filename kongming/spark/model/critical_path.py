"""The shortest time on endless slots: driver gaps and the longest chain of tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kongming.arrays import Floats
from kongming.spark.model.workload import StageWork, Workload


def critical_path_s(workload: Workload, lengths: Sequence[Floats] | None = None) -> float:
    """Return seconds of the application where every task has a slot of its own at once.

    It is what no number of executors goes below as long as the tasks' lengths stay.
    """
    job_ends = np.zeros(len(workload.jobs))
    stage_ends = np.zeros(len(workload.stages))
    for number, job in enumerate(workload.jobs):
        start = max((job_ends[other] for other in job.waiting.after), default=0.0)
        start += job.waiting.gap_s
        done = start
        for place in job.stages:
            stage = workload.stages[place]
            ready = max([start, *(stage_ends[parent] for parent in stage.parents)]) + stage.lag_s
            own = stage.lengths if lengths is None else lengths[place]
            stage_ends[place] = ready + longest(stage, own)
            done = max(done, stage_ends[place])
        job_ends[number] = done + job.tail_s
    return float(max(job_ends, default=0.0)) + workload.end_s


def longest(stage: StageWork, lengths: Floats) -> float:
    """Seconds of the longest task that the stage waits for, a copy with what comes before it."""
    if stage.needed is not None and len(stage.needed) == len(lengths):
        if stage.speculation is not None:
            places, needed = stage.speculation.places, stage.needed
            others = np.delete(lengths, places)
            ends = others[np.delete(needed, places)].tolist()
            lengths = lengths.copy()
            lengths[places] += stage.speculation.due_s([0.0] * len(others), ends)
        lengths = lengths[stage.needed]
    return float(lengths.max()) if len(lengths) else 0.0
