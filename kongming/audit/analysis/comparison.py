"""Comparison of two sets of readings of a name by the ratio of their medians.

The error of the ratio is from a bootstrap of independent units: machines where a side has several,
recordings of one machine where it has three or more, else blocks of consecutive readings that are
longer than their autocorrelation.
There are three verdicts: the sides differ by more than the tolerance; they are equivalent within
the tolerance (two one-sided tests); neither can be decided yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, exp, isfinite, log, log1p, sqrt
from typing import Literal

import numpy as np
from scipy import special

from kongming.arrays import Floats
from kongming.audit.analysis.multiple import holm
from kongming.audit.analysis.quantile_intervals import autocorrelation, t_quantile

Verdict = Literal["differs", "equivalent", "cannot tell"]
Unit = Literal["machines", "recordings", "blocks"]

CLUSTERS = 3
"""Minimum number of recordings of one machine to resample them instead of blocks of readings, and
of machines to decide much. Two machines are resampled too: their recordings are not independent."""

MIN_READINGS = 8
"""Minimum number of readings of a side."""

_DRAWS = 1000
_MAX_BLOCKS = 200
_GRID = 201
_MAX_FACTOR = 1000.0


@dataclass(frozen=True, eq=False, slots=True)
class Side:
    """Readings of one name, above 0: by recording, in order of time, with the machine of each."""

    recordings: Sequence[Floats]
    machines: Sequence[str]

    @property
    def n(self) -> int:
        return sum(map(len, self.recordings))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a median: ``error`` is the standard error of its log, with ``freedom`` degrees
    of freedom, from a bootstrap of ``units`` of the unit ``by``."""

    n: int
    median: float
    error: float
    freedom: float
    by: Unit
    units: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of a name.

    ``ratio`` is the median of B over that of A, with its interval; ``shift`` the median of all
    ratios of a reading of B to one of A (Hodges and Lehmann). p-values are adjusted (Holm) over all
    comparisons: ``p_within`` of a difference within the tolerance, ``p_beyond`` of one beyond it.
    ``more`` is an estimate of the further readings of each side that would decide; None where it
    cannot be estimated. ``coarse`` says that no number of readings would decide, since the metric
    has too few different values.
    """

    key: tuple[str, ...]
    a: Estimate | None
    b: Estimate | None
    ratio: float | None
    lower: float | None
    upper: float | None
    shift: float | None
    p_within: float | None
    p_beyond: float | None
    verdict: Verdict
    more: int | None
    coarse: bool = False


def estimate(side: Side, seed: int = 0) -> Estimate | None:
    """Estimate the median of a side; None below ``MIN_READINGS`` readings."""
    if side.n < MIN_READINGS:
        return None
    parts, by = _independent_units(side)
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
    # Where a long recording outweighs the others, there are hardly more units than it (Kish 1965).
    alike = float(sizes.sum() ** 2 / (sizes**2).sum())
    return Estimate(side.n, float(np.median(values)), error, max(alike - 1.0, 1.0), by, k)


def compare(
    sides: Mapping[tuple[str, ...], tuple[Side, Side]],
    tolerance: float,
    confidence: float = 0.95,
) -> list[Comparison]:
    """Compare A with B by key, such as group, kind and name."""
    limit = log(1.0 + tolerance)
    alpha = 1.0 - confidence
    tests = [_test(a, b, limit) for a, b in sides.values()]
    within = holm([test.p_within for test in tests])
    beyond = holm([test.p_beyond for test in tests])
    count = max(1, sum(isfinite(test.p_within) for test in tests))
    comparisons = []
    for (key, pair), test, p_within, p_beyond in zip(
        sides.items(), tests, within, beyond, strict=True
    ):
        a, b = test.a, test.b
        if a is None or b is None:
            few = max(1, MIN_READINGS - min(side.n for side in pair))
            comparisons.append(
                Comparison(key, a, b, None, None, None, None, None, None, "cannot tell", few)
            )
            continue
        d = log(b.median / a.median)
        error, freedom = _error_of_difference(a, b, test.rounding)
        half = t_quantile(0.5 + confidence / 2.0, freedom) * error
        verdict: Verdict = "cannot tell"
        if p_within <= alpha:
            verdict = "differs"
        elif p_beyond <= alpha:
            verdict = "equivalent"
        more: int | None = None
        coarse = False
        if verdict == "cannot tell":
            gap = abs(abs(d) - limit)
            more, coarse = _more_readings(a, b, test.rounding, gap, alpha / count)
        comparisons.append(
            Comparison(
                key=key,
                a=a,
                b=b,
                ratio=exp(d),
                lower=exp(d - half),
                upper=exp(d + half),
                shift=exp(hodges_lehmann(*(np.log(_readings(side)) for side in pair))),
                p_within=float(p_within),
                p_beyond=float(p_beyond),
                verdict=verdict,
                more=more,
                coarse=coarse,
            )
        )
    return comparisons


def hodges_lehmann(a: Floats, b: Floats) -> float:
    """The median of the differences b - a of all pairs, by bisection."""
    a, b = np.sort(a), np.sort(b)
    low, high = float(b[0] - a[-1]), float(b[-1] - a[0])
    half = len(a) * len(b) / 2.0
    close = max(1e-12, 1e-9 * (high - low))
    while high - low > close:
        middle = (low + high) / 2.0
        if int(np.searchsorted(b, a + middle, side="right").sum()) >= half:
            high = middle
        else:
            low = middle
    return (low + high) / 2.0


@dataclass(frozen=True, slots=True)
class _Test:
    """p-values before adjustment; NaN where a side has too few readings. ``rounding`` is the
    variance of the log ratio that the steps of the metric add."""

    a: Estimate | None
    b: Estimate | None
    p_within: float
    p_beyond: float
    rounding: float = 0.0


def _test(side_a: Side, side_b: Side, limit: float) -> _Test:
    a, b = estimate(side_a, 0), estimate(side_b, 1)
    if a is None or b is None:
        return _Test(a, b, float("nan"), float("nan"))
    d = abs(log(b.median / a.median))
    values = np.unique(np.concatenate([_readings(side_a), _readings(side_b)]))
    rounding = sum(_rounding(side.median, values) for side in (a, b))
    error, freedom = _error_of_difference(a, b, rounding)
    if error <= 0.0:
        return _Test(a, b, float(d <= limit), float(d >= limit))
    z = (d - limit) / error
    below, above = special.stdtr(freedom, -z), special.stdtr(freedom, z)
    return _Test(a, b, float(below), float(above), rounding)


def _rounding(median: float, values: Floats) -> float:
    """Variance of a log median that was rounded to one of the distinct ``values`` of both sides:
    anywhere within half a step of it. Of a metric with few values all bootstrap medians are equal,
    as if it were known exactly. Where the values are dense, it is next to nothing; of a single one
    the step is its last decimal."""
    at = int(np.searchsorted(values, median))
    known = values[at] == median
    around = values[max(at - 1, 0) : at + (2 if known else 1)]
    if len(around) > 1:
        step = float(np.diff(np.log(around)).min())
    else:
        exponent = Decimal(repr(median)).normalize().as_tuple().exponent
        step = log1p(10.0 ** min(int(exponent), 0) / median)
    return (step / 2.0) ** 2 / 3.0


def _error_of_difference(a: Estimate, b: Estimate, rounding: float) -> tuple[float, float]:
    """Standard error and its degrees of freedom (Welch and Satterthwaite); ``rounding`` is known
    and takes none."""
    va, vb = a.error**2, b.error**2
    total = va + vb + rounding
    if va + vb <= 0.0:
        return sqrt(total), a.freedom + b.freedom
    return sqrt(total), total**2 / (va**2 / a.freedom + vb**2 / b.freedom)


def _more_readings(
    a: Estimate, b: Estimate, rounding: float, gap: float, alpha: float
) -> tuple[int | None, bool]:
    """Return how many more readings would decide, and whether the metric is too coarse for any
    number of them."""
    error, freedom = _error_of_difference(a, b, rounding)
    if gap <= 0.0 or error <= 0.0:
        return None, False
    variance = a.error**2 + b.error**2
    left = (gap / t_quantile(1.0 - alpha, freedom)) ** 2 - rounding
    if left <= 0.0:
        return None, rounding > variance
    factor = variance / left
    if factor > _MAX_FACTOR:
        return None, False
    return max(1, ceil(max(a.n, b.n) * (factor - 1.0))), False


def _independent_units(side: Side) -> tuple[list[Floats], Unit]:
    """The readings of each unit to resample, and the unit."""
    by_machine: dict[str, list[Floats]] = {}
    for machine, values in zip(side.machines, side.recordings, strict=True):
        if len(values):
            by_machine.setdefault(machine, []).append(values)
    if len(by_machine) > 1:
        return [np.concatenate(own) for own in by_machine.values()], "machines"
    recordings = [values for own in by_machine.values() for values in own]
    if len(recordings) >= CLUSTERS:
        return recordings, "recordings"
    total = sum(map(len, recordings))
    blocks: list[Floats] = []
    for values in recordings:
        tau = autocorrelation(values).tau
        length = 1 if tau < 1.5 else ceil(3.0 * tau)
        count = min(len(values) // length, ceil(_MAX_BLOCKS * len(values) / total))
        blocks += np.array_split(values, max(count, min(4, len(values))))
    return blocks, "blocks"


def _readings(side: Side) -> Floats:
    return np.concatenate([values for values in side.recordings if len(values)])
