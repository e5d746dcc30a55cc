"""Estimates against runs: every pair of sizes (Spark thesis, Table 5.2 and figure 5.1)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.quantities import count
from kongming.records.errors import InputError
from kongming.scale.fit.ernest import fit_ernest
from kongming.scale.fit.terms import DEFAULT, term
from kongming.scale.points import Configuration, Points, Runs
from kongming.spark.application import Application
from kongming.spark.estimation import Estimator, Size
from kongming.spark.finished_runs import require_finished, require_same_input
from kongming.spark.model.baselines import ConstantLengths
from kongming.spark.model.cluster import asked_cluster
from kongming.spark.model.driver import job_end
from kongming.spark.model.groups import job_groups
from kongming.spark.model.sparklens import Sparklens
from kongming.spark.model.workload import Workload
from kongming.spark.sample_ratio import recorded_ratio

Key = tuple[int, int]
"""Executors, and cores of each."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One run as predicted from another one: ``models`` are seconds by the name of a model."""

    recorded: Key
    target: Key
    measured_s: float
    lower_s: float
    upper_s: float
    models: dict[str, float]

    @property
    def slots(self) -> tuple[int, int]:
        return self.recorded[0] * self.recorded[1], self.target[0] * self.target[1]

    def error(self, model: str) -> float:
        """Relative error, equation 5.1."""
        return abs(self.models[model] / self.measured_s - 1.0)


@dataclass(frozen=True, slots=True)
class ExecutionPairs:
    """The pairs of one SQL execution; ``noise`` as an evaluation's."""

    pairs: tuple[Pair, ...]
    noise: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``pairs`` of whole applications, ``executions`` of queries by their id; ``noise`` is the mean
    relative difference of repeats from their median, None without repeats."""

    name: str
    sizes: tuple[Key, ...]
    pairs: tuple[Pair, ...]
    executions: dict[int, ExecutionPairs]
    noise: float | None
    self_checks: tuple[float, ...]

    def document(self) -> dict[str, Any]:
        return {
            "application": self.name,
            "sizes": [{"executors": executors, "cores": cores} for executors, cores in self.sizes],
            "noise_floor_pct": None if self.noise is None else 100.0 * self.noise,
            "self_check_pct": {
                "median": 100.0 * float(np.median(self.self_checks)),
                "worst": 100.0 * max(self.self_checks),
            },
            **summary(self.pairs, self.noise),
            "pairs": [_document(pair) for pair in self.pairs],
            "executions": [
                {
                    "id": execution,
                    "noise_floor_pct": None if each.noise is None else 100.0 * each.noise,
                    **summary(each.pairs, each.noise),
                    "pairs": [_document(pair) for pair in each.pairs],
                }
                for execution, each in self.executions.items()
            ],
        }


def evaluate(
    applications: Sequence[Application],
    estimator_of: Callable[[Application], Estimator] = Estimator,
) -> Evaluation:
    """Predict every run from every run at another size.

    Raises:
        InputError: the logs are of several applications or shares of the input, or of one that has
            not ended, or all of one size.
    """
    require_finished(applications, "LOGS")
    names = list(dict.fromkeys(application.name for application in applications))
    if len(names) > 1:
        raise InputError(
            "are of several applications: one evaluation is of one.",
            field="LOGS",
            value=", ".join(names[:6]),
            hint="Give the logs of one of them.",
        )
    ratio = max((recorded_ratio(application) or 1.0 for application in applications), default=1.0)
    require_same_input(applications, ratio, "LOGS")
    estimators = [estimator_of(application) for application in applications]
    runs = [(_key(each.workload), each) for each in estimators]
    sizes = sorted({key for key, _ in runs}, key=lambda key: (key[0] * key[1], key))
    if len(sizes) < 2:
        raise InputError(
            "One log, or logs of one size: there is nothing to compare.",
            field="LOGS",
            value=(
                f"{count(sizes[0][0], 'executor')} of {count(sizes[0][1], 'core')}"
                if sizes
                else "none"
            ),
            hint="Give logs of the same application at two sizes or more.",
        )
    pairs: list[Pair] = []
    executions: dict[int, list[Pair]] = {}
    measured = [(key, each.workload.measured_s) for key, each in runs]
    by_execution = _by_execution(runs)
    ernest = {key: _ernest_without(measured, key) for key in sizes}
    for (key, estimator), target in itertools.product(runs, sizes):
        if key == target:
            continue
        estimate = estimator.estimate(Size(*target))
        cluster = asked_cluster(estimator.workload.cluster, *target)
        sparklens = Sparklens(estimator.workload)
        models = {
            "replay": estimate.median_s,
            **estimate.baselines,
            "sparklens": sparklens.seconds(cluster),
            **ernest[target],
        }
        pairs += [
            Pair(key, target, seconds, estimate.lower_s, estimate.upper_s, models)
            for other_key, seconds in measured
            if other_key == target
        ]
        own = {each.execution: each.median_s for each in estimate.executions}
        before = _execution_seconds(estimator.workload)
        ratio = key[0] * key[1] / (target[0] * target[1])
        constant = ConstantLengths(estimator.workload).execution_seconds(cluster)
        published = sparklens.execution_seconds(cluster)
        wide = estimate.upper_s / estimate.median_s
        for execution, times in by_execution.items():
            if execution not in own or execution not in before:
                continue
            named = {
                "replay": own[execution],
                "constant_durations": constant[execution],
                "linear": before[execution] * ratio,
                "sparklens": published[execution],
                **_ernest_without(times, target),
            }
            ends = own[execution] / wide, own[execution] * wide
            executions.setdefault(execution, []).extend(
                Pair(key, target, seconds, *ends, named)
                for other_key, seconds in times
                if other_key == target
            )
    return Evaluation(
        name=names[0],
        sizes=tuple(sizes),
        pairs=tuple(pairs),
        executions={
            number: ExecutionPairs(tuple(each), _noise(by_execution[number]))
            for number, each in sorted(executions.items())
            if each
        },
        noise=_noise(measured),
        self_checks=tuple(
            abs(each.replayed_s() / each.workload.measured_s - 1.0) for each in estimators
        ),
    )


def summary(pairs: Sequence[Pair], noise: float | None) -> dict[str, Any]:
    """Errors by model in percent, the share of measured times within the interval, and, after the
    noise floor is taken off, the replay's error over constant lengths' (geometric mean, worst)."""
    models = [name for name in pairs[0].models if all(name in pair.models for pair in pairs)]
    errors = {
        name: {
            "mean": 100.0 * float(np.mean([pair.error(name) for pair in pairs])),
            "median": 100.0 * float(np.median([pair.error(name) for pair in pairs])),
            "worst": 100.0 * max(pair.error(name) for pair in pairs),
        }
        for name in models
    }
    inside = [pair.lower_s <= pair.measured_s <= pair.upper_s for pair in pairs]
    figures: dict[str, Any] = {"error_pct": errors, "coverage": float(np.mean(inside))}
    if "constant_durations" in models:
        figures["error_over_constant"] = over_constant(ratios(pairs, noise).values())
    return figures


def over_constant(values: Iterable[float]) -> dict[str, float]:
    """Return the geometric mean and the worst of ratios of errors."""
    own = list(values)
    return {"geometric_mean": float(np.exp(np.mean(np.log(own)))), "worst": max(own)}


def ratios(pairs: Sequence[Pair], noise: float | None) -> dict[tuple[Key, Key], float]:
    """The replay's error over constant lengths' for each pair of sizes of one application, each
    less the noise floor but for a tenth of it: what repeats differ by, no model explains."""
    noise = noise or 0.0
    by_sizes: dict[tuple[Key, Key], list[Pair]] = {}
    for pair in pairs:
        by_sizes.setdefault((pair.recorded, pair.target), []).append(pair)
    floor = max(0.1 * noise, 0.002)

    def beyond(model: str, own: Sequence[Pair]) -> float:
        return max(float(np.mean([pair.error(model) for pair in own])) - noise, floor)

    return {
        sizes: beyond("replay", own) / beyond("constant_durations", own)
        for sizes, own in by_sizes.items()
    }


def table(evaluation: Evaluation, model: str) -> dict[Key, dict[Key, float]]:
    """Mean relative errors by the recorded size, then the asked one: Table 5.2 and its average."""
    errors: dict[Key, dict[Key, list[float]]] = {}
    for pair in evaluation.pairs:
        errors.setdefault(pair.recorded, {}).setdefault(pair.target, []).append(pair.error(model))
    return {
        recorded: {target: float(np.mean(own)) for target, own in errors[recorded].items()}
        for recorded in evaluation.sizes
    }


def _key(workload: Workload) -> Key:
    return workload.cluster.executors, workload.cluster.cores


def _execution_seconds(workload: Workload) -> dict[int, float]:
    jobs = [work.job for work in workload.jobs]
    return {
        group.execution: max(job_end(jobs[place], workload.application) for place in group.jobs)
        - min(jobs[place].submitted_s for place in group.jobs)
        for group in job_groups(jobs)
        if group.execution is not None
    }


def _by_execution(
    runs: Sequence[tuple[Key, Estimator]],
) -> dict[int, list[tuple[Key, float]]]:
    """Return the sizes and seconds of each SQL execution's runs."""
    times: dict[int, list[tuple[Key, float]]] = {}
    for key, estimator in runs:
        for execution, seconds in _execution_seconds(estimator.workload).items():
            if seconds > 0.0:
                times.setdefault(execution, []).append((key, seconds))
    return times


