"""Choice of the next load level in an adaptive profile: what was measured in it and before it, as a
table of slowdowns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kongming.records.lower_bounds import completed_costs
from kongming.records.run import Run

if TYPE_CHECKING:
    from kongming.arrays import Floats
    from kongming.profiling.plans.steps import Step
    from kongming.records.run import LoadLevel

    Levels = tuple[LoadLevel, ...]


class LevelChooser:
    """Chooses the levels of blocks of an adaptive plan, one after the other.

    Args:
        ladder: levels of the quick plan, most informative first.
        taught: earlier runs of other programs at this placement.
        runs: those of this campaign so far; ``add`` takes later ones.
    """

    def __init__(
        self, ladder: Sequence[Levels], taught: Iterable[Run], runs: Iterable[Run] = ()
    ) -> None:
        self._ladder = list(ladder)
        self._places = {levels: place for place, levels in enumerate(self._ladder)}
        self._taught = _slowdowns(taught, self._places)
        self._runs = list(runs)
        self._offered: dict[int, Levels] = {run.step: run.levels for run in self._runs}
        self._used: dict[str, set[int]] = {}
        for run in self._runs:
            self._use(run.app, run.levels)

    def add(self, run: Run) -> None:
        """Take a run of this campaign into account; it may be of another command."""
        self._runs.append(run)
        self._offered.setdefault(run.step, run.levels)
        self._use(run.app, run.levels)

    def __call__(self, block: Sequence[Step]) -> Levels:
        """Return the levels of a block: those that were measured in it before, else the next."""
        for step in block:
            if step.index in self._offered:
                return self._offered[step.index]
        from kongming.explore.load_levels import next_level

        apps = [step.app for step in block]
        own = [_own(self._runs, app, self._places) for app in apps]
        used = set().union(*(self._used.get(app, set()) for app in apps))
        place = next_level(self._ladder, own, _matrix(self._taught, len(self._ladder)), used)
        levels = block[0].levels if place is None else self._ladder[place]
        for step in block:
            self._offered[step.index] = levels
            self._use(step.app, levels)
        return levels

    def _use(self, app: str, levels: Levels) -> None:
        if levels in self._places:
            self._used.setdefault(app, set()).add(self._places[levels])


def _own(runs: Iterable[Run], app: str, places: dict[Levels, int]) -> dict[int, float]:
    rows = list(_slowdowns((run for run in runs if run.app == app), places).values())
    return rows[0] if rows else {}


def _slowdowns(
    runs: Iterable[Run], places: dict[Levels, int]
) -> dict[tuple[str, str], dict[int, float]]:
    """Return the log slowdowns of each program on each node by the place of the level; several
    runs of one are averaged. One that was cut off counts as those that came to their end above
    it."""
    solos: dict[tuple[str, str], list[float]] = {}
    loaded: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if not run.ok:
            continue
        key = run.identity, run.node_id
        if run.kind == "solo":
            solos.setdefault(key, []).append(math.log(run.cost))
        elif run.kind == "induced" and run.levels in places:
            loaded.setdefault(key, []).append(run)
    return {
        key: _by_place(members, places, statistics.median(solos[key]))
        for key, members in loaded.items()
        if key in solos
    }


def _by_place(runs: Sequence[Run], places: dict[Levels, int], solo: float) -> dict[int, float]:
    logs: dict[int, list[float]] = {}
    for run, cost in zip(runs, completed_costs(runs), strict=True):
        logs.setdefault(places[run.levels], []).append(math.log(cost))
    return {place: statistics.fmean(values) - solo for place, values in logs.items()}


def _matrix(rows: dict[tuple[str, str], dict[int, float]], width: int) -> Floats:
    import numpy as np

    matrix = np.full((len(rows), width), np.nan)
    for row, slowdowns in zip(matrix, rows.values(), strict=True):
        for place, slowdown in slowdowns.items():
            row[place] = slowdown
    return matrix
