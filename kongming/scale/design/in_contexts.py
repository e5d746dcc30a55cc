"""Choose experiments over contexts: those that make a model over contexts most certain at a target.

What a run tells about the target follows from the process's covariances alone, not from its time
(Krause, Singh and Guestrin 2008), so several runs can be chosen at once, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.records.errors import InputError
from kongming.scale.fit.context_columns import Context
from kongming.scale.fit.context_model import ContextModel, inputs_of
from kongming.scale.points import Configuration, Points

MOST = 2000
"""Maximum number of candidates."""


@dataclass(frozen=True, slots=True)
class ContextExperiment:
    """A run in a context: its predicted cost in machine-seconds, and the variance (of the log of
    the time) at the target before and after it."""

    context: Context
    at: Configuration
    machine_seconds: float
    variance_now: float
    variance_after: float


def choose_in_contexts(
    model: ContextModel,
    candidates: Sequence[Configuration],
    context: Context,
    target: Configuration,
    *,
    count: int | None = None,
    budget: float | None = None,
    per_cost: bool = True,
) -> list[ContextExperiment]:
    """Choose up to ``count`` experiments, or as many as cost up to ``budget`` machine-seconds, in
    all contexts that were run and in the target's, which may have no runs.

    Raises:
        InputError: there are too many candidates, or none that the budget allows.
    """
    contexts = list(dict.fromkeys((*model.contexts, context)))
    if len(contexts) * len(candidates) > MOST:
        raise InputError(
            f"{len(contexts)} contexts and {len(candidates)} configurations are too many pairs.",
            field="--machines, --scale",
            allowed=f"{MOST} pairs",
        )
    pairs = [(own, at) for own in contexts for at in candidates]
    places = Points.of([target, *(at for _, at in pairs)])
    owner = np.array([contexts.index(own) for own in (context, *(own for own, _ in pairs))])
    inputs = inputs_of(model.columns, contexts, places, owner, model.center)
    covariance = model.process.posterior(inputs)
    seconds = np.array([float(model.fit_at(own).predict(Points.of([at]))[0]) for own, at in pairs])
    costs = seconds * np.array([at.machines for _, at in pairs])
    return _greedy(
        pairs,
        covariance,
        costs,
        float(model.process.sizes[7]) ** 2,
        count if count is not None else len(pairs),
        np.inf if budget is None else budget,
        per_cost,
    )


def _greedy(
    pairs: Sequence[tuple[Context, Configuration]],
    covariance: Floats,
    costs: Floats,
    noise: float,
    count: int,
    budget: float,
    per_cost: bool,
) -> list[ContextExperiment]:
    """Take the experiment with the largest reduction of the log variance (per cost), again and
    again. The first row of the ``covariance`` is the target's."""
    chosen: list[ContextExperiment] = []
    left = budget
    while len(chosen) < count:
        now = max(float(covariance[0, 0]), 1e-300)
        own = np.diag(covariance)[1:] + noise
        after = np.maximum(now - covariance[0, 1:] ** 2 / own, 1e-12 * now)
        gain = (np.log(now) - np.log(after)) / (costs if per_cost else 1.0)
        gain = np.where(costs <= left, gain, -np.inf)
        best = int(np.argmax(gain))
        if not np.isfinite(gain[best]):
            break
        context, at = pairs[best]
        chosen.append(ContextExperiment(context, at, float(costs[best]), now, float(after[best])))
        left -= float(costs[best])
        column = covariance[:, best + 1]
        covariance = covariance - np.outer(column, column) / own[best]
    if not chosen:
        raise InputError(
            "allows no experiment.",
            field="--budget-machine-seconds",
            found=budget,
            allowed=f"{float(costs.min()):.4g} or more",
        )
    return chosen
