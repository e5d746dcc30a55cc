"""Predict one application's slowdown in one environment: interval, main drivers and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kongming.arrays import Floats
from kongming.learning import coupling as couplings
from kongming.learning import intervals, usefulness
from kongming.learning.drivers import drivers
from kongming.learning.intervals import UNWIDENED, Widening
from kongming.learning.model_file import FrozenModel, ModelFile, Variant
from kongming.learning.readings import (
    VariantName,
    check_suite,
    joined_as_idle,
    logs_of,
    variant_columns,
)
from kongming.learning.scorer import Scorer, choose, scorer_of
from kongming.quantities import count, per_cent
from kongming.records.errors import ExtrapolationError
from kongming.records.fingerprint import Fingerprint
from kongming.records.prediction import Interval, Prediction

Times = Mapping[str, float]
"""Seconds per operation by surrogate."""

_WORTH_A_NOTE = 0.005
"""Least log slowdown by presence that is reported."""


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """The parameters of a prediction.

    ``model`` None is the chosen model, ``variant`` None the columns that the environment has
    readings of; ``level`` and ``widening`` are the interval's, and ``awake`` is the share of time
    in which neighbours keep a CPU awake, NaN without any.
    """

    model: str | None = None
    variant: VariantName | None = None
    level: float = 0.9
    widening: Widening = UNWIDENED
    awake: float = math.nan


@dataclass(frozen=True, eq=False, slots=True)
class Estimate:
    """The slowdown of one environment, and the model that estimated it.

    ``row`` (p,) is the environment in log seconds per operation, in the order of the scorer's
    columns, and ``awake`` the share of time in which its neighbours keep a CPU awake, NaN without
    any. ``filled`` says that a reading that the model uses was missing, and filled in."""

    interval: Interval
    row: Floats
    scorer: Scorer
    awake: float
    filled: bool
    warnings: tuple[str, ...]


def estimate(
    file: ModelFile, environment: Fingerprint | Times, options: EstimateOptions
) -> Estimate:
    """Estimate only the slowdown.

    Raises:
        IncompatibleError: the fingerprint is of another suite version than the model.
        InputError: too many of the model's surrogates are missing, or all of a resource that it
            depends on, or a reading is not a finite time above 0 s.
        UnknownNameError: no such model was trained.
    """
    warnings: list[str] = []
    if isinstance(environment, Fingerprint):
        check_suite(file, environment.suite_version, "The fingerprint")
        if environment.node.id != file.node_id:
            warnings.append("The fingerprint was taken on another node than the training runs.")
        coupling = couplings.read(environment.passive)
        if (
            coupling is not None
            and file.coupling is not None
            and couplings.unlike(coupling, file.coupling)
        ):
            warnings.append(
                f"The fingerprint was taken at a coupling of {coupling:.2f}, the training runs at "
                f"{file.coupling:.2f}: neighbours now disturb each other "
                f"{'more' if coupling > file.coupling else 'less'}."
            )
        times: Times = environment.times()
    else:
        times = environment
    if options.variant is not None:
        variant_columns(file, options.variant)
    names: Sequence[VariantName] = (
        ("full", "quick") if options.variant is None else (options.variant,)
    )
    scorers: dict[VariantName, Scorer] = {}
    rows: dict[VariantName, Floats] = {}
    for name in names:
        # The quick columns are not needed if all full ones are present.
        if name in file.variants and not (rows and not np.isnan(rows["full"]).any()):
            variant = file.variants[name]
            row = logs_of(variant.columns, times)
            rows[name] = joined_as_idle(variant, np.log(variant.idle), row[None, :])[0]
            if name in ("full", options.variant) or not np.isnan(rows[name]).any():
                scorers[name] = scorer_of(variant, options.model)
    return estimate_row(file, scorers, rows, options, warnings)


def estimate_row(
    file: ModelFile,
    scorers: Mapping[VariantName, Scorer],
    rows: Mapping[VariantName, Floats],
    options: EstimateOptions,
    warnings: Sequence[str] = (),
) -> Estimate:
    """Estimate the slowdown of an environment given as ``rows``: log seconds per operation by the
    columns of each variant, NaN where there is no reading. Raises InputError as ``estimate``."""
    remarks = [*warnings]
    scorer, row, filled = choose(file, scorers, rows, options.variant, remarks)
    scores = scorer.score(row[None, :], np.array([options.awake]))
    log_slowdown = float(scores.log_slowdown[0])
    interval = scorer.interval(
        log_slowdown,
        float(scores.error[0]),
        options.level,
        options.widening,
        limit=float(scores.limit[0]),
        at_least=bool(scores.at_least[0]),
    )
    if filled:
        # Validation has seen no environment in which readings were missing.
        interval = replace(interval, calibrated=False)
    return Estimate(interval, row, scorer, options.awake, filled, tuple(remarks))


def prediction(
    file: ModelFile,
    environment: Fingerprint | Times,
    options: EstimateOptions,
    *,
    strict: bool,
) -> Prediction:
    """Predict the runtime, with interval, drivers and warnings.

    Raises: as ``estimate``, and ExtrapolationError under ``strict`` outside the training
        environments.
    """
    return prediction_of(file, estimate(file, environment, options), options, strict=strict)


def prediction_of(
    file: ModelFile, answer: Estimate, options: EstimateOptions, *, strict: bool
) -> Prediction:
    """Convert an estimate to a prediction. Raises ExtrapolationError as ``prediction``."""
    scorer, warnings = answer.scorer, [*answer.warnings]
    variant, frozen = scorer.variant, scorer.frozen
    far = scorer.distance(answer.row)
    if far.outside:
        named = ", ".join(variant.columns[j] for j in far.columns[:3])
        more = f" and {len(far.columns) - 3} more" if len(far.columns) > 3 else ""
        sentence = (
            f"The environment lies outside the {file.app} training runs in {named}{more} "
            f"(distance {far.value:.1f}, allowed 1)."
        )
        if strict:
            raise ExtrapolationError(
                sentence,
                hint="Profile the application under such a load, or predict without --strict.",
            )
        warnings.append(sentence)
    if answer.interval.at_least:
        warnings.append(
            "Training runs were ended before the program was where loads slow it by "
            f"{math.exp(frozen.worst):.1f} times or more: the slowdown may be larger than that."
            if frozen.open_ended
            else "The slowdown is that at the edge of the training runs: it may be larger, and is "
            "hardly smaller."
        )
    notes = options.widening.at(options.level).notes()
    if not answer.interval.calibrated:
        warnings.append(
            "The interval is not calibrated: it rests on readings that were filled in."
            if answer.filled
            else _uncalibrated(variant, frozen, options)
        )
    elif answer.interval.calibrated_by == "families":
        notes += (f"The interval is calibrated on {frozen.groups} families of left-out runs.",)
    if (remark := usefulness.remark(file.app, frozen.name, frozen.not_better_than)) is not None:
        warnings.append(remark)
    if file.profile is not None and (remark := file.profile.remark(file.app)) is not None:
        warnings.append(remark)
    moved = answer.row - answer.scorer.log_idle
    near = 0.0 if math.isnan(answer.awake) else frozen.presence * answer.awake
    if near >= _WORTH_A_NOTE:
        notes += (
            f"Included are {per_cent(100.0 * math.expm1(near))} that {file.app} takes longer "
            "because of a neighbour at all, whatever its readings show.",
        )
    # Where readings show less than presence, their shares would pass for shares of all of it.
    shown = not near or float(frozen.log_slowdown(moved[None, :])[0]) >= near
    return Prediction(
        app=file.app,
        model=frozen.name,
        placement=file.placement,
        solo_s=file.solo_metric,
        runtime_s=runtime_of(file, answer.interval),
        slowdown=answer.interval,
        extrapolating=far.outside,
        drivers=drivers(frozen.log_slowdown, moved, np.zeros_like(moved), variant.families)
        if shown
        else (),
        not_better_than=frozen.not_better_than or (),
        profile=file.profile,
        warnings=tuple(warnings),
        notes=notes,
        metric_unit=file.metric_unit,
    )


def _uncalibrated(variant: Variant, frozen: FrozenModel, options: EstimateOptions) -> str:
    families = intervals.families_needed(options.level)
    applications = intervals.applications_needed(options.level)
    if options.widening.groups >= applications:
        return (
            "The interval is not calibrated, and may be too narrow: the profile has only "
            f"{count(variant.loaded_runs or 0, 'run')} under a load, those of the applications "
            f"from whose co-runs it was learned have {options.widening.loaded_runs:g} (median). "
            "Profile it with more --levels or a larger --plan."
        )
    if frozen.groups >= families:
        return (
            f"The interval is not calibrated: {len(frozen.residuals)} validated runs are too few "
            "for its level."
        )
    learnt = options.widening.groups
    others = f" and learned from co-runs of {learnt} other applications" if learnt else ""
    return (
        f"The interval is not calibrated: it was validated on {count(frozen.groups, 'group')} of "
        f"runs{others}; at least {families} groups or {applications} other applications are needed."
    )


def runtime_of(file: ModelFile, slowdown: Interval) -> Interval:
    """The metric in its own unit; where higher is better, more slowdown is a lower value."""
    solo = file.solo_metric
    return slowdown.scaled(solo) if file.better == "lower" else slowdown.inverse(solo)
