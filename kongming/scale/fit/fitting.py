"""Fit scale models to a table of runs: terms, kind, errors, baselines, warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kongming.quantities import count, per_cent
from kongming.scale.fit.backbone import backbone_of
from kongming.scale.fit.choice import choose_terms, fitter_of
from kongming.scale.fit.cliffs import SIDE, Edge, find_edge
from kongming.scale.fit.ernest import ErnestFit, fit_ernest
from kongming.scale.fit.model import Ranges, ScaleModel
from kongming.scale.fit.nearest import fit_amdahl, fit_nearest
from kongming.scale.fit.spread import CALIBRATED_AT, Spread, measure_spread
from kongming.scale.fit.stack import BACKBONE, StackFit, fit_stack, left_out_order
from kongming.scale.fit.stack_spread import StackSpread, measure_stack_spread
from kongming.scale.fit.terms import DEFAULT, SETUP, Term, Terms, term
from kongming.scale.fit.validation import (
    Fit,
    Fitter,
    Scores,
    folds_of,
    held_out,
    largest_out,
    noise_floor_of_means_pct,
    noise_floor_pct,
    repeats_tell_noise,
    score,
)
from kongming.scale.points import Points, Runs, check_runs
from kongming.scale.table import Table

THRESHOLD_PCT = 20.0
"""Ernest's own predictions were within 20% on most jobs (section 6)."""

AUTO = "auto"
STACK = "stack"
LEFT_OUT_MOST = 60
BEYOND = 2.0
"""Weights of a stack are reported at the largest machine count, and at so many times as many."""

LEAST_NOISE_PCT = 1.0
"""An error is compared with a repeat noise of this or more: equal repeats show no noise at all."""

FIRST_SLOWER = 1.1
"""Ratio of first to later repeats above which a warning is given."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Fitting options. ``kind``: ``auto`` or ``stack``, or one of ``choice.Kind``;
    ``drop_first``: ignore each configuration's first run; ``memory_load``: the largest scale per
    machine that fits into memory."""

    terms: Terms
    items: float | None = None
    kind: str = AUTO
    threshold_pct: float = THRESHOLD_PCT
    drop_first: bool = False
    memory_load: float | None = None
    seed: int = 0


