"""A stack: the forms' predictions, averaged in logs by how well each predicted what was left out.

Stacked generalisation (Wolpert 1992; non-negative weights as Breiman 1996), with two additions for
tables of few configurations. The weights are those of pseudo Bayesian model averaging (Yao et al.
2018): a form's error to the power of minus the number of left-out configurations, so that they are
the prior's with few of them. And a left-out configuration counts by its nearness to the question,
in machines, in scale, and in how far beyond its training runs it was. So a question beyond the
largest machine count is answered by what predicted the largest counts from the smaller ones.

The average is an interquantile mean: the outer ``TRIM`` of the weight on each side is left out, as
one form that is thrown off may be wrong by any factor.

The answer lies between relative Ernest (``ANCHOR``) and that average: as far along as the average
was nearer than the anchor to what was left out near the question, by a ridge regression through
``TRUST`` (Breiman 1996 with two members), less one standard error of that share (the rule of
Breiman et al. 1984), and a step that is lost in the error on what was left out is not taken (the
non-negative garrote, Breiman 1995). Where the runs do not tell, the answer is that of a model of
four terms, which varies little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.forms import PRIOR, forms_of
from kongming.scale.fit.residuals import fit_residuals
from kongming.scale.fit.robust import fit_robust, inconsistency
from kongming.scale.fit.shrinkage import distinct, error_left, share_of_way, standard_error
from kongming.scale.fit.terms import Term
from kongming.scale.fit.validation import Fit, folds_of, largest_out, run_noise
from kongming.scale.points import Integers, Points, Runs

POWER = 1.5
"""Exponent of the errors for each left-out configuration at the question."""

TRIM = 0.35
REACH = (0.5, 1.0, 0.3, 0.3)
"""Distances (in logs) at which a left-out configuration counts half: of the machines, of the scale,
and of how far each was beyond the training runs."""

CLIPPED = 1.0
"""Errors (in logs) above this are alike: the form is wrong there."""

ANCHOR = "ernest-relative"
TRUST = 0.2
"""Share of the way from the anchor to the average that is taken without evidence."""

INDISTINCT = 1.0 / 3.0
"""A step from the anchor that is shorter than this share of the mean error on what was left out
near the question is not taken."""

TRUST_REACH = (1.0, 1.0, 0.3, 0.3)
"""As ``REACH``, for that share."""

FURTHER, FURTHER_RANK = 0.3, 0.9
"""The answer is at most this far (in logs) from the anchor, and as much farther as this quantile of
the average's distances from it on what was left out: more was never tested."""

OWN_REACH = 0.05
"""Distance (in logs) within which a configuration's own runs correct the average."""

OWN_NOISE = 0.03
"""Least noise of a run (in logs) that is assumed in that."""

WIDEST_APART = 1.5
"""A member counts as at most this far (in logs) from the average."""

