"""Pauses: spans in which the driver's clock went on, and no task that ran worked.

The driver's clock was set forward, or its machine was suspended: launch and finish of a task are
moments of the driver, the times of its parts are measured by its executor, and the rest is
scheduler delay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kongming.spark.application import SUCCEEDED, StageAttempt

LEAST_S = 60.0
LEAST_SHARE = 0.02
"""Of the run, that a pause takes at least: first tasks may wait for files for a minute."""


def pauses(
    stages: Sequence[StageAttempt], moments_s: Iterable[float], last_s: float
) -> list[tuple[float, float]]:
    """Return the (first, last) second of each pause. Nothing happens within one: ``moments_s`` are
    those of other events than tasks."""
    least = max(LEAST_S, LEAST_SHARE * last_s)
    if not any(
        len(each.tasks) and each.tasks["scheduler_delay_s"].max() > least for each in stages
    ):
        return []
    launch, finish, delay = (
        np.concatenate([np.asarray(stage.tasks[name], "f8") for stage in stages])
        for name in ("launch_s", "finish_s", "scheduler_delay_s")
    )
    moments = np.unique(np.concatenate([launch, finish, np.fromiter(moments_s, "f8")]))
    # Of others the parts are not known.
    known = np.concatenate([stage.tasks["status"] == SUCCEEDED for stage in stages])
    known &= delay < finish - launch
    launch, finish, delay = launch[known], finish[known], delay[known]
    spans = []
    for place in np.flatnonzero(np.diff(moments) > least).tolist():
        first, last = moments[place : place + 2].tolist()
        waited = delay[(launch <= first) & (finish >= last)]
        if len(waited) and waited.min() > max(least, (last - first) / 2):
            spans.append((first, last))
    return spans