def fit_table(table: Table, settings: Settings) -> tuple[ScaleModel, ...]:
    """Fit one model for each job and machine type of a table."""
    return tuple(
        fit_runs(
            runs,
            settings,
            iterated=table.iterated,
            has_scale=table.has_scale,
            group=group,
            machine_type=machine_type,
            identities=table.identities.get((group, machine_type), ()),
            failed=table.failed.get((group, machine_type), 0),
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
    failed: int = 0,
) -> ScaleModel:
    """Fit one job on one machine type; ``failed`` runs were left out of the table.

    Raises:
        InputError: a term is undefined at a run, or runs are of no use (``check_runs``).
        UnknownNameError: no such kind of model.
    """
    check_runs(runs)
    # For matrices of this size, synchronising several threads costs more than it saves.
    with threadpool_limits(1, user_api="blas"):
        return _fit(runs, settings, iterated, has_scale, group, machine_type, identities, failed)


def _fit(
    runs: Runs,
    settings: Settings,
    iterated: bool,
    has_scale: bool,
    group: str | None,
    machine_type: str | None,
    identities: tuple[str, ...],
    failed: int,
) -> ScaleModel:
    warnings = failed_warnings(failed)
    if len(identities) > 1:
        warnings.append(
            f"the runs belong to {len(identities)} different programs or inputs (column identity)"
        )
    # Which run was the first is all that the order of rows tells.
    all_runs = runs = _first_runs(runs, settings, warnings).in_order()
    requested = with_setup(settings.terms, runs) if iterated else settings.terms
    edge = None
    stacked = settings.kind in (AUTO, STACK)
    # With one scale a load is a machine count, and between two that were run there is no gap.
    if stacked and np.ptp(runs.points.scale) > 0.0:
        edge = find_edge(runs, requested.terms, settings.items)
        if edge is not None:
            warnings.append(_edge_warning(edge))
            runs = runs.take(runs.points.load <= edge.inside * (1.0 + 1e-9))
    chosen = choose_terms(runs, requested, settings.items)
    folds = folds_of(runs.count, LEFT_OUT_MOST)
    largest = _largest_out(runs, requested, settings)
    if stacked:
        fit: Fit = fit_stack(runs, chosen.terms, settings.items)
        assert isinstance(fit, StackFit)
        spread: Spread | StackSpread = measure_stack_spread(runs, fit)
        judged = _of_stack(fit, runs, largest)
    else:
        fitter = fitter_of(settings.kind, chosen.terms, settings.items)
        fit = fitter(runs)
        spread = measure_spread(runs, fit, fitter, seed=settings.seed)
        judged = _of_kind(runs, fitter, folds, largest)
    backbone = backbone_of(fit) or fit_ernest(runs, chosen.terms, settings.items, relative=True)
    noise = noise_floor_of_means_pct(all_runs)
    if not judged.left_out:
        warnings.append(
            f"the error is not known: {runs.count} configurations are too few to leave any out; "
            "run three or more"
        )
    warnings += _noise_warnings(runs, spread, judged.left_out)
    _warn(warnings, runs, backbone, judged.scores.mean_pct, noise, settings, has_scale)
    report: dict[str, Any] = {
        "terms": _coefficients(backbone),
        "terms_form": BACKBONE if stacked else None,
        "terms_reason": chosen.reason,
        "model": fit.kind,
        "model_reason": judged.reason,
        "loo_error_pct": judged.scores.mean_pct if judged.left_out else None,
        "loo": judged.scores.document() if judged.left_out else None,
        "nested_error_pct": judged.nested_pct,
        "largest_out_error_pct": judged.largest_out_pct,
        "baselines": _baselines(runs, settings, folds),
        "candidates": judged.candidates,
        "stack": judged.stack,
        "tried_terms": {name: 100.0 * error for name, error in chosen.errors.items()},
        "noise_floor_pct": noise_floor_pct(all_runs),
        "noise_floor_of_means_pct": noise,
        "threshold_pct": settings.threshold_pct,
        "good_fit": judged.left_out and judged.scores.mean_pct <= settings.threshold_pct,
        "coverage": {
            "level": CALIBRATED_AT,
            "measured": spread.coverage,
            "runs": spread.covered,
        },
        "runs": len(all_runs),
        "configurations": all_runs.count,
        "fastest": _fastest(fit, runs),
        "warnings": warnings,
    }
    cliff = fit.member("cliff") if isinstance(fit, StackFit) else fit
    if isinstance(cliff, ErnestFit) and cliff.cliff is not None:
        step, slope = cliff.coef[-2:].tolist()
        report["cliff"] = {"load": cliff.cliff, "step_s": step, "slope_s": slope}
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


@dataclass(frozen=True, slots=True)
class _Judged:
    """Report on a kind of model: errors in percent of what was left out."""

    reason: str
    scores: Scores
    nested_pct: float | None
    largest_out_pct: float | None
    candidates: Mapping[str, float]
    stack: list[dict[str, Any]] | None
    left_out: bool = True


def _of_kind(
    runs: Runs, fitter: Fitter, folds: list[list[int]], largest_out_pct: float | None
) -> _Judged:
    scores = score(held_out(runs, fitter, folds), runs)
    return _Judged("as requested", scores, None, largest_out_pct, {}, None)


def _of_stack(fit: StackFit, runs: Runs, largest_out_pct: float | None) -> _Judged:
    """Judge a stack by what it left out when it was fitted."""
    left, alone = fit.left, fit.left.alone
    reason = "the average of all forms: there are too few configurations to leave any out"
    errors = fit.left_out_errors()
    order = left_out_order(runs.count)
    if not alone:
        order, errors = np.arange(runs.count), np.log(fit.predict(runs.configurations))
        errors = errors - np.log(runs.typical)
    typical = runs.typical[order]
    shares = fit.weights(_corner(runs, 1.0))[0], fit.weights(_corner(runs, BEYOND))[0]
    means = 100.0 * np.mean(np.abs(left.errors[:alone]), axis=0) if alone else None
    stack: list[dict[str, Any]] = []
    for i, (name, member) in enumerate(zip(fit.names, fit.members, strict=True)):
        terms = backbone_of(member)
        stack.append(
            {
                "form": name,
                "weight": float(shares[0][i]),
                "weight_beyond": float(shares[1][i]),
                "loo_error_pct": None if means is None else float(means[i]),
                "terms": None if terms is None else _coefficients(terms),
            }
        )
    stack.sort(key=lambda entry: -entry["weight"])
    nested = None
    if alone:
        reason = "the forms are averaged by their errors on left-out configurations; most weight: "
        reason += ", ".join(
            f"{each['form']} {per_cent(100 * each['weight'], '.0f')}" for each in stack[:3]
        )
        nested = 100.0 * float(np.mean(np.abs(np.expm1(-left.residuals[:alone]))))
    return _Judged(
        reason=reason,
        scores=score(typical * np.exp(errors[: len(typical)]), runs, order),
        nested_pct=nested,
        largest_out_pct=largest_out_pct,
        candidates={} if means is None else dict(zip(fit.names, means.tolist(), strict=True)),
        stack=stack,
        left_out=alone > 0,
    )


def _corner(runs: Runs, times: float) -> Points:
    """Return the largest machine count, so many times, at the largest scale."""
    points = runs.points
    return Points(
        np.array([times * points.machines.max()]), np.array([points.scale.max()]), np.ones(1)
    )


def _coefficients(fit: ErnestFit) -> dict[str, float]:
    values = fit.coef.tolist()[: len(fit.terms)]
    return {term.key: value for term, value in zip(fit.terms, values, strict=True)}


def with_setup(requested: Terms, runs: Runs) -> Terms:
    """Add the set-up term to those of an iteration. It can be estimated only if runs differ in
    their iterations."""
    if np.ptp(runs.points.iterations) == 0.0 or SETUP in requested.keys:
        return requested
    return Terms((*requested.terms, term(SETUP)), requested.candidates)


def _first_runs(runs: Runs, settings: Settings, warnings: list[str]) -> Runs:
    """Drop each configuration's first run if configured, else warn if first runs are slower."""
    repeated = np.flatnonzero(runs.repeats > 1)
    if not len(repeated):
        return runs
    first = np.array([int(np.argmax(runs.owner == index)) for index in repeated], dtype=np.intp)
    if settings.drop_first:
        is_later = np.ones(len(runs), dtype=bool)
        is_later[first] = False
        return runs.take(is_later)
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
            "with cold caches: --drop-first ignores them"
        )
    return runs


