"""One scale model of a job over all of its contexts: input sizes, parameters, machine types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtrit

from kongming.arrays import Floats
from kongming.quantities import per_cent
from kongming.records.errors import nearest_names
from kongming.scale.context_columns import (
    Column,
    Context,
    Value,
    by_name,
    complete,
    describe,
    show,
)
from kongming.scale.fit import low_end
from kongming.scale.fit.context_spread import Answer, ContextSpread
from kongming.scale.fit.contexts.context_cliff import ContextCliff, Step, step_at
from kongming.scale.fit.contexts.context_fixed import FixedTime
from kongming.scale.fit.contexts.context_own import (
    Furthest,
    OwnFits,
    averaged_variance,
    away_from,
    disagreement,
    places_in,
)
from kongming.scale.fit.contexts.context_process import START, Inputs, Process
from kongming.scale.fit.contexts.context_single import SingleRun
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.model import Ranges, ScaleModel
from kongming.scale.fit.spread import CALIBRATED_AT
from kongming.scale.points import Configuration, Integers, Points

BEYOND = 0.08
"""Variance (of logs) that a distance of one in logs beyond the machines that were run adds."""

FURTHEST = 3.0
"""Predictions reach at most this factor beyond the shortest and the longest measured time, each
relative to the trend of the terms (and the fixed time, if there is one), and intervals farther by a
run's noise alone."""

_TOGETHER = 0.05
"""Columns of numbers that are nearer than this (in standard deviations) to a line in all contexts
changed together."""

STEEPEST = 2.0
"""A number of the context beyond its range moves that by at most this power of its distance."""


@dataclass(frozen=True, slots=True)
class Center:
    """Mean logs of the machines and of the scales that were run: the process is about distances
    from them, so that the unit of the scale has no effect."""

    machines: float
    scale: float

    @classmethod
    def of(cls, points: Points) -> Center:
        return cls(float(np.mean(np.log(points.machines))), float(np.mean(np.log(points.scale))))

    def logs(self, points: Points) -> tuple[Floats, Floats]:
        """(n,) each: logs of machines and scale, centred."""
        return np.log(points.machines) - self.machines, np.log(points.scale) - self.scale


def little_in_common(report: Mapping[str, Any]) -> str | None:
    """Say that contexts without runs are predicted badly, where they are though those with runs are
    not."""
    threshold = float(report["threshold_pct"])
    missed = float(report["context_out_error_pct"])
    if not float(report["loo_error_pct"]) <= threshold < missed:
        return None
    return (
        f"contexts that are left out are missed by {per_cent(missed)}, above the threshold of "
        f"{per_cent(threshold, 'g')}: the others say little of a context without runs"
    )


@dataclass(frozen=True, eq=False, slots=True)
class Own:
    """The own fit of a context, its configurations, and what was left out of all."""

    fit: ErnestFit
    points: Points
    owner: int
    fits: OwnFits
    ends: tuple[float, float]
    step: Step | None
    furthest: Furthest
    chance: float

    @property
    def few(self) -> bool:
        """Tell whether the answer is the average with the common model (``context_few``)."""
        return self.fits.few(self.owner)

    def draw(self, points: Points, common: Floats) -> tuple[Floats, Floats]:
        """Draw logs (n,) of the common model's predictions towards the own fit's, and return the
        variance (n,) that their distance stands for as well."""
        way = common - np.log(self.fit.predict(points))
        places = places_in(points, self.points, self.ends, self.step)
        if self.few:
            share = away_from(points, self.points) * self.fits.share_of_own(places, self.owner)
            return common - share * way, averaged_variance(way, share)
        step = self.fits.step(places, self.owner, way, self.furthest)
        away = away_from(points, self.points)
        untaken = away * (way - step)
        return common - untaken, away * disagreement(way, way - untaken)


