"""Least times that a job is said to need, by predictions and its user's own limit. Pure.

Backfill starts a job that has a --time-min early, and lowers its time limit to that, even where
nothing else wants the nodes (Slurm 22.05). What a job is given at its start is its user's limit
again, by restore-limit.sh and by the bridge: so a prediction that was too short delays others, and
ends nothing. ``time_min`` decides for pending jobs as job_submit.lua does for new ones; a test
compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kongming.records.answers import ApplicationReport, Forecast, RankedNode
from kongming_slurm.bridge_config import Times
from kongming_slurm.slurm_commands import LimitedJob

_KNOWN_SHARE = 0.5
"""With fewer of its nodes known, nothing is said of how long a job takes."""

_LOWERED = 0.8
"""A pending job's --time-min is lowered once the new one is below this share of it. It is raised at
once."""


def has_history(report: ApplicationReport, settings: Times) -> bool:
    """Return whether enough jobs of an application were compared with their predictions, and
    agree."""
    name, realised = report.name, report.realised
    return (
        realised is not None
        and realised.runs >= settings.least_runs
        and not realised.drifted
        and (not settings.apps or name in settings.apps)
        and name not in settings.skip_apps
    )


def run_seconds(
    ranked: Sequence[RankedNode], forecast: Forecast, margin: float
) -> Mapping[str, float]:
    """Seconds by name of the node that a run takes at most, at the interval's upper end.

    Left out are nodes whose interval is not calibrated, or open above. Empty where the
    application's metric is not its seconds.
    """
    if forecast.basis != "model" or forecast.metric_unit != "s" or not forecast.solo_s:
        return {}
    return {
        node.name: (1.0 + margin) * forecast.solo_s * node.slowdown.upper
        for node in ranked
        if node.slowdown.calibrated and not node.slowdown.at_least and not node.extrapolating
    }


def time_min(seconds: Sequence[float | None], limit_min: int) -> int | None:
    """Minutes for --time-min of a job that may get nodes on which a run takes these ``seconds``.

    It is that of the slowest node, rounded up, and always below the user's limit; None where that
    leaves nothing to gain, or too few of the nodes are known.
    """
    known = [value for value in seconds if value is not None]
    if not known or len(known) < _KNOWN_SHARE * len(seconds):
        return None
    minutes = max(1, math.ceil(max(known) / 60.0))
    return minutes if minutes < limit_min else None


def changed_time_min(current: int, new: int | None) -> int | None:
    """Return what a pending job's --time-min is to be set to, 0 for none; None to leave it."""
    if new is None:
        return 0 if current else None
    return new if new > current or new < _LOWERED * current else None


def limit_to_restore(job: LimitedJob) -> int | None:
    """The minutes that a running job's time limit has to be raised to; None to leave it. Without a
    --time-min only its user, or an administrator, has lowered it."""
    lowered = job.time_min > 0 and 0 < job.limit_min < job.note.limit_min
    return job.note.limit_min if lowered else None
