"""The runs of which a profiler was told, as arrays of distinct points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.explore import settings
from kongming.explore.errors import ExploreError
from kongming.files.sealed_document import is_unicode
from kongming.records.quantity import LARGEST

VALUE = "value"
"""The name of a metric that was told without one."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its codes, and what it measured by metric, or why it failed. ``at_least``: it was
    ended after so much of the guiding metric, or of each that is named, which is a lower bound and
    no failure of these."""

    codes: tuple[float, ...]
    values: Mapping[str, float] | None = None
    error: str | None = None
    cost: float | None = None
    at_least: float | Mapping[str, float] | None = None

    def measured(self, metric: str, *, guides: bool) -> float | None:
        """Return the value of a metric, or the lower bound of it; one without a name is of the
        metric that ``guides``."""
        if self.values is not None:
            return self.values.get(metric)
        if isinstance(self.at_least, Mapping):
            return self.at_least.get(metric)
        return self.at_least if guides else None

    @property
    def bounds(self) -> Mapping[str, float]:
        """The lower bounds that were named."""
        return self.at_least if isinstance(self.at_least, Mapping) else {}

    def failed(self, metric: str, *, guides: bool) -> bool:
        """Return whether it measured nothing, and has no lower bound of a metric either."""
        return self.values is None and self.measured(metric, guides=guides) is None

    def to_dict(self) -> dict[str, Any]:
        return {
            "codes": plain(self.codes),
            "values": None if self.values is None else dict(self.values),
            "error": self.error,
            "cost": self.cost,
            "at_least": dict(self.bounds) or self.at_least,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Run:
        """Read what ``to_dict`` returned. Raises ValueError, or another of ``MALFORMED``, for a run
        that no profiler can have been told; whether a space has the point is not known here."""
        values, error = document["values"], document["error"]
        cost, at_least = document["cost"], document["at_least"]
        if values is not None:
            if error is not None or at_least is not None:
                raise ValueError("a run has a value, and was ended or failed")
            values = values_of(values)
        elif error is None and at_least is None:
            raise ValueError("a run has no value, and nothing says why")
        if not isinstance(error, str | None):
            raise TypeError(f"{error!r} is no reason of a failure")
        return cls(
            coded(document["codes"]),
            values,
            error,
            None if cost is None else settings.within(cost, "cost", 0.0, LARGEST),
            None if at_least is None else bounds_of(at_least),
        )


def values_of(value: Mapping[str, float]) -> dict[str, float]:
    """Check what a run measured by metric. Raises ExploreError."""
    return _by_metric(value, "value", "")


def bounds_of(at_least: float | Mapping[str, float]) -> float | dict[str, float]:
    """Check a lower bound of the guiding metric, or of each that is named. Raises ExploreError."""
    if isinstance(at_least, Mapping):
        return _by_metric(at_least, "at_least", "at_least.")
    return settings.summable(at_least, "at_least")


def _by_metric(numbers: Mapping[str, float], field: str, prefix: str) -> dict[str, float]:
    if not numbers:
        raise ExploreError("has no metric.", field=field, value="{}")
    checked = {}
    for name, number in numbers.items():
        if not isinstance(name, str) or not is_unicode(name):
            raise ExploreError("is no name of a metric.", field=field, value=repr(name))
        checked[name] = settings.summable(number, f"{prefix}{name}")
    return checked


class Measured(NamedTuple):
    """Distinct points (n, d), the mean (n,) of their values, how many there are of each, and for
    each of all (m,) observations its point and value. ``censored`` (n,): points of which there is
    a lower bound alone, the largest, since no run of them was measured, or fewer than were ended
    after at least as long; other bounds of a point that was measured are left out."""

    codes: Floats
    means: Floats
    counts: np.ndarray
    point: np.ndarray
    observed: Floats
    censored: np.ndarray

    @property
    def repeatable(self) -> Floats:
        """The points that were measured: a run that was ended is ended again."""
        return np.asarray(self.codes[~self.censored])

    @property
    def repeats(self) -> int:
        """Values of points that had another before."""
        return int((self.counts - 1).sum())

    @property
    def noise(self) -> float | None:
        """The pooled standard deviation of repeats; None where no point was repeated."""
        return _pooled(self.observed - self.means[self.point], self.counts)

    @property
    def relative_noise(self) -> float | None:
        """The same of the logarithms; None where values are not above 0 either."""
        if not len(self.observed) or self.observed.min() <= 0.0:
            return None
        logs = np.log(self.observed)
        means = np.bincount(self.point, logs) / self.counts
        return _pooled(logs - means[self.point], self.counts)

    def sorted_by_codes(self) -> Measured:
        """The same points and observations, in an order that is not that of the runs."""
        order = order_of(self.codes)
        places = np.argsort(order)[self.point]
        by_point = np.lexsort((self.observed, places))
        point, observed = places[by_point], self.observed[by_point]
        counts = self.counts[order]
        return Measured(
            self.codes[order],
            np.bincount(point, observed, minlength=len(counts)) / np.maximum(counts, 1),
            counts,
            point,
            observed,
            self.censored[order],
        )


def measured(runs: Sequence[Run], metric: str, width: int, *, guides: bool = True) -> Measured:
    """The runs that measured a metric, by point."""
    taken = [run for run in runs if run.measured(metric, guides=guides) is not None]
    codes = rows([run.codes for run in taken], width)
    point = places_of_points(codes)
    distinct = int(point.max(initial=-1)) + 1
    observed = np.array([run.measured(metric, guides=guides) for run in taken], dtype=np.float64)
    bounds = np.array([run.values is None for run in taken], dtype=bool)
    counted = _counted(point, observed, bounds, distinct)
    codes, point, observed, bounds = (part[counted] for part in (codes, point, observed, bounds))
    first_of = np.unique(point, return_index=True)[1] if len(point) else point
    counts = np.bincount(point, minlength=distinct)
    sums = np.bincount(point, observed, minlength=distinct)
    return Measured(
        codes[first_of], sums / np.maximum(counts, 1), counts, point, observed, bounds[first_of]
    )


def _counted(
    point: np.ndarray, observed: Floats, bounds: np.ndarray, distinct: int
) -> NDArray[np.bool_]:
    """Return which (n,) of the values and bounds stand for their point: what was measured, or the
    largest bound. A run is more likely to be ended than not where most were: the few that were
    measured are the fastest. Bounds below what was measured do not count, as of a limit that was
    raised."""
    values = ~bounds
    longest = np.full(distinct, -np.inf)
    np.maximum.at(longest, point[values], observed[values])
    beyond = bounds & (observed >= longest[point])
    ended, known = (np.bincount(point[each], minlength=distinct) for each in (beyond, values))
    censored = (ended > known)[point]
    counted = values & ~censored
    at = np.flatnonzero(bounds & censored)
    at = at[np.lexsort((observed[at], point[at]))]
    counted[at[np.diff(point[at], append=distinct) != 0]] = True
    return np.asarray(counted)


def places_of_points(codes: Floats) -> np.ndarray:
    """The (n,) points of (n, d) codes, numbered in the order in which they come first."""
    places: dict[bytes, int] = {}
    return np.array(
        [places.setdefault((row + 0.0).tobytes(), len(places)) for row in codes], dtype=np.intp
    )


def deviations_of_repeats(
    point: np.ndarray, values: Floats, *, from_median: bool = False
) -> Floats:
    """Return by how much (n,) values miss the mean (or median) of their point, which no model can
    know; NaN where a point has no other value. Means of few values are near to each of them:
    deviations are widened to what they would be from the mean of many."""
    known = np.isfinite(values)
    size = int(point.max(initial=-1)) + 1
    counts = np.bincount(point[known], minlength=size)[point]
    centers = np.bincount(point[known], values[known], minlength=size)[point] / np.maximum(
        counts, 1
    )
    if from_median:
        for each in np.unique(point[known & (counts > 1)]):
            centers[point == each] = np.median(values[known & (point == each)])
    deviations = np.full(len(values), np.nan)
    repeated = known & (counts > 1)
    k = counts[repeated]
    deviations[repeated] = (values[repeated] - centers[repeated]) * np.sqrt(k / (k - 1.0))
    return deviations


def order_of(codes: Floats) -> np.ndarray:
    """The (n,) places of (n, d) codes in their order; where a dimension does not exist it comes
    first."""
    return np.lexsort(np.where(np.isnan(codes), -np.inf, codes).T[::-1])


def rows(codes: Sequence[tuple[float, ...]], width: int) -> Floats:
    return np.array(codes, dtype=np.float64).reshape(len(codes), width)


def plain(codes: tuple[float, ...]) -> list[float | None]:
    """Codes as JSON, which has no NaN."""
    return [None if math.isnan(code) else code for code in codes]


def coded(codes: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if code is None else float(code) for code in codes)


def _pooled(deviations: Floats, counts: np.ndarray) -> float | None:
    spare = int(counts.sum()) - len(counts)
    return float(np.sqrt((deviations**2).sum() / spare)) if spare > 0 else None
