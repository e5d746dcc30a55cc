"""Compare finished runs with the predictions made for them: error, coverage, scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from kongming.learning.model_file import ModelFile
from kongming.learning.scorer import Scorer, scorer_of
from kongming.records.answers import Realised
from kongming.store.service_entries import StoredRealised


def realised(runs: Sequence[StoredRealised], drifts: Iterable[str] = ()) -> Realised | None:
    """Summarise these runs; None without any. ``drifts`` are the reasons of models that drift."""
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
    whichever way the metric counts (``better``: lower or higher); 0 where that much or more was
    said."""
    if run.within_open_end:
        return 0.0
    missed = math.log(run.measured) - math.log(run.predicted)
    return missed if better == "lower" else -missed


def score(run: StoredRealised, better: str = "lower") -> float:
    """The error in halves of its interval, in logs: within -1 and 1 the interval held it. 0 for all
    that an interval without an end held: with those below its median alone, they would all seem
    faster than was said."""
    if run.is_open and run.covered:
        return 0.0
    end = run.upper if run.measured >= run.predicted else run.lower
    # An interval without width promised the very value.
    half = max(abs(math.log(end) - math.log(run.predicted)), 1e-9) if end > 0.0 else math.inf
    return error(run, better) / half


def promised(file: ModelFile, model: str | None = None, *, level: float = 0.9) -> list[float]:
    """The scores that validation's own residuals have, each in its own interval of ``level``:
    what the scores of finished runs are held against. Of the quick variant where there is one,
    for live fingerprints are quick. ``model`` None is the chosen one."""
    variant = file.variants.get("quick", file.variants["full"])
    scorer = scorer_of(variant, model if model in variant.models else None)
    frozen = scorer.frozen
    return [
        residual / _half(scorer, error, residual, level)
        for residual, error in zip(frozen.residuals.tolist(), frozen.errors.tolist(), strict=True)
    ]


def _half(scorer: Scorer, error: float, residual: float, level: float) -> float:
    """Return half the interval that this model says at such an error, on the residual's side, in
    logs."""
    interval = scorer.interval(scorer.frozen.worst, error, level)
    end = interval.upper if residual >= 0.0 else interval.lower
    return abs(math.log(end / interval.median))
