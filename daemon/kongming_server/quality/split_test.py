"""The drift test over several reporters of whom one may lie. No I/O.

A reporter is whoever vouches for a node's runs. Reporters are divided into groups, each with a
drift test of its own over its own runs, so that the runs of one caller, however many, do not reach
the test of another group. What counts is the mean evidence of all groups but the greatest. With one
liar it is at most the mean of the others', which is a test of the same false-alarm rate (the mean
of e-processes is an e-process; Vovk and Wang 2021): a liar makes no drift. Nor does it hide one
that the other groups see, since it cannot take from their evidence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kongming.store.service_entries import StoredRealised
from kongming_server.quality.drift import DriftTest, Verdict

GROUPS = 3
"""At the most: with one liar two are left, and with more of them each would have fewer runs."""


@dataclass(slots=True)
class _Group:
    test: DriftTest
    rows: deque[StoredRealised] = field(default_factory=deque)


class SplitTest:
    """``new_test`` makes a drift test; ``false_alarm`` is its own. ``reporters`` is how many there
    are: with fewer than two all runs are of one test. ``window`` runs of a group are remembered."""

    def __init__(
        self,
        new_test: Callable[[], DriftTest],
        *,
        false_alarm: float,
        reporters: int,
        window: int,
    ) -> None:
        self.groups = groups_of(reporters)
        self._groups = [_Group(new_test(), deque(maxlen=window)) for _ in range(self.groups)]
        self._needed = 1.0 / false_alarm
        self._group_of: dict[str, _Group] = {}
        self._deciding: _Group | None = None

    def add(self, row: StoredRealised, score: float, reporter: str) -> None:
        """Count one finished run once, in the order of their ends."""
        place = len(self._group_of) % self.groups
        group = self._group_of.setdefault(reporter, self._groups[place])
        group.test.add(score, row.run_id)
        group.rows.append(row)
        if self._deciding is None:
            greatest, *others = sorted(
                self._groups, key=lambda each: each.test.verdict.evidence, reverse=True
            )
            deciding = others[0] if others else greatest
            if deciding.test.verdict.drifted and self._evidence() >= self._needed:
                self._deciding = deciding

    @property
    def verdict(self) -> Verdict:
        """Judge all runs; once drift is found it stays found. ``since`` counts the runs of the
        group that decided."""
        runs = sum(group.test.verdict.runs for group in self._groups)
        if self._deciding is None:
            return Verdict(runs, self._evidence(), False)
        return replace(self._deciding.test.verdict, runs=runs)

    def runs_around_change(self) -> tuple[StoredRealised | None, list[StoredRealised]]:
        """Return, for the group that found a drift, the last run before it, None where there is
        none or it is forgotten, and the runs since."""
        group = self._deciding
        assert group is not None
        verdict, rows = group.test.verdict, list(group.rows)
        first = max(0, (verdict.since or 0) - (verdict.runs - len(rows)))
        return (rows[first - 1] if first else None), rows[first:]

    def _evidence(self) -> float:
        evidence = sorted(group.test.verdict.evidence for group in self._groups)
        others = evidence[:-1] or evidence
        return sum(others) / len(others)


def groups_of(reporters: int) -> int:
    """Return the number of groups that so many reporters are divided into."""
    return max(1, min(GROUPS, reporters))