EXACT = 1e-9
FOLDS = 12
BACKBONE = "cliff"
"""The form whose terms are reported, and tell serial from parallel time: the robust fit of the
terms, with a step where there is a cliff."""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Predictions of what was left out: ``places`` (n, 4) are logs of machines and scale, and how
    far (in logs) each was beyond the training runs; ``errors`` (n, forms) logs of predicted over
    typical time; ``averaged`` (n,) logs of the forms' average over typical, and ``residuals`` (n,)
    logs of typical over the stack's prediction, in both of which the configuration itself had no
    part. The first ``alone`` are configurations that were left out one by one (or in folds), the
    others were left out with the largest machine counts."""

    places: Floats
    errors: Floats
    averaged: Floats
    residuals: Floats
    alone: int

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def configurations(self) -> Integers:
        """(n,) number of the configuration that each of what was left out is."""
        places = np.round(self.places[:, :2], 9)
        return np.unique(places, axis=0, return_inverse=True)[1].reshape(-1).astype(np.intp)


@dataclass(frozen=True, eq=False, slots=True)
class StackFit:
    """``names``, ``prior`` (k,) and ``members`` of the forms; ``ends`` (2, 2) the lowest and the
    highest trained logs of machines and scale; ``left`` what the weights are made of; ``own``
    (m, 3) logs of machines and scale of each trained configuration and what is added (in logs)
    there, where its own runs say more than the average of the forms; (m, 4) with the logs of
    iterations where runs differ in them."""

    names: tuple[str, ...]
    prior: Floats
    members: tuple[Fit, ...]
    ends: Floats
    left: LeftOut
    own: Floats

    kind = "stack"

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration."""
        return np.asarray(np.exp(self.answer(points)[0]), dtype=np.float64)

    def answer(self, points: Points) -> tuple[Floats, Floats]:
        """(n,) logs of the seconds per iteration, and (n, 5) what their deviation is made of: the
        squared disagreement of the members, the mean squared residual of what was left out near the
        question, how many that is, and the squared distance beyond the runs, with and without that
        below their fewest machines."""
        places = places_of(points, self.ends)
        near = _nearness(places, self.left.places)
        weights = _weights(near, self.prior, self.left)
        logs = self.logs(points)
        trusted = _trusted(places, self.left, self.anchor)
        values = _drawn(logs, weights, trusted, self.left, self.anchor)
        values = values + _correction(places, points.iterations, self.own)
        return values, _uncertainty(places, near, logs, values, weights, self.left)

    def logs(self, points: Points) -> Floats:
        """(n, k) logs of the members' predictions."""
        return np.log(np.column_stack([member.predict(points) for member in self.members]))

    def weights(self, points: Points) -> Floats:
        """(n, k) weights of the members, the anchor's with what is not trusted to the average; each
        row adds up to 1."""
        places = places_of(points, self.ends)
        weights = _weights(_nearness(places, self.left.places), self.prior, self.left)
        trusted = _trusted(places, self.left, self.anchor)[0][:, None]
        return np.asarray(
            trusted * weights + (1.0 - trusted) * (np.arange(len(self.names)) == self.anchor)
        )

    def run_noise(self, runs: Runs) -> float:
        """Return the standard deviation of the log of a run's time; see ``validation.run_noise``.
        Where few runs are repeated, what was left out one by one tells it too."""
        alone = self.left.residuals[: self.left.alone]
        return run_noise(runs, np.minimum(np.abs(alone), CLIPPED))

    @property
    def differs_in_iterations(self) -> bool:
        return bool(self.own.shape[1] > 3)

    def counts_at(self, scale: float) -> Floats:
        """(m,) machine counts that were run at a scale."""
        same = np.abs(self.own[:, 1] - np.log(scale)) < EXACT
        return np.asarray(np.exp(self.own[same, 0]), dtype=np.float64)

    def left_out_errors(self) -> Floats:
        """(n,) logs of predicted over typical of what was left out, with the weights as they are:
        the configuration itself had a part in them."""
        left = self.left
        weights = _weights(_nearness(left.places, left.places), self.prior, left)
        trusted = _trusted(left.places, left, self.anchor)
        return _drawn(left.errors, weights, trusted, left, self.anchor)

    @property
    def anchor(self) -> int:
        return self.names.index(ANCHOR)

    @property
    def backbone(self) -> ErnestFit:
        fit = self.member(BACKBONE)
        assert isinstance(fit, ErnestFit)
        return fit

    def member(self, form: str) -> Fit:
        """Return the fit of a form."""
        return self.members[self.names.index(form)]

    def left_out_uncertainty(self) -> Floats:
        """(n, 5) as of ``answer``, of what was left out, learnt from all else that was."""
        left = self.left
        near = _others(left)
        weights = _weights(near, self.prior, left)
        values = -left.residuals
        return _uncertainty(left.places, near, left.errors, values, weights, left)

    def document(self) -> dict[str, Any]:
        return {
            "members": [
                {"form": name, "prior": float(prior), "kind": fit.kind, "fit": fit.document()}
                for name, prior, fit in zip(self.names, self.prior, self.members, strict=True)
            ],
            "ends": self.ends.tolist(),
            "places": self.left.places.tolist(),
            "errors": self.left.errors.tolist(),
            "averaged": self.left.averaged.tolist(),
            "residuals": self.left.residuals.tolist(),
            "alone": self.left.alone,
            "own": self.own.tolist(),
        }


