"""Made-up machines whose level drifts while programs are measured: fixed seeds, known truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

Level = Callable[[float], float]
"""The log of the machine's slowness after so many further seconds."""

RUN_S, NOISE = 0.02, 0.025


def quiet(r: random.Random) -> Level:
    return lambda seconds: 0.0


def drift(deviation: float, time_s: float) -> Callable[[random.Random], Level]:
    """An Ornstein-Uhlenbeck process, which forgets in about ``time_s``."""

    def world(r: random.Random) -> Level:
        now = r.gauss(0.0, deviation)

        def level(seconds: float) -> float:
            nonlocal now
            left = math.exp(-seconds / time_s)
            now = left * now + r.gauss(0.0, deviation * math.sqrt(1.0 - left * left))
            return now

        return level

    return world


def two_levels(size: float, time_s: float) -> Callable[[random.Random], Level]:
    """A neighbour that comes and goes unseen, for ``time_s`` on average."""

    def world(r: random.Random) -> Level:
        present = r.random() < 0.5

        def level(seconds: float) -> float:
            nonlocal present
            if r.random() < -math.expm1(-seconds / time_s):
                present = r.random() < 0.5
            return size if present else 0.0

        return level

    return world


WORLDS = {
    "quiet": quiet,
    "drift between takes": drift(0.02, 5.0),
    "drift inside of takes": drift(0.02, 0.3),
    "two levels": two_levels(0.04, 2.0),
    "two quick levels": two_levels(0.04, 0.3),
}


def run(r: random.Random, level: Level, factor: float) -> float:
    return factor * math.exp(level(RUN_S) + r.gauss(0.0, NOISE))


def one_after_the_other(
    r: random.Random, level: Level, runs: int, factor: float, pause_s: float = 3.0
) -> tuple[list[float], list[float]]:
    """All runs of one program, a pause, then all of one that is ``factor`` times slower."""
    before = [run(r, level, 1.0) for _ in range(runs)]
    level(pause_s)
    return before, [run(r, level, factor) for _ in range(runs)]


def by_turns(
    r: random.Random, level: Level, runs: int, factor: float
) -> tuple[list[float], list[float]]:
    """Both in each turn, in random order."""
    before, after = [], []
    for _ in range(runs):
        for sample, slower in r.sample([(before, 1.0), (after, factor)], 2):
            sample.append(run(r, level, slower))
    return before, after
