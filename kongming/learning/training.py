"""Training: from the runs of one application to a document with checksum that holds every model."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kongming.arrays import Floats
from kongming.learning import dataset as datasets
from kongming.learning import intervals
from kongming.learning import model_file as persist
from kongming.learning.columns import quick_columns as quick_columns_of
from kongming.learning.coupling import typical
from kongming.learning.dataset import Dataset
from kongming.learning.fitting import Fitted, fit
from kongming.learning.posterior import Posterior
from kongming.learning.presence import presence
from kongming.learning.registry import AUTO, KINDS, STACK, Kind, model_kind, model_names
from kongming.learning.repeat_noise import repeat_variance
from kongming.learning.stacking import disagreement, posterior, stacked
from kongming.learning.usefulness import MEAN, NO_SLOWDOWN, not_better_than
from kongming.learning.validation import (
    LEAST_NOISE,
    Validation,
    choose,
    cross_validate,
    make_folds,
    positions,
    repeat_noise,
    scored_families,
)
from kongming.quantities import count
from kongming.records import moments
from kongming.records.errors import InputError, UntrainedError
from kongming.records.judging import judge, without_spoiled
from kongming.records.run import Run

LEAST_RUNS = 4
"""Minimum number of usable runs for training."""


def train_application(
    runs: Iterable[Run],
    *,
    placement: str | None = None,
    model: str = AUTO,
    models: Iterable[str] | None = None,
    quick_columns: Sequence[str] | None = None,
    random_state: int = 0,
    trained_at: str | None = None,
) -> dict[str, Any]:
    """Fit and validate models on the solo and induced runs; the result is JSON.

    Co-runs are never trained on: predictions are checked against them. ``placement`` keeps the runs
    at that placement (None: they must all be at one). ``model`` is the default of predictions;
    ``auto`` is the mean of the penalised models. ``models`` are those to fit, None for all except
    the optional ones; ``MEAN`` and ``model`` always are. ``quick_columns`` are the names of the
    quick suite; None takes them from the runs' quick fingerprints, and without those only the full
    variant is trained. The same runs and ``random_state`` give the same document, except for
    ``trained_at`` (UTC, ISO 8601).

    Raises:
        UntrainedError: too few usable runs, or nothing varied.
        IncompatibleError: the runs must not be mixed.
        UnknownNameError: no such model.
    """
    kinds = _kinds(model, models)
    chosen_runs = [
        run
        for run in runs
        if run.kind in ("solo", "induced") and placement in (None, run.placement)
    ]
    data = datasets.build(chosen_runs)
    if len(data.y) < LEAST_RUNS:
        raise UntrainedError(
            f"Only {count(len(data.y), 'run')} of {data.app} can be trained on; "
            f"at least {LEAST_RUNS} are needed.",
            hint="Profile it: kongming profile APPS.toml --plan quick",
        )
    coupling = typical(chosen_runs)
    quick = quick_columns_of(chosen_runs) if quick_columns is None else tuple(quick_columns)
    # One thread: more do not help on matrices of this size, and the number of threads must not
    # change the last digits.
    with threadpool_limits(1, user_api="blas"):
        variants = {"full": _train_variant(data, kinds, model, random_state)}
        quick_data = data.select(quick).as_quick()
        if quick_data.columns:
            variants["quick"] = _train_variant(quick_data, kinds, model, random_state)
    return persist.seal(
        {
            "app": data.app,
            "identity": data.identity,
            "node_id": data.node_id,
            "placement": data.placement,
            "suite_version": data.suite_version,
            "metric_unit": data.metric_unit,
            "better": data.better,
            "cpu": data.cpu,
            "solo": {
                "median": data.solo.median,
                "noise_pct": data.solo.noise_pct,
                "n": data.solo.n,
            },
            "awake": data.awake,
            **({} if coupling is None else {"coupling": coupling}),
            "requested": model,
            "chosen": variants["full"]["chosen"],
            "random_state": random_state,
            "runs": {
                "total": len(data.y),
                "solo": data.kinds.count("solo"),
                "induced": data.kinds.count("induced"),
                "dropped": [{"name": d.name, "reason": d.reason} for d in data.dropped_runs],
            },
            "dropped_columns": [{"name": d.name, "reason": d.reason} for d in data.dropped_columns],
            "profile": judge(chosen_runs).to_dict(),
            "trained_at": trained_at or _now(),
            "platform": _versions(),
            "variants": variants,
        }
    )


def _kinds(model: str, models: Iterable[str] | None) -> list[Kind]:
    """Return the kinds to fit, in the order of the table. Raises UnknownNameError."""
    wanted = set(model_names() if models is None else models)
    wanted |= {"MEAN"} if model == AUTO else {"MEAN", model}
    for name in sorted(wanted):
        model_kind(name)
    if STACK in wanted:
        wanted |= {kind.name for kind in KINDS.values() if kind.member}
    return [kind for kind in KINDS.values() if kind.name in wanted]


def _train_variant(
    data: Dataset, kinds: Sequence[Kind], model: str, random_state: int
) -> dict[str, Any]:
    about_all = _about_all(data)
    floor = repeat_noise(data.levels, about_all)
    # Models are fitted to targets, and compared by them, in which a solo run's is about the others.
    noise = max(LEAST_NOISE, repeat_noise(data.levels, data.y) or 0.0)
    folds = make_folds(data)
    validations = {
        kind.name: cross_validate(kind, data, folds, noise=noise, random_state=random_state)
        for kind in kinds
    }
    runs, columns = data.X.shape
    determined = [kind for kind in kinds if runs > columns or not kind.unpenalised]
    members = [kind.name for kind in KINDS.values() if kind.member]
    # Some of the members alone are another model.
    complete = all(name in validations for name in members)
    stack = stacked([validations[name] for name in members]) if complete else None
    best = choose(list(validations.values()), determined, noise) if stack is None else STACK
    chosen = best if model == AUTO else model
    spread = data.spread
    severities = intervals.severity(np.exp(data.known), np.exp(data.idle), spread)
    disagreements = None if stack is None else disagreement([validations[m] for m in members])
    families = scored_families(data, folds)
    inner = positions(folds, np.arange(len(data.y)))
    if stack is not None:
        validations[STACK] = stack
    loaded = {name: validation.under_load(data) for name, validation in validations.items()}
    judged = {
        name: _judged(validation, families, severities, disagreements)
        | _scores(loaded[name], loaded["MEAN"])
        for name, validation in validations.items()
    }
    models = {}
    for kind in kinds:
        fitted = fit(kind, data, noise=noise, inner=inner, random_state=random_state)
        models[kind.name] = _model(kind, fitted, data, validations[kind.name]) | judged[kind.name]
    if stack is not None:
        members_of = {name: models[name] for name in members}
        near = presence(data.y, data.groups, data.placement)
        models[STACK] = _stack(members_of, posterior(data), near) | judged[STACK]
    repeats = repeat_variance(data.levels, about_all)
    return {
        "columns": list(data.columns),
        "families": dict(zip(data.columns, data.families, strict=True)),
        "idle": _named(data, np.exp(data.idle)),
        "spread": _named(data, spread),
        # A live environment is as noisy as the readings before the training runs.
        "low": _named(data, np.exp(np.minimum(data.X, data.known).min(axis=0))),
        "high": _named(data, np.exp(np.maximum(data.X, data.known).max(axis=0))),
        "noise": noise,
        "noise_floor_pct": None if floor is None else 100.0 * floor,
        "repeats": {"variance": repeats.value, "degrees": repeats.degrees},
        "groups": [fold.name for fold in folds],
        "chosen": chosen,
        "reason": _reason(chosen, model, validations, determined),
        "models": models,
    }


def _model(kind: Kind, fitted: Fitted, data: Dataset, validation: Validation) -> dict[str, Any]:
    findings = fitted.estimator.findings()
    if "evaluations" in findings:
        findings["validation_evaluations"] = validation.evaluations
    return {
        "space": kind.space,
        "bounds": list(fitted.bounds),
        "worst": min(float(data.y.max()), fitted.bounds[1]),
        "frozen": fitted.estimator.freeze(),
        "weights": _named(data, _weights(fitted, data)),
        **findings,
    }


def _stack(
    members: Mapping[str, Mapping[str, Any]], known: Posterior, near: float
) -> dict[str, Any]:
    """Return the stack as a model; its members are in the same variant."""
    models = list(members.values())
    return {
        "space": "raw",
        "bounds": [
            min(model["bounds"][0] for model in models),
            max(model["bounds"][1] for model in models),
        ],
        "worst": max(model["worst"] for model in models),
        "frozen": {
            "type": "consensus",
            "members": list(members),
            "posterior": known.freeze(),
            "presence": near,
        },
        "weights": {
            column: float(np.mean([model["weights"][column] for model in models]))
            for column in models[0]["weights"]
        },
    }


def _judged(
    validation: Validation, families: int, severities: Floats, disagreements: Floats | None
) -> dict[str, Any]:
    """Return what intervals rest on: residuals with the severity of their environments and, with
    a stack, the disagreement of its members there.
    """
    return {
        "residuals": validation.residuals.tolist(),
        "severities": severities[validation.rows].tolist(),
        **({} if disagreements is None else {"disagreements": disagreements.tolist()}),
        "groups": families,
    }


def _scores(validation: Validation, mean: Validation) -> dict[str, Any]:
    """Return the scores over the runs of a validation, and the trivial answers that the model is
    not clearly better than on these: both without scores, since nothing shows that it is.
    """
    percent = validation.percent()
    scores = {}
    if len(percent):
        scores = {
            "median_pct": float(np.median(percent)),
            "mean_pct": float(np.average(percent, weights=validation.weights)),
            "mean_abs_log": validation.error,
            "n": len(set(validation.rows.tolist())),
        }
    return {
        "scores": scores,
        "not_better_than": not_better_than(validation, mean) if scores else [MEAN, NO_SLOWDOWN],
    }


def _weights(fitted: Fitted, data: Dataset) -> Floats:
    """Return (p,): how much a move of a column through its range moves the log slowdown, on average
    over the training environments."""
    times = data.times
    n, p = times.shape
    ends = []
    for end in (times.min(axis=0), times.max(axis=0)):
        moved = np.repeat(times[None, :, :], p, axis=0)
        for j in range(p):
            moved[j, :, j] = end[j]
        ends.append(fitted.log_slowdown(moved.reshape(p * n, p)).reshape(p, n))
    return np.asarray(np.abs(ends[1] - ends[0]).mean(axis=1), dtype=np.float64)


def _about_all(data: Dataset) -> Floats:
    """Return (n,) log slowdowns in which a solo run's is about the mean of all n solo runs: those
    of a dataset are over the other n - 1, which makes them n / (n - 1) times as large."""
    solo = np.array([kind == "solo" for kind in data.kinds])
    return np.where(solo, data.y * (1.0 - 1.0 / max(int(solo.sum()), 1)), data.y)


def _named(data: Dataset, values: Floats) -> dict[str, float]:
    return dict(zip(data.columns, values.tolist(), strict=True))


def _reason(
    chosen: str,
    requested: str,
    validations: Mapping[str, Validation],
    determined: Sequence[Kind],
) -> str:
    """Return why ``chosen`` answers."""
    if requested != AUTO:
        return "it was requested"
    if chosen == STACK:
        return "it is the mean of the penalised models"
    errors = {kind.name: validations[kind.name].error for kind in determined}
    least = min(errors, key=lambda name: errors[name])
    if not np.isfinite(errors[least]):
        return "there are too few runs to validate any other"
    if least == chosen:
        return "it has the lowest error on left-out families"
    return f"it is the simplest whose error is within the noise of the least ({least}'s)"


def training_sets(runs: Iterable[Run]) -> tuple[dict[tuple[str, str], list[Run]], list[str]]:
    """Split one application's runs by (node id, placement), with a note for each group of left-out
    runs. Those of a placement are in the order of their newest run, the node measured last at the
    end.

    Spoiled campaigns that were measured again are left out (``without_spoiled``), and only the
    newest identity and suite version of each are kept: runs of a changed program, or with other
    surrogates, must not be mixed.

    Raises:
        InputError: the runs are of several applications.
    """
    kept_runs, spoiled = without_spoiled(list(runs))
    sets: dict[tuple[str, str], list[Run]] = {}
    apps = set()
    for run in kept_runs:
        apps.add(run.app)
        if run.kind in ("solo", "induced"):
            sets.setdefault((run.node_id, run.placement), []).append(run)
    if len(apps) > 1:
        raise InputError(
            "The runs are of several applications.", field="app", value=", ".join(sorted(apps))
        )
    notes = []
    if spoiled:
        notes.append(f"{kept_runs[0].app}: {spoiled} runs of spoiled profiles are left out")
    # Solo runs of a co-run have no fingerprint: without other runs nothing was profiled.
    profiled = {
        key: members for key, members in sets.items() if any(run.fingerprint for run in members)
    }
    sets = profiled or sets
    measured_at = {}
    for (node_id, placement), members in sets.items():
        measured = [run for run in members if run.fingerprint is not None and run.ok]
        newest = max(measured or members, key=lambda run: run.started_at)
        measured_at[node_id, placement] = newest.started_at
        version = None if newest.fingerprint is None else newest.fingerprint.suite_version
        matching = [
            run
            for run in members
            if run.identity == newest.identity
            and (run.fingerprint is None or run.fingerprint.suite_version == version)
        ]
        if len(matching) < len(members):
            notes.append(
                f"{newest.app} at {placement} on node {node_id}: {len(members) - len(matching)} "
                "runs of an earlier identity or suite version are left out"
            )
        sets[(node_id, placement)] = matching
    ordered = sorted(sets, key=lambda key: (key[1], measured_at[key], key[0]))
    return {key: sets[key] for key in ordered}, notes


def _now() -> str:
    return moments.now("seconds")


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("kongming", "numpy", "scikit-learn", "scipy", "lightgbm"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions
