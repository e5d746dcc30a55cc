"""Output of commands of ``kongming explore`` of a fitted model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kongming.cli import output
from kongming.quantities import count, per_cent

if TYPE_CHECKING:
    from kongming.explore.model_file import ExploreModel

MODEL_WORDS = {
    "tree": "tree",
    "lines": "least squares",
    "bagged_lines": "bagged lines",
    "perceptrons": "perceptrons",
    "pairs": "pairwise terms",
    "gaussian_process": "Gaussian process",
    "projections": "Gaussian process over projections",
    "forest": "forest",
    "boosting": "boosting",
}
"""What docs/explore.md calls the kinds of models."""


def print_stopped(stop_pct: float | None) -> None:
    """Print that the stop rule holds."""
    from kongming.explore.stopping import SHARE

    share, within = per_cent(100.0 * SHARE, "g"), per_cent(stop_pct or 0.0, "g")
    output.console().print(
        f"{share} of the space is known within {within}: no further point is needed.",
        markup=False,
    )


def print_report(model: ExploreModel, report: Mapping[str, Any]) -> None:
    """Print the runs, the kind of model and its errors, one fact a line."""
    console = output.console()
    kind = MODEL_WORDS[model.profiler.model_name]
    console.print(f"{count(report['runs'], 'run')} of {model.target}; model: {kind}", markup=False)
    console.print(output.table(("fact", "value"), list(_facts(report))))


def _facts(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "failed", count(report["failed"], "run")
    if report["timed_out"]:
        yield "ended at a time limit", f"{count(report['timed_out'], 'run')} (lower bounds)"
    if report["pending"]:
        yield "without a value yet", count(report["pending"], "run")
    if report["metric"] != "value":
        yield "metric", report["metric"]
    yield "fitted to", "logarithms" if report["log_target"] else "plain values"
    error = report["error"]
    yield "error of left-out runs", _of(error["rmse"], error["mre_pct"])
    yield "noise floor", _of(error["noise_rmse"], error["noise_pct"])
    kinds = sorted(error["of_learners_rmse"].items(), key=lambda item: float(item[1]))
    if len(kinds) > 1:
        yield "RMSE by kind", ", ".join(f"{MODEL_WORDS[name]} {rmse:.4g}" for name, rmse in kinds)


def _of(rmse: float | None, mean_pct: float | None) -> str:
    parts = (
        None if mean_pct is None else f"{per_cent(mean_pct)} on average",
        None if rmse is None else f"RMSE {rmse:.4g}",
    )
    return ", ".join(part for part in parts if part) or "unknown: no point was run twice"
