"""Generated programs as tables: the worlds by which policies are chosen, never those of a bar.

Each is a discrete space of 100 to 400 points with the parameters of real programs, every point
measured once, with noise. Effects multiply, as those of times do: Amdahl's law and contention for
threads, a power of the input's size, levels of effort, codecs that differ by level or threads, a
best block size, and a cliff where the working set no longer fits into the buffer. A region is
forbidden; in every other world runs fail where memory ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.explore.measured_table import MeasuredTable
from kongming.explore.replay import World

FIRST_SEED = 1000
FEWEST, MOST = 100, 400
_LEAST_RATIO, _MOST_RATIO = 60.0, 3000.0
"""Ratio of the longest to the shortest time."""


@dataclass(frozen=True, slots=True)
class Program:
    """A generated world and the (n,) times of its points without noise, NaN where runs fail."""

    world: World
    exact: Floats
    noise: float


def program(seed: int) -> Program:
    """The generated program of a seed; tables outside the sizes and ratios are drawn again."""
    rng = np.random.default_rng([seed, 20])
    while True:
        levels = _levels(rng)
        points = [dict(zip(levels, values, strict=True)) for values in product(*levels.values())]
        columns = {name: np.array([point[name] for point in points]) for name in levels}
        times, needs = _times(columns, rng)
        forbidden = _forbidden(columns, rng)
        failing = np.zeros(len(points), dtype=bool)
        if seed % 2:
            failing = needs > np.quantile(needs, rng.uniform(0.7, 0.9))
        keep = ~forbidden
        ratio = times[keep].max() / times[keep].min()
        if FEWEST <= keep.sum() <= MOST and _LEAST_RATIO <= ratio <= _MOST_RATIO:
            break
    noise = rng.uniform(0.03, 0.15)
    exact = np.where(failing, np.nan, times)[keep]
    values = exact * np.exp(rng.normal(0.0, noise, len(exact)))
    rows = [point for point, allowed in zip(points, keep, strict=True) if allowed]
    return Program(World(_table(rows, values, f"program-{seed}")), exact, noise)


def _table(points: list[dict[str, Any]], values: Floats, name: str) -> MeasuredTable:
    names = tuple(points[0])
    return MeasuredTable(
        path=name,
        target="seconds",
        names=names,
        numbers=tuple(name for name in names if name != "codec"),
        points=tuple(points),
        values=values,
        costs=None,
        errors=tuple("out of memory" if np.isnan(value) else None for value in values),
    )


def _levels(rng: np.random.Generator) -> dict[str, list[Any]]:
    """The values of threads, input and buffer, and of one or two of level, codec, block, direct."""
    levels: dict[str, list[Any]] = {
        "threads": [2**k for k in range(rng.integers(2, 5))],
        "input": _geometric(rng, 3, 6),
        "buffer": _geometric(rng, 3, 8),
    }
    others: dict[str, list[Any]] = {
        "level": sorted(rng.choice(10, rng.integers(3, 5), replace=False).tolist()),
        "codec": ["none", "gzip", "zstd", "lz4"][: rng.integers(2, 5)],
        "block": _geometric(rng, 3, 5),
        "direct": [0, 1],
    }
    for name in rng.permutation(list(others))[: rng.integers(1, 3)]:
        levels[str(name)] = others[str(name)]
    return levels


def _geometric(rng: np.random.Generator, fewest: int, most: int) -> list[int]:
    start, factor = int(rng.choice([1, 8, 25, 256])), int(rng.choice([2, 2, 4]))
    return [start * factor**k for k in range(rng.integers(fewest, most + 1))]


def _place(values: np.ndarray) -> Floats:
    """(n,) logarithms of values, from 0 to 1."""
    logs = np.log(values.astype(np.float64))
    return np.asarray((logs - logs.min()) / np.ptp(logs))


def _times(columns: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[Floats, Floats]:
    """(n,) seconds, and (n,) how much memory each point needs."""
    threads = columns["threads"].astype(np.float64)
    size, buffer = _place(columns["input"]), _place(columns["buffer"])
    serial = np.full(len(threads), rng.uniform(0.02, 0.6))
    log_time = np.log(columns["input"] / columns["input"].min()) * rng.uniform(0.8, 1.2)
    # A larger buffer helps a little, each doubling by as much.
    log_time -= rng.uniform(0.0, 0.5) * buffer
    need = size - rng.uniform(0.6, 1.2) * buffer + rng.uniform(0.0, 0.3) * np.log2(threads)
    if "level" in columns:
        level = columns["level"] / 9.0
        log_time += rng.uniform(0.5, 2.0) * level
        log_time += rng.uniform(0.0, 1.2) * (level > rng.uniform(0.2, 0.8))
        need += rng.uniform(0.0, 0.4) * level
    if "codec" in columns:
        names = np.unique(columns["codec"])
        factors = rng.uniform(-0.8, 0.8, len(names))
        extras = rng.uniform(0.0, 0.4, len(names))
        for name, factor, extra in zip(names, factors, extras, strict=True):
            chosen = columns["codec"] == name
            log_time += chosen * (factor + rng.uniform(-0.6, 0.6) * size)
            serial = np.minimum(serial + chosen * extra, 0.95)
    if "block" in columns:
        away = _place(columns["block"]) - rng.uniform(0.2, 0.8)
        log_time += rng.uniform(0.3, 2.0) * away**2
    if "direct" in columns:
        log_time += columns["direct"] * (rng.uniform(-0.6, 0.6) + rng.uniform(-0.8, 0.8) * buffer)
    contention = rng.uniform(0.0, 0.08)
    log_time += np.log(serial + (1.0 - serial) / threads + contention * (threads - 1.0))
    beyond = need > np.quantile(need, rng.uniform(0.5, 0.9))
    log_time += beyond * np.log(rng.uniform(2.0, 10.0))
    # A start of the program takes its time too.
    times = np.exp(log_time)
    return times + rng.uniform(0.0, 0.5) * float(np.quantile(times, 0.1)), need


def _forbidden(columns: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """A large buffer for little input, or many threads with little buffer."""
    size, buffer = _place(columns["input"]), _place(columns["buffer"])
    if rng.uniform() < 0.5:
        return np.asarray((buffer > rng.uniform(0.6, 0.9)) & (size < rng.uniform(0.2, 0.5)))
    most = columns["threads"] == columns["threads"].max()
    return np.asarray(most & (buffer < rng.uniform(0.1, 0.4)))
