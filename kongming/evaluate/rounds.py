"""Figures that select cases by measurement: named by one repeat, scored by the others.

Naming and scoring by the same repeats would be biased by their noise. Each repeat names in turn.

``heavy_pct`` is the mean error on pairs that the naming repeat shows slowed by more than 1.25, and
``quiet_pct`` the mean absolute log error on those that it shows slowed by at most 1.05, both
against the geometric mean of the pair's other repeats. Every pair counts as often as the share of
its repeats that name it.

``regret_pct`` is the loss of an application with the partner of its lowest predicted slowdown
(ties: their mean) instead of the partner that was fastest in the naming round, both measured in the
other rounds, mean over applications: 0 is as good as trying every partner once, and below 0 is
better. ``random`` is the mean over all partners instead of the predicted one.

``truth`` is what a predictor would score that knows each pair's true mean, with the pair's own
noise: what is above it is the predictor's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from kongming.evaluate.cases import Cases, Floats, mean
from kongming.evaluate.noise import Repeats, repeat_variances

HEAVY = 1.25
"""Slowdown above which a pair is heavy."""

QUIET = 1.05
"""Slowdown up to which nothing is slowed."""

_TIE = 1e-9
"""Log costs closer than this are the same prediction."""

_DRAWS = 400
"""Simulated measurements of what the truth would score."""

_NORMAL = np.array([NormalDist().inv_cdf((k + 0.5) / _DRAWS) for k in range(_DRAWS)])


@dataclass(frozen=True, eq=False, slots=True)
class Rounds:
    """Figures in per cent by model (models,), NaN if undefined, with the truth's.

    ``regrets`` is (models, applications); ``random_regrets`` (applications,).
    """

    heavy: Floats
    truth_heavy: float
    quiet: Floats
    truth_quiet: float
    regrets: Floats
    random_regrets: Floats
    truth_regret: float


def by_rounds(cases: Cases, repeats: Repeats) -> Rounds:
    """Score by rounds. ``repeats`` are the costs of each case, oldest first; a pair with fewer than
    two is ignored."""
    logs = [np.log(values) for values in repeats]
    spreads = np.sqrt(repeat_variances(repeats)) / [_c4(len(own)) for own in logs]
    slowdowns = [own - math.log(solo) for own, solo in zip(logs, cases.solo, strict=True)]
    heavy = [own > math.log(HEAVY) for own in slowdowns]
    quiet = [own <= math.log(QUIET) for own in slowdowns]
    heavy_pct, truth_heavy = _named(cases, logs, heavy, spreads, relative=True)
    quiet_pct, truth_quiet = _named(cases, logs, quiet, spreads, relative=False)
    regrets = np.full((len(cases.models), len(cases.apps)), np.nan)
    randoms, truths = np.full((2, len(cases.apps)), np.nan)
    drawn = np.random.default_rng(1)
    for a in range(len(cases.apps)):
        own = [i for i in np.flatnonzero(cases.app_of == a) if len(logs[i]) >= 2]
        if len(own) >= 2:
            predicted = np.log(cases.predicted[:, own])
            regrets[:, a], randoms[a] = _regrets(predicted, [logs[i] for i in own])
            truths[a] = _truth_regret([logs[i] for i in own], spreads[own], drawn)
    return Rounds(heavy_pct, truth_heavy, quiet_pct, truth_quiet, regrets, randoms, mean(truths))


def _named(
    cases: Cases,
    logs: Sequence[Floats],
    named: Sequence[np.ndarray],
    spreads: Floats,
    *,
    relative: bool,
) -> tuple[Floats, float]:
    """Mean error by model, and the truth's, over the repeats that ``named`` marks."""
    sums, weights = np.zeros(len(cases.models)), np.zeros(len(cases.models))
    truth = weight = 0.0
    for i, (own, marks) in enumerate(zip(logs, named, strict=True)):
        n = len(own)
        if n < 2 or not marks.any():
            continue
        others = (np.sum(own) - own[marks]) / (n - 1)
        distances = np.log(cases.predicted[:, i, None]) - others
        errors = np.abs(np.expm1(distances)) if relative else np.abs(distances)
        noise = _NORMAL * spreads[i] / math.sqrt(n - 1)
        known = np.isfinite(cases.predicted[:, i])
        sums[known] += np.sum(errors[known], axis=1) / n
        weights[known] += np.count_nonzero(marks) / n
        share = np.count_nonzero(marks) / n
        truth += share * float(np.mean(np.abs(np.expm1(noise) if relative else noise)))
        weight += share
    with np.errstate(invalid="ignore"):
        figures = np.asarray(100.0 * sums / weights, dtype=np.float64)
    return figures, 100.0 * truth / weight if weight else math.nan


def _regrets(predicted: Floats, logs: Sequence[Floats]) -> tuple[Floats, float]:
    """(models,) and of a random partner, in per cent, for one application's partners.

    A model that predicts fewer than two of the partners has no choice: NaN.
    """
    rounds = min(map(len, logs))
    ratios = np.zeros(len(predicted))
    anybody = 0.0
    chosen = [row <= np.nanmin(row, initial=np.inf) + _TIE for row in predicted]
    for k in range(rounds):
        costs = np.exp([(np.sum(own) - own[k]) / (len(own) - 1) for own in logs])
        best = costs[int(np.argmin([own[k] for own in logs]))]
        ratios += [np.mean(costs[picked]) / best if picked.any() else np.nan for picked in chosen]
        anybody += float(np.mean(costs) / best)
    ratios[np.count_nonzero(np.isfinite(predicted), axis=1) < 2] = np.nan
    return 100.0 * (ratios / rounds - 1.0), 100.0 * (anybody / rounds - 1.0)


def _truth_regret(logs: Sequence[Floats], spreads: Floats, drawn: np.random.Generator) -> float:
    centres = _true_means(logs, spreads)
    counts = np.array([len(own) - 1 for own in logs])
    shape = (_DRAWS, len(centres))
    naming = centres + drawn.standard_normal(shape) * spreads
    scoring = centres + drawn.standard_normal(shape) * spreads / np.sqrt(counts)
    named = np.take_along_axis(scoring, np.argmin(naming, axis=1)[:, None], axis=1)[:, 0]
    return float(100.0 * np.mean(np.expm1(scoring[:, int(np.argmin(centres))] - named)))


def _true_means(logs: Sequence[Floats], spreads: Floats) -> Floats:
    """Draw what was measured of partners towards their mean until it is as wide as the true means
    are: measured means are wider by their noise, and the least of them is mostly luck (constrained
    empirical Bayes: Louis, Statistics in Medicine 3, 1984). Drawn by noise over total variance,
    each would be right on average, and all of them too close."""
    means = np.array([np.mean(own) for own in logs])
    total = float(np.var(means, ddof=1))
    noise = float(np.mean([s**2 / len(own) for s, own in zip(spreads, logs, strict=True)]))
    share = math.sqrt(max(0.0, 1.0 - noise / total)) if total > 0.0 else 0.0
    middle = float(np.mean(means))
    return np.asarray(middle + share * (means - middle), dtype=np.float64)


def _c4(n: int) -> float:
    """Expected standard deviation of n normal values over the true one; 1 for a pooled one."""
    if n < 2:
        return 1.0
    return math.sqrt(2.0 / (n - 1)) * math.exp(math.lgamma(n / 2.0) - math.lgamma((n - 1) / 2.0))
