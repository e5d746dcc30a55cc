"""The spaces that models work in, between seconds per operation and log slowdown.

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

CEILING = math.log(10.0)
"""How far above the worst slowdown in training a prediction may go, in logs."""

_LEAST = 1e-6
"""Below this a predicted cost / solo means "no credible answer"; the bounds take over."""


def features(times: Floats, idle: Floats, space: Space, spread: Floats) -> Floats:
    """(n, p) from ``times`` (n, p) and ``idle`` (p,), both in seconds per operation.

    ``spread`` (p,), in logs, is what readings on the idle node differ by. A program does not run
    faster because one reading was luckier than another: within it a reading says nothing, and
    beyond it so much less (soft thresholding, Donoho and Johnstone 1994).
    """
    if space == "raw":
        return times
    ratio = times / idle
    if space == "ratio":
        return np.asarray(ratio - 1.0, dtype=np.float64)
    return np.asarray(np.maximum(np.log(ratio) - spread, 0.0), dtype=np.float64)


def target(log_slowdown: Floats, space: Space) -> Floats:
    """(n,): what the estimator is fitted to."""
    if space == "log":
        return log_slowdown
    slowdown = np.exp(log_slowdown)
    return np.asarray(slowdown if space == "raw" else slowdown - 1.0, dtype=np.float64)


def log_slowdown(predicted: Floats, space: Space, bounds: tuple[float, float]) -> Floats:
    """(n,) log slowdown from what the estimator predicts, held within ``bounds``.

    Linear models extrapolate to runtimes below zero or beyond belief. No prediction goes below
    the fastest training run less the repeat noise, or above ten times the slowest
    (``credible_bounds``); so it is always finite and its runtime positive.
    """
    if space != "log":
        slowdown = predicted if space == "raw" else predicted + 1.0
        predicted = np.log(np.maximum(slowdown, _LEAST))
    # As np.clip, in a fraction of its time for the few that are often asked of.
    return np.asarray(np.minimum(np.maximum(predicted, bounds[0]), bounds[1]), dtype=np.float64)


def credible_bounds(training: Floats, noise: float) -> tuple[float, float]:
    """Bounds of a predicted log slowdown, from those in training and the repeat noise (log)."""
    return float(np.min(training)) - noise, float(np.max(training)) + CEILING
