"""The final model: learners, scales of the dimensions and of the target, by cross-validation.

Runs are grouped by point, so that repeats of a point are never on both sides. Adaptive runs crowd
where the function is hard; each counts by the share of the space that lies nearest to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kongming.arrays import Floats
from kongming.explore.dimensions import Dimension
from kongming.explore.features import Features, Scales
from kongming.explore.learners import LEARNERS
from kongming.explore.learners.projected_process import RUNS_EACH, ProjectedProcess

_FOLDS = 5
_LOST = 4.0
"""A variant that errs so many times as much as the best in its first folds is not tried further."""
_DECADES = 10.0
"""Ratio of the largest to the least value from which relative errors count as well."""
_LEAST = 0.1
"""Share of the least of positive values that any prediction has at least, unless they span more."""
_SCALES: dict[str, tuple[Scales, ...]] = {
    "lines": ("raw", "both"),
    "bagged_lines": ("raw", "both"),
    "pairs": ("raw", "log"),
    "gaussian_process": ("raw", "log"),
    "projections": ("raw", "log"),
    "perceptrons": ("raw", "log"),
    "tree": ("raw", "log"),
    "forest": ("raw",),
    "boosting": ("raw",),
}
_SIMPLEST_FIRST = tuple(_SCALES)
_ALIKE = 0.02
"""Difference of the logarithms of two errors that decides nothing."""
FEWEST = {"perceptrons": 6, "boosting": 20, "gaussian_process": 4, "projections": 20}
"""Points that a learner needs, 2 if it is not named; with fewer least squares stand in."""
_MARGIN = {"projections": float(np.log(4.0))}
"""By how much the logarithm of a learner's error must be below others': it has many numbers for its
runs, and its held-out errors were chosen by what was left out."""
_PROVED, _DOUBTFUL = 40.0, 10.0
"""Evidence of a process along directions over that of one along the dimensions, of the same values:
from where on it is taken instead of that and needs no margin, and below which it is not taken. A
few runs left out are most of what shows a narrow ridge, so that held-out errors hardly tell its
directions; likelihoods do."""
_TELLING = 0.3
"""Share of the variance that a learner may err by and still be compared with directions that are
proved by errors of what is left out. Where none predicts that, it tells little of any of them, and
those directions are judged by errors along them."""
_MOST = 1200
"""Points by which learners are compared; what is chosen is fitted to all."""

_Try = tuple[str, Scales, bool]
"""A learner, the scales of its dimensions, and whether its target is the logarithm."""


@dataclass
class Chosen:
    """A fitted model. ``held_out`` (n,): the prediction of each training point by the folds that
    left it out; ``error``: its weighted mean square, with the choice made by the other folds."""

    name: str
    scales: Scales
    log_target: bool
    features: Features
    learner: Any
    held_out: Floats
    error: float
    errors: dict[str, float]
    limits: tuple[float, float]

    def predict(self, codes: Floats) -> Floats:
        """(n,) predictions of codes; above 0 if all values were."""
        if not len(codes):
            return np.empty(0)  # some learners refuse it
        return _raw(self.learner.predict(self.features(codes)), self.log_target, self.limits)


@dataclass
class _Variant:
    name: str
    scales: Scales
    log_target: bool
    held_out: Floats
    margin: float
    along: Floats | None
    """Predictions along directions that are proved, as by ``held_out``."""

    @property
    def key(self) -> _Try:
        return self.name, self.scales, self.log_target

    def loss(self, loss: _Loss, values: Floats, shares: Floats, rows: np.ndarray) -> float:
        """The loss of these rows, with the margin; of proved directions that along them, but for
        what is below that of ``_TELLING``."""
        values, shares = values[rows], shares[rows]
        own = loss(values, self.held_out[rows], shares) + self.margin
        if self.along is None:
            return own
        mean = np.full(len(values), np.average(values, weights=shares))
        least = loss(values, mean, shares) + float(np.log(_TELLING))
        return min(own, max(loss(values, self.along[rows], shares), least))


def choose(
    dimensions: tuple[Dimension, ...],
    codes: Floats,
    values: Floats,
    shares: Floats,
    names: Sequence[str],
    seed: int,
    *,
    logs: bool = True,
) -> Chosen:
    """Choose among learners for distinct points.

    Args:
        codes, values, shares: (n, d), (n,) and (n,): points, their mean values, and how much of
            the space each of them stands for.
        names: of ``LEARNERS``; a single one is still chosen its scales.
        logs: whether logarithms of the values may be learned, where all of them are above 0.
    """
    tries = _tries(names, len(codes))
    positive = logs and bool((values > 0.0).all()) and bool(np.ptp(values) > 0.0)
    if len(codes) > _MOST:
        rows = np.random.default_rng(seed).choice(len(codes), _MOST, replace=False)
        few = choose(
            dimensions, codes[rows], values[rows], shares[rows], names, seed, logs=positive
        )
        # Those left out may hold the only value that has no logarithm.
        tries = [(few.name, few.scales, few.log_target)]
    folds = _folds(len(codes), np.random.default_rng([seed, len(codes)]))
    sets = _feature_sets(dimensions)
    matrices = {scales: features(codes) for scales, features in sets.items()}
    limits = _limits(values)
    loss = _Loss.of(values[_measured(shares)])
    variants: list[_Variant] = []
    everything = np.ones(len(values), dtype=np.bool_)
    best = np.inf
    fitted: dict[_Try, Any] = {}
    for key in tries:
        name, scales, log_target = key
        if scales not in matrices or (log_target and not positive):
            continue
        columns = matrices[scales].shape[1]
        if name == "projections" and len(names) > 1 and not 2 <= columns <= len(codes) // RUNS_EACH:
            # Along a single column it is a Gaussian process, which stands next to it. With as many
            # columns as runs there is a direction along which any values lie on a line.
            continue
        trial = _Trial(
            name,
            matrices[scales],
            np.log(values) if log_target else values,
            sets[scales].groups,
            log_target,
            limits,
            seed,
        )
        outcome = _held_out(trial, folds, values, shares, loss, best)
        if outcome is None:
            continue
        held_out, learner = outcome
        margin, along = _MARGIN.get(name, 0.0), None
        plain = fitted.get(("gaussian_process", scales, log_target))
        if isinstance(learner, ProjectedProcess) and plain is not None:
            gain = learner.evidence - plain.evidence
            if not gain >= _DOUBTFUL:
                continue
            if gain >= _PROVED:
                # Likelihoods decide between the two processes, and between these alone.
                margin = 0.0
                along = _raw(learner.along_directions(folds), log_target, limits)
                rival = ("gaussian_process", scales, log_target)
                variants = [each for each in variants if each.key != rival]
        variants.append(_Variant(name, scales, log_target, held_out, margin, along))
        if learner is not None:
            fitted[key] = learner
        # With its margin: what may not be taken for its error must not drop others by it.
        best = min(best, variants[-1].loss(loss, values, shares, everything))
    winner = _best(variants, values, shares, loss, everything)
    key = winner.key
    features = sets[winner.scales]
    if key not in fitted:
        learner = LEARNERS[winner.name](seed=seed, groups=features.groups)
        y = np.log(values) if winner.log_target else values
        fitted[key] = learner.fit(matrices[winner.scales], y)
    errors: dict[str, float] = {}
    for variant in variants:
        mse = _mse(values, variant.held_out, shares)
        errors[variant.name] = min(mse, errors.get(variant.name, np.inf))
    return Chosen(
        *key,
        features,
        fitted[key],
        winner.held_out,
        _nested(values, variants, folds, shares, loss),
        errors,
        limits,
    )


def _tries(names: Sequence[str], count: int) -> list[_Try]:
    """The variants of learners that so many points can carry."""
    able = [name for name in names if count >= FEWEST.get(name, 2)] or ["lines"]
    return [
        (name, scales, log_target)
        for name in able
        for scales in _SCALES[name]
        for log_target in (False, True)
    ]


@dataclass(frozen=True, slots=True)
class _Trial:
    """A learner with its columns (n, p) and target (n,)."""

    name: str
    X: Floats
    y: Floats
    groups: Floats
    log_target: bool
    limits: tuple[float, float]
    seed: int

    def learner(self) -> Any:
        return LEARNERS[self.name](seed=self.seed, groups=self.groups)


@dataclass(frozen=True, slots=True)
class _Loss:
    """The logarithm of the error: squared, and of times that span decades also relative.

    Which of the two is decided by all values: errors of some of them, which may span less, are
    compared with errors of all, and one is in other units than the other.
    """

    relative: bool
    floor: float

    @classmethod
    def of(cls, values: Floats) -> Self:
        """The loss for all (n,) values."""
        least = float(values.min())
        return cls(
            relative=least > 0.0 and float(values.max()) > _DECADES * least,
            floor=1e-12 * float(np.var(values)) + 1e-300,
        )

    def __call__(self, values: Floats, predicted: Floats, shares: Floats) -> float:
        """The loss of (m,) predictions of all values or of some of them."""
        loss = float(np.log(_mse(values, predicted, shares) + self.floor))
        if self.relative:
            missed = np.minimum(np.abs(predicted / values - 1.0), 10.0) ** 2
            loss = 0.5 * (loss + float(np.log(np.average(missed, weights=shares) + 1e-12)))
        return loss


def _measured(shares: Floats) -> np.ndarray:
    """(n,): whether a value was measured; those of next to no share are invented."""
    return np.asarray(shares > 1e-9 * shares.max())


def _held_out(
    trial: _Trial, folds: np.ndarray, values: Floats, shares: Floats, loss: _Loss, best: float
) -> tuple[Floats, Any] | None:
    """Predictions by the other folds, and the learner of all runs if it was fitted for them; None
    for a learner that is far behind ``best``."""
    learner = trial.learner()
    if hasattr(learner, "held_out") and len(values) <= _MOST:
        predicted = learner.fit(trial.X, trial.y).held_out(folds)
        return _raw(predicted, trial.log_target, trial.limits), learner
    # Folds may hold none of them.
    known = _measured(shares)
    predicted = np.full(len(values), np.nan)
    for fold in range(int(folds.max()) + 1):
        rows = folds == fold
        member = trial.learner().fit(trial.X[~rows], trial.y[~rows])
        predicted[rows] = _raw(member.predict(trial.X[rows]), trial.log_target, trial.limits)
        seen = ~np.isnan(predicted) & known
        if seen.any() and loss(values[seen], predicted[seen], shares[seen]) > np.log(_LOST) + best:
            return None
    return predicted, None


def _limits(values: Floats) -> tuple[float, float]:
    """The least prediction, and the largest of a logarithm, which must not run away."""
    low, high = float(values.min()), float(values.max())
    return least_prediction(values), max(high + 2.0 * (high - low), 1e-300)


def least_prediction(values: Floats) -> float:
    """Return the least that is predicted from (n,) values. What was always above 0, as a time, is
    predicted above 0: a line that falls does not go on below. Of others it is -inf."""
    low, high = float(values.min()), float(values.max())
    return max(low * min(_LEAST, low / high), 1e-300) if low > 0.0 else -np.inf


def _raw(predicted: Floats, log_target: bool, limits: tuple[float, float]) -> Floats:
    """Values, within the limits, of a target that may be a logarithm."""
    least, most = limits
    if log_target:
        predicted = np.minimum(np.exp(np.minimum(predicted, 700.0)), most)
    return np.asarray(np.maximum(predicted, least))


def _folds(count: int, rng: np.random.Generator) -> np.ndarray:
    folds = np.arange(count) % min(_FOLDS, count)
    return np.asarray(rng.permutation(folds))


def _feature_sets(dimensions: tuple[Dimension, ...]) -> dict[Scales, Features]:
    """The feature sets that differ from each other."""
    sets: dict[Scales, Features] = {}
    for scales in ("raw", "log", "both"):
        features = Features(dimensions, scales)
        if all(features.columns != other.columns for other in sets.values()):
            sets[scales] = features
    return sets


def _mse(values: Floats, predicted: Floats, shares: Floats) -> float:
    return float(np.average((values - predicted) ** 2, weights=shares))


def _nested(
    values: Floats, variants: list[_Variant], folds: np.ndarray, shares: Floats, loss: _Loss
) -> float:
    """The error of the choice itself: in each fold, of the variant that is best in the others."""
    predicted = np.empty(len(values))
    for fold in np.unique(folds):
        rows = folds == fold
        rest = ~rows if (~rows).any() else rows
        predicted[rows] = _best(variants, values, shares, loss, rest).held_out[rows]
    return _mse(values, predicted, shares)


def _best(
    variants: list[_Variant], values: Floats, shares: Floats, loss: _Loss, rows: np.ndarray
) -> _Variant:
    """The variant that errs least on these rows, margins counted; of those that err alike, as where
    several are exact, the simplest, which goes on beyond the runs as it does between them."""
    losses = [variant.loss(loss, values, shares, rows) for variant in variants]
    least = min(losses)
    alike = [each for each, at in zip(variants, losses, strict=True) if at <= least + _ALIKE]
    return min(alike, key=lambda variant: _SIMPLEST_FIRST.index(variant.name))
