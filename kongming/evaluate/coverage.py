"""Coverage of prediction intervals: how often they contain the measured cost.

Cases of one application share its model, so they are not independent trials: the interval of the
covered share counts applications, not cases. It is a t interval around that share, with
the cluster-robust variance of a ratio (applications as clusters), and never narrower than the
binomial one of as many independent cases (with two successes and two failures added, so that a
share of 1 has an interval too).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Floats
from kongming.records.errors import InputError

_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t at 97.5 %, from one degree of freedom up; beyond, 1.96 + 2.4 / degrees is right
to three digits."""


def coverage(
    measured: Floats,
    lower: Floats,
    upper: Floats,
    predicted: Floats,
    app_of: NDArray[np.intp],
    at_least: NDArray[np.bool_],
) -> dict[str, object]:
    """Compute {actual, interval, median_width_pct, at_least}; all arrays (n,), NaN bounds for no
    interval.

    An interval of a prediction that says "at least" (``at_least``) has no upper end: what was
    measured above is held by it, what was measured below its lower end is missed. The entry of that
    name counts the measured costs of such predictions (``n``), those above the upper end that was
    computed (``above``) and those below the lower one (``below``). ``median_width_pct`` is the
    median of 100 x (upper - lower) / predicted, infinite without an upper end. Figures are NaN if
    there is no interval at all; the interval of ``actual`` also for a single application.
    """
    known = np.isfinite(measured) & ~np.isnan(lower) & ~np.isnan(upper)
    open_ = known & at_least
    of_open = {
        "n": int(np.count_nonzero(open_)),
        "above": int(np.count_nonzero(open_ & (measured > upper))),
        "below": int(np.count_nonzero(open_ & (measured < lower))),
    }
    upper = np.where(open_, math.inf, upper)
    nan = float("nan")
    if not known.any():
        return {
            "actual": nan,
            "interval": [nan, nan],
            "median_width_pct": nan,
            "at_least": of_open,
        }
    held = (lower[known] <= measured[known]) & (measured[known] <= upper[known])
    widths = 100.0 * (upper[known] - lower[known]) / predicted[known]
    return {
        "actual": float(np.mean(held)),
        "interval": list(_interval(held, app_of[known])),
        "median_width_pct": float(np.median(widths)),
        "at_least": of_open,
    }


def one_level(levels: set[float]) -> float | None:
    """Return the common level of all intervals; None for no interval.

    Raises:
        InputError: the levels differ, so that there is no single nominal coverage.
    """
    if len(levels) > 1:
        raise InputError(
            "differs between the intervals of one model.",
            field="level",
            value=sorted(levels),
            allowed="one level for all of them",
        )
    return next(iter(levels), None)


def _interval(held: NDArray[np.bool_], app_of: NDArray[np.intp]) -> tuple[float, float]:
    apps = np.unique(app_of)
    if len(apps) < 2:
        return float("nan"), float("nan")
    n, clusters = len(held), len(apps)
    share = float(np.mean(held))
    excess = [float(np.sum(held[app_of == app] - share)) for app in apps]
    clustered = clusters / (clusters - 1) * sum(value**2 for value in excess) / n**2
    shrunk = (np.count_nonzero(held) + 2.0) / (n + 4.0)
    binomial = shrunk * (1.0 - shrunk) / (n + 4.0)
    degrees = clusters - 1
    t = _T[degrees - 1] if degrees <= len(_T) else 1.96 + 2.4 / degrees
    reach = t * math.sqrt(max(clustered, binomial))
    return max(share - reach, 0.0), min(share + reach, 1.0)
