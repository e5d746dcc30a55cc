"""Cross-validation: one resource family of inducers is left out at a time.

Random rows would leak: ``stream.*`` and ``memory.streaming.1G`` are near copies, so a family goes
out with all its levels and every mix that contains it. Solo runs are distributed over the folds in
turn, so that each is scored once by a model that was trained without it but with the other solo
runs. Without induced runs, blocks of time are left out instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.learning.dataset import Dataset
from kongming.learning.fitting import fit
from kongming.learning.registry import Kind

BLOCKS = 5
"""Number of blocks of time, if there are fewer than two families to leave out."""

LEAST_TRAINING = 3
"""Minimum number of training runs of a fold."""

LEAST_NOISE = 0.005
"""Minimum repeat noise in logs, also used without repeats: 0.5 %."""


@dataclass(frozen=True, eq=False, slots=True)
class Fold:
    """The rows that are left out under one name: row numbers to train on and to score."""

    name: str
    train: NDArray[np.intp]
    test: NDArray[np.intp]


@dataclass(frozen=True, eq=False, slots=True)
class Validation:
    """Out-of-fold predictions of one model, and its residuals: log measured less log predicted.

    ``predictions[k]`` (log slowdown), ``measured[k]``, which that is compared with, and
    ``residuals[k]`` belong to row ``rows[k]`` and to the fold of number ``folds[k]``. A row that
    was left out more than once (a mix of families) is there as often, with ``weights`` that sum to
    1 per row. ``evaluations`` counts the selections that a genetic search tried within all training
    parts.
    """

    model: str
    rows: NDArray[np.intp]
    residuals: Floats
    weights: Floats
    folds: NDArray[np.intp]
    predictions: Floats
    measured: Floats
    evaluations: int = 0

    @property
    def error(self) -> float:
        """Weighted mean of the absolute log error, which ``auto`` compares."""
        if not len(self.residuals):
            return float("inf")
        return float(np.average(np.abs(self.residuals), weights=self.weights))

    def under_load(self, dataset: Dataset) -> Validation:
        """Return the validation of the runs that were not solo runs; all where it has no other.

        A solo run is always near 1, so that it says little of a model: where the noise of solo runs
        is all that one explains better than a trivial answer, it predicts no load better.
        """
        loaded = np.array([dataset.kinds[i] != "solo" for i in self.rows.tolist()], dtype=np.bool_)
        if not loaded.any():
            return self
        return replace(
            self,
            **{
                name: getattr(self, name)[loaded]
                for name in ("rows", "residuals", "weights", "folds", "predictions", "measured")
            },
        )

    def percent(self) -> Floats:
        """Return |predicted - measured| / measured, in per cent, one for each residual."""
        return np.asarray(100.0 * np.abs(np.expm1(-self.residuals)), dtype=np.float64)


def make_folds(dataset: Dataset, rows: NDArray[np.intp] | None = None) -> list[Fold]:
    """Return the folds over ``rows`` (all by default), by family left out, in order of name. Empty
    if every fold leaves too few runs to train on.
    """
    chosen = np.arange(len(dataset.y)) if rows is None else rows
    names = sorted({group for i in chosen for group in dataset.groups[i]})
    ungrouped = [int(i) for i in chosen if not dataset.groups[i]]
    if len(names) >= 2:
        tests = {name: [int(i) for i in chosen if name in dataset.groups[i]] for name in names}
        for k, i in enumerate(ungrouped):
            tests[names[k % len(names)]].append(i)
    else:
        blocks = np.array_split(chosen, min(BLOCKS, len(chosen)))
        tests = {f"block:{k}": block.tolist() for k, block in enumerate(blocks) if len(block)}
    folds = []
    for name, test in tests.items():
        train = np.setdiff1d(chosen, test)
        if len(test) and len(train) >= LEAST_TRAINING:
            folds.append(Fold(name, train, np.array(sorted(test), dtype=np.intp)))
    return folds


def positions(folds: Sequence[Fold], rows: NDArray[np.intp]) -> list[list[int]]:
    """Return the folds' test rows as positions within ``rows`` (sorted)."""
    return [np.searchsorted(rows, fold.test).tolist() for fold in folds]


