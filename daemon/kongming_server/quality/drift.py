"""Test whether recent errors differ from those of validation, after every run (anytime-valid).

A score is a signed log error in halves of the interval that was promised. While the errors of
finished runs are like those of the validation, the rank of each new score among all before it
(the validation's included, ties broken at random) is uniform and independent of the other ranks
(Vovk, Nouretdinov and Gammerman 2003, "Testing exchangeability on-line"). Bets at fair odds
against that uniform law start with a capital of 1; by Ville's inequality the capital ever reaches
1 / a with probability at most a, however often one looks. So the false-alarm rate is that of the
whole life of a model, not of a single look, whatever the law of the errors.

Bets are placed on scores that are too high, too low, or too far from the middle on either side,
and not on errors that are smaller than was promised. There are two kinds:

- *Threshold bets*: a stake on the next score being beyond one of the validation's own scores. The
  fair odds are those of Polya's urn: the share of all scores so far that are beyond it, the new
  one counted. A run's rank alone is never rarer than 1 / (scores + 1), but twenty runs above all
  of ten scores are, at 1 in 30 million. Thresholds below the greatest scores (the second, fourth,
  eighth ...) keep that power where some of the validation's errors were as large as the drift.
- *Rank bets*: powers of the rank itself. They notice slow changes and wider errors sooner once
  many runs have been seen, because they compare with every run and not with a few thresholds.

A part of the capital starts to bet at each run, the most of it early, so that a change after a
thousand good runs is not paid for from what those have lost. How often changes are found with how
many scores: ``benchmarks/drift/power.py``.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

FALSE_ALARM = 0.01
"""Probability that a model whose errors stay as validated is ever said to drift."""

Side = Literal["slower", "faster", "either"]

SIDES: tuple[Side, ...] = ("slower", "faster", "either")
"""Against what is bet: runs slower or faster than was said, or wrong on both sides."""

POWERS = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Rank bets pay ``power * p ** (power - 1)``: the smaller, the bolder."""

STAKES = (0.6, 0.95)
"""Threshold bets stake this share of their capital on the next score being beyond."""

RANK_SHARE = 0.2
"""Share of the capital on rank bets; the rest is on threshold bets."""

EITHER_SHARE = 0.2
"""Share of the threshold bets' capital on both sides at once; the rest is halved over the others:
most programs that change become slower or faster."""

LEAST_PROMISED = 5
"""With fewer scores from validation nothing is tested: it promised too little to be held to."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the test after ``runs`` finished runs.

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
    begins a new test. ``rank_share`` 1 bets on ranks alone.
    """

    def __init__(
        self,
        promised: Iterable[float],
        *,
        false_alarm: float = FALSE_ALARM,
        rank_share: float = RANK_SHARE,
    ) -> None:
        # Equal scores are in a random order, the same each time.
        self._keys = sorted(
            (score, _uniforms(f"promised {number}")[0])
            for number, score in enumerate(sorted(promised))
        )
        count = len(self._keys)
        self._limit = math.log(1.0 / false_alarm) if count >= LEAST_PROMISED else None
        self._thresholds = _Thresholds(count)
        sides = [side for side in SIDES for _ in POWERS]
        shares = [rank_share / len(sides)] * len(sides)
        self._sides = sides + self._thresholds.sides
        self._shares = np.array(
            shares + [(1.0 - rank_share) * share for share in self._thresholds.shares]
        )
        self._capital = np.zeros(len(self._sides))
        self._won = np.zeros(len(self._sides))
        self._since = np.zeros(len(self._sides), dtype=int)
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
        self._place(self._odds(score, token))
        self._runs += 1
        # What has not started to bet yet is kept as it is: starts sum to 1.
        reserve = 1.0 / (self._runs + 1.0)
        evidence = float(self._shares @ self._capital) + reserve
        if self._verdict.drifted:
            before = self._verdict
            self._verdict = Verdict(self._runs, evidence, True, before.since, before.side)
        elif self._limit is not None and math.log(evidence) >= self._limit:
            best = int(np.argmax(self._capital))
            self._verdict = Verdict(
                self._runs, evidence, True, int(self._since[best]), self._sides[best]
            )
        else:
            self._verdict = Verdict(self._runs, evidence, False)
        return self._verdict

    def _odds(self, score: float, token: str) -> np.ndarray:
        """Return what a unit of each bet's capital becomes; the score is one of all scores then."""
        order, within = _uniforms(token)
        key = (score, order)
        rank, count = bisect_left(self._keys, key), len(self._keys)
        insort(self._keys, key)
        return np.concatenate(
            (_rank_odds((rank + within) / (count + 1)), self._thresholds.odds(rank, count))
        )

    def _place(self, odds: np.ndarray) -> None:
        start = 1.0 / ((self._runs + 1.0) * (self._runs + 2.0))
        self._capital = np.minimum((self._capital + start) * odds, _MOST)
        # The best time to have begun is where the winnings since would be greatest (Page 1954).
        restarted = self._won <= 0.0
        self._won[restarted], self._since[restarted] = 0.0, self._runs
        self._won += np.log(odds)


_MOST = 1e300
"""Beyond it, capital is not counted: far more than any alarm needs."""


class _Thresholds:
    """The threshold bets: where their thresholds stand among all scores so far.

    ``_low`` and ``_high`` are positions in the order of all scores: a bet wins below the one or
    above the other. A low of -1, and a high of as many as there are scores, are beyond none.
    """

    def __init__(self, count: int) -> None:
        middle = (count + 1) // 2
        single = [1 << power for power in range(middle.bit_length()) if 1 << power <= middle]
        double = [k for k in single if k == 1 or 2 * k <= middle]
        spans: list[tuple[Side, int, int]] = [("slower", -1, count - k) for k in single]
        spans += [("faster", k - 1, count) for k in single]
        spans += [("either", k - 1, count - k) for k in double]
        self.sides: list[Side] = [side for side, _, _ in spans for _ in STAKES]
        self.shares = [
            EITHER_SHARE / (len(double) * len(STAKES))
            if side == "either"
            else (1.0 - EITHER_SHARE) / 2.0 / (len(single) * len(STAKES))
            for side in self.sides
        ]
        self._low = np.array([low for _, low, _ in spans for _ in STAKES], dtype=int)
        self._high = np.array([high for _, _, high in spans for _ in STAKES], dtype=int)
        self._stakes = np.array([stake for _ in spans for stake in STAKES])

    def odds(self, rank: int, count: int) -> np.ndarray:
        """Return the odds of a score that comes in before the one at position ``rank`` of
        ``count``."""
        below = rank <= self._low
        share = (self._low + 1 + count - self._high) / (count + 1)
        beyond = below | (rank > self._high)
        self._low += below
        self._high += rank <= self._high
        return np.asarray(1.0 - self._stakes + self._stakes * beyond / share)


_POWERS = np.array(POWERS)


def _rank_odds(p: float) -> np.ndarray:
    """Return the odds of the rank bets, by side and power; their mean over uniform ``p`` is 1."""
    by_side = np.array((1.0 - p, p, 2.0 * min(p, 1.0 - p)))
    odds: np.ndarray = _POWERS * np.maximum(by_side, 1e-12)[:, None] ** (_POWERS - 1.0)
    return odds.ravel()


def _uniforms(token: str) -> tuple[float, float]:
    """Two in (0, 1), the same for the same token, so that every server says the same."""
    digest = hashlib.blake2b(token.encode(), digest_size=16).digest()
    return _fraction(digest[:8]), _fraction(digest[8:])


def _fraction(data: bytes) -> float:
    return (int.from_bytes(data, "big") + 0.5) / 2.0**64
