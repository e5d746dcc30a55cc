"""The model of one metric over the space: the chosen learner, its intervals and its error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kongming.arrays import Floats
from kongming.explore.choice import Chosen, choose
from kongming.explore.failures import FailureModel
from kongming.explore.features import Features
from kongming.explore.intervals import Intervals
from kongming.explore.runs import Measured, deviations_of_repeats
from kongming.explore.space import Space
from kongming.explore.stopping import certainty, plausible_noise

_MARGIN = 0.05
"""Share of a column's range beyond the runs, and distance from the nearest of them, that still
counts as covered by them."""
_SAMPLE = 4096
_FEWEST_EXACT = 3
"""Runs that were not ended, by which those that were can be judged."""
_ROUNDING = 1e-9
"""Share of a distance that may be rounding: values of a list are equally far from each other."""
_MEAN_OF_NORMAL = float(np.sqrt(2.0 / np.pi))
"""Mean absolute value of a normal variable over its standard deviation."""
_UNJUDGED = 1e-12
"""Share of the space that a run which was ended stands for when learners are judged. Not 0: a fold
may hold no other runs."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predictions of points, (n,) arrays. ``lower`` and ``upper`` bound the interval of a run there
    at the profiler's level; ``extrapolating``: outside the runs that succeeded, farther from them
    than any of them is from the others, as with a choice that was never run, or nearest to a run
    that was ended, of which only a lower bound is known (``nearest_ended``);
    ``failure_probability``: that a run there has neither a value nor a lower bound of the metric,
    and no value of another."""

    median: Floats
    lower: Floats
    upper: Floats
    extrapolating: NDArray[np.bool_]
    failure_probability: Floats
    nearest_ended: NDArray[np.bool_]


class SpaceModel:
    """A model of the runs of one metric."""

    def __init__(
        self,
        space: Space,
        pool: Floats,
        runs: Measured,
        outcomes: tuple[Floats, Floats],
        names: Sequence[str],
        level: float,
        seed: int,
    ) -> None:
        """``outcomes``: the (n, d) codes of the runs that did not fail, and the (k, d) of those
        that did. ``runs``: two points or more that were measured, and any that were ended."""
        # Folds and resamples are drawn by place: a table that is sorted has the same model.
        runs = runs.sorted_by_codes()
        self.space, self.runs = space, runs
        self._features = Features(space.dimensions, "even")
        self._done = self._features(runs.codes)
        self._near = cKDTree(self._done)
        # As far from the others as any run is, something is known.
        self._reach = max(float(self._near.query(self._done, k=[2])[0].max()), _MARGIN)
        self.shares = nearest_shares(self._done, self._features(_some(pool, seed)))
        means = runs.means
        if runs.censored.any():
            # A run that was ended would have taken what the others say, if that is longer.
            means = self._beyond_bounds(means, names, seed)
        self.chosen = self._choose(means, names, seed)
        self._held_out = self.chosen.held_out[runs.point]
        weights = (self.shares / runs.counts)[runs.point]
        # What was missed of a run that was ended is not known.
        exact = ~runs.censored[runs.point]
        self._intervals = Intervals(
            self._done[runs.point][exact],
            runs.observed[exact],
            self._held_out[exact],
            weights[exact],
            level,
        )
        self.failures = FailureModel(seed, self._features.groups).fit_runs(
            *(self._features(codes) for codes in outcomes)
        )
        self._pool = _some(pool, seed)

    def _beyond_bounds(self, means: Floats, names: Sequence[str], seed: int) -> Floats:
        """The values, of runs that were ended what a model of the others says beyond their bound.
        By the bounds themselves any model would be flat there."""
        judges = _judges(self.runs.censored)
        others = choose(
            self.space.dimensions,
            self.runs.codes[judges],
            means[judges],
            self.shares[judges],
            names if len(names) > 1 else ("lines", *names),
            seed,
        )
        lifted = np.maximum(means, others.predict(self.runs.codes))
        return np.asarray(np.where(self.runs.censored, lifted, means))

    def _choose(self, means: Floats, names: Sequence[str], seed: int) -> Chosen:
        """Judged by what was measured: the values of runs that were ended are those of a model."""
        judged = _judges(self.runs.censored)
        shares = np.where(judged, self.shares, _UNJUDGED)
        return choose(self.space.dimensions, self.runs.codes, means, shares, names, seed)

    def predict(self, codes: Floats) -> Forecast:
        median = self.chosen.predict(codes)
        X = self._features(codes)
        lower, upper = self._intervals.bounds(X, median)
        away, at = self._near.query(X)
        # Where the nearest run was ended the time is only known to be longer.
        ended = self.runs.censored[at]
        # Nor is it less where one was ended: all is moved up to that, the upper end by as much.
        bound = np.where(ended & (away <= _ROUNDING), self.runs.means[at], -np.inf)
        up = np.maximum(bound - median, 0.0)
        median, lower, upper = median + up, np.maximum(lower, bound), upper + up
        outside = self._outside(X) | (away > self._reach * (1.0 + _ROUNDING)) | ended
        return Forecast(median, lower, upper, outside, self.failures.probability(X), ended)

    def _outside(self, X: Floats) -> NDArray[np.bool_]:
        """Return whether (n, p) columns are outside the ranges of the runs."""
        low, high = self._done.min(axis=0) - _MARGIN, self._done.max(axis=0) + _MARGIN
        return np.asarray(((low > X) | (high < X)).any(axis=1))

    def errors(self) -> dict[str, Any]:
        """Return what means of points that were left out were missed by, and the noise floor next
        to it: what the noise in these means alone would leave of that, if it is normal. Where all
        values are above 0, noise is as many per cent of each: repeats of short runs say how much
        long ones vary."""
        means, held_out, shares = self.left_out()
        noise, relative = self.runs.noise, self.runs.relative_noise
        counts = self.runs.counts[~self.runs.censored]
        nonzero = means != 0.0
        # In the units of the metric, of the whole space.
        noises = noise if relative is None else relative * np.abs(means)
        rmse = None if noises is None else np.sqrt(np.average(noises**2 / counts, weights=shares))
        absolute = _MEAN_OF_NORMAL * float(np.average(1.0 / np.sqrt(counts), weights=shares))
        missed = np.abs(held_out[nonzero] / means[nonzero] - 1.0)
        return {
            "rmse": float(np.sqrt(self.chosen.error)),
            "mre_pct": float(100.0 * np.average(missed, weights=shares[nonzero]))
            if nonzero.any()
            else None,
            "noise_rmse": None if rmse is None else float(rmse),
            "noise_pct": None if relative is None else 100.0 * relative * absolute,
            "of_learners_rmse": {
                name: float(np.sqrt(error)) for name, error in self.chosen.errors.items()
            },
        }

    def left_out(self) -> tuple[Floats, Floats, Floats]:
        """The (n,) mean values of points, their predictions without them, and their shares; of
        points with a lower bound alone not: what was missed by at them is not known."""
        exact = ~self.runs.censored
        return self.runs.means[exact], self.chosen.held_out[exact], self.shares[exact]

    def certainties(self, percent: float) -> Floats:
        """Return how certain it is that 90% of the space are predicted within ``percent``, at each
        of (k,) equally likely values of the noise. Where a run was only ended, nothing is."""
        means, held_out, shares = self.left_out()
        ended = self.shares[self.runs.censored]
        means, none = np.append(means, np.ones(len(ended))), np.zeros(len(ended))
        held_out, shares = np.append(held_out, none + np.inf), np.append(shares, ended)
        return np.array(
            [
                certainty(means, held_out, shares, percent, np.append(each, none))
                for each in self._noises()
            ]
        )

    def _noises(self) -> Floats:
        """Return (k, n) standard deviations of the means that were left out, where that of a run
        has each of its plausible values."""
        exact = ~self.runs.censored
        means, counts = self.runs.means[exact], self.runs.counts[exact]
        observed, relative = self.runs.observed, bool(self.runs.observed.min() > 0.0)
        values = np.log(observed) if relative else observed
        deviations = [
            deviations_of_repeats(self.runs.point, values, from_median=of_median)
            for of_median in (False, True)
        ]
        from_means, from_medians = (each[np.isfinite(each)] for each in deviations)
        noise = plausible_noise(from_means, from_medians, self.runs.repeats)
        times = means if relative else np.ones(len(means))
        return np.asarray(noise[:, None] * times / np.sqrt(counts))

    def importances(self) -> dict[str, float]:
        """Return, by dimension, how much predictions move if its values are shuffled; summing to
        1."""
        rng = np.random.default_rng(0)
        codes = self._pool[rng.integers(len(self._pool), size=512)]
        base = self.chosen.predict(codes)
        moved = {}
        for place, name in enumerate(self.space.names):
            shuffled = codes.copy()
            shuffled[:, place] = rng.permutation(codes[:, place])
            moved[name] = float(np.mean((self.chosen.predict(shuffled) - base) ** 2))
        total = sum(moved.values())
        return {name: move / total if total > 0.0 else 0.0 for name, move in moved.items()}


def _judges(censored: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which (n,) are no lower bounds; all of them where too few are none."""
    measured = ~censored
    return measured if measured.sum() >= _FEWEST_EXACT else np.ones_like(measured)


def nearest_shares(done: Floats, pool: Floats) -> Floats:
    """(n,) shares of the space that lie nearest to each run, summing to n. A tenth is shared
    equally, so that no run counts for nothing."""
    nearest = cKDTree(done).query(pool)[1]
    shares = np.bincount(nearest, minlength=len(done)) / len(pool)
    return 0.9 * len(done) * shares + 0.1


def _some(pool: Floats, seed: int) -> Floats:
    if len(pool) <= _SAMPLE:
        return pool
    rng = np.random.default_rng(seed)
    return pool[rng.choice(len(pool), _SAMPLE, replace=False, shuffle=False)]
