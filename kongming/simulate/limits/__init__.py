"""Effects of time limits on a queue with backfill: waits, utilisation and killed jobs."""

from kongming.simulate.limits.backfill import Plan, Schedule, easy
from kongming.simulate.limits.generated import ARRIVALS, Generated
from kongming.simulate.limits.history import predicted_quantiles
from kongming.simulate.limits.jobs import LimitedJobs, read_jobs
from kongming.simulate.limits.study import LIMITS, documented, plan_of
from kongming.simulate.limits.swf import read_swf

__all__ = [
    "ARRIVALS",
    "LIMITS",
    "Generated",
    "LimitedJobs",
    "Plan",
    "Schedule",
    "documented",
    "easy",
    "plan_of",
    "predicted_quantiles",
    "read_jobs",
    "read_swf",
]