def fit_stack(runs: Runs, terms: Sequence[Term], items: float | None = None) -> StackFit:
    """Fit all forms to the runs, and to the runs without each configuration and without the largest
    machine counts."""
    trend = fit_robust(runs, terms, items)
    shape = fit_residuals(runs, trend, inconsistency=inconsistency(runs, trend)).shape
    forms = forms_of(terms, items, shape=shape)
    names = tuple(forms)
    prior = np.array([PRIOR[name] for name in names])
    splits = [
        (runs.without(fold), runs.within(fold))
        for fold in folds_of(runs.count, FOLDS)
        if runs.count > 2
    ]
    splits += largest_out(runs)
    places, logs, typical = [], [], []
    for training, left in splits:
        points = left.configurations
        places.append(places_of(points, _ends(training)))
        logs.append(
            np.log(np.column_stack([form(training).predict(points) for form in forms.values()]))
        )
        typical.append(np.log(left.typical))
    none = np.empty((0, len(names)))
    predicted, measured = np.vstack([none, *logs]), np.concatenate([np.empty(0), *typical])
    left_out = LeftOut(
        places=np.vstack([np.empty((0, 4)), *places]),
        errors=predicted - measured[:, None],
        averaged=np.empty(0),
        residuals=np.empty(0),
        alone=runs.count if runs.count > 2 else 0,
    )
    anchor = names.index(ANCHOR)
    weights = _weights(_others(left_out), prior, left_out)
    left_out = replace(left_out, averaged=averages(left_out.errors, weights))
    trusted = _trust(_others(left_out, TRUST_REACH), left_out, anchor)
    residuals = -_drawn(left_out.errors, weights, trusted, left_out, anchor)
    fit = StackFit(
        names=names,
        prior=prior,
        members=tuple(form(runs) for form in forms.values()),
        ends=_ends(runs),
        left=replace(left_out, residuals=residuals),
        own=np.empty((0, 3)),
    )
    return replace(fit, own=_own(runs, fit))


def left_out_order(count: int) -> Integers:
    """(count,) numbers of the configurations in the order in which they were left out alone."""
    return np.concatenate([np.empty(0), *folds_of(count, FOLDS)]).astype(np.intp)


def _own(runs: Runs, fit: StackFit) -> Floats:
    """(count, 3), or (count, 4) where iterations differ, corrections at the trained configurations:
    the residual there, shrunk by the noise of its runs (an empirical Bayes estimate with the
    residual itself as its prior's scale)."""
    points = runs.configurations
    residual = np.log(runs.typical / fit.predict(points))
    noise = max(fit.run_noise(runs), OWN_NOISE) ** 2 / runs.repeats
    shrunk = residual**3 / (residual**2 + noise)
    columns = [np.log(points.machines), np.log(points.scale), shrunk]
    if np.ptp(points.iterations) > 0.0:
        columns.append(np.log(points.iterations))
    return np.column_stack(columns)


def _correction(places: Floats, iterations: Floats, own: Floats) -> Floats:
    """(n,) what the trained configuration nearest to each question adds, if it is next to it; of
    several with its machines and scale that with the nearest iterations."""
    if not len(own):
        return np.zeros(len(places))
    squared = np.sum((places[:, None, :2] - own[None, :, :2]) ** 2, axis=2)
    order = squared
    if own.shape[1] > 3:
        order = squared + EXACT * (np.log(iterations)[:, None] - own[:, 3]) ** 2
    nearest = np.argmin(order, axis=1)
    near = np.exp(-squared[np.arange(len(places)), nearest] / (2.0 * OWN_REACH**2))
    return np.asarray(near * own[nearest, 2], dtype=np.float64)


def places_of(points: Points, ends: Floats) -> Floats:
    """(n, 4) logs of machines and scale, and how far (in logs) each is above (positive) or below
    (negative) the ``ends``."""
    logs = np.log(np.column_stack([points.machines, points.scale]))
    return np.column_stack([logs, beyond(logs, ends[0], ends[1])])


def beyond(values: Floats, low: Floats | float, high: Floats | float) -> Floats:
    """Return how far each of ``values`` is above ``high`` (positive) or below ``low``
    (negative)."""
    return np.asarray(np.maximum(values - high, 0.0) - np.maximum(low - values, 0.0))


