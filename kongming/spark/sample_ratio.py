"""The share of the input that a run had: what the estimates of a sample's run can tell."""

from __future__ import annotations

import math

from kongming.quantities import per_cent
from kongming.spark.application import Application

SETTING = "spark.kongming.sample.ratio"
"""A setting that 'kongming spark sample' names for runs on its sample; Spark ignores it."""

SAME = 0.05
"""Shares are the same within this part of them. A sample has hardly ever the very share that it was
drawn for, and the times differ by no more than that."""


def recorded_ratio(application: Application) -> float | None:
    """Return the ratio in the log's settings; None where they have none that is a share."""
    try:
        ratio = float(application.settings.get(SETTING, ""))
    except ValueError:
        return None
    return ratio if 0.0 < ratio <= 1.0 else None


def same_share(ratio: float, other: float) -> bool:
    """Tell whether two runs had as much of the input."""
    return math.isclose(ratio, other, rel_tol=SAME)


def warning(ratio: float | None) -> str | None:
    """Return what the estimates of a run on this share of the input do not tell."""
    if ratio is None or ratio >= 1.0:
        return None
    share = per_cent(100.0 * ratio, ".4g")
    return (
        f"the run was on a sample, {share} of the input: the estimates give the shape of the curve "
        "and the best number of executors, not the time on all data; that takes a second sample, "
        "with --sample LOG SHARE --input-scale 1"
    )
