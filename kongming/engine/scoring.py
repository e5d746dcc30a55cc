"""Models in service over the engine's vectors: which variant serves each environment, and what an
environment of another node means to a model. The numbers are the scorer's (``learning.scorer``)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine.columns import MOST_SHARED, Columns
from kongming.engine.environment import LARGEST_LOG
from kongming.learning.model_file import ModelFile, Variant
from kongming.learning.readings import VariantName, joined_as_idle
from kongming.learning.scorer import Blindness, Scorer, parts_of
from kongming.records.errors import InputError

FULL, QUICK, NEITHER = 1, 2, 0
"""Codes of the variant that serves an environment."""

_NAMES: dict[int, VariantName] = {FULL: "full", QUICK: "quick"}

Rows = dict[VariantName, Floats]
"""An environment's log seconds per operation by the columns of each variant."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PlacedScorer(Scorer):
    """A scorer whose columns are at these ``places`` (p,) of the engine's vectors; ``at`` picks
    them, by a slice where they are next to each other: that copies nothing."""

    places: NDArray[np.intp]
    at: NDArray[np.intp] | slice


@dataclass(frozen=True, eq=False, slots=True)
class Served:
    """A model in service: ``row`` is its place in the matrix, ``suite`` the code of its suite
    version, ``scorers`` by the code of the variant; ``blindness`` where it has both of them."""

    row: int
    file: ModelFile
    version: int
    suite: int
    scorers: dict[int, PlacedScorer]
    blindness: Blindness | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.file.app, self.file.placement

    def by_name(self) -> dict[VariantName, PlacedScorer]:
        return {_NAMES[code]: scorer for code, scorer in self.scorers.items()}

    def width(self) -> int:
        """Columns that a vector needs at the least."""
        return 1 + max(int(scorer.places.max()) for scorer in self.scorers.values())


@dataclass(frozen=True, eq=False, slots=True)
class MatrixScores:
    """Scores of n environments; ``variant`` is NEITHER where too much was missing, and ``filled``
    says where a reading that the model uses was, and was filled in."""

    log_slowdown: Floats
    error: Floats
    outside: NDArray[np.bool_]
    limit: Floats
    at_least: NDArray[np.bool_]
    variant: NDArray[np.int8]
    filled: NDArray[np.bool_]


def served(
    row: int, file: ModelFile, version: int, suite: int, columns: Columns, model: str | None = None
) -> Served:
    """Raises UnknownNameError where ``model`` was not trained."""
    scorers = {}
    for code, name in ((FULL, "full"), (QUICK, "quick")):
        if name in file.variants:
            scorers[code] = _scorer(file.variants[name], model, columns)
    blindness = None
    if len(scorers) > 1:
        blindness = Blindness.between(scorers[FULL], scorers[QUICK])
    return Served(row, file, version, suite, scorers, blindness)


def rows_of(model: Served, absolute: Floats, slowed: Floats, carried: bool) -> Rows:
    """One environment by the columns of each variant, for ``estimate_row``: ``absolute`` and
    ``slowed`` (C,) as in ``score``."""
    counted = np.array([carried])
    return {
        _NAMES[code]: _logs(scorer, absolute[None, :], slowed[None, :], counted)[0]
        for code, scorer in model.scorers.items()
    }


def score(
    model: Served, absolute: Floats, slowed: Floats, carried: NDArray[np.bool_], awake: Floats
) -> MatrixScores:
    """Return what the model says of n environments.

    ``absolute`` (n, C) are log seconds per operation, ``slowed`` (n, C) the same over the idle
    reference of the node that they were read on. Where ``carried``, it is the slowdowns that
    count, put onto the idle times of the model's own node. ``awake`` (n,) is the share of time in
    which neighbours keep a CPU awake, NaN without any.
    """
    n = len(absolute)
    scores = MatrixScores(
        np.full(n, math.nan),
        np.zeros(n),
        np.zeros(n, dtype=np.bool_),
        np.full(n, LARGEST_LOG),
        np.zeros(n, dtype=np.bool_),
        np.zeros(n, dtype=np.int8),
        np.zeros(n, dtype=np.bool_),
    )
    left = np.ones(n, dtype=np.bool_)
    incomplete = None
    for code in (FULL, QUICK):
        scorer = model.scorers.get(code)
        if scorer is None or not left.any():
            continue
        logs = _logs(scorer, absolute, slowed, carried)
        complete = np.asarray(~np.isnan(logs).any(axis=1))
        if code == FULL:
            incomplete = logs
        elif incomplete is not None and model.blindness is not None:
            rows = np.flatnonzero(left & complete)
            complete[rows] = ~model.blindness.of(np.isnan(incomplete[rows]))
        _put(scores, scorer, code, np.flatnonzero(left & complete), logs, awake)
        left &= ~complete
    if left.any() and incomplete is not None:
        full = model.scorers[FULL]
        rows = np.flatnonzero(left)
        logs = incomplete[rows]
        complete, scores.filled[rows] = full.fill(logs)
        incomplete[rows] = logs
        _put(scores, full, FULL, rows[complete], incomplete, awake)
    return scores


def log_slowdowns_and_bounds(
    model: Served, absolute: Floats, slowed: Floats, carried: NDArray[np.bool_], awake: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """The log slowdowns of ``score`` alone, (n,), and which of them are the least: quicker where a
    few models are asked of a few environments each."""
    scorer = model.scorers[FULL]
    logs = _logs(scorer, absolute, slowed, carried)
    if np.isnan(logs).any():
        scores = score(model, absolute, slowed, carried, awake)
        return scores.log_slowdown, scores.at_least
    log_slowdown, at_least = scorer.log_slowdown_and_bound(logs, awake)
    return np.clip(log_slowdown, -LARGEST_LOG, LARGEST_LOG), at_least


def _logs(
    scorer: PlacedScorer, absolute: Floats, slowed: Floats, carried: NDArray[np.bool_]
) -> Floats:
    if carried.all():
        logs = np.asarray(scorer.log_idle + slowed[:, scorer.at], dtype=np.float64)
    elif not carried.any():
        logs = np.array(absolute[:, scorer.at], dtype=np.float64)
    else:
        logs = np.where(
            carried[:, None], scorer.log_idle + slowed[:, scorer.at], absolute[:, scorer.at]
        )
    return joined_as_idle(scorer.variant, scorer.log_idle, logs)


def _put(
    scores: MatrixScores,
    scorer: PlacedScorer,
    code: int,
    rows: NDArray[np.intp],
    logs: Floats,
    awake: Floats,
) -> None:
    if not len(rows):
        return
    every = len(rows) == len(logs)
    of_rows = scorer.score(logs if every else logs[rows], awake if every else awake[rows])
    scores.log_slowdown[rows] = np.clip(of_rows.log_slowdown, -LARGEST_LOG, LARGEST_LOG)
    scores.error[rows] = of_rows.error
    scores.outside[rows] = of_rows.outside
    scores.limit[rows] = of_rows.limit
    scores.at_least[rows] = of_rows.at_least
    scores.variant[rows] = code


def _scorer(variant: Variant, model: str | None, columns: Columns) -> PlacedScorer:
    places = columns.learn(variant.columns, variant.families)
    if (places < 0).any():
        raise InputError(
            f"names more surrogates than the {MOST_SHARED} that the server holds.",
            field="columns",
            hint="Train it on one of KONGMING's suites.",
        )
    together = slice(int(places[0]), int(places[0]) + len(places))
    at = together if (np.diff(places) == 1).all() else places
    return PlacedScorer(places=places, at=at, **parts_of(variant, model))