def averages(logs: Floats, weights: Floats) -> Floats:
    """(n,) interquantile means of ``logs`` (n, k) by ``weights`` (n, k)."""
    order = np.argsort(logs, axis=1)
    sorted_weights = np.take_along_axis(weights, order, axis=1)
    above = np.cumsum(sorted_weights, axis=1)
    inner = np.minimum(above, 1.0 - TRIM) - np.maximum(above - sorted_weights, TRIM)
    inner = np.maximum(inner, 0.0)
    values = np.take_along_axis(logs, order, axis=1)
    return np.asarray(np.sum(inner * values, axis=1) / np.sum(inner, axis=1), dtype=np.float64)


def _drawn(
    logs: Floats, weights: Floats, trusted: tuple[Floats, Floats], left: LeftOut, anchor: int
) -> Floats:
    """(n,) averages of ``logs`` (n, k), drawn towards the anchor's."""
    share, error = trusted
    tested = np.sort(np.abs(left.averaged - left.errors[:, anchor]))
    most = FURTHER + (tested[int(FURTHER_RANK * (len(tested) - 1))] if len(tested) else 0.0)
    step = share * (averages(logs, weights) - logs[:, anchor])
    return np.asarray(logs[:, anchor] + np.clip(distinct(step, INDISTINCT * error), -most, most))


def _trusted(places: Floats, left: LeftOut, anchor: int) -> tuple[Floats, Floats]:
    return _trust(_nearness(places, left.places, TRUST_REACH), left, anchor)


def _trust(near: Floats, left: LeftOut, anchor: int) -> tuple[Floats, Floats]:
    """(n,) each: share of the way from the anchor to the average that would have been best near
    each question, less one standard error, and the error that is left there."""
    own = left.errors[:, anchor]
    way, needed = left.averaged - own, -own
    share = share_of_way(near, way, needed, TRUST)
    error = error_left(near, way, needed, share)
    unsure = standard_error(near, way, needed, share, left.configurations)
    return np.maximum(share - unsure, 0.0), error


def _uncertainty(
    places: Floats, near: Floats, logs: Floats, values: Floats, weights: Floats, left: LeftOut
) -> Floats:
    away = np.minimum(np.abs(logs - values[:, None]), WIDEST_APART)
    count = near.sum(axis=1)
    squared = near @ np.minimum(left.residuals**2, CLIPPED**2)
    machines, scale = places[:, 2], np.abs(places[:, 3])
    return np.column_stack(
        [
            np.sum(weights * away**2, axis=1),
            squared / np.maximum(count, EXACT),
            count,
            (np.abs(machines) + scale) ** 2,
            (np.maximum(machines, 0.0) + scale) ** 2,
        ]
    )


def _others(left: LeftOut, reach: tuple[float, ...] = REACH) -> Floats:
    """(n, n) nearness of what was left out, 0 for the same configuration."""
    same = left.configurations[:, None] == left.configurations
    return np.where(same, 0.0, _nearness(left.places, left.places, reach))


def _nearness(places: Floats, others: Floats, reach: tuple[float, ...] = REACH) -> Floats:
    """(n, m) how much each of ``others`` counts at each of ``places``, up to 1."""
    squared = np.zeros((len(places), len(others)))
    for own, other, distance in zip(places.T, others.T, reach, strict=True):
        squared += ((own[:, None] - other) / distance) ** 2
    return np.asarray(1.0 / (1.0 + squared), dtype=np.float64)


def _weights(near: Floats, prior: Floats, left: LeftOut) -> Floats:
    count = near.sum(axis=1)
    errors = np.minimum(np.abs(left.errors), CLIPPED)
    mean = (near @ errors) / np.maximum(count, EXACT)[:, None]
    logs = np.log(prior) - POWER * count[:, None] * np.log(np.maximum(mean, EXACT))
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


def _ends(runs: Runs) -> Floats:
    logs = np.log(np.column_stack([runs.points.machines, runs.points.scale]))
    return np.array([logs.min(axis=0), logs.max(axis=0)])