def scored_families(dataset: Dataset, folds: Sequence[Fold]) -> int:
    """Return the number of folds of which a run under load is scored, if any is left out."""
    loaded = [[i for i in fold.test.tolist() if dataset.groups[i]] for fold in folds]
    return sum(1 for rows in loaded if not rows or not dataset.completed.issuperset(rows))


def cross_validate(
    kind: Kind, dataset: Dataset, folds: Sequence[Fold], *, noise: float, random_state: int = 0
) -> Validation:
    """Compute the residuals of ``kind`` over the folds. Each model is trained on the denoised
    readings of the training part, and scored on the readings before each left-out run. Penalties
    and selections are chosen inside the training part: the rows that are scored have no part in the
    choice, nor in what those count as that were ended. Rows that were ``completed`` are not scored:
    they are as alike as no measured ones are. Where a training part ends in lower bounds, its model
    says "at least" there, and what was measured above counts as no more than that.
    """
    rows: list[int] = []
    predictions: list[float] = []
    measured: list[float] = []
    numbers: list[int] = []
    evaluations = 0
    times = np.exp(dataset.known)
    for number, fold in enumerate(folds):
        scored = [i for i in fold.test.tolist() if i not in dataset.completed]
        if not scored:
            continue
        inner = positions(make_folds(dataset, fold.train), fold.train) if kind.context else None
        fitted = fit(
            kind, dataset, noise=noise, rows=fold.train, inner=inner, random_state=random_state
        )
        rows += scored
        predictions += fitted.log_slowdown(times[scored]).tolist()
        _, known_up_to = dataset.targets(fold.train)
        measured += np.minimum(dataset.y[scored], known_up_to).tolist()
        evaluations += int(getattr(fitted.estimator, "evaluations_", 0))
        numbers += [number] * len(scored)
    index = np.array(rows, dtype=np.intp)
    counts = np.bincount(index, minlength=len(dataset.y)) if len(index) else np.zeros(1)
    predicted = np.array(predictions, dtype=np.float64)
    compared = np.array(measured, dtype=np.float64)
    return Validation(
        kind.name,
        index,
        compared - predicted,
        1.0 / np.maximum(counts[index], 1),
        np.array(numbers, dtype=np.intp),
        predicted,
        compared,
        evaluations,
    )


def repeat_noise(levels: Sequence[str], logs: Floats) -> float | None:
    """Return half the inter-quartile range of the log costs (n,) of repeats, in logs; None without
    repeats. Each run is compared with the median of the runs at the same level; the variance is
    widened by n / (n - 1), since the run is part of its own median. So ``logs`` are about what all
    runs of a level are about, and not each about the others.
    """
    keys = np.asarray(levels)
    deviations: list[float] = []
    for level in sorted(set(levels)):
        values = logs[keys == level]
        if len(values) >= 2:
            widening = float(np.sqrt(len(values) / (len(values) - 1)))
            deviations += ((values - np.median(values)) * widening).tolist()
    if not deviations:
        return None
    low, high = np.quantile(deviations, [0.25, 0.75])
    return float(high - low) / 2.0


def choose(validations: Sequence[Validation], kinds: Sequence[Kind], noise: float) -> str:
    """Return the model with the least error; of models within the noise of it, the least complex
    one.

    Two mean errors over n runs are different if they differ by more than the repeat noise over the
    square root of n. Only kinds with ``auto`` are chosen.
    """
    errors = {v.model: v.error for v in validations}
    allowed = [kind for kind in kinds if kind.auto and kind.name in errors]
    best = min(errors[kind.name] for kind in allowed)
    scored = max((len(set(v.rows.tolist())) for v in validations), default=0)
    tolerance = noise / np.sqrt(max(scored, 1))
    near = [kind for kind in allowed if errors[kind.name] <= best + tolerance]
    return min(near, key=lambda kind: kind.complexity).name if near else allowed[0].name
