"""Choose the next run of an application whose scale model is a replay of one run."""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats
from kongming.records.errors import InputError
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.spark_replay import RESIDUAL_PRIOR, ReplayFit
from kongming.scale.points import Configuration, Points


def next_run(
    model: ScaleModel, points: Points, target: Configuration, *, per_cost: bool
) -> tuple[Configuration, float, float]:
    """Return the run that tells most of the target, and the variance of the log of measured over
    replayed there before and after it, relative to the noise variance.

    That log is a level and a slope over the doublings of the slots, with the prior under which
    ``kongming spark estimate --runs`` will fit them. The run has the largest reduction of the log
    variance, per machine-second with ``per_cost``.

    Raises:
        InputError: the model is no replay: those are chosen for by their runs.
        CannotAnswerError: another scale than 1.
    """
    fit = model.fit
    if not isinstance(fit, ReplayFit):
        raise InputError(
            f"is a scale model ({fit.kind}); the next experiment is chosen from its runs.",
            field="RUNS.csv",
            value=model.label,
            allowed="a table of runs, or a replay by 'kongming spark estimate --save'",
            hint="Give the table that the model was fitted to.",
        )
    recorded = model.report["recorded"]
    slots = recorded.get("slots", recorded["executors"] * recorded["cores"])

    def features(machines: Floats) -> Floats:
        doublings = np.log2(machines * fit.slots / slots)
        return np.column_stack([np.ones(len(machines)), doublings])

    G = np.diag(1.0 / np.array(RESIDUAL_PRIOR))
    aim, A = features(np.array([target.machines]))[0], features(points.machines)
    now = float(aim @ G @ aim)
    after = now - (A @ G @ aim) ** 2 / (1.0 + np.einsum("ij,jk,ik->i", A, G, A))
    cost = model.seconds(points) * points.machines
    gain = np.log(now) - np.log(after)
    at = int(np.argmax(gain / cost if per_cost else gain))
    return points.configurations()[at], now, float(after[at])
