"""Which experiments to run: candidates, what they cost, and the best few of them.

Ernest (NSDI 2016), section 3.3. The features of the candidates are divided by their means, so that
the units of scale do not decide which coefficient counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from kongming.dataset import Floats
from kongming.errors import InputError
from kongming.scale.exchange import round_weights
from kongming.scale.points import Configuration, Points
from kongming.scale.relaxation import Problem, Relaxed, criterion, information, relax
from kongming.scale.terms import Term, matrix

__all__ = [
    "Criterion",
    "Design",
    "Experiments",
    "candidates",
    "find_design",
    "next_best",
    "target_variance",
]

Criterion = Literal["A", "D", "I"]

MOST = 20_000
"""Candidates of a design."""


@dataclass(frozen=True, eq=False, slots=True)
class Experiments:
    """What may be run: ``points`` (n,) and their ``cost`` (n,), in machine-seconds or 1 each.

    ``seconds`` (n,), where a model foretells them, weigh an experiment by its noise: the relative
    error is the same for all, so a long run's error is large in seconds. ``at_least`` are counts
    of configurations that have to be run, ``done`` those that were run already.
    """

    points: Points
    cost: Floats
    terms: tuple[Term, ...]
    items: float | None = None
    seconds: Floats | None = None
    at_least: Mapping[Configuration, int] | None = None
    done: Points | None = None
    done_seconds: Floats | None = None
    repeats: int = 1


@dataclass(frozen=True, eq=False, slots=True)
class Design:
    """The chosen experiments: ``counts`` (n,) of the candidates. ``value`` is the criterion of the
    whole experiments, ``relaxed`` the optimum with fractions; ``efficiency`` their ratio, 1 at
    best. ``variances`` at the target are over the noise's: of the choice, of the A-optimal choice
    (the paper's) and of the same budget spread evenly; empty without a target."""

    criterion: Criterion
    counts: Floats
    relaxed: Relaxed
    value: float
    cost: float
    variances: Mapping[str, float]

    @property
    def efficiency(self) -> float:
        return self.relaxed.bound / self.value if np.isfinite(self.value) else 0.0


def candidates(machines: Sequence[int], scales: Sequence[float]) -> Points:
    """All pairs, (n,). Raises InputError above ``MOST``."""
    if len(machines) * len(scales) > MOST:
        raise InputError(
            f"{len(machines)} machine counts and {len(scales)} scales are too many pairs.",
            field="--machines, --scale",
            allowed=f"{MOST} pairs",
        )
    return Points.of([Configuration(float(count), scale) for scale in scales for count in machines])


def find_design(
    experiments: Experiments,
    budget: float,
    *,
    kind: Criterion = "A",
    target: Configuration | None = None,
    tolerance: float = 1e-6,
) -> Design:
    """The best experiments within a budget (a sum of costs).

    Raises:
        InputError: there is no such design, or I-optimality without a target.
    """
    # More threads wait for each other longer than matrices of this size take.
    with threadpool_limits(1, user_api="blas"):
        return _find(experiments, budget, kind, target, tolerance)


def _find(
    experiments: Experiments,
    budget: float,
    kind: Criterion,
    target: Configuration | None,
    tolerance: float,
) -> Design:
    problem = _problem(experiments, budget, kind, target)
    relaxed = relax(problem, tolerance)
    counts = round_weights(problem, relaxed.weights).astype(np.float64)
    value = criterion(problem, information(problem, counts))
    if not np.isfinite(value) and kind != "D":
        # Few experiments may serve the criterion's best fractions and yet leave terms apart.
        other = _problem(experiments, budget, "D", None)
        counts = round_weights(other, relax(other, 1e-4).weights).astype(np.float64)
        value = criterion(problem, information(problem, counts))
    if not np.isfinite(value):
        raise InputError(
            "These few experiments cannot tell the terms apart.",
            field="budget",
            found=budget,
            hint=f"Allow at least {len(experiments.terms)} experiments of different kinds.",
        )
    variances: dict[str, float] = {}
    if target is not None:
        paper = counts
        if kind != "A":
            other = _problem(experiments, budget, "A", None)
            paper = round_weights(other, relax(other, 1e-4).weights).astype(np.float64)
        even = np.full(len(counts), budget / float(np.sum(problem.cost)))
        for name, some in (("chosen", counts), ("paper", paper), ("uniform", even)):
            variances[name] = target_variance(experiments, some, target)
    return Design(
        criterion=kind,
        counts=counts,
        relaxed=relaxed,
        value=value,
        cost=float(experiments.cost @ counts),
        variances=variances,
    )


def target_variance(experiments: Experiments, counts: Floats, target: Configuration) -> float:
    """The variance of the prediction at the target over that of one run's noise."""
    problem = _problem(experiments, float("inf"), "I", target)
    return criterion(problem, information(problem, counts))


def next_best(
    experiments: Experiments, target: Configuration
) -> tuple[Configuration, float, float]:
    """(the next experiment, the variance at the target now, and after it), over the noise's.

    The one that lowers the logarithm of the variance most for its cost.

    Raises:
        InputError: nothing was done yet.
    """
    if experiments.done is None or not len(experiments.done):
        raise InputError("Nothing was run yet.", hint="Begin with: kongming scale design")
    problem = _problem(experiments, float("inf"), "I", target)
    # A little information from nowhere, where the runs so far cannot tell the terms apart.
    M = problem.prior + 1e-9 * np.diag(np.maximum(np.diag(problem.prior), 1e-9))
    G = np.linalg.inv(M)
    assert problem.aims is not None
    now = float(np.sum(problem.aims * (G @ problem.aims)))
    A = problem.features
    own = 1.0 + np.einsum("ij,jk,ik->i", A, G, A)
    after = np.maximum(now - (A @ (G @ problem.aims))[:, 0] ** 2 / own, 1e-300)
    at = int(np.argmax((np.log(now) - np.log(after)) / experiments.cost))
    return experiments.points.configurations()[at], now, float(after[at])


def _problem(
    experiments: Experiments, budget: float, kind: Criterion, target: Configuration | None
) -> Problem:
    A = matrix(experiments.terms, experiments.points, experiments.items)
    size = A.mean(axis=0)
    if not (size > 0.0).all():
        at = int(np.argmin(size))
        raise InputError(
            f"No experiment has anything of the term {experiments.terms[at].key}.",
            field="--machines",
            hint="Allow more machine counts, or leave the term out.",
        )
    weights = np.ones(len(A)) if experiments.seconds is None else 1.0 / experiments.seconds
    aims: Floats | None = np.eye(A.shape[1])
    if kind == "D":
        aims = None
    if kind == "I":
        if target is None:
            raise InputError("I-optimality is for a target.", field="--target", allowed="as 64@1.0")
        asked = matrix(experiments.terms, Points.of([target]), experiments.items) / size
        aims = asked.T
    prior = np.zeros((A.shape[1], A.shape[1]))
    if experiments.done is not None and len(experiments.done):
        done = matrix(experiments.terms, experiments.done, experiments.items) / size
        if experiments.seconds is not None and experiments.done_seconds is not None:
            done = done / experiments.done_seconds[:, None]
        prior = done.T @ done
    lower = np.zeros(len(A))
    # What alone is beyond the budget is no candidate, not even for a fraction.
    upper = np.where(experiments.cost <= budget * (1.0 + 1e-9), float(experiments.repeats), 0.0)
    for configuration, count in (experiments.at_least or {}).items():
        found = [
            i for i, one in enumerate(experiments.points.configurations()) if one == configuration
        ]
        if not found:
            raise InputError(
                "is none of the candidates.", field="--at-least", found=str(configuration)
            )
        lower[found[0]] = count
        upper[found[0]] = max(upper[found[0]], count)
    return Problem(
        features=A / size * weights[:, None],
        aims=aims,
        prior=prior,
        cost=experiments.cost,
        budget=budget,
        lower=lower,
        upper=upper,
    )
