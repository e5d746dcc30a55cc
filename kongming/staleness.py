"""What is not known of a node since its last fingerprint: how far its load may have moved. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kongming.prediction import Interval

DEFAULT_MOVEMENT = 0.3
"""What a node's log slowdown moves by in an hour, where too few fingerprints tell."""

LONGEST_S = 24 * 3600.0
"""Beyond this a node is taken to move no further: load comes and goes with the day."""

FEWEST = 3
"""Fingerprints from which a node's own movement is told."""


def log_level(times: Mapping[str, float]) -> float:
    """One figure for a fingerprint: the mean log of its seconds per operation."""
    return statistics.fmean(math.log(seconds) for seconds in times.values())


def movement_of(levels: Sequence[float], age_s: float) -> tuple[float, str]:
    """By what a log slowdown may have moved in ``age_s`` (one standard deviation), and a clause
    on how that is known; ``levels`` are those of the node's fingerprints."""
    if len(levels) >= FEWEST:
        return (
            statistics.stdev(levels),
            f"the interval is widened by what the newest {len(levels)} differ by",
        )
    return (
        DEFAULT_MOVEMENT * math.sqrt(min(age_s, LONGEST_S) / 3600.0),
        "the interval is widened by a guess, for too few fingerprints tell how the node moves",
    )


def widened(interval: Interval, movement: float) -> Interval:
    """The interval of a ratio, its halves and the movement added as independent, in logs. It is
    calibrated no longer."""
    reach = statistics.NormalDist().inv_cdf((1.0 + interval.level) / 2.0) * movement
    below = math.hypot(math.log(interval.median / interval.lower), reach)
    above = math.hypot(math.log(interval.upper / interval.median), reach)
    return replace(
        interval,
        lower=interval.median * math.exp(-below),
        upper=interval.median * math.exp(above),
        calibrated=False,
    )
