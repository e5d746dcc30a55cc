"""The functions of paper 004 (Table 2) and a few with cliffs, failures, costs and noise, as tables.

Each table has about 10,000 midpoints of [0, 1]^d. L = sum a_i x_i, with a_i drawn from [0.5, 1.5]
(WAVE: 4 to 8).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kongming.arrays import Floats
from kongming.explore.measured_table import MeasuredTable
from kongming.explore.replay import World

POINTS = 10_000


def from_ridge(a: Floats, x: Floats) -> Floats:
    """(n,) of points (n, d): sum(a_i x_i - 0.5), which is zero where EXPABS has its edge."""
    return x @ a - 0.5 * len(a)


def _gauss(a: Floats, x: Floats) -> Floats:
    return np.exp(-2.0 * (x - 0.5) ** 2 @ a)


def _hat(a: Floats, x: Floats) -> Floats:
    q = 12.5 * ((x - 0.5) @ a) ** 2
    return -(1.0 - q) * np.exp(-q)


FUNCTIONS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "LIN": lambda a, x: x @ a,
    "POLY": lambda a, x: x**2 @ a,
    "EXP": lambda a, x: 1.0 - np.exp(-((x @ a) ** 2)),
    "EXPABS": lambda a, x: np.exp(np.abs(from_ridge(a, x))) - 1.0,
    "EXPSQ": lambda a, x: np.exp(-((x @ a) ** 2)),
    "GAUSS": _gauss,
    "WAVE": lambda a, x: np.cos(x @ a) * np.exp(x.sum(axis=1)),
    "HAT": _hat,
}
TABLE_3 = ("POLY", "EXPABS", "GAUSS", "WAVE", "HAT")


def midpoints(d: int, side: int | None = None) -> Floats:
    """(n, d) midpoints of a grid over [0, 1]^d, about ``POINTS`` of them."""
    side = side or round(POINTS ** (1.0 / d))
    axis = (np.arange(side) + 0.5) / side
    return np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)


def coefficients(name: str, d: int, seed: int = 0) -> Floats:
    low, high = (4.0, 8.0) if name == "WAVE" else (0.5, 1.5)
    return np.random.default_rng([seed, d]).uniform(low, high, d)


def table(x: Floats, values: Floats, name: str = "function") -> MeasuredTable:
    """A measured table of points (n, d); NaN values are failed runs."""
    names = tuple(f"x{k}" for k in range(x.shape[1]))
    return MeasuredTable(
        path=name,
        target="y",
        names=names,
        numbers=names,
        points=tuple(dict(zip(names, row, strict=True)) for row in x.tolist()),
        values=values,
        costs=None,
        errors=tuple("no room" if np.isnan(value) else None for value in values),
    )


def world(name: str, d: int, seed: int = 0) -> World:
    """A function of the paper as a world to be profiled."""
    x = midpoints(d)
    return World(table(x, FUNCTIONS[name](coefficients(name, d, seed), x), name))


def cliff(d: int = 2, seed: int = 0) -> tuple[World, np.ndarray]:
    """A smooth time that is ten times as long on a fifth of the points, beyond an oblique line.
    Returns it and which (n,) points lie there."""
    x = midpoints(d)
    load = x @ coefficients("LIN", d, seed)
    beyond = load > np.quantile(load, 0.8)
    return World(table(x, (1.0 + x @ np.ones(d)) * np.where(beyond, 10.0, 1.0), "cliff")), beyond


def failing(d: int = 3, seed: int = 0) -> World:
    """A smooth time; 15% of the space fails, a corner."""
    x = midpoints(d)
    load = x @ coefficients("LIN", d, seed)
    values = FUNCTIONS["POLY"](coefficients("POLY", d, seed), x) + 1.0
    return World(table(x, np.where(load > np.quantile(load, 0.85), np.nan, values), "failing"))


def costly(d: int = 3, seed: int = 0) -> World:
    """A time whose runs cost 1 to 20, by the first parameter."""
    x = midpoints(d)
    values = FUNCTIONS["WAVE"](coefficients("POLY", d, seed) * 3.0, x) + 12.0
    return World(table(x, values, "costly"), 20.0 ** x[:, 0])


def noisy(d: int = 2, seed: int = 0, noise: float = 0.1, runs: int = 4) -> tuple[World, Floats]:
    """Times with log-normal noise of 10%, each point measured ``runs`` times. Returns the world and
    the (n,) times without noise."""
    x = np.repeat(midpoints(d, side=30), runs, axis=0)
    exact = 2.0 + FUNCTIONS["GAUSS"](coefficients("GAUSS", d, seed) * 4.0, x)
    rng = np.random.default_rng(seed)
    return World(table(x, exact * np.exp(rng.normal(0.0, noise, len(x))), "noisy")), exact
