"""Figures that select cases by measurement: selected on one half of the repeats, scored on the
other half.

Selecting and scoring on the same repeats is biased by noise. Every division of the repeats into
halves is used in both directions (above eight repeats, 70 random ones), and the figures are means
over all divisions, so they do not depend on the order of the repeats.

``heavy_pct`` is the mean error on pairs that are slowed by more than 1.25 in the selecting half,
against the geometric mean of the scoring half. The perfect predictor, shown for comparison,
predicts the selecting half itself and so includes its noise: its error is slightly above that of
the truth.

``regret_pct`` is the loss of an application when co-located with the partner of the lowest
predicted slowdown (ties: their mean) instead of the partner of the lowest slowdown in the selecting
half, both measured in the scoring half: 100 x (cost with the predicted partner / cost with the
measured one - 1), mean over applications. The reference is *choosing by measurement*, which a
prediction replaces: 0 is as good as half of the repeats, a better predictor is below 0, and the
perfect predictor, which also chooses by the selecting half, is 0 by definition.
``random_regret_pct`` is the mean over all partners instead of the predicted one.
``regret_noise_pct`` is how far noise puts the measured choice above the lowest cost in the scoring
half: the bias that choosing and scoring on the same repeats would add to every regret.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Cases, Floats, mean

HEAVY = 1.25
"""Slowdown above which a pair is heavy."""

LEAST_REPEATS = 4
"""With fewer repeats a half would be a single run."""

MOST_DIVISIONS = 70
"""Maximum number of divisions into halves, counting both directions: all of eight repeats."""

_TIE = 1e-9
"""Log costs closer than this are the same prediction."""

Division = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, eq=False, slots=True)
class Halves:
    """Figures in per cent; ``heavy`` and ``regret`` are (models,), NaN if undefined."""

    heavy: Floats
    perfect_heavy: float
    regret: Floats
    perfect_regret: float
    random_regret: float
    regret_noise: float


def divisions(repeats: int, *, seed: int = 0) -> list[Division]:
    """Return (selecting, scoring) indices of repeats, each division in both directions."""
    half = repeats // 2
    everything = range(repeats)
    picks = list(itertools.islice(itertools.combinations(everything, half), 2 * MOST_DIVISIONS))
    if repeats % 2 == 0:
        # Halves without the first repeat are the complements of those with it.
        picks = [pick for pick in picks if 0 in pick]
    if 2 * len(picks) > MOST_DIVISIONS:
        drawn = np.random.default_rng(seed)
        picks = [
            tuple(drawn.permutation(repeats)[:half].tolist()) for _ in range(MOST_DIVISIONS // 2)
        ]
    directed: list[Division] = []
    for pick in picks:
        first = np.array(sorted(pick), dtype=np.intp)
        second = np.setdiff1d(np.arange(repeats), first)
        directed += [(first, second), (second, first)]
    return directed


def by_halves(cases: Cases, repeats: Floats, *, seed: int) -> Halves:
    """Score by halves. ``repeats`` is (n, most repeats) costs, oldest first, NaN if missing.

    A pair is ignored in divisions in which one of its halves is empty.
    """
    logs = np.log(repeats)
    heavy = _Mean(len(cases.models) + 1)
    regrets = [_Mean(len(cases.models) + 3) for _ in cases.apps]
    log_solo, log_predicted = np.log(cases.solo), np.log(cases.predicted)
    for picking, scoring in divisions(repeats.shape[1], seed=seed):
        picked, scored = _row_means(logs[:, picking]), _row_means(logs[:, scoring])
        usable = np.isfinite(picked) & np.isfinite(scored)
        slowed = usable & (picked - log_solo > np.log(HEAVY))
        predicted = np.vstack([cases.predicted[:, slowed], np.exp(picked[slowed])[None, :]])
        truth = np.exp(scored[slowed])
        heavy.add(100.0 * np.abs(predicted - truth) / truth)
        for a, regret in enumerate(regrets):
            own = usable & cases.of_app(a)
            if np.count_nonzero(own) >= 2:
                regret.add(_regrets(log_predicted[:, own], picked[own], scored[own])[:, None])
    per_app = np.stack([regret.value for regret in regrets])
    regret_of = np.array([mean(column) for column in per_app.T])
    models = len(cases.models)
    return Halves(
        heavy=heavy.value[:models],
        perfect_heavy=float(heavy.value[models]),
        regret=regret_of[:models],
        perfect_regret=0.0 if np.isfinite(regret_of[models]) else float("nan"),
        random_regret=float(regret_of[models + 1]),
        regret_noise=float(regret_of[models + 2]),
    )


def _regrets(predicted: Floats, picked: Floats, scored: Floats) -> Floats:
    """(models + 3,) in per cent for one application: models, perfect, random, noise.

    A model that predicts fewer than two of the partners has no choice: NaN.
    """
    costs = np.exp(scored)
    best = int(np.argmin(picked))
    ratios = []
    for row in predicted:
        known = np.isfinite(row)
        if np.count_nonzero(known) < 2:
            ratios.append(np.nan)
            continue
        chosen = known & (row <= np.min(row[known]) + _TIE)
        ratios.append(np.mean(costs[chosen]) / costs[best])
    ratios += [1.0, np.mean(costs) / costs[best], costs[best] / np.min(costs)]
    return 100.0 * (np.array(ratios) - 1.0)


class _Mean:
    """Running means of rows over blocks of columns; NaN is ignored."""

    def __init__(self, rows: int) -> None:
        self._sum = np.zeros(rows)
        self._count = np.zeros(rows)

    def add(self, values: Floats) -> None:
        known = np.isfinite(values)
        self._sum += np.sum(np.where(known, values, 0.0), axis=1)
        self._count += np.count_nonzero(known, axis=1)

    @property
    def value(self) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.asarray(self._sum / self._count, dtype=np.float64)


def _row_means(values: Floats) -> Floats:
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            np.sum(np.where(known, values, 0.0), axis=1) / np.count_nonzero(known, axis=1),
            dtype=np.float64,
        )
