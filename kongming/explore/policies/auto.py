"""Our policy: the points whose measurement removes most error from the whole space.

A Gaussian process tells how much variance of the whole space each candidate would remove, weighted
by where it errs; the trees of a forest tell where they disagree, far from any run. What each of
them counts depends on how well it predicts runs that were left out. Where times span decades,
logarithms are modelled, and all three are weighted by what errors of them count (``importance``).
Points of a batch are chosen one after the other, each as if those before were measured.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from kongming.arrays import Floats
from kongming.explore.failures import FailureModel
from kongming.explore.learners.forests import Forest
from kongming.explore.learners.gaussian_process import MOST, GaussianProcess
from kongming.explore.policies.spreading import farthest, farthest_paid, spread
from kongming.explore.situation import Situation

_CANDIDATES = 2048
_REFERENCE = 1024
_NEAREST = 3
_NOISY = 0.003
"""Share of the variance that is noise, from which repeats are considered."""
_AFFORDABLE = 30
"""Budget from which repeats are considered."""
_SURE = 3
"""Repeats by which noise is known well enough."""
_PROBED = 1.0
"""Share of the runs that are tried where they are held to fail, over failures so far and one."""
_LEARNING = 20
"""Runs in which failures are not counted: what they teach is what keeps later runs from failing."""
_TOLERATED = 0.05
"""Share of the runs after those that may fail: times are longest, and known least, next to where
runs fail."""
_SAFE, _LIKELY = 0.05, 0.3
"""Probability of failure up to which points are run whatever failed, and above which none is, but
for a few that are tried (``_PROBED``) and where all others are likelier to fail (``_OPEN``)."""
_OPEN = 0.1
"""Share of the points, the least likely to fail, that is never closed: runs may fail anywhere."""
_DECADES = 30.0


def choose(situation: Situation, count: int) -> Floats:
    """Choose at most ``count`` codes."""
    left = situation.candidates(_CANDIDATES)
    X = situation.even_features
    done = X(np.concatenate([situation.runs, situation.failed, situation.pending]))
    failures, tried, allowance, closed = None, left[:0], np.inf, 1.0
    risk = np.zeros(len(left))
    if len(situation.failed) and len(left):
        failures = _failures(situation)
        risk = failures.probability(X(left))
        waiting = failures.probability(X(situation.pending))
        allowance = _allowance(situation.failures, waiting, count)
        closed = max(_SAFE, float(np.quantile(risk, _OPEN)))
        safe = risk <= max(min(allowance, _LIKELY), closed)
        probes = _probes(situation, safe, risk, count)
        allowance -= float(risk[probes].sum())
        if safe.sum() < count - len(probes):
            rest = np.setdiff1d(np.arange(len(left)), probes)
            safe = rest[np.argsort(risk[rest], kind="stable")]
            safe = safe[: count - len(probes)]
        tried, left, risk = left[probes], left[safe], risk[safe]
        count -= len(tried)
        done = np.concatenate([done, X(tried)])
    if len(situation.values) < first_runs(len(X.names), situation.budget):
        return np.concatenate([tried, left[spread(X(left), done, count, situation.rng)]])
    again = _repeats(situation)
    chosen = _most_removed(situation, left, again, done, failures, risk, (allowance, closed), count)
    return np.concatenate([tried, np.concatenate([left, again])[chosen]])


def _allowance(failures: np.ndarray, waiting: Floats, count: int) -> float:
    """Return how many of the next ``count`` runs may fail, after runs of which ``failures`` did and
    pending ones of which each fails with probability ``waiting``."""
    if len(failures) < _LEARNING:
        return np.inf
    later = failures[_LEARNING:]
    allowed = _TOLERATED * (len(later) + len(waiting) + count)
    return allowed - float(later.sum()) - float(waiting.sum())


def _probes(situation: Situation, safe: np.ndarray, risk: Floats, count: int) -> list[int]:
    """Places of a few points that are held to fail, the least likely to: a success there opens what
    few failures had closed, and each further failure makes the next such run less likely."""
    share = _PROBED / (1.0 + len(situation.failed))
    wanted = min(int(situation.rng.binomial(count, share)), int((~safe).sum()))
    risk = np.where(safe, np.inf, risk)
    return [int(at) for at in np.argsort(risk, kind="stable")[:wanted]]


def _failures(situation: Situation) -> FailureModel:
    X = situation.even_features
    model = FailureModel(situation.seed, X.groups)
    return model.fit_runs(X(situation.succeeded), X(situation.failed))


def _repeats(situation: Situation) -> Floats:
    """Points that may be run again: all that were measured, unless repeats were all alike, the
    batch has some already or runs are few."""
    alike = situation.noise is not None and situation.noise <= 0.0
    if alike or len(situation.again) or situation.budget < _AFFORDABLE:
        return situation.runs[:0]
    return situation.repeatable


def first_runs(columns: int, budget: int) -> int:
    """Runs that fill the space before any model is asked."""
    return int(np.clip(columns + 3, 4, max(budget // 3, 4)))


def _most_removed(
    situation: Situation,
    left: Floats,
    again: Floats,
    done: Floats,
    failures: FailureModel | None,
    risk: Floats,
    limits: tuple[float, float],
    count: int,
) -> list[int]:
    """Places within the candidates, never run (``left``, which fail with probability ``risk``) or
    to be repeated (``again``). ``limits``: how many may fail, and the probability up to which a
    point is run nevertheless."""
    allowance, closed = limits
    X = situation.even_features
    logs = _spans_decades(situation.values)
    runs, values = X(situation.runs), np.log(situation.values) if logs else situation.values
    if len(runs) > MOST:
        some = np.random.default_rng(situation.seed).choice(len(runs), MOST, replace=False)
        runs, values = runs[np.sort(some)], values[np.sort(some)]
        # To the process, points that were left out look as if nothing were known of them.
        again = again[:0]
    process = GaussianProcess(situation.seed, X.groups, steps=20, most_tuned=120).fit(runs, values)
    forest = Forest(seed=situation.seed, bootstrap=True).fit(runs, values)
    misses = (process.held_out(np.arange(len(runs))) - values) ** 2
    counts = importance(values) if logs else np.ones(len(values))
    smooth = float(np.average(misses, weights=counts))
    rough = float(np.average((forest.out_of_bag - values) ** 2, weights=counts))
    trust = rough / max(smooth + rough, 1e-300)

    # A repeat pays only where noise is more than the process can tell from roughness.
    candidates = X(np.concatenate([left, again if process.noise > _NOISY else again[:0]]))
    if not len(candidates):
        return []
    pool = situation.pool
    rows = situation.rng.choice(len(pool), min(_REFERENCE, len(pool)), replace=False, shuffle=False)
    reference = X(pool[rows])
    weight = _local(runs, misses, reference)
    disagree = forest.members(candidates).var(axis=0)
    if logs:
        weight = weight * importance(process.predict(reference))
        disagree = disagree * importance(process.predict(candidates))
    if failures is not None:
        # What cannot be run needs no prediction.
        weight = weight * (1.0 - failures.probability(reference))
    # Points whose results are awaited count as measured.
    pending = X(situation.pending)
    if len(pending):
        fantasy = process.predict(pending)
        process.condition(np.vstack([runs, pending]), np.concatenate([values, fantasy]))
    white_c, white_r = process.whitened(candidates), process.whitened(reference)
    across = process.covariance(candidates, reference) - white_c.T @ white_r
    variance = np.maximum(process.prior_variance - (white_c**2).sum(axis=0), 1e-12)
    away = np.minimum(cKDTree(done).query(candidates)[0] ** 2, 1.0)
    prices = None
    if situation.cost_of is not None:
        prices = situation.cost_of(np.concatenate([left, again])[: len(candidates)])
    unsure = situation.counts.sum() - len(situation.counts) < _SURE
    # Where nothing predicts, runs that stand for the space are all that helps. Weighted errors are
    # compared with all of the variance: with a weighted one runs were no better placed.
    variation = float(values.var())
    ignorance = min(min(smooth, rough) / variation, 1.0) if variation > 0.0 else 1.0
    chosen: list[int] = []
    for _ in range(min(count, len(candidates))):
        removed = (across**2 @ weight) / (variance + process.noise + 1e-9)
        score = trust * _share(removed) + (1.0 - trust) * _share(disagree * away)
        # A run that fails removes nothing.
        score[: len(left)] *= 1.0 - risk
        if prices is not None:
            score = score / prices
        score[chosen] = -1.0
        if unsure and len(candidates) > len(left):
            # A first repeat tells noise from roughness, which no model does as surely.
            score[: len(left)] = -1.0
            unsure = False
        # Where all that is left is likelier to fail than that, the least likely is run.
        least = float(np.delete(risk, [at for at in chosen if at < len(left)]).min(initial=1.0))
        score[: len(left)][risk > max(allowance, closed, least)] = -1.0
        at = int(np.argmax(score))
        if situation.rng.uniform() < ignorance:
            left_away = np.where(score < 0.0, -1.0, away)
            if prices is not None and situation.budget_in_costs:
                at = farthest_paid(left_away, prices, situation.rng)
            else:
                at = farthest(left_away, situation.rng)
        chosen.append(at)
        if at < len(left):
            allowance -= float(risk[at])
        # The posterior once that point is measured.
        deviation = np.sqrt(variance[at] + process.noise + 1e-9)
        own = process.covariance(candidates, candidates[[at]])[:, 0] - white_c.T @ white_c[:, at]
        step_c, step_r = own / deviation, across[at] / deviation
        across -= np.outer(step_c, step_r)
        variance = np.maximum(variance - step_c**2, 1e-12)
        white_c = np.vstack([white_c, step_c])
        away = np.minimum(away, ((candidates - candidates[at]) ** 2).sum(axis=1))
    return chosen


def _spans_decades(values: Floats) -> bool:
    """Return whether logarithms are modelled, so that a cliff does not hide all else."""
    return bool(len(values) and values.min() > 0.0 and values.max() > _DECADES * values.min())


def importance(logs: Floats) -> Floats:
    """Return what an error of each (n,) predicted logarithm weighs, with mean 1: one half by the
    relative error, one half by the squared error of the value, as when the final model is
    chosen."""
    squares = np.exp(2.0 * (logs - logs.max()))
    return np.asarray(0.5 + 0.5 * squares / float(squares.mean()))


def _share(values: Floats) -> Floats:
    total = float(values.sum())
    return values / total if total > 0.0 else np.zeros_like(values)


def _local(runs: Floats, misses: Floats, points: Floats) -> Floats:
    """Return how much the model errs near each point, as a multiple of its mean, from 1/2
    upwards."""
    away, near = cKDTree(runs).query(points, k=min(_NEAREST, len(runs)))
    away, near = np.atleast_2d(away.T).T, np.atleast_2d(near.T).T
    closeness = 1.0 / (away + 1e-3)
    local = (misses[near] * closeness).sum(axis=1) / closeness.sum(axis=1)
    typical = float(local.mean())
    return 0.5 + 0.5 * (local / typical if typical > 0.0 else np.ones(len(local)))
