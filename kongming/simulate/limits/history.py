"""Quantiles of an application's run time, from the runs that had ended before a job arrived, by the
trace (``known_from_s``): the same for every schedule."""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections import deque

import numpy as np

from kongming.arrays import Floats
from kongming.simulate.limits.jobs import LimitedJobs

WINDOW = 200
"""Newest runs of an application that count."""


def predicted_quantiles(jobs: LimitedJobs, share: float) -> Floats:
    """(n,) seconds that the run of each job takes at most with probability ``share``; NaN where the
    application's history is too short for that.

    It is the k-th smallest of the n newest runs with k = ceil((n + 1) share): exact for runs that
    are exchangeable, whatever their distribution (Wilks 1941; split conformal prediction). At 0.95
    it takes 19 runs; so many are asked for at every share, so that all predict the same jobs.
    """
    least = math.ceil(0.95 / 0.05)
    newest: dict[int, deque[float]] = {}
    ordered: dict[int, list[float]] = {}
    ended: list[tuple[float, int]] = []
    predicted = np.full(len(jobs), math.nan)
    # A run that its limit ended counts as long as that: beyond it there is nothing to gain.
    runs = np.minimum(jobs.run_s, jobs.limit_s).tolist()
    apps, known = jobs.app_of.tolist(), jobs.known_from_s.tolist()
    for job, now in enumerate(jobs.arrival_s.tolist()):
        while ended and ended[0][0] <= now:
            earlier = heapq.heappop(ended)[1]
            window = newest.setdefault(apps[earlier], deque())
            values = ordered.setdefault(apps[earlier], [])
            window.append(runs[earlier])
            insort(values, runs[earlier])
            if len(window) > WINDOW:
                values.remove(window.popleft())
        values = ordered.get(apps[job], [])
        place = math.ceil((len(values) + 1) * share - 1e-9)
        if len(values) >= least and place <= len(values):
            predicted[job] = values[place - 1]
        heapq.heappush(ended, (known[job], job))
    return predicted
