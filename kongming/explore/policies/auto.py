"""Our policy: the points whose measurement removes most error from the whole space.

Where the space stands for itself, a Gaussian process tells how much variance each candidate would
remove, weighted by where the models err; a forest tells where learners disagree. What each of them
counts depends on how well it predicts runs that were left out. Points of a batch are chosen one
after the other, each as if those before were measured.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from kongming.arrays import Floats
from kongming.explore.learners.forests import Forest
from kongming.explore.learners.gaussian_process import GaussianProcess
from kongming.explore.situation import Situation

_CANDIDATES = 2048
_REFERENCE = 1024
_NEAREST = 3


def choose(situation: Situation, count: int) -> Floats:
    """At most ``count`` codes."""
    left = situation.candidates(_CANDIDATES)
    if not len(left):
        return left
    X = situation.features
    done = X(np.concatenate([situation.runs, situation.failed, situation.pending]))
    if len(situation.values) < first_runs(X(left).shape[1], situation.budget):
        return left[spread(X(left), done, count, situation.rng)]
    return left[_most_removed(situation, left, done, count)]


def first_runs(columns: int, budget: int) -> int:
    """Runs that fill the space before any model is asked."""
    return int(np.clip(columns + 3, 4, max(budget // 3, 4)))


def spread(points: Floats, done: Floats, count: int, rng: np.random.Generator) -> list[int]:
    """Greedily the points farthest from all runs and from each other; the first is random."""
    count = min(count, len(points))
    chosen: list[int] = []
    if len(done):
        away = cKDTree(done).query(points)[0] ** 2
    else:
        chosen = [int(rng.integers(len(points)))]
        away = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < count:
        chosen.append(int(np.argmax(away)))
        away = np.minimum(away, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        away[chosen[-1]] = -1.0
    return chosen


def _most_removed(situation: Situation, left: Floats, done: Floats, count: int) -> list[int]:
    X = situation.features
    runs, values = X(situation.runs), situation.values
    target = values
    process = GaussianProcess(situation.seed, X.groups, steps=25).fit(runs, target)
    forest = Forest(seed=situation.seed, bootstrap=True).fit(runs, target)
    folds = np.random.default_rng(situation.seed).permutation(np.arange(len(runs)) % 5)
    misses = (process.held_out(np.arange(len(runs))) - target) ** 2
    smooth = float(np.mean((process.held_out(folds) - target) ** 2))
    rough = _forest_error(runs, target, folds, situation.seed)
    trust = rough / max(smooth + rough, 1e-300)

    pool = situation.pool
    rows = situation.rng.choice(len(pool), min(_REFERENCE, len(pool)), replace=False)
    reference, candidates = X(pool[rows]), X(left)
    weight = _local(runs, misses, reference)
    # Points whose results are awaited count as measured.
    pending = X(situation.pending)
    if len(pending):
        fantasy = process.predict(pending)
        process.condition(np.vstack([runs, pending]), np.concatenate([target, fantasy]))
    across = process.covariance(candidates, reference)
    white_c, white_r = process.whitened(candidates), process.whitened(reference)
    across -= white_c.T @ white_r
    variance = np.maximum(process.prior_variance - (white_c**2).sum(axis=0), 1e-12)
    disagree = forest.members(candidates).var(axis=0)
    away = np.minimum(cKDTree(done).query(candidates)[0] ** 2, 1.0)
    chosen: list[int] = []
    for _ in range(min(count, len(left))):
        removed = (across**2 @ weight) / (variance + process.noise + 1e-9)
        score = trust * _share(removed) + (1.0 - trust) * _share(disagree * away)
        if situation.cost_of is not None:
            score = score / situation.cost_of(left)
        score[chosen] = -1.0
        at = int(np.argmax(score))
        chosen.append(at)
        # The posterior once that point is measured.
        scale = np.sqrt(variance[at] + process.noise + 1e-9)
        own = process.covariance(candidates, candidates[[at]])[:, 0] - white_c.T @ white_c[:, at]
        step_c, step_r = own / scale, across[at] / scale
        across = across - np.outer(step_c, step_r)
        variance = np.maximum(variance - step_c**2, 1e-12)
        white_c = np.vstack([white_c, step_c])
        white_r = np.vstack([white_r, step_r])
        away = np.minimum(away, ((candidates - candidates[at]) ** 2).sum(axis=1))
    return chosen


def _share(values: Floats) -> Floats:
    total = float(values.sum())
    return values / total if total > 0.0 else np.zeros_like(values)


def _forest_error(X: Floats, y: Floats, folds: np.ndarray, seed: int) -> float:
    error = 0.0
    for fold in np.unique(folds):
        rows = folds == fold
        model = Forest(seed=seed).fit(X[~rows], y[~rows])
        error += float(((model.predict(X[rows]) - y[rows]) ** 2).sum())
    return error / len(y)


def _local(runs: Floats, misses: Floats, points: Floats) -> Floats:
    """How much the model errs near each point, as a multiple of its mean, from 1/2 upwards."""
    away, near = cKDTree(runs).query(points, k=min(_NEAREST, len(runs)))
    away, near = np.atleast_2d(away.T).T, np.atleast_2d(near.T).T
    closeness = 1.0 / (away + 1e-3)
    local = (misses[near] * closeness).sum(axis=1) / closeness.sum(axis=1)
    typical = float(local.mean())
    return 0.5 + 0.5 * (local / typical if typical > 0.0 else np.ones(len(local)))
