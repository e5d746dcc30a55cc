"""Executors whose registration is not in the log: their cores, and since when they were there.

The settings say the cores. Where they do not, tasks that ran at once do: a task's end is noted
somewhat after its slot was free, so that a task and the next on its slot seem to overlap a little.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from kongming.spark import application as records
from kongming.spark.application import UNFINISHED, StageAttempt

_LOCAL = re.compile(r"local(?:\[(\d+)(?:\s*,\s*\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*(\d+)\s*,\s*\d+\s*\]")

_MOST_CORES = 1 << 20

LATE_S, LATE_SHARE = 0.02, 0.3
"""By how much, and by which share of its length, a task may end earlier than the log says."""


def configured_cores(settings: Mapping[str, str]) -> tuple[int | None, str]:
    """Cores of an executor, and the setting that says so; None where none does."""
    master = settings.get("spark.master", "").strip()
    # Without a cluster spark.executor.cores has no effect.
    for form in (_LOCAL, _LOCAL_CLUSTER):
        if match := form.fullmatch(master):
            return _cores(match[1] or "1"), "spark.master"
    if master.startswith("local["):
        return None, ""  # local[*]: as many as the machine has
    # What tasks show is of more weight than the default of 1 on YARN and Kubernetes.
    return _cores(settings.get("spark.executor.cores", "")), "spark.executor.cores"


def _cores(text: str) -> int | None:
    plain = text.strip()
    return int(plain) if plain.isdecimal() and 0 < len(plain) < 7 and int(plain) > 0 else None


class Busy:
    """Facts that the tasks on executors in ``places`` say of them."""

    def __init__(self, stages: Sequence[StageAttempt], places: Collection[int]) -> None:
        parts = [
            (stage.resource_profile, stage.tasks[np.isin(stage.tasks["executor"], list(places))])
            for stage in stages
            if places
        ]
        self._rows = np.concatenate([rows for _, rows in parts] or [np.empty(0, records.TASK)])
        self._profiles = np.repeat(
            [profile for profile, _ in parts] or [0], [len(rows) for _, rows in parts] or [0]
        )

    def first_launch_s(self, place: int) -> float | None:
        """None where it ran no task."""
        launches = self._rows["launch_s"][self._rows["executor"] == place]
        return float(launches.min()) if len(launches) else None

    def profile(self, place: int) -> int:
        """The resource profile of its tasks, which run on executors of their own profile only."""
        own = self._profiles[self._rows["executor"] == place]
        return int(own[0]) if len(own) else 0

    def at_once(self, place: int) -> int:
        """The most tasks at once, of those whose end is known."""
        rows = self._rows
        known = (rows["executor"] == place) & ~rows["filled_in"] & (rows["status"] != UNFINISHED)
        launch, finish = rows["launch_s"][known], rows["finish_s"][known]
        late = np.maximum(LATE_S, LATE_SHARE * (finish - launch))
        # Whoever ends makes room before the next begins.
        moments = np.concatenate([np.maximum(finish - late, launch), launch])
        steps = np.repeat([-1, 1], len(launch))[np.argsort(moments, kind="stable")]
        return max(1, int(np.cumsum(steps).max(initial=1)))

    def cores(self, place: int, task_cpus: float) -> int:
        """Cores that its tasks took at once."""
        return min(math.ceil(self.at_once(place) * task_cpus), _MOST_CORES)
