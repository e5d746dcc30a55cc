"""Whether two sets of readings of a name differ: by the ratio of their medians.

How sure the ratio is, is judged by a bootstrap of what is independent: whole machines or whole
recordings where there are three or more on a side, else blocks of consecutive readings that are
longer than their autocorrelation. Three verdicts: it differs by more than the tolerance; it is
equivalent within the tolerance (two one-sided tests); it cannot be told yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, isfinite, log, sqrt
from typing import Literal

import numpy as np
from scipy import special

from kongming.audit.intervals import autocorrelation, t_quantile
from kongming.audit.multiple import holm
from kongming.dataset import Floats

__all__ = [
    "CLUSTERS",
    "Comparison",
    "Estimate",
    "Side",
    "Verdict",
    "compare",
    "estimate",
    "hodges_lehmann",
]

Verdict = Literal["differs", "equivalent", "cannot tell"]
Unit = Literal["machines", "recordings", "blocks"]

CLUSTERS = 3
"""From so many machines or recordings on, they and not readings are what is resampled."""

READINGS = 8
"""Fewer on a side tell nothing."""

_DRAWS = 1000
_MOST_BLOCKS = 200
_GRID = 201
_MOST_MORE = 1000.0


@dataclass(frozen=True, eq=False, slots=True)
class Side:
    """Readings of one name, above 0: by recording, in order of time, and the machine of each."""

    recordings: Sequence[Floats]
    machines: Sequence[str]

    @property
    def n(self) -> int:
        return sum(map(len, self.recordings))


@dataclass(frozen=True, slots=True)
class Estimate:
    """``error`` is the standard error of the log of the median, with ``freedom`` degrees; ``by``
    what it is judged by."""

    n: int
    median: float
    error: float
    freedom: float
    by: Unit


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of a name: ``ratio`` is the median of B over that of A, with its interval; ``shift`` the
    median of all ratios of a reading of B to one of A (Hodges and Lehmann). p-values are adjusted
    (Holm) over all that was compared: ``p_beyond`` that they differ by no more than the tolerance,
    ``p_apart`` that they differ by more. ``more`` is about how many more readings a side would
    settle it; None where there is no telling."""

    key: tuple[str, ...]
    a: Estimate | None
    b: Estimate | None
    ratio: float | None
    lower: float | None
    upper: float | None
    shift: float | None
    p_beyond: float | None
    p_apart: float | None
    verdict: Verdict
    more: int | None


def estimate(side: Side, seed: int = 0) -> Estimate | None:
    """None below ``READINGS`` readings."""
    if side.n < READINGS:
        return None
    parts, by = _independent(side)
    values = np.concatenate(parts)
    grid = np.unique(np.quantile(values, np.linspace(0.02, 0.98, _GRID), method="nearest"))
    sizes = np.array([len(part) for part in parts], dtype=np.float64)
    below = np.array(
        [np.searchsorted(np.sort(part), grid, side="right") for part in parts], dtype=np.float64
    )
    k = len(parts)
    draws = np.random.default_rng(seed).multinomial(k, np.full(k, 1.0 / k), size=_DRAWS)
    draws = draws.astype(np.float64)
    shares = (draws @ below) / (draws @ sizes)[:, None]
    at = np.minimum((shares < 0.5).sum(axis=1), len(grid) - 1)
    medians = np.log(grid[at])
    error = float(medians.std()) * sqrt(k / (k - 1.0))
    return Estimate(side.n, float(np.median(values)), error, k - 1.0, by)


