"""Other projects' choices of points on a table, in an environment of their own.

    python select_points.py WORLD.npz POLICY SEED

Reads X (n, p) scaled to [0, 1], y (n,), first (indices run before), budget and batch; prints the
indices that were run, in their order. A run that fails has no value (NaN in y): it costs a run, is
not repeated, and no policy learns of it. Imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

FEW_CANDIDATES = 2000
"""Candidates of policies that take long for all of them: a uniform part."""


def with_value(y: Any, known: list[int]) -> list[int]:
    """The runs that did not fail."""
    return [place for place in known if np.isfinite(y[place])]


def activeml(name: str, X: Any, y: Any, known: list[int], count: int, seed: int) -> list[int]:
    """RegressionTreeBasedAL, GreedySamplingTarget or QueryByCommittee of scikit-activeml."""
    from skactiveml import pool
    from skactiveml.regressor import SklearnRegressor
    from sklearn.ensemble import BaggingRegressor
    from sklearn.tree import DecisionTreeRegressor

    drawn = np.random.default_rng([seed, len(known)])
    left = np.setdiff1d(np.arange(len(X)), known)
    left = drawn.choice(left, min(FEW_CANDIDATES, len(left)), replace=False)
    valued = with_value(y, known)
    seen = np.concatenate([valued, left]).astype(int)
    values = np.full(len(seen), np.nan)
    values[: len(valued)] = y[valued]
    tree = DecisionTreeRegressor(min_samples_leaf=3, random_state=seed)
    if name == "RegressionTreeBasedAL":
        query, more = pool.RegressionTreeBasedAL(random_state=seed), {"reg": SklearnRegressor(tree)}
    elif name == "GreedySamplingTarget":
        query, more = pool.GreedySamplingTarget(random_state=seed), {"reg": SklearnRegressor(tree)}
    else:
        committee = BaggingRegressor(tree, n_estimators=10, random_state=seed)
        query = pool.QueryByCommittee(random_state=seed)
        more = {"ensemble": SklearnRegressor(committee)}
    chosen = query.query(X[seen], values, batch_size=min(count, len(left)), **more)
    return [int(seen[place]) for place in np.ravel(chosen)]


def gp_variance(X: Any, y: Any, known: list[int], count: int, seed: int) -> list[int]:
    """The largest variance of a Gaussian process, one point after the other."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel

    kernel = Matern(np.full(X.shape[1], 0.5), nu=2.5) + WhiteKernel(1e-4)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    valued = with_value(y, known)
    process.fit(X[valued], y[valued])
    fixed = GaussianProcessRegressor(process.kernel_, optimizer=None, normalize_y=True)
    left = np.setdiff1d(np.arange(len(X)), known)
    left = np.random.default_rng([seed, len(known)]).choice(
        left, min(FEW_CANDIDATES, len(left)), replace=False
    )
    chosen: list[int] = []
    for _ in range(min(count, len(left))):
        at = valued + chosen
        fixed.fit(
            X[at], np.concatenate([y[valued], process.predict(X[chosen])]) if chosen else y[at]
        )
        spread = fixed.predict(X[left], return_std=True)[1]
        spread[np.isin(left, chosen)] = -1.0
        chosen.append(int(left[np.argmax(spread)]))
    return chosen


def sobol(X: Any, y: Any, known: list[int], count: int, seed: int) -> list[int]:
    """The points nearest to a scrambled Sobol sequence, a target for each run; the first runs stand
    for the first targets."""
    from scipy.stats import qmc

    end = len(known) + count
    sequence = qmc.Sobol(X.shape[1], seed=seed).random(1 << (end - 1).bit_length())
    taken = list(known)
    for target in sequence[len(known) : end]:
        away = ((X - target) ** 2).sum(axis=1)
        away[taken] = np.inf
        taken.append(int(np.argmin(away)))
    return taken[len(known) :]


def bayesian(X: Any, y: Any, known: list[int], count: int, seed: int) -> list[int]:
    """Expected improvement by scikit-optimize, which looks for the least value."""
    from skopt import Optimizer

    optimizer = Optimizer([(0.0, 1.0)] * X.shape[1], random_state=seed, n_initial_points=0)
    valued = with_value(y, known)
    optimizer.tell(X[valued].tolist(), y[valued].tolist())
    chosen: list[int] = []
    for target in optimizer.ask(n_points=count):
        away = ((X - np.array(target)) ** 2).sum(axis=1)
        away[known + chosen] = np.inf
        chosen.append(int(np.argmin(away)))
    return chosen


POLICIES = {"gp-variance": gp_variance, "sobol": sobol, "bayesian": bayesian}


def main() -> None:
    world = np.load(sys.argv[1], allow_pickle=False)
    policy, seed = sys.argv[2], int(sys.argv[3])
    X, y = world["X"], world["y"]
    known = [int(place) for place in world["first"]]
    budget, batch = int(world["budget"]), int(world["batch"])
    while len(known) < budget:
        count = min(batch, budget - len(known))
        if policy in POLICIES:
            chosen = POLICIES[policy](X, y, known, count, seed)
        else:
            chosen = activeml(policy, X, y, known, count, seed)
        if not chosen:
            break
        known += chosen
    print(json.dumps(known))


if __name__ == "__main__":
    main()