@dataclass(frozen=True, eq=False, slots=True)
class ContextFit:
    """The model at one context: ``numbers`` (p,) its encoded columns, ``owner`` its number among
    the contexts that were run, -1 without runs. ``beyond`` is how far (in logs) the context's
    numbers lie outside those that were run, ``untested`` the square of how far from the one value
    that a column had in all runs; ``fixed`` seconds of a run, of however many iterations, are added
    to the trend and the process. ``single`` is its only configuration, if it has a single one."""

    trend: ErnestFit
    step: Step | None
    process: Process
    center: Center
    numbers: Floats
    owner: int
    own: Own | None = None
    beyond: float = 0.0
    untested: float = 0.0
    fixed: float = 0.0
    single: SingleRun | None = None

    kind = "contexts"

    def inputs(self, points: Points) -> Inputs:
        """Return the points as the process's inputs."""
        n = len(points)
        machines, scale = self.center.logs(points)
        numbers = np.column_stack([scale, np.tile(self.numbers, (n, 1))])
        return Inputs(machines, numbers, np.full(n, self.owner))

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration."""
        at = self.inputs(points)
        mean = self.process.mean(at)
        if self.single is not None:
            mean = mean - self.single.untaken(at)[0]
        return self._drawn(points, mean, np.zeros(len(points))).seconds

    def answer(self, points: Points) -> Answer:
        """Return medians with their variances and limits; see ``FURTHEST``."""
        at, known = self.inputs(points), self.process.inputs.machines
        mean, variance = self.process.mean_and_variance(at)
        if self.single is not None:
            untaken, unsure = self.single.untaken(at)
            mean, variance = mean - untaken, variance + unsure
        drawn = self._drawn(points, mean, variance)
        beyond = np.maximum(np.maximum(at.machines - known.max(), known.min() - at.machines), 0.0)
        variance = drawn.variance + drawn.noise**2 + BEYOND * beyond**2
        # No run tells the effect of a column that never changed, and small effects of a few other
        # columns do not either: at least the assumed size counts.
        variance = variance + max(self.process.sizes[0], START[0]) ** 2 * self.untested
        return replace(drawn, variance=variance)

    def seconds(self, points: Points, values: Floats) -> Floats:
        """(n,) seconds per iteration of ``values`` (n,) of the process, without an own fit."""
        above = self._stepped(points)[0] * np.exp(values)
        return np.asarray(self.fixed / points.iterations + above)

    def _stepped(self, points: Points) -> tuple[Floats, Floats]:
        """(n,) each: the trend with its step, and the variance (of logs) of that."""
        trend = self.trend.predict(points)
        if self.step is None:
            return trend, np.zeros(len(points))
        share, jump = self.step.share(points), self.step.jump
        return trend * np.exp(jump * share), jump**2 * share * (1.0 - share)

    def _drawn(self, points: Points, mean: Floats, variance: Floats) -> Answer:
        """Return the answer with the ``mean`` and ``variance`` (n,) of the process; its variance is
        that, of the cliff, and of what the common model and the own fit disagree about."""
        trend, of_step = self._stepped(points)
        logs, variance = np.log(trend) + mean, variance + of_step
        fixed = self.fixed / points.iterations
        if self.fixed > 0.0:
            above = logs
            logs = np.logaddexp(above, np.log(fixed))
            variance = variance * np.exp(2.0 * (above - logs))
        if self.own is not None:
            logs, apart = self.own.draw(points, logs)
            variance = variance + apart
        values = self.process.values
        further = np.log(FURTHEST) + min(STEEPEST * self.beyond, 300.0)
        # Far away the fixed time is most of the answer, and no more certain than the rest.
        least = (fixed + trend * np.exp(values.min())) * np.exp(-further)
        most = (fixed + trend * np.exp(values.max())) * np.exp(further)
        seconds = np.clip(np.exp(np.clip(logs, -600, 600)), least, most)
        return Answer(seconds, variance, float(self.process.sizes[7]), least, most)

    def chance_of_cliff(self, at: Configuration) -> float:
        """Probability that memory does not suffice where fewer machines have more to hold than any
        that were run in this context; 0 without its runs."""
        if self.own is None:
            return 0.0
        known = self.own.points
        beyond = np.log(min(known.machines.min(), at.scale / known.load.max()) / at.machines)
        share = self.own.chance / low_end.CHANCE
        return share * low_end.chance_of_cliff(beyond) if beyond > 0.0 else 0.0

    def fewest_machines(self) -> float | None:
        """Return the fewest machines of the context's own runs; None where its runs, at a single
        count or none, are too few to limit what all contexts say."""
        return None if self.own is None else float(self.own.points.machines.min())

    def document(self) -> dict[str, Any]:
        """Return what tells the context; the model itself is in the document of all contexts."""
        return {"numbers": self.numbers.tolist(), "owner": self.owner}


@dataclass(frozen=True, eq=False, slots=True)
class ContextModel:
    """Model of a job over its ``contexts``. ``points`` (n,) are the configurations that were run,
    each in the context ``process.inputs.owner``. ``known`` and ``new``: the spread in contexts with
    and without runs. ``fixed`` answers contexts with few configurations or none, if all contexts
    have a fixed time; but not a context of which a run lies outside what it says of that run (the
    interval of ``CALIBRATED_AT``), which is answered as if there were none. ``type_column`` is the
    column of machine types, if one is named."""

    columns: tuple[Column, ...]
    contexts: tuple[Context, ...]
    points: Points
    trend: ErnestFit
    cliff: ContextCliff | None
    process: Process
    own: OwnFits
    center: Center
    ranges: Ranges
    known: ContextSpread
    new: ContextSpread
    report: Mapping[str, Any]
    fixed: FixedTime | None = None
    iterated: bool = False
    group: str | None = None
    type_column: str | None = None

    @property
    def label(self) -> str:
        return self.group or "the job"

    @property
    def types(self) -> tuple[str, ...]:
        """Machine types that were run, of any input; empty without a column of them."""
        names = [column.name for column in self.columns]
        if self.type_column not in names:
            return ()
        place = names.index(self.type_column)
        return tuple(sorted({show(context[place]) for context in self.contexts}))

    def fit_at(self, context: Context) -> ContextFit:
        """Return the model at a context."""
        owner = self.contexts.index(context) if context in self.contexts else -1
        # What a column does that had one value in all runs is unknown: it only widens the interval.
        varied = tuple(
            value if self._varies(i) else self.contexts[0][i] for i, value in enumerate(context)
        )
        numbers = encode(self.columns, [varied])[0]
        beyond = sum(self._beyond(i, value) for i, value in enumerate(context))
        step = step_at(self.cliff, varied, self.columns)
        own = self._own_at(owner, step)
        fit = ContextFit(
            self.trend,
            step,
            self.process,
            self.center,
            numbers,
            owner,
            own,
            beyond,
            float(np.sum((encode(self.columns, [context])[0] - numbers) ** 2)),
        )
        fit = self._with_fixed_time(fit, varied)
        return fit if own is not None else replace(fit, single=SingleRun.of(fit.process, owner))

    def _with_fixed_time(self, fit: ContextFit, varied: Context) -> ContextFit:
        """Return the ``fit`` of a context with the fixed time, if it is answered with that."""
        if self.fixed is None or (fit.own is not None and not fit.own.few):
            return fit
        above = replace(
            fit,
            trend=self.fixed.trend,
            step=step_at(self.fixed.cliff, varied, self.columns),
            process=self.fixed.process,
            fixed=self.fixed.seconds,
        )
        return fit if self._contradicts(above, self.fixed.known) else above

    def _contradicts(self, fit: ContextFit, spread: ContextSpread) -> bool:
        """Tell whether a run of the context lies outside the interval of its ``fit`` there."""
        mine = self.process.inputs.owner == fit.owner
        if not mine.any():
            return False
        points = self.points.take(mine)
        answer = replace(fit, own=None).answer(points)
        away = np.abs(np.log(fit.seconds(points, fit.process.values[mine]) / answer.seconds))
        limit = stdtrit(spread.freedom, 0.5 + CALIBRATED_AT / 2) * spread.of(answer)
        return bool((away > limit).any())

    def _own_at(self, owner: int, step: Step | None) -> Own | None:
        fit = None if owner < 0 else self.own.fits[owner]
        if fit is None:
            return None
        mine = self.points.take(self.process.inputs.owner == owner)
        if not len(mine):
            return None
        return Own(
            fit,
            mine,
            owner,
            self.own,
            self.ranges.machines,
            step,
            self.own.furthest(),
            self.own.chance_of_cliff(),
        )

    def _varies(self, place: int) -> bool:
        return len({context[place] for context in self.contexts}) > 1

    def _beyond(self, place: int, value: Value) -> float:
        """Return how far a number is outside those that were run: in logs, or in standard
        deviations of a column without logs."""
        column = self.columns[place]
        if column.names:
            return 0.0
        known = column.encode([context[place] for context in self.contexts])
        at = float(column.encode([value])[0, 0])
        unit = column.size if column.in_logs else 1.0
        return max(at - float(known.max()), float(known.min()) - at, 0.0) * unit

    def _notes(self, context: Context) -> tuple[str, ...]:
        """Return why predictions of a context without runs extrapolate, and how far."""
        notes = [f"there are no runs at {describe(self.columns, context)}"]
        if (missed := little_in_common(self.report)) is not None:
            notes.append(missed)
        for i, (column, value) in enumerate(zip(self.columns, context, strict=True)):
            known = [each[i] for each in self.contexts]
            if not self._varies(i):
                if value != known[0]:
                    notes.append(
                        f"{column.name} was {show(known[0])} in all runs: what {show(value)} does "
                        "is untested, and not in the prediction"
                    )
            elif self._beyond(i, value) > 1e-9:
                numbers = [float(each) for each in known]
                side = "above" if float(value) > max(numbers) else "below"
                notes.append(
                    f"{column.name} {show(value)} is {side} the trained {min(numbers):g} to "
                    f"{max(numbers):g}"
                )
        return (*notes, *self._apart(context))

    def _apart(self, context: Context) -> list[str]:
        """Return which columns changed together in all runs, and do not in this context: what each
        of them does cannot be learned."""
        numbers = [i for i, each in enumerate(self.columns) if not each.names and self._varies(i)]
        notes = []
        for i, j in combinations(numbers, 2):
            a, b = (self._encoded(k, self.contexts) for k in (i, j))
            at, other = (float(self._encoded(k, [context])[0]) for k in (i, j))
            slope = float(a @ b) / float(a @ a)
            alike = float(np.abs(b - slope * a).max()) < _TOGETHER
            if alike and abs(other - slope * at) > 2.0 * _TOGETHER:
                names = self.columns[i].name, self.columns[j].name
                notes.append(
                    f"{names[0]} and {names[1]} changed together in all runs: which of them the "
                    "time follows is unknown"
                )
        return notes

    def _encoded(self, place: int, contexts: Sequence[Context]) -> Floats:
        """(n,) a column of numbers, less the mean over all contexts."""
        column = self.columns[place]
        known = column.encode([context[place] for context in self.contexts])[:, 0]
        values = column.encode([context[place] for context in contexts])[:, 0]
        return np.asarray(values - known.mean())

    def complete(self, given: Mapping[str, str]) -> Context:
        """Return the context of these values; see ``context_columns.complete``."""
        return complete(self.columns, self.contexts, given)

    def at(self, given: Mapping[str, str]) -> ScaleModel:
        """Return the scale model of one context, by its columns' values as text.

        Raises:
            InputError: a value is missing, or is no number.
            UnknownNameError: no such column.
        """
        context = self.complete(given)
        fit = self.fit_at(context)
        common = self.fixed if self.fixed is not None and fit.fixed > 0.0 else self
        notes: tuple[str, ...] = ()
        if fit.owner < 0:
            notes = self._notes(context)
        values = dict(zip((column.name for column in self.columns), context, strict=True))
        machine_type = None if self.type_column is None else show(values[self.type_column])
        return ScaleModel(
            fit=fit,
            spread=common.known if fit.owner >= 0 else common.new,
            ranges=self.ranges,
            report=self.report,
            iterated=self.iterated,
            group=self.group,
            machine_type=machine_type,
            context=values,
            notes=notes,
        )


def encode(columns: Sequence[Column], contexts: Sequence[Context]) -> Floats:
    """(n, p) encoded columns of some contexts, in the order of the columns' names: sums over them
    have the same digits in whatever order they are named."""
    return np.column_stack(
        [columns[i].encode([context[i] for context in contexts]) for i in by_name(columns)]
    )


def inputs_of(
    columns: Sequence[Column],
    contexts: Sequence[Context],
    points: Points,
    owner: Integers,
    center: Center,
) -> Inputs:
    """Return configurations in their contexts (by number) as inputs of the process."""
    machines, scale = center.logs(points)
    return Inputs(machines, np.column_stack([scale, encode(columns, contexts)[owner]]), owner)


def never_run(contexts: Iterable[ContextModel], models: Sequence[ScaleModel]) -> list[str]:
    """Return a warning for each name in a context that no run of its job had: it may be a
    misspelling."""
    names = {
        (of_job.group, column.name): column.names
        for of_job in contexts
        for column in of_job.columns
    }
    unknown = {
        (column, value): known
        for model in models
        for column, value in (model.context or {}).items()
        if (known := names.get((model.group, column), ())) and value not in known
    }
    warnings = []
    for (column, value), known in unknown.items():
        near = nearest_names(str(value), known)
        meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(known[:8])}"
        warnings.append(f"no run was at {column}={value}: {meant}")
    return warnings
