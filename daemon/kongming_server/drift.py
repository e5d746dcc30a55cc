"""Whether recent errors differ from what validation promised, by a test that may look every time.

A score is a signed log error in halves of the interval that was promised. While the errors of
finished runs are like those of the validation, the rank of each new score among all before it
(the validation's included, ties broken at random) is uniform and independent of the other ranks:
a conformal p-value (Vovk, Nouretdinov and Gammerman 2003, "Testing exchangeability on-line").
Bets at fair odds against that uniform law start with a capital of 1; by Ville's inequality the
capital ever reaches 1 / a with probability at most a, however often one looks. So the false-alarm
rate is that of the whole life of a model, not of a single look.

Bets are placed on scores that are too high, too low, or too far from the middle on either side,
each with several stakes (their mean is again fair), and not on errors that are smaller than was
promised: that is no reason for doubt. A part of the capital starts to bet at each run, the most of
it early, so that a change after a thousand good runs is not paid for from what those have lost.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FALSE_ALARM = 0.01
"""Probability that a model whose errors stay as validated is ever said to drift."""

STAKES = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Powers of the bets ``stake * p ** (stake - 1)``: the smaller, the bolder."""

Side = Literal["slower", "faster", "either"]

SIDES: tuple[Side, ...] = ("slower", "faster", "either")
"""Against what is bet: runs slower or faster than was said, or wrong on both sides."""

LEAST_PROMISED = 10
"""With fewer scores from validation nothing is tested: it promised too little to be held to."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the test says after ``runs`` finished runs.

    ``evidence`` is the capital: 1 / false-alarm probability flags. ``since`` is the number of
    the first run (0 the first that was tested) from which on the errors differ; it and ``side``
    are None unless ``drifted``.
    """

    runs: int
    evidence: float
    drifted: bool
    since: int | None = None
    side: Side | None = None


class DriftTest:
    """The test of one model version: ``add`` each finished run once, in order.

    ``promised`` are the validation's scores. Once drift is found it stays found: a new version
    begins a new test.
    """

    def __init__(self, promised: Iterable[float], *, false_alarm: float = FALSE_ALARM) -> None:
        self._scores = sorted(promised)
        self._limit = math.log(1.0 / false_alarm) if len(self._scores) >= LEAST_PROMISED else None
        self._bets = [_Bet(side, stake) for side in SIDES for stake in STAKES]
        self._runs = 0
        self._verdict = Verdict(0, 1.0, False)

    @property
    def verdict(self) -> Verdict:
        return self._verdict

    def add(self, score: float, token: str) -> Verdict:
        """Count one run. ``token`` (a run's id) breaks ties, in the same way each time.

        Raises:
            ValueError: the score is not a number.
        """
        if math.isnan(score):
            raise ValueError("a score must be a number")
        p = self._p_value(score, token)
        insort(self._scores, score)
        start = 1.0 / ((self._runs + 1.0) * (self._runs + 2.0))
        for bet in self._bets:
            bet.place(p, start, self._runs)
        self._runs += 1
        # What has not started to bet yet is kept as it is: starts sum to 1.
        kept = 1.0 / (self._runs + 1.0)
        evidence = sum(bet.capital for bet in self._bets) / len(self._bets) + kept
        if self._verdict.drifted:
            before = self._verdict
            self._verdict = Verdict(self._runs, evidence, True, before.since, before.side)
        elif self._limit is not None and math.log(evidence) >= self._limit:
            best = max(self._bets, key=lambda bet: bet.capital)
            self._verdict = Verdict(self._runs, evidence, True, best.since, best.side)
        else:
            self._verdict = Verdict(self._runs, evidence, False)
        return self._verdict

    def _p_value(self, score: float, token: str) -> float:
        """The share of scores that are no greater, uniform in (0, 1) under no change."""
        below = bisect_left(self._scores, score)
        ties = bisect_right(self._scores, score) - below + 1
        return (below + _uniform(token) * ties) / (len(self._scores) + 1)


class _Bet:
    """One stake on one side: its capital, and since when it has been winning."""

    def __init__(self, side: Side, stake: float) -> None:
        self.side: Side = side
        self.capital = 0.0
        self.since = 0
        self._stake = stake
        self._won = 0.0

    def place(self, p: float, start: float, number: int) -> None:
        odds = _odds(self.side, p, self._stake)
        self.capital = min((self.capital + start) * odds, _MOST)
        # The best time to have begun is where the winnings since would be greatest (Page 1954).
        if self._won <= 0.0:
            self._won, self.since = 0.0, number
        self._won += math.log(odds)


_MOST = 1e300
"""Beyond it, capital is not counted: far more than any alarm needs."""


def _odds(side: Side, p: float, stake: float) -> float:
    """What a unit of capital becomes: its mean over uniform ``p`` is 1."""
    if side == "slower":
        q = 1.0 - p
    elif side == "faster":
        q = p
    else:
        q = 2.0 * min(p, 1.0 - p)
    return float(stake * max(q, 1e-12) ** (stake - 1.0))


def _uniform(token: str) -> float:
    """In (0, 1), the same for the same token, so that every server says the same."""
    digest = hashlib.blake2b(token.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2.0**64
