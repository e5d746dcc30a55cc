"""The driver's clock: when it was set back, and which late lines are no sign of that.

Events come nearly in order of their moments. The end of a task may be written seconds after its
moment, where the driver was busy, and lines may have been moved. Starts of jobs, stages and
executions are stamped as they are written: that the clock was set back is believed once one of them
comes with a moment from before, and no event since has come with one of the clock as it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

STEP_MS = 5_000
"""An event that is this much older than the latest is late."""

NEAR_MS = 1_000
"""By how much an event may be older, after a late one, and still be in order."""

MOST_STEPS = 2
"""A clock is set back once or twice; more steps are lines in another order, or wrong moments."""

LARGER = 2.0
"""Times the latest line that a step has to be."""

SAME_STEP = 0.1
"""Share by which a step back and one forward may differ, and undo each other."""


@dataclass
class _Step:
    number: int  # of those that may be steps, in the order of lines
    ms: int
    last_ms: int  # the latest moment since, by the clock that was set back


class DriverClock:
    """Follows the moments of events in the order of lines.

    A step is known for one only later: the first reading of a log says in ``steps`` which there
    were, and a second one, given their numbers, adds them up in ``offset_ms`` as it passes them.
    """

    def __init__(self, steps: Collection[int] = ()) -> None:
        self._known = steps
        self.offset_ms = 0
        self.latest_ms = 0  # of all moments
        self.last_ms = 0  # of those that are in order, without the steps that are confirmed
        self.steady = True  # a moment from last_ms to STEP_MS later says nothing new
        self._confirmed: list[_Step] = []
        self._total_ms = 0
        self._late_ms = 0  # by how much a line came late that was no step
        self._candidate: _Step | None = None
        self._candidates = 0
        self._ahead_of: int | None = None  # last_ms before an event that was far ahead of it

    @property
    def steps(self) -> frozenset[int]:
        """The numbers of the steps; none where there are too many to be believed, and none that is
        not much larger than lines of this log are late by."""
        if len(self._confirmed) > MOST_STEPS:
            return frozenset()
        large = [step for step in self._confirmed if step.ms > LARGER * self._late_ms]
        return frozenset(step.number for step in large)

    @property
    def ordered_ms(self) -> int:
        """The latest moment, without one event that was far ahead of all others."""
        return self.last_ms if self._total_ms == self.offset_ms else self.latest_ms

    def pass_by(self, ms: int, *, start: bool = False) -> int:
        """The moment of an event, had the clock never been set back. ``start``: it is stamped as it
        is written."""
        moment = ms + self._total_ms
        candidate = self._candidate
        if self.last_ms - moment <= (STEP_MS if candidate is None else NEAR_MS):
            # By the clock as it was: what was late came late.
            if candidate is not None:
                self._late_ms = max(self._late_ms, candidate.ms)
            self._candidate = None
            self._in_time(moment)
        elif candidate is not None:
            candidate.last_ms = max(candidate.last_ms, moment)
            if start:
                self._confirmed.append(candidate)
                self._total_ms += candidate.ms
                self.last_ms = candidate.last_ms + candidate.ms
                self._candidate = None
        elif self._ahead_of is not None and moment >= self._ahead_of - STEP_MS:
            # One event alone was ahead, and all goes on as before it.
            self.last_ms = max(moment, self._ahead_of)
            self._ahead_of = None
        else:
            self._candidate = _Step(self._candidates, self.last_ms - moment, moment)
            self._candidates += 1
            if self._candidate.number in self._known:
                self.offset_ms += self._candidate.ms
        self.latest_ms = max(self.latest_ms, ms + self.offset_ms)
        self.steady = (
            self.latest_ms == self.last_ms
            and self._candidate is None
            and self._ahead_of is None
            and not self._confirmed
        )
        return ms + self.offset_ms

    def _in_time(self, moment: int) -> None:
        ahead = moment - self.last_ms
        undone = self._undone_by(ahead)
        if undone:
            # It went on as before: lines were in another order, and the clock was not set back.
            self._late_ms = max(self._late_ms, *(step.ms for step in self._confirmed[-undone:]))
            del self._confirmed[-undone:]
            moment -= self._total_ms
            self._total_ms = sum(step.ms for step in self._confirmed)
            moment += self._total_ms
            self.last_ms, ahead = moment, 0
        self._ahead_of = self.last_ms if ahead > STEP_MS and self.last_ms else None
        self.last_ms = max(self.last_ms, moment)

    def _undone_by(self, ahead_ms: int) -> int:
        """Return how many of the last steps a step forward undoes: the latest alone, or all of
        them."""
        if ahead_ms > STEP_MS and self._confirmed:
            latest = self._confirmed[-1].ms
            for count, back in ((1, latest), (len(self._confirmed), self._total_ms)):
                if abs(ahead_ms - back) < SAME_STEP * back:
                    return count
        return 0
