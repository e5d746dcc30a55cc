"""BUBBLE-UP: one bubble, sensitivity curves over its size, and a reporter.

After Mars, Tang, Hundt, Skadron and Soffa (MICRO 2011). The bubble is the load levels that press
on caches and memory alone; its sizes are their ranks by what they do to the reporter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.peers.observations import Observations, Readings, observe
from benchmarks.peers.peer import Measured, Profile
from kongming.arrays import Floats
from kongming.records.errors import UntrainedError

LEAST_BUBBLES = 2
"""Load levels that a dial of sizes needs."""


@dataclass(frozen=True, eq=False, slots=True)
class Dial:
    """The sizes of the bubble, 0 to k, and the reporter's own sensitivity curve over them.

    ``curve`` is (k + 1,), log slowdown, rising from 0; ``sizes`` gives each load level its size.
    A level that does not reach the reporter has the size 0, as the idle node has.
    """

    curve: Floats
    sizes: Mapping[str, int]

    def score(self, reading: float) -> float:
        """The size of the bubble that slows the reporter as much; the largest at the most."""
        return float(np.interp(reading, self.curve, np.arange(len(self.curve))))


class BubbleUp:
    """One curve an application, one score a neighbour: the curve of one at the other's score.

    ``reporter`` names the surrogates whose mean log slowdown is the reporter's; None takes the
    one, or all of them together, that orders the bubbles best for the applications profiled.
    """

    name = "BUBBLE-UP"

    def __init__(self, reporter: Sequence[str] | None = None) -> None:
        self._requested_reporter = None if reporter is None else tuple(reporter)

    def fit(self, profiles: Mapping[str, Profile], measured: Measured | None = None) -> None:
        """As ``Peer.fit``; needs two load levels of caches and memory."""
        self._seen = observe(profiles)
        levels = sorted(self._seen.memory_levels)
        if len(levels) < LEAST_BUBBLES:
            raise UntrainedError(
                f"A bubble needs {LEAST_BUBBLES} load levels of caches and memory; the runs have "
                f"{len(levels)}.",
                hint="Profile with more levels: kongming profile APPS.toml --plan quick",
            )
        self.reporter = self._requested_reporter or self._choose(levels)
        self.dial = _dial(self._reported(levels))
        self._curves = {
            app: _curve(self.dial, self._seen.response(app), self._seen.solo_runs(app))
            for app in self._seen.apps
            if self._seen.solo_runs(app)
        }

    def score(self, app: str) -> float:
        """The size of the bubble that ``app`` is to a neighbour. Raises as ``slowdown``."""
        return self.dial.score(_mean(self._seen.environment(app), self.reporter))

    def curve(self, app: str) -> Floats:
        """The sensitivity curve of ``app``: its slowdown at each size of the bubble."""
        return np.asarray(np.exp(np.maximum(self._curves[self._seen.learned(app)], 0.0)))

    def slowdown(self, app: str, neighbour: str) -> float:
        """As ``Peer.slowdown``."""
        size, curve = self.score(neighbour), self._curves[self._seen.learned(app)]
        return math.exp(max(float(np.interp(size, np.arange(len(curve)), curve)), 0.0))

    def _reported(self, levels: Sequence[str]) -> dict[str, float]:
        return {level: _mean(self._seen.levels[level], self.reporter) for level in levels}

    def _choose(self, levels: Sequence[str]) -> tuple[str, ...]:
        probes = self._seen.memory_probes()
        if not probes:
            raise UntrainedError(
                "No surrogate of caches or memory was read at every load level of theirs, so "
                "there is no reporter.",
                hint="Profile with the suite standard.",
            )
        candidates: list[tuple[str, ...]] = [(name,) for name in probes]
        if len(probes) > 1:
            candidates.append(probes)
        return min(candidates, key=lambda names: _left_out_error(self._seen, levels, names))


def _mean(readings: Readings, names: Sequence[str]) -> float:
    missing = [name for name in names if name not in readings]
    if missing:
        raise UntrainedError(f"There is no reading of the reporter ({', '.join(missing)}).")
    return sum(readings[name] for name in names) / len(names)


def _dial(reported: Mapping[str, float]) -> Dial:
    pressures = sorted({max(pressure, 0.0) for pressure in reported.values()} | {0.0})
    sizes = {level: pressures.index(max(value, 0.0)) for level, value in reported.items()}
    return Dial(np.array(pressures), sizes)


def _curve(dial: Dial, response: Mapping[str, float], solo_runs: int) -> Floats:
    """(k + 1,), log slowdown at each size, never falling; sizes without a run are filled in."""
    sums, counts = np.zeros(len(dial.curve)), np.zeros(len(dial.curve))
    counts[0] = solo_runs
    for level, slowdown in response.items():
        if level in dial.sizes:
            sums[dial.sizes[level]] += slowdown
            counts[dial.sizes[level]] += 1
    ran = np.flatnonzero(counts)
    rising = isotonic_regression(sums[ran] / counts[ran], weights=counts[ran]).x
    return np.asarray(np.interp(np.arange(len(counts)), ran, rising), dtype=np.float64)


def _left_out_error(seen: Observations, levels: Sequence[str], names: Sequence[str]) -> float:
    """The mean absolute log error at a load level that was left out, over all applications."""
    reported = {level: _mean(seen.levels[level], names) for level in levels}
    responses = {app: seen.response(app) for app in seen.apps}
    errors = []
    for left_out in levels:
        dial = _dial({level: value for level, value in reported.items() if level != left_out})
        size = dial.score(reported[left_out])
        for app, response in responses.items():
            if left_out in response:
                curve = _curve(dial, response, seen.solo_runs(app))
                predicted = max(float(np.interp(size, np.arange(len(curve)), curve)), 0.0)
                errors.append(abs(predicted - response[left_out]))
    return float(np.mean(errors)) if errors else math.inf
