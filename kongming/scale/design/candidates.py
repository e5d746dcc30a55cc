"""Choose experiments: candidates, their costs, and the optimal design within a budget.

Ernest (NSDI 2016), section 3.3. The features of the candidates are divided by their means, so that
the units of scale do not determine the weight of a coefficient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from kongming.arrays import Floats
from kongming.records.errors import InputError
from kongming.scale.design.exchange import design_value, even_spread, round_weights
from kongming.scale.design.relaxation import Problem, Relaxed, relax
from kongming.scale.fit.terms import Term, matrix
from kongming.scale.points import Configuration, Points

Criterion = Literal["A", "D", "I"]

MOST = 20_000
"""Maximum number of candidates of a design."""


@dataclass(frozen=True, eq=False, slots=True)
class Experiments:
    """Candidate experiments: ``points`` (n,) and their ``cost`` (n,), in machine-seconds or 1 each.

    ``seconds`` (n,), if a model predicts them, weigh an experiment by its noise: the relative error
    is the same for all, so a long run has a large error in seconds; ``target_seconds`` are those of
    a run at the target, in whose variance that of its prediction is. ``at_least`` are minimum
    counts of configurations, ``done`` the runs that exist already. ``limit`` is the option that
    gives the budget of costs.
    """

    points: Points
    cost: Floats
    terms: tuple[Term, ...]
    items: float | None = None
    seconds: Floats | None = None
    target_seconds: float = 1.0
    at_least: Mapping[Configuration, int] | None = None
    done: Points | None = None
    done_seconds: Floats | None = None
    repeats: int = 1
    limit: str = "budget"


@dataclass(frozen=True, eq=False, slots=True)
class Design:
    """``counts`` (n,) of the candidates. ``value`` is the criterion of the integer design,
    ``relaxed`` the fractional optimum; ``efficiency`` their ratio, at most 1. ``variances`` at the
    target are relative to the noise variance: of this design, of the A-optimal design (the paper's)
    and of experiments spread evenly within the same budget, each where it tells the terms apart;
    empty without a target. With I-optimality the first is the least."""

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
    """Return all pairs, (n,). Raises InputError above ``MOST``."""
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
    """Find the best experiments within a budget (a sum of costs).

    Raises:
        InputError: there is no such design, or I-optimality without a target.
    """
    # For matrices of this size, synchronising several threads costs more than it saves.
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
    starts = {kind: relaxed.weights}
    others: tuple[Criterion, ...] = ("A", "D")
    for other in others:
        if other not in starts:
            starts[other] = relax(_problem(experiments, budget, other, None), 1e-4).weights
    even = even_spread(problem).astype(np.float64)
    paper = round_weights(_problem(experiments, budget, "A", None), starts["A"]).astype(np.float64)
    # Rounding a fractional optimum to few experiments may make the information singular, and an
    # exchange may end in a local optimum: the designs of other criteria lead elsewhere.
    counts = round_weights(problem, *starts.values(), paper, even).astype(np.float64)
    value = design_value(problem, counts)
    if not np.isfinite(value):
        raise _too_few(experiments, problem, budget)
    variances: dict[str, float] = {}
    if target is not None:
        shown = {"chosen": counts, "paper": paper, "uniform": even}
        variances = {
            name: target_variance(experiments, runs, target) for name, runs in shown.items()
        }
        # What cannot tell the terms apart predicts nothing.
        variances = {name: value for name, value in variances.items() if np.isfinite(value)}
    return Design(
        criterion=kind,
        counts=counts,
        relaxed=relaxed,
        value=value,
        cost=float(experiments.cost @ counts),
        variances=variances,
    )


def _too_few(experiments: Experiments, problem: Problem, budget: float) -> InputError:
    """Return what to raise where no design within the budget tells the terms apart."""
    done = 0 if experiments.done is None else len(experiments.done)
    needed = max(len(experiments.terms) - done, 1)
    affordable = float(np.sort(problem.cost)[:needed].sum())
    return InputError(
        f"So few experiments cannot tell the {len(experiments.terms)} terms apart.",
        field=experiments.limit,
        value=f"{budget:g}",
        hint=f"Allow {needed} experiments of different kinds or more"
        + (
            f"; the cheapest {needed} cost {affordable:.4g}."
            if affordable > budget and np.ptp(problem.cost) > 0.0
            else "."
        ),
    )


def target_variance(experiments: Experiments, counts: Floats, target: Configuration) -> float:
    """Variance of the prediction at the target over the noise variance of one run; infinite where
    the experiments cannot tell the terms apart."""
    return design_value(_problem(experiments, float("inf"), "I", target), counts)


def next_best(
    experiments: Experiments, target: Configuration
) -> tuple[Configuration, float, float]:
    """Return the next experiment, and the variance at the target before and after it, relative to
    the noise variance.

    It is the experiment with the largest reduction of the log variance per cost.

    Raises:
        InputError: there are no runs yet.
    """
    if experiments.done is None or not len(experiments.done):
        raise InputError("There are no runs yet.", hint="Start with: kongming scale design")
    problem = _problem(experiments, float("inf"), "I", target)
    # A small ridge, in case the runs so far do not identify all terms.
    own_information = np.diag(problem.prior)
    M = problem.prior + 1e-9 * np.diag(np.maximum(own_information, 1e-9 * own_information.max()))
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
            f"The term {experiments.terms[at].key} is 0 in every experiment.",
            field="--machines",
            hint="Allow more machine counts, or leave the term out.",
        )
    weights = np.ones(len(A)) if experiments.seconds is None else 1.0 / experiments.seconds
    aims: Floats | None = np.eye(A.shape[1])
    if kind == "D":
        aims = None
    if kind == "I":
        if target is None:
            raise InputError("I-optimality needs a target.", field="--target", allowed="as 64@1.0")
        features = matrix(experiments.terms, Points.of([target]), experiments.items) / size
        aims = features.T / experiments.target_seconds
    prior = np.zeros((A.shape[1], A.shape[1]))
    if experiments.done is not None and len(experiments.done):
        done = matrix(experiments.terms, experiments.done, experiments.items) / size
        if experiments.seconds is not None and experiments.done_seconds is not None:
            done = done / experiments.done_seconds[:, None]
        prior = done.T @ done
    lower = np.zeros(len(A))
    # An experiment that alone exceeds the budget must not get a fractional weight either.
    upper = np.where(experiments.cost <= budget * (1.0 + 1e-9), float(experiments.repeats), 0.0)
    for configuration, count in (experiments.at_least or {}).items():
        listed = experiments.points.configurations()
        if configuration not in listed:
            raise InputError(
                "is not one of the candidates.", field="--at-least", value=str(configuration)
            )
        index = listed.index(configuration)
        lower[index] = count
        upper[index] = max(upper[index], count)
    return Problem(
        features=A / size * weights[:, None],
        aims=aims,
        prior=prior,
        cost=experiments.cost,
        budget=budget,
        lower=lower,
        upper=upper,
        limit=experiments.limit,
    )
