"""Estimates of the current fingerprint from passive signals: a small ridge regression per domain.

It learns from the node's own pairs how much a *change* of the signals since the last probe changed
each surrogate's log time; without evidence it repeats the last probe. Each pair is predicted before
it is learned from, so its error is always out of sample. The estimate is used for a surrogate only
if this error is below that of repeating. Plain Python is fast enough for ten signals and a dozen
surrogates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kongming_agent.probing.features import NAMES

LEAST_PAIRS = 8
"""Minimum number of pairs for an estimate."""

_DECAY = 0.98
"""Decay of the weights per pair: nodes change slowly; after fifty pairs a third is left."""

_RIDGE = 1.0
_BETTER = 0.95
_LONGEST_LOG = math.log(100.0)
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean absolute log errors of one surrogate on pairs not yet learned from."""

    estimate: float
    repeat: float
    pairs: float

    @property
    def better(self) -> bool:
        """Return whether the estimate is better than repeating."""
        return self.pairs >= LEAST_PAIRS and self.estimate < _BETTER * self.repeat


class Estimator:
    """The model of one last-level cache domain."""

    def __init__(self) -> None:
        size = len(NAMES)
        self._squares = [[0.0] * size for _ in range(size)]
        self._products: dict[str, list[float]] = {}
        self._weights: dict[str, list[float]] = {}
        self._errors: dict[str, list[float]] = {}
        self._signals: tuple[float, ...] | None = None
        self._logs: dict[str, float] = {}

    def learn(self, signals: tuple[float, ...], times: Mapping[str, float]) -> None:
        """Learn from a pair: the signals right before a probe, and its seconds per operation."""
        logs = {name: math.log(seconds) for name, seconds in times.items() if seconds > 0.0}
        if self._signals is not None:
            change = _difference(signals, self._signals)
            self._judge(change, logs)
            self._take(change, logs)
        self._signals = signals
        # A surrogate without a new reading keeps its last one.
        self._logs |= logs

    def estimate(self, signals: tuple[float, ...]) -> dict[str, float]:
        """Return seconds per operation of the surrogates for which the estimate beats repeating."""
        if self._signals is None:
            return {}
        change = _difference(signals, self._signals)
        return {
            name: math.exp(log + self._predicted(name, change))
            for name, log in self._logs.items()
            if (errors := self.errors().get(name)) is not None and errors.better
        }

    def last(self) -> dict[str, float]:
        """Return the last reading of every surrogate, in seconds per operation."""
        return {name: math.exp(log) for name, log in self._logs.items()}

    def errors(self) -> dict[str, Errors]:
        """Return the errors by surrogate."""
        return {
            name: Errors(model / weight, repeat / weight, weight)
            for name, (model, repeat, weight) in self._errors.items()
            if weight > 0.0
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the state that survives a restart, without the last probe, which would be
        stale.
        """
        return {
            "schema": _SCHEMA,
            "signals": list(NAMES),
            "squares": self._squares,
            "products": self._products,
            "errors": self._errors,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Estimator:
        """Restore the state; if the document has other signals, start empty."""
        estimator = cls()
        if document.get("schema") != _SCHEMA or document.get("signals") != list(NAMES):
            return estimator
        estimator._squares = [[float(x) for x in row] for row in document["squares"]]
        estimator._products = {k: [float(x) for x in v] for k, v in document["products"].items()}
        estimator._errors = {k: [float(x) for x in v] for k, v in document["errors"].items()}
        estimator._solve()
        return estimator

    def _judge(self, change: Sequence[float], logs: Mapping[str, float]) -> None:
        for name, log in logs.items():
            if name not in self._logs:
                continue
            moved = log - self._logs[name]
            sums = self._errors.setdefault(name, [0.0, 0.0, 0.0])
            seen = (abs(moved - self._predicted(name, change)), abs(moved), 1.0)
            self._errors[name] = [_DECAY * old + new for old, new in zip(sums, seen, strict=True)]

    def _take(self, change: Sequence[float], logs: Mapping[str, float]) -> None:
        size = len(change)
        for i in range(size):
            row = self._squares[i]
            for j in range(size):
                row[j] = _DECAY * row[j] + change[i] * change[j]
        for name, log in logs.items():
            if name not in self._logs:
                continue
            # A reading a hundred times the last one is an outlier, and is not learned from.
            moved = max(-_LONGEST_LOG, min(_LONGEST_LOG, log - self._logs[name]))
            held = self._products.setdefault(name, [0.0] * size)
            self._products[name] = [
                _DECAY * old + x * moved for old, x in zip(held, change, strict=True)
            ]
        self._solve()

    def _predicted(self, name: str, change: Sequence[float]) -> float:
        weights = self._weights.get(name)
        if weights is None:
            return 0.0
        moved = math.fsum(w * x for w, x in zip(weights, change, strict=True))
        return max(-_LONGEST_LOG, min(_LONGEST_LOG, moved))

    def _solve(self) -> None:
        lower = _cholesky(self._squares, _RIDGE)
        self._weights = {name: _solved(lower, held) for name, held in self._products.items()}


def _difference(now: Sequence[float], before: Sequence[float]) -> list[float]:
    return [b - a for a, b in zip(before, now, strict=True)]


def _cholesky(squares: Sequence[Sequence[float]], ridge: float) -> list[list[float]]:
    """Return L with L L' = squares + ridge x identity, which is positive definite."""
    size = len(squares)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = squares[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            if i == j:
                lower[i][i] = math.sqrt(max(rest + ridge, 1e-12))
            else:
                lower[i][j] = rest / lower[j][j]
    return lower


def _solved(lower: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    size = len(right)
    half = [0.0] * size
    for i in range(size):
        half[i] = (right[i] - sum(lower[i][k] * half[k] for k in range(i))) / lower[i][i]
    full = [0.0] * size
    for i in reversed(range(size)):
        full[i] = (half[i] - sum(lower[k][i] * full[k] for k in range(i + 1, size))) / lower[i][i]
    return full
