"""From a table of runs to scale models: terms, kind, errors, baselines, warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kongming.scale.choice import Choice, choose_kind, choose_terms, fitter_of
from kongming.scale.cliffs import SIDE, Edge, find_edge
from kongming.scale.ernest import ErnestFit, fit_ernest
from kongming.scale.model import Ranges, ScaleModel
from kongming.scale.nearest import NearestFit, fit_amdahl, fit_nearest
from kongming.scale.points import Points, Runs
from kongming.scale.residuals import ResidualFit
from kongming.scale.spread import CALIBRATED_AT, measure_spread
from kongming.scale.table import Table
from kongming.scale.terms import DEFAULT, SETUP, Term, Terms, term
from kongming.scale.validation import (
    Fit,
    Fitter,
    folds_of,
    held_out,
    largest_out,
    noise_floor_pct,
    score,
)

__all__ = ["THRESHOLD_PCT", "Settings", "fit_runs", "fit_table"]

THRESHOLD_PCT = 20.0
"""Ernest's own predictions were within 20% on most jobs (section 6)."""

AUTO = "auto"
LEFT_OUT_MOST = 60
OUTER_FOLDS = 8
FIRST_SLOWER = 1.1
"""First repeats that take so many times the later ones are worth a word."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a table is fitted. ``kind``: one of ``choice.KINDS``, or ``auto``; ``drop_first``:
    without each configuration's first run; ``memory_load``: the scale per machine that fits."""

    terms: Terms
    items: float | None = None
    kind: str = AUTO
    threshold_pct: float = THRESHOLD_PCT
    drop_first: bool = False
    memory_load: float | None = None
    seed: int = 0


def fit_table(table: Table, settings: Settings) -> tuple[ScaleModel, ...]:
    """One model for each job and machine type of a table."""
    return tuple(
        fit_runs(
            runs,
            settings,
            iterated=table.iterated,
            has_scale=table.has_scale,
            group=group,
            machine_type=machine_type,
            identities=table.identities.get((group, machine_type), ()),
        )
        for (group, machine_type), runs in table.parts.items()
    )


def fit_runs(
    runs: Runs,
    settings: Settings,
    *,
    iterated: bool = False,
    has_scale: bool = True,
    group: str | None = None,
    machine_type: str | None = None,
    identities: tuple[str, ...] = (),
) -> ScaleModel:
    """Fit one job on one machine type.

    Raises:
        InputError: a term that has no value at a run.
        UnknownNameError: no such kind of model.
    """
    # More threads wait for each other longer than matrices of this size take.
    with threadpool_limits(1, user_api="blas"):
        return _fit(runs, settings, iterated, has_scale, group, machine_type, identities)


def _fit(
    runs: Runs,
    settings: Settings,
    iterated: bool,
    has_scale: bool,
    group: str | None,
    machine_type: str | None,
    identities: tuple[str, ...],
) -> ScaleModel:
    warnings: list[str] = []
    whole = runs
    if len(identities) > 1:
        warnings.append(
            f"the runs are of {len(identities)} different programs or inputs (column identity)"
        )
    runs = _first_runs(runs, settings, warnings)
    asked = _with_setup(settings.terms, runs) if iterated else settings.terms
    edge = None
    if settings.kind == AUTO:
        edge = find_edge(runs, asked.terms, settings.items)
        if edge is not None:
            warnings.append(_edge_warning(edge))
            runs = runs.take(runs.points.load <= edge.inside * (1.0 + 1e-9))
    chosen = choose_terms(runs, asked, settings.items)
    if settings.kind == AUTO:
        choice = choose_kind(runs, chosen.terms, settings.items)
    else:
        choice = Choice(settings.kind, "it was asked for", {})  # type: ignore[arg-type]
    fitter = fitter_of(choice.kind, chosen.terms, settings.items)
    fit = fitter(runs)
    folds = folds_of(runs.count, LEFT_OUT_MOST)
    scores = score(held_out(runs, fitter, folds), runs)
    spread = measure_spread(runs, fit, fitter, seed=settings.seed)
    backbone = backbone_of(fit) or fit_ernest(runs, chosen.terms, settings.items, relative=True)
    noise = noise_floor_pct(whole)
    _warn(warnings, runs, backbone, scores.mean_pct, noise, settings, has_scale)
    report: dict[str, Any] = {
        "terms": _coefficients(backbone),
        "terms_reason": chosen.reason,
        "model": fit.kind,
        "model_reason": choice.reason,
        "loo_error_pct": scores.mean_pct,
        "loo": scores.document(),
        "nested_error_pct": _nested(runs, chosen.terms, settings),
        "largest_out_error_pct": _largest_out(runs, fitter),
        "baselines": _baselines(runs, settings, folds),
        "candidates": {kind: 100.0 * error for kind, error in choice.errors.items()},
        "tried_terms": {name: 100.0 * error for name, error in chosen.errors.items()},
        "noise_floor_pct": noise,
        "threshold_pct": settings.threshold_pct,
        "good_fit": scores.mean_pct <= settings.threshold_pct,
        "coverage": {
            "level": CALIBRATED_AT,
            "measured": spread.coverage,
            "runs": spread.covered,
        },
        "runs": len(whole),
        "configurations": whole.count,
        "fastest": _fastest(fit, runs),
        "warnings": warnings,
    }
    if isinstance(fit, ErnestFit) and fit.cliff is not None:
        step, slope = fit.coef[-2:].tolist()
        report["cliff"] = {"load": fit.cliff, "step_s": step, "slope_s": slope}
    return ScaleModel(
        fit=fit,
        spread=spread,
        ranges=Ranges.of(runs),
        report=report,
        iterated=iterated,
        edge=edge,
        memory_load=settings.memory_load,
        group=group,
        machine_type=machine_type,
    )


