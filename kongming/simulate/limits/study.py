"""One queue under several ways to set time limits, compared over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from kongming.arrays import Floats
from kongming.records.errors import UnknownNameError
from kongming.simulate.limits.backfill import Plan, Schedule, easy
from kongming.simulate.limits.history import predicted_quantiles
from kongming.simulate.limits.jobs import LimitedJobs

LIMITS = ("user", "median", "q95", "time-min", "time-min-late")
"""``user``: limits as users gave them. ``median``, ``q95``: that quantile of the run time, where it
is predicted and below the user's limit, is the limit. ``time-min``: the 0.95 quantile has to fit
into a gap, and a job that runs has its user's limit, as with Slurm's --time-min restored at the
start. ``time-min-late``: the same, but the quantile is planned for running jobs too, until they
exceed it."""

CONFIDENCE = 0.95
_SHARES = {"median": 0.5}
_UPPER = 0.95
_SHORTEST_S = 10.0
"""Runs count as this long at least in the bounded slowdown (Feitelson & Rudolph 1998)."""
_MINUTE_S = 60.0

Progress = Callable[[str, int], None]
"""Called with what is simulated, and how many jobs have arrived."""


def plan_of(
    name: str, jobs: LimitedJobs, quantiles: dict[float, Floats] | None = None
) -> tuple[Plan, Floats]:
    """The times that one way of setting limits gives the scheduler, and the predictions (n,) behind
    them in seconds, rounded up to minutes; NaN where there are none. ``quantiles`` keeps those of
    these jobs, by share, from one way to the next.

    Raises:
        UnknownNameError: there is no such way.
    """
    if name not in LIMITS:
        raise UnknownNameError("way to set limits", name, LIMITS)
    user = jobs.limit_s
    share = _SHARES.get(name, _UPPER)
    quantiles = {} if quantiles is None else quantiles
    if share not in quantiles:
        quantiles[share] = predicted_quantiles(jobs, share)
    predicted = _MINUTE_S * np.ceil(quantiles[share] / _MINUTE_S)
    shorter = np.where(predicted < user, predicted, user)
    plan = {
        "user": Plan(user, user, user),
        "time-min": Plan(user, shorter, user),
        "time-min-late": Plan(user, shorter, shorter),
    }.get(name, Plan(shorter, shorter, shorter))
    return plan, predicted


def figures(jobs: LimitedJobs, schedule: Schedule, predicted: Floats) -> dict[str, float]:
    """Figures of merit of one schedule.

    ``wide_wait_mean_s`` is of the tenth of the jobs that take the most processors, which backfill
    passes over: a policy must not help the others at their cost.
    ``utilisation`` is the share of the processors in use from the first to the last arrival,
    ``useful`` that share for jobs that were not killed; NaN where all arrive at once.
    ``ended_early_share`` are the jobs that a limit ended and the user's own would not have;
    ``lost_share`` is what killed jobs had of all processor time used. ``covered_share`` is the
    share of predicted jobs that ran no longer.
    """
    waits = np.maximum(schedule.start_s - jobs.arrival_s, 0.0)
    took = schedule.end_s - schedule.start_s
    work = took * jobs.processors
    begin, end = float(jobs.arrival_s[0]), float(jobs.arrival_s[-1])
    inside = np.clip(schedule.end_s, begin, end) - np.clip(schedule.start_s, begin, end)
    used = inside * jobs.processors
    span = (end - begin) * jobs.capacity or math.nan
    known = np.isfinite(predicted)
    covered = jobs.run_s[known] <= predicted[known]
    early = schedule.killed & (jobs.run_s <= jobs.limit_s)
    return {
        "wait_mean_s": float(waits.mean()),
        "wait_median_s": float(np.median(waits)),
        "wait_p95_s": float(np.quantile(waits, 0.95)),
        "wide_wait_mean_s": float(
            waits[jobs.processors >= np.quantile(jobs.processors, 0.9)].mean()
        ),
        "bounded_slowdown": float(
            np.maximum((waits + took) / np.maximum(took, _SHORTEST_S), 1.0).mean()
        ),
        "utilisation": float(used.sum() / span),
        "useful": float(used[~schedule.killed].sum() / span),
        "killed_share": float(schedule.killed.mean()),
        "ended_early_share": float(early.mean()),
        "lost_share": float(work[schedule.killed].sum() / work.sum()),
        "backfilled_share": float(schedule.backfilled.mean()),
        "predicted_share": float(known.mean()),
        "covered_share": float(covered.mean()) if known.any() else math.nan,
    }


def documented(
    traces: Sequence[LimitedJobs],
    names: Sequence[str],
    progress: Progress = lambda text, arrived: None,
) -> dict[str, Any]:
    """Run each trace (one a seed) under each way of setting limits.

    Of every figure the mean over traces is given, with a 95 % interval by Student's t where there
    are several. ``wait_over_user`` and ``wide_wait_over_user`` are mean waits over those with the
    users' limits, on the same trace: geometric means over traces.
    """
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number, jobs in enumerate(traces):
        quantiles: dict[float, Floats] = {}
        for name in names:
            plan, predicted = plan_of(name, jobs, quantiles)
            text = f"{name}, trace {number + 1} of {len(traces)}"
            schedule = easy(jobs, plan, lambda arrived, text=text: progress(text, arrived))  # type: ignore[misc]
            rows[name].append(figures(jobs, schedule, predicted))
    document: dict[str, Any] = {}
    for name in names:
        keys = rows[name][0]
        document[name] = {key: _interval([row[key] for row in rows[name]]) for key in keys}
        if "user" in rows:
            for key in ("wait", "wide_wait"):
                document[name][f"{key}_over_user"] = _ratio(
                    [row[f"{key}_mean_s"] for row in rows[name]],
                    [row[f"{key}_mean_s"] for row in rows["user"]],
                )
    runs = {
        name: [{key: None if math.isnan(v) else v for key, v in row.items()} for row in own]
        for name, own in rows.items()
    }
    return {"limits": document, "runs": runs}


def _ratio(own: Sequence[float], users: Sequence[float]) -> dict[str, float | None]:
    if min(*own, *users) <= 0.0:
        return _interval([math.nan])
    logs = _interval([math.log(a / b) for a, b in zip(own, users, strict=True)])
    return {key: None if value is None else math.exp(value) for key, value in logs.items()}


def _interval(values: Sequence[float]) -> dict[str, float | None]:
    if any(map(math.isnan, values)):
        return {"mean": None, "low": None, "high": None}
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return {"mean": mean, "low": None, "high": None}
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2.0)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half}
