"""Predictors compared by runs next to loads: errors, noise, and which order is not chance.

Pure: ``combined.py`` measures. A row is one run; the rows of a visit share a load and a
fingerprint, so that their errors are not independent: an order is tested by visits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kongming.arrays import Floats

Row = Mapping[str, Any]
"""``program``, ``machines``, ``scale``, ``load`` (None: idle), ``visit``, ``seconds`` and
``predicted``: seconds by predictor."""

FLIPS = 20_000
BEYOND_CHANCE = 0.05


def judged(rows: Sequence[Row], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return errors in percent, orders of ``pairs`` of predictors, noise floor and slowdowns."""
    extended = with_own_idle(rows)
    parts = {
        "all": extended,
        "loaded": [row for row in extended if row["load"] is not None],
        "idle": [row for row in extended if row["load"] is None],
    }
    return {
        **{
            name: {
                "runs": len(part),
                "visits": len({row["visit"] for row in part}),
                "error_pct": errors(part),
                "order": [order(part, *pair) for pair in pairs],
                "coverage": coverage(part),
            }
            for name, part in parts.items()
        },
        "noise_floor_pct": noise_floor(rows),
        "slowdowns": slowdowns(rows),
    }


def with_own_idle(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with two predictors that no prediction can be: what the very configuration
    took idle in other runs (``own_idle``), and the slowdown times that."""
    idle: dict[Any, list[tuple[int, float]]] = defaultdict(list)
    for number, row in enumerate(rows):
        if row["load"] is None:
            idle[at(row)].append((number, row["seconds"]))
    extended = []
    for number, row in enumerate(rows):
        others = [seconds for other, seconds in idle[at(row)] if other != number]
        own = float(np.median(others)) if others else math.nan
        slowdown = row["predicted"]["combination"] / row["predicted"]["scale_only"]
        predicted = {"own_idle": own, "slowdown_x_own_idle": own * slowdown}
        extended.append({**row, "predicted": {**row["predicted"], **predicted}})
    return extended


def at(row: Row) -> tuple[str, int, float]:
    return row["program"], row["machines"], row["scale"]


def error(row: Row, predictor: str) -> float:
    """Return the absolute error in percent."""
    return 100.0 * abs(float(row["predicted"][predictor]) / float(row["seconds"]) - 1.0)


def errors(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean absolute error in percent by predictor."""
    names = rows[0]["predicted"] if rows else ()
    return {name: float(np.nanmean([error(row, name) for row in rows])) for name in names}


def order(rows: Sequence[Row], first: str, other: str) -> dict[str, Any]:
    """Compare two predictors on the same runs.

    ``difference`` is the mean error of ``first`` less that of ``other``, in points, with its 90 %
    interval over resampled visits. ``p`` is the share of sign patterns of the visits' mean
    differences whose mean is at least as far from 0: how often chance does that if both are as
    good.
    """
    by_visit: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        by_visit[row["visit"]].append(error(row, first) - error(row, other))
    sums = np.array([math.fsum(values) for values in by_visit.values()])
    counts = np.array([len(values) for values in by_visit.values()], dtype=np.float64)
    comparison: dict[str, Any] = {"one": first, "other": other, "visits": len(sums)}
    if len(sums) < 2:
        return comparison | {"difference": None, "p": None, "beyond_chance": False}
    random = np.random.default_rng(0)
    p = sign_flip(sums, random)
    chosen = random.integers(0, len(sums), (FLIPS, len(sums)))
    means = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    own, others = (float(np.mean([error(row, name) for row in rows])) for name in (first, other))
    return comparison | {
        "difference": float(sums.sum() / counts.sum()),
        "interval": np.quantile(means, (0.05, 0.95)).tolist(),
        "ratio": own / others if others > 0.0 else None,
        "p": p,
        "beyond_chance": p < BEYOND_CHANCE,
    }


def sign_flip(differences: Floats, random: np.random.Generator) -> float:
    """Return the two-sided p of a sign-flip test: all patterns of up to 14 differences, else a
    sample of them."""
    n = len(differences)
    if n <= 14:
        patterns = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        signs = 1.0 - 2.0 * patterns
    else:
        signs = random.choice((-1.0, 1.0), (FLIPS, n))
    sums = np.abs(signs @ differences)
    extreme = int(np.sum(sums >= abs(differences.sum()) * (1.0 - 1e-9)))
    # A sample holds the pattern that was measured as well.
    return extreme / len(signs) if n <= 14 else (extreme + 1) / (len(signs) + 1)


def coverage(rows: Sequence[Row]) -> dict[str, float]:
    """Return the share of the runs within the 90 % intervals, by predictor."""
    names = rows[0].get("intervals", {}) if rows else {}
    return {
        name: float(
            np.mean(
                [
                    row["intervals"][name][0] <= row["seconds"] <= row["intervals"][name][1]
                    for row in rows
                ]
            )
        )
        for name in names
    }


def noise_floor(rows: Iterable[Row]) -> float | None:
    """Return what repeats of one configuration under one load differ by, in percent: the error of
    the true model."""
    same: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        same[(*at(row), row["load"])].append(math.log(row["seconds"]))
    freedom = sum(len(logs) - 1 for logs in same.values())
    if freedom < 1:
        return None
    squares = sum(float(np.sum((np.array(logs) - np.mean(logs)) ** 2)) for logs in same.values())
    return 100.0 * math.sqrt(squares / freedom) * math.sqrt(2.0 / math.pi)


def slowdowns(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the measured slowdown of each program and configuration by load, over the median idle
    run of the same, next to what each predictor has over ``scale_only``."""
    idle: dict[Any, list[float]] = defaultdict(list)
    same: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        if row["load"] is None:
            idle[at(row)].append(row["seconds"])
        else:
            same[(*at(row), row["load"])].append(row)
    entries = []
    for (program, machines, scale, load), some in sorted(same.items()):
        alone = idle[program, machines, scale]
        predicted = {
            name: float(
                np.median([row["predicted"][name] / row["predicted"]["scale_only"] for row in some])
            )
            for name in some[0]["predicted"]
            if name.startswith("combination")
        }
        entries.append(
            {
                "program": program,
                "machines": machines,
                "scale": scale,
                "load": load,
                "runs": len(some),
                "measured": float(np.median([row["seconds"] for row in some]) / np.median(alone))
                if alone
                else None,
                "predicted": predicted,
            }
        )
    return entries
