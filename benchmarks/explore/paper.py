"""The paper's tables and figures (004), each as ratios within one run; one JSON document.

    nice ../../.venv/bin/python paper.py table3 --seeds 20 --jobs 2 --keep FOLDER
    nice ../../.venv/bin/python paper.py figure4 figure5 figure6 figure7 figure9 \\
        table6 table7 time --seeds 20

figure5 holds Figure 8 too, figure6 Table 4, figure9 Figure 10.

Medians over seeds; errors below 1e-6 of the variance count as that. Where the paper profiled its
own clusters, the functions of its Table 2 and the measured tables of ``tables/`` stand in.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from functions import FUNCTIONS, TABLE_3, coefficients, from_ridge, midpoints, table, world
from linearity import linearity
from measured_worlds import columns, measured_worlds
from replays import add_options, replays, take_options

from kongming.arrays import Floats
from kongming.explore.replay import Replayed, ReplaySettings, World, replay
from kongming.explore.tree import ObliqueModelTree

FLOOR = 1e-6
RATES = (0.005, 0.02)
POLICIES = ("uni", "actl", "panic", "dta")


def settings(world: World, rate: float, steps: int = 10, **more: Any) -> ReplaySettings:
    budget = max(8, round(rate * len(world.table)))
    return ReplaySettings(
        budget=budget,
        batch=max(1, round(budget / steps)),
        model=more.pop("model", "paper"),
        options=tuple(more.items()),
    )


def profiles(world: World, policy: str, how: ReplaySettings, seeds: int) -> list[Replayed]:
    if policy == "uni":
        how = replace(how, batch=how.budget)  # B = b
    return replays(world, policy, how, seeds)


def mse(world: World, runs: Sequence[Replayed]) -> float:
    floor = FLOOR * float(np.nanvar(world.table.values))
    return max(floor, float(np.median([run.all["mse"] for run in runs])))


def seconds(runs: Sequence[Replayed]) -> float:
    """Median of those that a profile takes to choose its points and to fit the final model."""
    return float(np.median([sum(run.suggest_s) + run.fit_s for run in runs]))


def mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def table3(seeds: int) -> dict[str, Any]:
    """MSE over that of ``uni``, by function, dimensions and rate; ``dta_uniform`` draws uniformly
    within leaves, as the paper does."""
    cells: dict[str, dict[str, float]] = {}
    for name in TABLE_3:
        for d in (2, 5):
            at = world(name, d)
            for rate in RATES:
                how = settings(at, rate)
                errors = {p: mse(at, profiles(at, p, how, seeds)) for p in POLICIES}
                uniform = settings(at, rate, draws=1)
                errors["dta_uniform"] = mse(at, profiles(at, "dta", uniform, seeds))
                cell = {p: error / errors["uni"] for p, error in errors.items() if p != "uni"}
                print(name, d, rate, json.dumps(cell), file=sys.stderr, flush=True)
                cells[f"{name}-{d}-{rate:g}"] = cell
    policies = (*POLICIES[1:], "dta_uniform")
    means = {p: mean([cell[p] for cell in cells.values()]) for p in policies}
    return {"cells": cells, "geomean": means, "paper": {"actl": 2.1, "panic": 1.4, "dta": 0.53}}


def figure5(seeds: int) -> dict[str, Any]:
    """MSE and MAE (Figure 8) against the rate, over those of ``uni`` at the least rate."""
    out: dict[str, Any] = {}
    for name in ("POLY", "EXPABS", "GAUSS"):
        at = world(name, 3)
        curves: dict[str, Any] = {}
        for policy in POLICIES:
            for rate in (0.005, 0.01, 0.02, 0.04):
                runs = profiles(at, policy, settings(at, rate), seeds)
                mae = float(np.median([run.all["mae"] for run in runs]))
                curves.setdefault(policy, []).append([rate, mse(at, runs), mae])
        first = curves["uni"][0]
        out[name] = {
            policy: [[rate, m / first[1], a / first[2]] for rate, m, a in curve]
            for policy, curve in curves.items()
        }
    return out


def figure4(seeds: int) -> dict[str, Any]:
    """Share of the runs within 0.2 of an abnormality, by the weight of the size: 100 runs in 2500
    points; uniform runs have ``uniform`` there."""
    x = midpoints(2, side=50)
    at = np.array([0.3, 0.7])
    values = x @ coefficients("LIN", 2) + np.exp(-20.0 * ((x - at) ** 2).sum(axis=1))
    near = ((x - at) ** 2).sum(axis=1) < 0.2**2
    where = World(table(x, values))
    out: dict[str, Any] = {"uniform": float(near.mean())}
    for weight in (0.0, 0.5, 1.0):
        how = ReplaySettings(100, 10, "paper", options=(("weights", (1.0, weight, 0.0)),))
        shares = [
            run.seen[near].sum() / len(run.failures) for run in profiles(where, "dta", how, seeds)
        ]
        out[f"w_size {weight:g}"] = float(np.median(shares))
    return out


def figure6(seeds: int) -> dict[str, Any]:
    """MSE of ``dta`` and the median of its seconds (of all suggestions and the final model) against
    B/b, over those at B = b; Table 4 for two learners."""
    out: dict[str, Any] = {}
    for name in ("EXPABS", "HAT"):
        at = world(name, 3)
        for model in ("paper", "lines", "bagged_lines"):
            rows = []
            for steps in (1, 2, 5, 8, 10, 20):
                runs = profiles(at, "dta", settings(at, 0.02, steps, model=model), seeds)
                rows.append([steps, mse(at, runs), seconds(runs)])
            out[f"{name}-{model}"] = [[s, m / rows[0][1], t / rows[0][2]] for s, m, t in rows]
    return out


def figure7(seeds: int) -> dict[str, Any]:
    """Oblique over axis-parallel trees, 200 runs in two dimensions, for EXPABS, a step across its
    edge, and WAVE: all points, and those within 0.05 of the edge, and half of each."""
    out: dict[str, Any] = {}
    x = midpoints(2)
    a = coefficients("EXPABS", 2)
    from_edge = from_ridge(a, x)
    functions = {
        "EXPABS": FUNCTIONS["EXPABS"](a, x),
        "STEP": (from_edge > 0.0).astype(float),
        "WAVE": FUNCTIONS["WAVE"](coefficients("WAVE", 2), x),
    }
    near = np.abs(from_edge) / np.linalg.norm(a) < 0.05
    for name, y in functions.items():
        errors: dict[str, list[tuple[float, float, float]]] = {"oblique": [], "axis": []}
        for seed in range(seeds):
            chosen = np.random.default_rng(seed).choice(len(x), 200, replace=False)
            for shape, trials in errors.items():
                tree = ObliqueModelTree(split=shape, random_state=seed)  # type: ignore[arg-type]
                missed = (tree.fit(x[chosen], y[chosen]).predict(x) - y) ** 2
                there, elsewhere = float(missed[near].mean()), float(missed[~near].mean())
                trials.append((float(missed.mean()), there, (there + elsewhere) / 2.0))
        floor = FLOOR * y.var()
        medians = {k: np.maximum(np.median(trials, axis=0), floor) for k, trials in errors.items()}
        ratio = (medians["oblique"] / medians["axis"]).tolist()
        out[name] = dict(zip(("all", "near", "mixed"), ratio, strict=True))
    # It has no such edge.
    out["WAVE"] = {"all": out["WAVE"]["all"]}
    return out


def figures_9_and_10(seeds: int) -> dict[str, Any]:
    """Trees that are built anew over trees that grow (9), and lines over variance (10): error and
    seconds of ten steps to 300 uniform runs, and MSE and seconds of profiles by ``dta``."""
    out: dict[str, Any] = {}
    x = midpoints(3)
    profiled: dict[str, dict[str, Any]] = {
        "fresh": {},
        "grown": {"rebuild": False},
        "variance": {"criterion": "variance"},
    }
    for name in ("EXPABS", "HAT"):
        at = world(name, 3)
        trials: dict[str, list[tuple[float, float]]] = {}
        for seed in range(seeds):
            order = np.random.default_rng(seed).choice(len(x), 300, replace=False).tolist()
            for kind in profiled:
                trials.setdefault(kind, []).append(
                    _ten_steps(kind, x, at.table.values, order, seed)
                )
        trees = {kind: np.median(rows, axis=0) for kind, rows in trials.items()}
        runs = {
            kind: profiles(at, "dta", settings(at, 0.02, **options), seeds)
            for kind, options in profiled.items()
        }
        profile = {kind: np.array([mse(at, runs[kind]), seconds(runs[kind])]) for kind in runs}
        out[name] = {
            what: {
                "fresh_over_grown": (by["fresh"] / by["grown"]).tolist(),
                "lines_over_variance": (by["fresh"] / by["variance"]).tolist(),
            }
            for what, by in (("trees", trees), ("profiles", profile))
        }
    return out


def _ten_steps(
    kind: str, x: Floats, y: Floats, order: Sequence[int], seed: int
) -> tuple[float, float]:
    """Error of the tree after ten steps, and the seconds of all of them."""
    criterion: Literal["linear", "variance"] = "variance" if kind == "variance" else "linear"
    tree = ObliqueModelTree(criterion=criterion, random_state=seed)
    began = time.perf_counter()
    for known in range(len(order) // 10, len(order) + 1, len(order) // 10):
        upto = order[:known]
        if kind == "grown":
            tree.grow(x[upto], y[upto])
        else:
            tree.fit(x[upto], y[upto])
    took = time.perf_counter() - began
    return float(((tree.predict(x) - y) ** 2).mean()), took


def table6(seeds: int) -> dict[str, Any]:
    """R2 of least squares on all points, and the correlation of each dimension with the value: how
    far a function is from a line (the paper's Tables 2 and 6)."""
    del seeds
    out: dict[str, Any] = {}
    worlds = {f"{name}-{d}": world(name, d) for name in FUNCTIONS for d in (2, 3, 5)}
    for name, at in (worlds | measured_worlds()).items():
        names, X = columns(at, "raw")
        out[name] = linearity(names, X, at.table.values)
    return out


def table7(seeds: int) -> dict[str, Any]:
    """MSE and cost at w_cost 0.2, 0.5, 1 against 0, in per cent; the cost is that of nodes x cores
    (the first two parameters)."""
    out: dict[str, Any] = {}
    for name in ("POLY", "GAUSS"):
        at = world(name, 3)
        points = np.array([[point["x0"], point["x1"]] for point in at.table.points])
        at = World(at.table, (1.0 + 9.0 * points).prod(axis=1))
        for rate in (0.005, 0.02):
            rows = {}
            for weight in (0.0, 0.2, 0.5, 1.0):
                how = settings(at, rate, weights=(1.0, 1.0, weight))
                runs = profiles(at, "dta", how, seeds)
                rows[weight] = mse(at, runs), float(np.median([run.cost for run in runs]))
            error, cost = rows[0.0]
            out[f"{name}-{rate:g}"] = {
                f"{w:g}": [100.0 * (m / error - 1.0), 100.0 * (c / cost - 1.0)]
                for w, (m, c) in rows.items()
                if w > 0.0
            }
    return out


def profile_time(seeds: int) -> dict[str, Any]:
    """Seconds of a profile of 40 runs, B/b x (create + boot + work), with the paper's machines
    (Table 5: 270 s of work), and the share of it that choosing takes."""
    del seeds
    at = world("HAT", 3)
    out = {}
    for b in (1, 5, 10, 40):
        began = time.perf_counter()
        replay(at, "auto", ReplaySettings(40, b), 0)
        choosing = time.perf_counter() - began
        deploying = 40 / b * (60.0 + 60.0 + 270.0)
        out[f"b {b}"] = {"deploying_s": deploying, "choosing_share": choosing / deploying}
    return out


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "table3": table3,
    "figure4": figure4,
    "figure5": figure5,
    "figure6": figure6,
    "figure7": figure7,
    "figure9": figures_9_and_10,
    "table6": table6,
    "table7": table7,
    "time": profile_time,
}


def run_parts(about: str, parts: dict[str, Callable[[int], dict[str, Any]]]) -> None:
    """Run the parts that the command line names, each for its number of seeds, and print one JSON
    document; each part is also printed to stderr when it is done."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=parts)
    add_options(parser)
    options = parser.parse_args()
    take_options(options)
    document: dict[str, Any] = {"seeds": options.seeds}
    for part in options.parts:
        began = time.perf_counter()
        document[part] = parts[part](options.seeds)
        document[part]["seconds"] = time.perf_counter() - began
        print(part, json.dumps(document[part]), file=sys.stderr, flush=True)
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    run_parts(__doc__, PARTS)