def _ernest_without(runs: Sequence[tuple[Key, float]], target: Key) -> dict[str, float]:
    """Return what Ernest's terms, fitted to all other sizes, predict, as ``ernest``; nothing from
    fewer than two sizes."""
    others = [(key, seconds) for key, seconds in runs if key != target]
    slots = [float(executors * cores) for (executors, cores), _ in others]
    if len(set(slots)) < 2:
        return {}
    points = Points.of([Configuration(count) for count in slots])
    fit = fit_ernest(
        Runs(points, np.array([seconds for _, seconds in others])), [term(key) for key in DEFAULT]
    )
    there = Points.of([Configuration(float(target[0] * target[1]))])
    return {"ernest": float(fit.predict(there)[0])}


def _noise(runs: Sequence[tuple[Key, float]]) -> float | None:
    by_size: dict[Key, list[float]] = {}
    for key, seconds in runs:
        by_size.setdefault(key, []).append(seconds)
    differences = [
        abs(seconds / float(np.median(own)) - 1.0) * math.sqrt(len(own) / (len(own) - 1))
        for own in by_size.values()
        if len(own) > 1
        for seconds in own
    ]
    return float(np.mean(differences)) if differences else None


def _document(pair: Pair) -> dict[str, Any]:
    return {
        "recorded": {"executors": pair.recorded[0], "cores": pair.recorded[1]},
        "asked": {"executors": pair.target[0], "cores": pair.target[1]},
        "measured_s": pair.measured_s,
        "lower_s": pair.lower_s,
        "upper_s": pair.upper_s,
        "predicted_s": pair.models,
    }
