"""Figures that pick cases by what was measured: picked on one half of the repeats, scored on the
other.

Picking and scoring on the same repeats flatters whatever noise favoured. Every division of the
repeats into halves is used, both ways (above eight repeats, 70 drawn ones), and the figures are
means over them; so they do not depend on which repeat came first.

``heavy_pct`` is the mean error on pairs that the picking half saw slowed by more than 1.25, against
the geometric mean of the scoring half. The perfect predictor beside it predicts the picking half
itself, and so carries that half's noise: somewhat more than the truth would be off by.

``regret_pct`` is what an application loses by the partner with the least predicted slowdown
(ties: the mean of them), against the partner with the least slowdown in the picking half, both
costed by the scoring half: 100 x (cost beside the predicted partner / cost beside the measured
one - 1), mean over applications. It compares with *choosing by measurement*, which is what a
prediction replaces; so 0 is as good as half of the repeats, a predictor that knows better is
below 0, and the perfect predictor, which chooses by the picking half as well, is at 0 by
definition. ``random_regret_pct`` is the mean over all partners in place of the predicted one.
``regret_noise_pct`` says how far noise leaves the measured choice above the least cost in the
scoring half: what choosing and scoring on the same repeats would have added to every regret.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Cases, Floats, mean

HEAVY = 1.25
"""A pair that is slowed by more than this is heavy."""

LEAST_REPEATS = 4
"""Below this a half would be a single run."""

MOST_DIVISIONS = 70
"""Divisions into halves, both ways counted: all of eight repeats."""

_TIE = 1e-9
"""Log costs closer than this are the same prediction."""

Division = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, eq=False, slots=True)
class Halves:
    """Figures in per cent; ``heavy`` and ``regret`` are (models,), NaN where undefined."""

    heavy: Floats
    perfect_heavy: float
    regret: Floats
    perfect_regret: float
    random_regret: float
    regret_noise: float


def divisions(repeats: int, *, seed: int = 0) -> list[Division]:
    """(picking, scoring) positions of repeats, each division both ways."""
    half = repeats // 2
    everything = range(repeats)
    picks = list(itertools.islice(itertools.combinations(everything, half), 2 * MOST_DIVISIONS))
    if repeats % 2 == 0:
        # The complements of those with the first repeat are those without it.
        picks = [pick for pick in picks if 0 in pick]
    if 2 * len(picks) > MOST_DIVISIONS:
        drawn = np.random.default_rng(seed)
        picks = [
            tuple(drawn.permutation(repeats)[:half].tolist()) for _ in range(MOST_DIVISIONS // 2)
        ]
    found: list[Division] = []
    for pick in picks:
        one = np.array(sorted(pick), dtype=np.intp)
        other = np.setdiff1d(np.arange(repeats), one)
        found += [(one, other), (other, one)]
    return found


def by_halves(cases: Cases, repeats: Floats, *, seed: int) -> Halves:
    """``repeats`` is (n, most repeats) costs, oldest first, NaN for those that are missing.

    A pair is left out of the divisions in which one of its halves is empty.
    """
    logs = np.log(repeats)
    heavy = _Mean(len(cases.models) + 1)
    regrets = [_Mean(len(cases.models) + 3) for _ in cases.apps]
    log_solo, log_predicted = np.log(cases.solo), np.log(cases.predicted)
    for picking, scoring in divisions(repeats.shape[1], seed=seed):
        picked, scored = _row_means(logs[:, picking]), _row_means(logs[:, scoring])
        usable = np.isfinite(picked) & np.isfinite(scored)
        slowed = usable & (picked - log_solo > np.log(HEAVY))
        said = np.vstack([cases.predicted[:, slowed], np.exp(picked[slowed])[None, :]])
        truth = np.exp(scored[slowed])
        heavy.add(100.0 * np.abs(said - truth) / truth)
        for a, regret in enumerate(regrets):
            mine = usable & cases.of_app(a)
            if np.count_nonzero(mine) >= 2:
                regret.add(_regrets(log_predicted[:, mine], picked[mine], scored[mine])[:, None])
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

    A model that predicts fewer than two of the partners chooses nothing: NaN.
    """
    costs = np.exp(scored)
    best = int(np.argmin(picked))
    found = []
    for row in predicted:
        known = np.isfinite(row)
        if np.count_nonzero(known) < 2:
            found.append(np.nan)
            continue
        chosen = known & (row <= np.min(row[known]) + _TIE)
        found.append(np.mean(costs[chosen]) / costs[best])
    found += [1.0, np.mean(costs) / costs[best], costs[best] / np.min(costs)]
    return 100.0 * (np.array(found) - 1.0)


class _Mean:
    """Running means of rows over columns that come in pieces; NaN counts for nothing."""

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
