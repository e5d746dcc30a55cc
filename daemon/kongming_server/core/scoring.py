"""One model over many environments at once: log slowdown, severity, and whether it extrapolates.

The same as ``kongming.predict`` says of each one: which variant serves, what is filled in where
a few readings are missing, and what an environment of another node means to a model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kongming.dataset import Floats
from kongming.errors import InputError
from kongming.models import extrapolation, intervals
from kongming.models.persist import FrozenModel, ModelFile, Variant
from kongming.models.readings import MISSING_SHARE
from kongming.prediction import Interval
from kongming_server.core.columns import MOST_COLUMNS, Columns

FULL, QUICK, NEITHER = 1, 2, 0
"""Codes of the variant that serves an environment."""

_LEVELS = 16
"""Levels of intervals for which a scorer remembers what they rest on."""


@dataclass(frozen=True, eq=False, slots=True)
class Scorer:
    """A variant's model with what is the same for every environment worked out once."""

    variant: Variant
    frozen: FrozenModel
    places: NDArray[np.intp]
    log_idle: Floats
    log_low: Floats
    log_high: Floats
    margins: Floats
    tails: dict[float, intervals.Tails] = field(default_factory=dict)

    def score(self, logs: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Log slowdown, severity and whether outside the training environments, each (n,), of
        ``logs`` (n, p), log seconds per operation in the order of the variant's columns."""
        times = np.exp(logs)
        excess = np.maximum(logs - self.log_high, self.log_low - logs)
        return (
            self.frozen.log_slowdown(times),
            intervals.severity(times, self.variant.idle, self.variant.spread),
            np.asarray((excess > self.margins).any(axis=1)),
        )

    def interval(self, log_slowdown: float, severity: float, level: float) -> Interval:
        known = self.tails.get(level)
        if known is None:
            known = intervals.tails(
                self.frozen.residuals,
                self.frozen.severities,
                noise=self.variant.noise,
                level=level,
            )
            if len(self.tails) >= _LEVELS:
                # Levels come with requests: there is no end to them.
                self.tails.clear()
            self.tails[level] = known
        return intervals.interval(
            log_slowdown,
            severity,
            residuals=self.frozen.residuals,
            severities=self.frozen.severities,
            noise=self.variant.noise,
            lowest=self.frozen.bounds[0],
            groups=self.frozen.groups,
            level=level,
            known=known,
        )


@dataclass(frozen=True, eq=False, slots=True)
class Served:
    """A model in service: ``row`` is its place in the matrix, ``suite`` the code of its suite
    version, ``scorers`` by the code of the variant."""

    row: int
    file: ModelFile
    version: int
    suite: int
    scorers: dict[int, Scorer]

    @property
    def key(self) -> tuple[str, str]:
        return self.file.app, self.file.placement

    def width(self) -> int:
        """Columns that a vector needs at the least."""
        return 1 + max(int(scorer.places.max()) for scorer in self.scorers.values())


@dataclass(frozen=True, eq=False, slots=True)
class Scores:
    """Of n environments; ``variant`` is NEITHER where too much was missing."""

    log_slowdown: Floats
    severity: Floats
    outside: NDArray[np.bool_]
    variant: NDArray[np.int8]


def served(
    row: int, file: ModelFile, version: int, suite: int, columns: Columns, model: str | None = None
) -> Served:
    """Raises UnknownNameError where ``model`` was not trained."""
    scorers = {}
    for code, name in ((FULL, "full"), (QUICK, "quick")):
        if name in file.variants:
            scorers[code] = _scorer(file.variants[name], model, columns)
    return Served(row, file, version, suite, scorers)


def score(model: Served, absolute: Floats, slowed: Floats, carried: NDArray[np.bool_]) -> Scores:
    """What the model says of n environments.

    ``absolute`` (n, C) are log seconds per operation, ``slowed`` (n, C) the same over the idle
    reference of the node that they were read on. Where ``carried``, it is the slowdowns that
    count, put onto the idle times of the model's own node.
    """
    n = len(absolute)
    scores = Scores(
        np.full(n, math.nan),
        np.zeros(n),
        np.zeros(n, dtype=np.bool_),
        np.zeros(n, dtype=np.int8),
    )
    left = np.ones(n, dtype=np.bool_)
    incomplete = None
    for code in (FULL, QUICK):
        scorer = model.scorers.get(code)
        if scorer is None or not left.any():
            continue
        logs = _logs(scorer, absolute, slowed, carried)
        whole = ~np.isnan(logs).any(axis=1)
        if code == FULL:
            incomplete = logs
        _put(scores, scorer, code, np.flatnonzero(left & whole), logs)
        left &= ~whole
    if left.any() and incomplete is not None:
        full = model.scorers[FULL]
        missing = np.isnan(incomplete).sum(axis=1)
        fillable = np.flatnonzero(left & (missing <= MISSING_SHARE * len(full.places)))
        for i in fillable:
            _fill(incomplete[i], full)
        _put(scores, full, FULL, fillable, incomplete)
    return scores


def log_slowdowns(
    model: Served, absolute: Floats, slowed: Floats, carried: NDArray[np.bool_]
) -> Floats:
    """The log slowdowns of ``score`` alone, (n,): quicker where a few models are asked of a few
    environments each."""
    scorer = model.scorers[FULL]
    logs = _logs(scorer, absolute, slowed, carried)
    if np.isnan(logs).any():
        return score(model, absolute, slowed, carried).log_slowdown
    return scorer.frozen.log_slowdown(np.exp(logs))


def _logs(scorer: Scorer, absolute: Floats, slowed: Floats, carried: NDArray[np.bool_]) -> Floats:
    if carried.all():
        return np.asarray(scorer.log_idle + slowed[:, scorer.places], dtype=np.float64)
    there = absolute[:, scorer.places]
    if not carried.any():
        return np.asarray(there, dtype=np.float64)
    return np.where(carried[:, None], scorer.log_idle + slowed[:, scorer.places], there)


def _put(scores: Scores, scorer: Scorer, code: int, rows: NDArray[np.intp], logs: Floats) -> None:
    if not len(rows):
        return
    found = scorer.score(logs if len(rows) == len(logs) else logs[rows])
    scores.log_slowdown[rows], scores.severity[rows], scores.outside[rows] = found
    scores.variant[rows] = code


def _fill(logs: Floats, scorer: Scorer) -> None:
    """Missing columns are taken to be slowed as the rest of their family (as ``row_of``)."""
    slowed = logs - scorer.log_idle
    families = np.array(scorer.variant.families)
    missing = np.isnan(logs)
    for j in np.flatnonzero(missing):
        relatives = slowed[~missing & (families == families[j])]
        logs[j] = scorer.log_idle[j] + (float(np.median(relatives)) if len(relatives) else 0.0)


def _scorer(variant: Variant, model: str | None, columns: Columns) -> Scorer:
    frozen = variant.model(model)
    places = columns.learn(variant.columns, variant.families)
    if (places < 0).any():
        raise InputError(
            f"names more surrogates than the {MOST_COLUMNS} that the server holds.",
            field="columns",
            hint="Train it on one of KONGMING's suites.",
        )
    log_low, log_high = np.log(variant.low), np.log(variant.high)
    return Scorer(
        variant=variant,
        frozen=frozen,
        places=places,
        log_idle=np.log(variant.idle),
        log_low=log_low,
        log_high=log_high,
        margins=_margins(variant, frozen),
    )


def _margins(variant: Variant, frozen: FrozenModel) -> Floats:
    """(p,): how far beyond the training range, in logs, each column may lie. Asked of
    ``extrapolation`` column by column, so that its rule is written once."""
    margins = np.empty(len(variant.columns))
    for j in range(len(margins)):
        times = variant.high.copy()
        times[j] *= 10.0
        far = extrapolation.distance(
            times,
            low=variant.low,
            high=variant.high,
            spread=variant.spread,
            weights=frozen.weights,
        )
        margins[j] = math.log(10.0) / far.value
    return margins
