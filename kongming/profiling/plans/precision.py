"""Sequential repeats: which pairs are run again, until each is known well enough. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from kongming.quantities import meant_with_point, parse_share
from kongming.records.errors import InputError
from kongming.records.run import Run

LEAST = 4
"""Runs of every pair: a spread of fewer says little of when to stop."""

MOST = 40
"""Runs of a pair that does not become precise."""

WAVERING = 0.05
"""Standard deviation of an application's log solo cost above which each of its co-runs gets a solo
run of its own right before and right after."""

_LEAST_SHARE, _MOST_SHARE = 0.001, 0.5

STEADY = 4
"""Solo runs that an application needs to count as steady: those around two of its co-runs, since
the two around one are of the same minute and tell nothing of drift."""


@dataclass
class Progress:
    """The costs measured so far, and what they still call for.

    ``target`` is the standard error of a pair's log mean to reach; None: every planned run is made.
    Slow drift counts as spread, so that it never makes a pair look precise. A pair's runs alone
    decide on it: once it is precise it stays so, and an interrupted campaign resumes alike.
    """

    target: float | None = None
    pairs: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    solos: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[Run], target: float | None) -> Progress:
        progress = cls(target)
        for run in runs:
            progress.add(run)
        return progress

    def add(self, run: Run) -> None:
        """Take a run into account; a failed one counts as an attempt."""
        if run.kind == "corun" and run.neighbours:
            pair = (run.app, run.neighbours[0])
            self.attempts[pair] = self.attempts.get(pair, 0) + 1
            if run.ok:
                self.pairs.setdefault(pair, []).append(math.log(run.cost))
        elif run.kind == "solo" and run.ok:
            self.solos.setdefault(run.app, []).append(math.log(run.cost))

    def wants(self, app: str, other: str | None, partners: Iterable[str]) -> bool:
        """Return whether another run of ``app`` next to ``other`` is called for; alone (None):
        whether one next to any of its ``partners`` is: their slowdowns are over solo runs of that
        time."""
        if other is None:
            return any(self.wants(app, partner, ()) for partner in partners)
        if self.target is None or self.attempts.get((app, other), 0) < LEAST:
            return True
        logs = self.pairs.get((app, other), [])
        # A pair of which hardly any run succeeds is not tried forty times.
        if 2 * len(logs) < self.attempts[app, other]:
            return False
        return statistics.stdev(logs) / math.sqrt(len(logs)) > self.target

    def wavers(self, app: str) -> bool:
        """Return whether each co-run of an application needs solo runs of its own: those so far
        differ much, or are too few to say that they do not."""
        logs = self.solos.get(app, [])
        unknown = len(logs) < STEADY
        return self.target is not None and (unknown or statistics.stdev(logs) > WAVERING)


def parse_precision(text: str, option: str = "--precision") -> float:
    """Return the share that "3%" or "0.03" stands for, as ``option`` gives it.

    Raises:
        InputError: it is not a share between 0.1 and 50 %.
    """
    plain = text.strip()
    share = parse_share(plain)
    if not _LEAST_SHARE <= share <= _MOST_SHARE:
        meant = meant_with_point(plain)
        if not meant and _LEAST_SHARE <= parse_share(f"{plain}%") <= _MOST_SHARE:
            meant = f"Did you mean {plain}%?"
        raise InputError(
            "is out of range.", field=option, value=text, allowed="0.1% to 50%", hint=meant or None
        )
    return share