def compare(
    sides: Mapping[tuple[str, ...], tuple[Side, Side]],
    tolerance: float,
    confidence: float = 0.95,
) -> list[Comparison]:
    """By key (as kind and name), A and B."""
    limit = log(1.0 + tolerance)
    alpha = 1.0 - confidence
    tests = [_tested(key, a, b, limit) for key, (a, b) in sides.items()]
    beyond = holm([one[3] for one in tests])
    apart = holm([one[4] for one in tests])
    known = max(1, sum(isfinite(one[3]) for one in tests))
    found = []
    for (key, a, b, *_), p_beyond, p_apart in zip(tests, beyond, apart, strict=True):
        if a is None or b is None:
            lacking = READINGS - min(sides[key][0].n, sides[key][1].n)
            found.append(
                Comparison(
                    key, a, b, None, None, None, None, None, None, "cannot tell", max(1, lacking)
                )
            )
            continue
        d = log(b.median / a.median)
        error, freedom = _together(a, b)
        half = t_quantile(0.5 + confidence / 2.0, freedom) * error
        verdict: Verdict = "cannot tell"
        if p_beyond <= alpha:
            verdict = "differs"
        elif p_apart <= alpha:
            verdict = "equivalent"
        found.append(
            Comparison(
                key=key,
                a=a,
                b=b,
                ratio=exp(d),
                lower=exp(d - half),
                upper=exp(d + half),
                shift=exp(hodges_lehmann(*(np.log(_whole(side)) for side in sides[key]))),
                p_beyond=float(p_beyond),
                p_apart=float(p_apart),
                verdict=verdict,
                more=_more(a, b, abs(abs(d) - limit), error, freedom, alpha / known)
                if verdict == "cannot tell"
                else None,
            )
        )
    return found


def hodges_lehmann(a: Floats, b: Floats) -> float:
    """The median of all differences b - a, found by bisection, of all pairs."""
    low_a, low_b = np.sort(a), np.sort(b)
    low, high = float(low_b[0] - low_a[-1]), float(low_b[-1] - low_a[0])
    half = len(a) * len(b) / 2.0
    close = max(1e-12, 1e-9 * (high - low))
    while high - low > close:
        middle = (low + high) / 2.0
        if int(np.searchsorted(low_b, low_a + middle, side="right").sum()) >= half:
            high = middle
        else:
            low = middle
    return (low + high) / 2.0


_Test = tuple[tuple[str, ...], Estimate | None, Estimate | None, float, float]


def _tested(key: tuple[str, ...], one: Side, other: Side, limit: float) -> _Test:
    a, b = estimate(one, 0), estimate(other, 1)
    if a is None or b is None:
        return key, a, b, float("nan"), float("nan")
    d = abs(log(b.median / a.median))
    error, freedom = _together(a, b)
    if error <= 0.0:
        return key, a, b, float(d <= limit), float(d >= limit)
    z = (d - limit) / error
    return key, a, b, float(special.stdtr(freedom, -z)), float(special.stdtr(freedom, z))


def _together(a: Estimate, b: Estimate) -> tuple[float, float]:
    """Error of the difference, and its degrees of freedom (Welch and Satterthwaite)."""
    va, vb = a.error**2, b.error**2
    if va + vb <= 0.0:
        return 0.0, a.freedom + b.freedom
    return sqrt(va + vb), (va + vb) ** 2 / (va**2 / a.freedom + vb**2 / b.freedom)


def _more(
    a: Estimate, b: Estimate, gap: float, error: float, freedom: float, alpha: float
) -> int | None:
    if gap <= 0.0 or error <= 0.0:
        return None
    times = (t_quantile(1.0 - alpha, freedom) * error / gap) ** 2
    if times > _MOST_MORE:
        return None
    return max(1, ceil(max(a.n, b.n) * (times - 1.0)))


def _independent(side: Side) -> tuple[list[Floats], Unit]:
    """What is resampled as a whole."""
    recordings = [one for one in side.recordings if len(one)]
    machines = dict.fromkeys(side.machines)
    if len(machines) >= CLUSTERS:
        pairs = list(zip(side.machines, side.recordings, strict=True))
        return [np.concatenate([r for m, r in pairs if m == one]) for one in machines], "machines"
    if len(recordings) >= CLUSTERS:
        return recordings, "recordings"
    total = sum(map(len, recordings))
    parts: list[Floats] = []
    for one in recordings:
        tau = autocorrelation(one).tau
        length = 1 if tau < 1.5 else ceil(3.0 * tau)
        count = min(len(one) // length, ceil(_MOST_BLOCKS * len(one) / total))
        parts += np.array_split(one, max(count, min(4, len(one))))
    return parts, "blocks"


def _whole(side: Side) -> Floats:
    return np.concatenate([one for one in side.recordings if len(one)])
