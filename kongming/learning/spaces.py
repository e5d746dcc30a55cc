"""The spaces that models work in: conversions between seconds per operation and log slowdown.

====== ================================== ========================
space  features                           target
====== ================================== ========================
raw    seconds per operation              cost / solo
log    log of time over idle time, less   log of cost / solo
       what it differs by on the idle
       node; 0 where that is more
ratio  time over idle time, less 1        cost / solo, less 1
====== ================================== ========================

``raw`` is the paper's, its runtime in units of the solo runtime (which changes no prediction, but
keeps trees and boosting away from thresholds on tiny numbers).
"""

from __future__ import annotations

import math

import numpy as np

from kongming.arrays import Floats
from kongming.learning.registry import Space

SPACES: tuple[Space, ...] = ("raw", "log", "ratio")

CEILING = math.log(1.25)
"""Maximum distance of a prediction above the worst slowdown in training, in logs: what lies beyond
was never seen, and a sum of terms has no end of its own. On the recordings of ``benchmarks`` no
prediction needed more; with none at all, the few that rightly went beyond were cut."""

_LEAST = 1e-6
"""Minimum of a credible predicted cost / solo; below it the bounds decide."""


def features(times: Floats, idle: Floats, space: Space, spread: Floats) -> Floats:
    """Return (n, p) features from ``times`` (n, p) and ``idle`` (p,), both in seconds per
    operation. ``spread`` (p,), in logs, is the spread of readings on the idle node. A difference
    from idle within it is noise and becomes 0; a larger one is reduced by it (soft thresholding,
    Donoho and Johnstone 1994).
    """
    return times if space == "raw" else features_of(np.log(times / idle), idle, space, spread)


def features_of(moved: Floats, idle: Floats, space: Space, spread: Floats) -> Floats:
    """Return the ``features`` of log readings over idle, ``moved`` (n, p)."""
    if space == "raw":
        return np.asarray(idle * np.exp(moved), dtype=np.float64)
    if space == "ratio":
        return np.asarray(np.expm1(moved), dtype=np.float64)
    return np.asarray(np.maximum(moved - spread, 0.0), dtype=np.float64)


def target(log_slowdown: Floats, space: Space) -> Floats:
    """Return (n,): the target of the estimator."""
    if space == "log":
        return log_slowdown
    slowdown = np.exp(log_slowdown)
    return np.asarray(slowdown if space == "raw" else slowdown - 1.0, dtype=np.float64)


def log_slowdown(predicted: Floats, space: Space, bounds: tuple[float, float]) -> Floats:
    """Return (n,) log slowdowns from the estimator's predictions, limited to ``bounds``. Linear
    models extrapolate to runtimes that are negative or far too large. No prediction goes below the
    fastest training run less the repeat noise, or above the slowest by more than ``CEILING``
    (``credible_bounds``); so it is always finite and its runtime positive.
    """
    if space != "log":
        slowdown = predicted if space == "raw" else predicted + 1.0
        predicted = np.log(np.maximum(slowdown, _LEAST))
    return bounded(predicted, bounds)


def bounded(predicted: Floats, bounds: tuple[float, float]) -> Floats:
    """Return log slowdowns (n,) limited to ``bounds``."""
    # The same as np.clip, much faster on few rows.
    return np.asarray(np.minimum(np.maximum(predicted, bounds[0]), bounds[1]), dtype=np.float64)


def credible_bounds(
    training: Floats, noise: float, known_up_to: float = math.inf
) -> tuple[float, float]:
    """Return the bounds of a predicted log slowdown, from those in training and the repeat noise
    (log). Beyond ``known_up_to``, a log slowdown, the training runs are lower bounds.
    """
    low = float(np.min(training)) - noise
    return low, max(low, min(float(np.max(training)) + CEILING, known_up_to))
