"""Intervals from what validation missed by, in logs, so that they are relative to the runtime.

Residuals of runs whose resource family was left out are what a new environment is like, so their
quantiles bound a prediction (cross-conformal, in the manner of CV+, Barber et al. 2021). They
are scaled by how far the environment is from idle: beside a quiet neighbour a program repeats to
within the noise, and one interval for all would be too wide there and too narrow under load.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from kongming.dataset import Floats
from kongming.errors import InputError
from kongming.prediction import Interval

LEAST_GROUPS = 10
"""With fewer left-out groups an interval says that it is not calibrated."""

_IQR_TO_DEVIATION = 1.0 / NormalDist().inv_cdf(0.75)
"""Standard deviation of a normal law whose half inter-quartile range is 1."""


def severity(times: Floats, idle: Floats, spread: Floats) -> Floats:
    """(n,): root mean square of how far the columns are from idle, in logs.

    ``times`` is (n, p) and ``idle`` (p,), in seconds per operation; ``spread`` (p,) is what a
    column differs by on the idle node, in logs, and does not count.
    """
    beyond = np.maximum(np.abs(np.log(times / idle)) - spread, 0.0)
    return np.asarray(np.sqrt(np.mean(beyond**2, axis=1)), dtype=np.float64)


def interval(
    log_slowdown: float,
    severity: float,
    *,
    residuals: Floats,
    severities: Floats,
    noise: float,
    floor: float,
    groups: int,
    level: float = 0.9,
) -> Interval:
    """The slowdown's interval around a predicted log slowdown.

    ``residuals`` (n,) are log measured less log predicted of the validation, ``severities`` (n,)
    those of their environments, ``groups`` how many groups were left out in turn. Never narrower
    than the repeat ``noise`` (half an inter-quartile range, in logs) allows a single run to be,
    and not below ``floor``, the least credible log slowdown, but for that noise.

    Raises:
        InputError: ``level`` is not between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise InputError("is out of range.", field="level", found=level, allowed="above 0, below 1")
    tail = (1.0 - level) / 2.0
    least = NormalDist().inv_cdf(1.0 - tail) * noise * _IQR_TO_DEVIATION
    scores = np.sort(residuals / (noise + severities))
    scale = noise + severity
    upper, enough = _tail(scores, tail)
    lower, _ = _tail(-scores[::-1], tail)
    lowest = max(log_slowdown - lower * scale, floor)
    return Interval(
        median=math.exp(log_slowdown),
        lower=math.exp(min(lowest, log_slowdown - least)),
        upper=math.exp(log_slowdown + max(upper * scale, least)),
        level=level,
        calibrated=enough and groups >= LEAST_GROUPS,
    )


def _tail(scores: Floats, tail: float) -> tuple[float, bool]:
    """The finite-sample upper quantile of sorted scores, and whether there are enough of them."""
    n = len(scores)
    if n == 0:
        return 0.0, False
    k = math.ceil((n + 1) * (1.0 - tail))
    return float(scores[min(k, n) - 1]), k <= n
