"""Fit one model over all contexts of a table: Ernest's terms, and a process over the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import stdtrit
from threadpoolctl import threadpool_limits

from kongming.arrays import Floats
from kongming.quantities import per_cent
from kongming.records.errors import InputError
from kongming.scale.context_columns import Column, Context
from kongming.scale.fit.context_spread import FREEDOM, ContextSpread
from kongming.scale.fit.contexts.context_common import Together, fit_common
from kongming.scale.fit.contexts.context_comparison import compare_own
from kongming.scale.fit.contexts.context_fixed import Above, FixedTime, find_fixed_time
from kongming.scale.fit.contexts.context_model import Center, ContextModel, inputs_of
from kongming.scale.fit.contexts.context_process import Process, thin
from kongming.scale.fit.ernest import ErnestFit, fit_ernest
from kongming.scale.fit.fitting import Settings, failed_warnings, with_setup
from kongming.scale.fit.model import Ranges
from kongming.scale.fit.spread import CALIBRATED_AT
from kongming.scale.fit.validation import held_out, noise_floor_of_means_pct, noise_floor_pct
from kongming.scale.points import Integers, Points, Runs, check_runs
from kongming.scale.table import ContextTable

MOST = 600
"""Maximum number of configurations of the process; of more, some are used (``thin``)."""

ALONE_LEAST = 4
"""Minimum number of configurations of a context that is judged alone as well."""

PRIOR_COUNT = 10.0
"""Number of left-out groups that the assumption counts as that deviations need no widening."""

WIDENING = (0.8, 4.0)
_NORMAL = 1.645
"""0.95 quantile of the normal distribution."""


def fit_contexts(table: ContextTable, settings: Settings) -> ContextModel:
    """Fit one job over its contexts.

    Raises:
        InputError: all runs are of one context, or at one machine count, or a term is undefined.
    """
    check_runs(table.runs)
    owner = table.owner
    if np.shape(owner) != (len(table.runs),) or owner.min() < 0:
        raise InputError("has to name the context of each run.", field="table.owner")
    if owner.max() >= len(table.contexts):
        raise InputError(
            "names a context that is not there.",
            field="table.owner",
            value=int(owner.max()),
            allowed=f"0 to {len(table.contexts) - 1}",
        )
    with threadpool_limits(1, user_api="blas"):
        return _fit(_in_order(table), settings)


def _in_order(table: ContextTable) -> ContextTable:
    """Sort contexts by their runs, and these by configuration: what is left out and drawn together
    follows their order, and neither the rows and columns of a table nor their names say anything.
    """
    points, seconds = table.runs.points, table.runs.seconds
    rows = np.lexsort((seconds, points.iterations, points.machines, points.scale))
    cells = np.column_stack([points.scale, points.machines, points.iterations, seconds])[rows]
    keys = [
        (cells[table.owner[rows] == i].tolist(), _by_name(table, each))
        for i, each in enumerate(table.contexts)
    ]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    owner = np.argsort(order)[table.owner]
    rows = rows[np.argsort(owner[rows], kind="stable")]
    return replace(
        table,
        runs=table.runs.take(rows),
        contexts=tuple(table.contexts[i] for i in order),
        owner=owner[rows],
    )


def _by_name(table: ContextTable, context: Context) -> Context:
    """Return a context's values in the order of their columns' names."""
    places = sorted(range(len(table.columns)), key=table.columns.__getitem__)
    return tuple(context[i] for i in places)


def _fit(table: ContextTable, settings: Settings) -> ContextModel:
    if len(table.contexts) < 2:
        raise InputError(
            "All runs are of one context.",
            field="--context",
            value=", ".join(table.columns),
            hint="Fit it without --context.",
        )
    parts = [table.runs.take(table.owner == i) for i in range(len(table.contexts))]
    owner = np.concatenate([np.full(part.count, i) for i, part in enumerate(parts)])
    points = _joined([part.configurations for part in parts])
    columns = tuple(
        Column.of(name, [context[i] for context in table.contexts])
        for i, name in enumerate(table.columns)
    )
    center = Center.of(points)
    inputs = inputs_of(columns, table.contexts, points, owner, center)
    thinned = thin(inputs, MOST)
    terms = with_setup(settings.terms, table.runs) if table.iterated else settings.terms
    data = Together(
        columns=columns,
        contexts=table.contexts,
        inputs=inputs.take(thinned),
        points=points.take(thinned),
        seconds=np.concatenate([part.typical for part in parts])[thinned],
        repeats=np.concatenate([part.repeats for part in parts])[thinned],
        terms=terms.terms,
        items=settings.items,
    )
    owner = data.inputs.owner
    trend, cliff, process = fit_common(data)
    groups = [np.flatnonzero(owner == i) for i in np.unique(owner)]
    without = process.left_out(groups)
    place = np.full(len(points), -1)
    place[thinned] = np.arange(len(thinned))
    own, alone = compare_own(data, parts, place, cliff, process)
    known, new = _spreads(alone, without, _single_runs(parts, place, process, data), owner)
    above = find_fixed_time(data, process, groups)
    # Contexts that are left out are reported as those without runs are answered.
    out = without if above is None else above.left_out(groups)
    fixed = None if above is None else _fixed_time(above, out, parts, place)
    report = _report(table, columns, parts, owner, alone[0], out[0], trend, settings)
    report["coverage"] |= {"measured": known.coverage, "runs": known.covered}
    report["fixed_time"] = None if fixed is None else fixed.report()
    return ContextModel(
        columns=columns,
        contexts=table.contexts,
        points=data.points,
        trend=trend,
        cliff=cliff,
        process=process,
        own=own,
        center=center,
        ranges=Ranges.of(table.runs),
        known=known,
        new=new,
        fixed=fixed,
        report=report,
        iterated=table.iterated,
        group=table.group,
        type_column=table.type_column,
    )


def _fixed_time(
    above: Above,
    without: tuple[Floats, Floats],
    parts: Sequence[Runs],
    place: Integers,
) -> FixedTime:
    """Return what answers contexts that have no fit of their own where a fixed time is proved;
    ``without`` are the residuals and variances of left-out contexts."""
    alone = above.left_out()
    single = _single_runs(parts, place, above.process, above.data)
    spreads = _spreads(alone, without, single, above.data.inputs.owner)
    return FixedTime(above.data.fixed, above.trend, above.cliff, above.process, *spreads)


def _single_runs(
    parts: Sequence[Runs], place: Integers, process: Process, data: Together
) -> tuple[Integers, Floats, Floats]:
    """Return for each run the number of its configuration in the process, the log of its time over
    the typical one there, and the variance that a single run has above that of the typical time."""
    at, away, start = [], [], 0
    for part in parts:
        at.append(place[start + part.owner])
        away.append(np.log(part.unit_seconds / part.typical[part.owner]))
        start += part.count
    index = np.concatenate(at)
    placed = index >= 0
    more = process.sizes[7] ** 2 * (1.0 - data.day_noise)
    return index[placed], np.concatenate(away)[placed], more[index[placed]]


def _spreads(
    alone: tuple[Floats, Floats],
    without: tuple[Floats, Floats],
    single: tuple[Integers, Floats, Floats],
    owner: Integers,
) -> tuple[ContextSpread, ContextSpread]:
    """Return the spread in contexts with runs, from left-out configurations (``alone``), and in
    those without, from left-out contexts (``without``)."""
    known = _spread(alone, single, np.arange(len(alone[0])))
    new = _spread(without, single, owner)
    # Few contexts cannot show that one without runs is better known than those with runs.
    return known, replace(new, widen=max(new.widen, known.widen))


def _spread(
    left_out: tuple[Floats, Floats], single: tuple[Integers, Floats, Floats], groups: Integers
) -> ContextSpread:
    """Calibrate the deviations by the single runs of what was left out. ``groups`` (n,) are the
    numbers of what was left out together; coverage is that of the interval of predictions, as each
    group has it by the width that the other groups set."""
    index, away, more = single
    residuals, variances = left_out
    standardised = np.abs(residuals[index] + away) / np.sqrt(variances[index] + more)
    group = groups[index]
    count = len(np.unique(groups))
    limit = float(stdtrit(FREEDOM, 0.5 + CALIBRATED_AT / 2))
    held = 0
    for each in np.unique(group):
        mine = group == each
        held += int(np.sum(standardised[mine] <= limit * _widening(standardised[~mine], count - 1)))
    return ContextSpread(_widening(standardised, count), held / len(group), len(group))


def _widening(standardised: Floats, groups: int) -> float:
    """Return the factor of deviations by their ``standardised`` errors, in so many independent
    groups; drawn towards 1 where these are few."""
    if not len(standardised):
        return 1.0
    quantile = float(np.quantile(standardised, CALIBRATED_AT)) / _NORMAL
    widen = np.exp(np.log(max(quantile, 0.2)) * groups / (groups + PRIOR_COUNT))
    return float(np.clip(widen, *WIDENING))


def _report(
    table: ContextTable,
    columns: Sequence[Column],
    parts: Sequence[Runs],
    owner: Integers,
    alone: Floats,
    without: Floats,
    trend: ErnestFit,
    settings: Settings,
) -> dict[str, Any]:
    """Errors in percent: of left-out configurations, of left-out contexts (optimistic: trend, cliff
    and sizes are of all contexts), and of each context's left-out configurations when it is fitted
    alone (plain Ernest in relative errors)."""
    loo, out = (100.0 * np.abs(np.expm1(np.clip(-each, -20, 20))) for each in (alone, without))
    rows = []
    for i in sorted(range(len(parts)), key=lambda i: _by_name(table, table.contexts[i])):
        part = parts[i]
        own: float | None = None
        if part.count >= ALONE_LEAST:

            def plain(runs: Runs) -> ErnestFit:
                return fit_ernest(runs, trend.terms, settings.items, relative=True, rounds=0)

            predicted = held_out(part, plain, [[k] for k in range(part.count)])
            own = float(np.mean(100.0 * np.abs(predicted / part.typical - 1.0)))
        mine = owner == i
        rows.append(
            {
                "context": dict(zip(table.columns, table.contexts[i], strict=True)),
                "runs": len(part),
                "configurations": part.count,
                "loo_error_pct": float(np.mean(loo[mine])) if mine.any() else None,
                "context_out_error_pct": float(np.mean(out[mine])) if mine.any() else None,
                "alone_error_pct": own,
            }
        )
    both = [row for row in rows if row["alone_error_pct"] is not None]
    error, error_without = float(np.mean(loo)), float(np.mean(out))
    warnings = failed_warnings(table.failed)
    if error > settings.threshold_pct:
        warnings.append(
            f"the leave-one-out error of {per_cent(error)} is above the threshold of "
            f"{per_cent(settings.threshold_pct, 'g')}"
        )
    return {
        "model": "contexts",
        "terms": dict(zip((t.key for t in trend.terms), trend.coef.tolist(), strict=True)),
        "columns": {column.name: "names" if column.names else "numbers" for column in columns},
        "contexts": rows,
        "runs": len(table.runs),
        "configurations": len(owner),
        "loo_error_pct": error,
        "context_out_error_pct": error_without,
        "alone_error_pct": float(np.mean([row["alone_error_pct"] for row in both]))
        if both
        else None,
        "noise_floor_pct": _mean([noise_floor_pct(part) for part in parts]),
        "noise_floor_of_means_pct": _mean([noise_floor_of_means_pct(part) for part in parts]),
        "threshold_pct": settings.threshold_pct,
        "good_fit": error <= settings.threshold_pct,
        "coverage": {"level": CALIBRATED_AT, "measured": None, "runs": 0},
        "warnings": warnings,
    }


def _mean(floors: Sequence[float | None]) -> float | None:
    known = [floor for floor in floors if floor is not None]
    return float(np.mean(known)) if known else None


def _joined(parts: Sequence[Points]) -> Points:
    return Points(
        np.concatenate([part.machines for part in parts]),
        np.concatenate([part.scale for part in parts]),
        np.concatenate([part.iterations for part in parts]),
    )