def failed_warnings(failed: int) -> list[str]:
    """Return what to say of so many failed runs in a table."""
    return [f"{count(failed, 'failed run')} left out (column status)"] if failed else []


def _noise_warnings(runs: Runs, spread: Spread | StackSpread, left_out: bool) -> list[str]:
    """Return what to say of the noise of a stack's runs where too few are repeated; ``left_out``:
    whether any configuration could be."""
    if not isinstance(spread, StackSpread) or repeats_tell_noise(runs):
        return []
    extra = len(runs) - runs.count
    known = "is not known: no configuration was run twice"
    if extra:
        known = f"is hardly known: there {'is' if extra == 1 else 'are'} {count(extra, 'repeat')}"
    sources = ["the errors on left-out configurations"] if left_out else []
    sources += ["few repeats"] if extra else []
    source = f", from {' and '.join(sources)}" if sources else ", which no run tells"
    return [
        f"the noise of a run {known}. Intervals assume {per_cent(100.0 * spread.noise, '.0f')}"
        f"{source}: repeat some runs"
    ]


def _edge_warning(edge: Edge) -> str:
    return (
        f"beyond a scale of {edge.inside:g} per machine the job takes {edge.times:.1f} times the "
        "time predicted from the other runs, as when memory is full: nothing is predicted there "
        f"(run {SIDE} configurations beyond it for a piecewise fit)"
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
        warnings.append("there is no scale column: every run is taken to be at scale 1")
    elif np.ptp(runs.points.scale) == 0.0:
        warnings.append(
            f"all runs are at scale {runs.points.scale[0]:g}: predictions at other scales are "
            "extrapolated by the terms alone"
        )
    if runs.count < len(backbone.coef):
        warnings.append(
            f"{runs.count} configurations for {len(backbone.coef)} terms: the coefficients are "
            "not unique"
        )
    if error_pct > settings.threshold_pct:
        warnings.append(
            f"the leave-one-out error of {per_cent(error_pct)} is above the threshold of "
            f"{per_cent(settings.threshold_pct, 'g')}: the terms do not describe this job; try "
            "--terms auto "
            "or add your own"
        )
    if noise_pct is not None and error_pct > 3.0 * max(noise_pct, LEAST_NOISE_PCT):
        counted = (
            f", counted as {per_cent(LEAST_NOISE_PCT, 'g')}" if noise_pct < LEAST_NOISE_PCT else ""
        )
        warnings.append(
            f"the error is {error_pct / max(noise_pct, LEAST_NOISE_PCT):.0f} times the repeat "
            f"noise{counted}: the model does not explain all of it"
        )


def _baselines(runs: Runs, settings: Settings, folds: list[list[int]]) -> Mapping[str, float]:
    """Mean leave-one-out errors of the baselines in percent."""
    default: tuple[Term, ...] = tuple(term(key) for key in DEFAULT)
    fitters: dict[str, Fitter] = {
        "repeat_nearest": fit_nearest,
        "amdahl": fit_amdahl,
        "ernest": fitter_of("ernest", default, None),
        "ernest_relative": lambda runs: fit_ernest(runs, default, relative=True, rounds=0),
    }
    return {
        name: score(held_out(runs, fitter, folds), runs).mean_pct
        for name, fitter in fitters.items()
    }


def _largest_out(runs: Runs, requested: Terms, settings: Settings) -> float | None:
    """Prediction error at the largest machine count when fitted on the smaller ones. The count has
    a part in the terms that are chosen from all runs, and in the weights of the forms of a stack:
    both are of the smaller ones here."""
    parts = largest_out(runs, most=1)
    if not parts:
        return None
    training, left_out = parts[0]
    terms = choose_terms(training, requested, settings.items).terms
    if settings.kind in (AUTO, STACK):
        fit: Fit = fit_stack(training, terms, settings.items)
    else:
        fit = fitter_of(settings.kind, terms, settings.items)(training)
    return score(fit.predict(left_out.configurations), left_out).mean_pct


def _fastest(fit: Fit, runs: Runs) -> dict[str, Any]:
    """Fastest of the trained machine counts at the largest scale."""
    counts = np.unique(runs.points.machines)
    scale = float(runs.points.scale.max())
    points = Points(counts, np.full(len(counts), scale), np.ones(len(counts)))
    best = int(np.argmin(fit.predict(points)))
    return {
        "scale": scale,
        "machines": float(counts[best]),
        "slower_with_more": bool(best < len(counts) - 1),
    }
