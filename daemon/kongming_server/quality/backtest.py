"""Compare finished runs with the predictions made for them: error, coverage, scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from kongming.learning import intervals
from kongming.learning.model_file import FrozenModel, ModelFile
from kongming.records.answers import Realised
from kongming.store.service_entries import StoredRealised


def realised(runs: Sequence[StoredRealised], drifts: Iterable[str] = ()) -> Realised | None:
    """Over these runs; None without any. ``drifts`` are the reasons of models that drift."""
    if not runs:
        return None
    reasons = list(drifts)
    return Realised(
        runs=len(runs),
        median_error_pct=statistics.median(run.error_pct for run in runs),
        coverage=statistics.fmean(run.covered for run in runs),
        level=statistics.median(run.level for run in runs),
        drifted=bool(reasons),
        reason=" ".join(reasons),
    )


def error(run: StoredRealised, better: str = "lower") -> float:
    """Log measured less log predicted cost: above 0 where the run was slower than was said,
    whichever way the metric counts (``better``: lower or higher)."""
    missed = math.log(run.measured / run.predicted)
    return missed if better == "lower" else -missed


def score(run: StoredRealised, better: str = "lower") -> float:
    """The error in halves of its interval, in logs: within -1 and 1 the interval held it."""
    end = run.upper if run.measured >= run.predicted else run.lower
    # An interval without width promised the very value.
    half = max(abs(math.log(end / run.predicted)), 1e-9) if end > 0.0 else math.inf
    return error(run, better) / half


def promised(file: ModelFile, model: str | None = None, *, level: float = 0.9) -> list[float]:
    """The scores that validation's own residuals have, each in its own interval of ``level``:
    what the scores of finished runs are held against. Of the quick variant where there is one,
    for live fingerprints are quick. ``model`` None is the chosen one."""
    variant = file.variants.get("quick", file.variants["full"])
    frozen = variant.models.get(model or variant.chosen, variant.model())
    return [
        residual / _half(frozen, variant.noise, severity, residual, level)
        for residual, severity in zip(
            frozen.residuals.tolist(), frozen.severities.tolist(), strict=True
        )
    ]


def _half(
    frozen: FrozenModel, noise: float, severity: float, residual: float, level: float
) -> float:
    """Of the interval that this model says at such a severity, on the residual's side, in logs."""
    said = intervals.interval(
        0.0,
        severity,
        residuals=np.asarray(frozen.residuals),
        severities=np.asarray(frozen.severities),
        noise=noise,
        lowest=-math.inf,
        groups=frozen.groups,
        level=level,
    )
    return abs(math.log(said.upper if residual >= 0.0 else said.lower))