def backbone_of(fit: Fit) -> ErnestFit | None:
    """The combination of terms within a fit, if there is one."""
    if isinstance(fit, ErnestFit):
        return fit
    if isinstance(fit, ResidualFit):
        return fit.ernest
    return fit.beyond if isinstance(fit, NearestFit) else None


def _coefficients(fit: ErnestFit) -> dict[str, float]:
    values = fit.coef.tolist()[: len(fit.terms)]
    return {one.key: value for one, value in zip(fit.terms, values, strict=True)}


def _with_setup(asked: Terms, runs: Runs) -> Terms:
    """What a run costs once shows where runs differ in their iterations."""
    if np.ptp(runs.points.iterations) == 0.0 or SETUP in [one.key for one in asked.terms]:
        return asked
    return Terms((*asked.terms, term(SETUP)), asked.candidates)


def _first_runs(runs: Runs, settings: Settings, warnings: list[str]) -> Runs:
    """Without each configuration's first run where that is wanted; else a word if they differ."""
    repeated = np.flatnonzero(runs.repeats > 1)
    if not len(repeated):
        return runs
    first = np.array([int(np.argmax(runs.owner == one)) for one in repeated], dtype=np.intp)
    if settings.drop_first:
        kept = np.ones(len(runs), dtype=bool)
        kept[first] = False
        return runs.take(kept)
    logs = np.log(runs.unit_seconds)
    ratios = []
    for configuration, at in zip(repeated, first, strict=True):
        rest = runs.owner == configuration
        rest[at] = False
        ratios.append(logs[at] - float(np.median(logs[rest])))
    slower = np.array(ratios)
    typical = float(np.exp(np.median(slower)))
    if len(slower) >= 3 and typical >= FIRST_SLOWER and float(np.mean(slower > 0.0)) >= 0.8:
        warnings.append(
            f"first runs take {typical:.2f} times the later ones of the same configuration, as "
            "with cold caches: --drop-first leaves them out"
        )
    return runs


def _edge_warning(edge: Edge) -> str:
    return (
        f"beyond a scale of {edge.inside:g} per machine the job is {edge.times:.1f} times slower "
        "than the rest foretells, as when memory is full: nothing is predicted there (run "
        f"{SIDE} configurations beyond for a piecewise fit)"
    )


def _warn(
    warnings: list[str],
    runs: Runs,
    backbone: ErnestFit,
    error_pct: float,
    noise_pct: float | None,
    settings: Settings,
    has_scale: bool,
) -> None:
    if not has_scale:
        warnings.append("there is no column of scales: every run is taken at scale 1")
    elif np.ptp(runs.points.scale) == 0.0:
        warnings.append(
            f"all runs are at scale {runs.points.scale[0]:g}: what other scales take is foretold "
            "by the terms alone"
        )
    if runs.count < len(backbone.coef):
        warnings.append(
            f"{runs.count} configurations for {len(backbone.coef)} terms: more than one "
            "combination fits"
        )
    if error_pct > settings.threshold_pct:
        warnings.append(
            f"the leave-one-out error of {error_pct:.1f}% is above the threshold of "
            f"{settings.threshold_pct:g}%: the terms do not describe this job; try --terms auto "
            "or add your own"
        )
    if noise_pct is not None and error_pct > 3.0 * max(noise_pct, 1.0):
        warnings.append(
            f"the error is {error_pct / max(noise_pct, 1e-9):.0f} times what repeats differ by: "
            "there is more to explain"
        )


def _baselines(runs: Runs, settings: Settings, folds: list[list[int]]) -> Mapping[str, float]:
    """Mean errors in percent, each configuration left out."""
    default: tuple[Term, ...] = tuple(term(key) for key in DEFAULT)
    fitters: dict[str, Fitter] = {
        "repeat_nearest": fit_nearest,
        "amdahl": fit_amdahl,
        "ernest": fitter_of("ernest", default, None),
    }
    return {
        name: score(held_out(runs, fitter, folds), runs).mean_pct
        for name, fitter in fitters.items()
    }


def _nested(runs: Runs, terms: tuple[Term, ...], settings: Settings) -> float | None:
    """The error of choosing a kind and fitting it, on what took no part in the choice."""
    if settings.kind != AUTO or runs.count < 4:
        return None

    def whole(some: Runs) -> Fit:
        choice = choose_kind(some, terms, settings.items)
        return fitter_of(choice.kind, terms, settings.items)(some)

    return score(held_out(runs, whole, folds_of(runs.count, OUTER_FOLDS)), runs).mean_pct


def _largest_out(runs: Runs, fitter: Fitter) -> float | None:
    """The error at the largest machine count, foretold from the smaller ones."""
    parts = largest_out(runs, most=1)
    if not parts:
        return None
    trained, left = parts[0]
    return score(fitter(trained).predict(left.configurations), left).mean_pct


def _fastest(fit: Fit, runs: Runs) -> dict[str, Any]:
    """Among the trained machine counts, at the largest scale."""
    counts = np.unique(runs.points.machines)
    scale = float(runs.points.scale.max())
    points = Points(counts, np.full(len(counts), scale), np.ones(len(counts)))
    best = int(np.argmin(fit.predict(points)))
    return {
        "scale": scale,
        "machines": float(counts[best]),
        "slower_with_more": bool(best < len(counts) - 1),
    }
