"""One model over environments: log slowdown, severity and whether it extrapolates, for one row or
for thousands at once.

Every prediction and every ranking is made of these numbers. Environments are rows of log seconds
per operation in the order of the model's columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.learning import extrapolation, intervals, spaces
from kongming.learning.awake import with_awake_factor
from kongming.learning.extrapolation import Distance
from kongming.learning.intervals import UNWIDENED, Widening
from kongming.learning.model_file import FrozenModel, ModelFile, Variant
from kongming.learning.readings import MISSING_SHARE, VariantName
from kongming.learning.repeat_noise import DEFAULT_POOL, Variance, shrunk
from kongming.records.errors import InputError
from kongming.records.prediction import Interval

_LEVEL = 0.9
"""Level of the interval that decides how far a prediction may reach."""

_LEVELS = 16
"""Levels of intervals for which a scorer remembers what they rest on."""


@dataclass(frozen=True, eq=False, slots=True)
class Scores:
    """Scores of n environments: log slowdown (n,), the standard deviation (n,) of the model's error
    in it, whether each lies outside the training environments (n,), the log slowdown (n,) beyond
    which nothing slows the program there, and whether the first is of the edge of what was trained
    on (n,): of its environments, or of its slowdowns."""

    log_slowdown: Floats
    error: Floats
    outside: NDArray[np.bool_]
    limit: Floats
    at_least: NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Scorer:
    """A variant's model with what is the same for every environment worked out once. All arrays
    are (p,): logs of the idle node and of the range of the training runs, how far beyond that
    range a column may lie, and the floor and the edge that follow: what lies beyond the edge is
    taken to be on it. ``used`` says which columns move the model's predictions, and ``family`` by a
    number (0 to p - 1) which are of one family."""

    variant: Variant
    frozen: FrozenModel
    log_idle: Floats
    log_low: Floats
    log_high: Floats
    log_floor: Floats
    log_edge: Floats
    used: NDArray[np.bool_]
    family: NDArray[np.intp]
    margins: Floats
    tails: dict[tuple[float, Variance], intervals.Tails] = field(default_factory=dict)

    @property
    def neighbour(self) -> float:
        """The log slowdown next to a neighbour that never sleeps, besides its pressure: of a
        program that waits less (``awake``), of others more (``presence``)."""
        return self.variant.awake + self.frozen.presence

    def score(self, rows: Floats, awake: Floats) -> Scores:
        """Score ``rows`` (n, p), without a missing reading; ``awake`` (n,) is the share of time in
        which neighbours keep a CPU awake, NaN without any (``awake.with_awake_factor``)."""
        moved = rows - self.log_idle
        beyond = rows > self.log_edge
        outside = np.asarray((beyond | (rows < self.log_floor)).any(axis=1))
        inside = np.minimum(rows, self.log_edge) - self.log_idle
        limit = self._limit(inside)
        predicted, error, at_edge = self._predicted(inside, moved)
        if self.frozen.open_ended:
            at_edge |= self._unknown(predicted, error)
        log_slowdown = with_awake_factor(np.minimum(predicted, limit), self.neighbour, awake)
        present = self.frozen.presence * np.nan_to_num(awake)
        return Scores(
            log_slowdown,
            # A share of a median says no more of presence than that it is about as large as that.
            np.hypot(error, present),
            outside,
            # Presence is added to what a resource or a worst run allows.
            limit + present,
            np.asarray((beyond & self.used).any(axis=1) | at_edge),
        )

    def log_slowdown_and_bound(
        self, rows: Floats, awake: Floats
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """(n,) of ``rows`` (n, p): log slowdowns, and whether each is the least, of the scores."""
        if self.frozen.open_ended:
            scores = self.score(rows, awake)
            return scores.log_slowdown, scores.at_least
        beyond = rows > self.log_edge
        inside = np.minimum(rows, self.log_edge) - self.log_idle
        predicted, at_edge, _ = self._edged(inside)
        if predicted.max() > self.frozen.worst:
            predicted = np.minimum(predicted, self._limit(inside))
        if beyond.any():
            at_edge = at_edge | (beyond & self.used).any(axis=1)
        return with_awake_factor(predicted, self.neighbour, awake), at_edge

    def _predicted(self, inside: Floats, moved: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """(n,) log slowdowns; (n,) the standard deviation of each: how far the variant's members
        disagree, or a share of the environment's severity where none could; and (n,) whether the
        model, or half of its members, are at their upper bound."""
        predicted, at_edge, each = self._edged(inside)
        members = self.variant.members
        if members is None:
            severity = intervals.severity_of(moved, self.variant.spread)
            return predicted, intervals.SEVERITY_SHARE * severity, at_edge
        if each is None:
            each = members.each(inside)
        return predicted, np.asarray(each.std(axis=1, ddof=1), dtype=np.float64), at_edge

    def _edged(self, inside: Floats) -> tuple[Floats, NDArray[np.bool_], Floats | None]:
        """The first and the last of ``_predicted``, and (n, members) what the members say if these
        are the model."""
        members, bound = self.variant.members, self.frozen.bounds[1]
        if members is None or self.frozen.predictor is not members:
            predicted = self.frozen.log_slowdown(inside)
            return predicted, np.asarray(predicted >= bound), None
        each = members.each(inside)
        predicted = spaces.bounded(members.combined(each, inside), self.frozen.bounds)
        return predicted, np.asarray(2 * (each >= bound).sum(axis=1) >= each.shape[1]), each

    def _unknown(self, predicted: Floats, error: Floats) -> NDArray[np.bool_]:
        """(n,): whether a prediction of a model whose training runs end in lower bounds may reach
        these."""
        reach = self.known_tails(_LEVEL, DEFAULT_POOL).upper
        deviation = np.hypot(error, self._solo_error(shrunk(self.variant.repeats, DEFAULT_POOL)))
        return np.asarray(predicted + reach * deviation >= self.frozen.worst)

    def _limit(self, inside: Floats) -> Floats:
        """(n,): no program is slowed more than the resource that is slowed most, or than it was in
        its worst training run, unless that was ended before its program was."""
        if self.frozen.open_ended:
            return np.full(len(inside), math.inf)
        return np.asarray(np.maximum(inside.max(axis=1), self.frozen.worst))

    def distance(self, row: Floats) -> Distance:
        """Return how far one environment (p,) lies outside the training environments."""
        excess = extrapolation.excess(row, self.log_low, self.log_high)
        return extrapolation.distance_of(excess, self.margins)

    def interval(
        self,
        log_slowdown: float,
        error: float,
        level: float,
        widening: Widening = UNWIDENED,
        *,
        limit: float = math.inf,
        at_least: bool = False,
    ) -> Interval:
        """The slowdown's interval, of a score with that ``error``, ``limit`` and ``at_least``.

        Raises InputError for a level that is no probability."""
        noise = shrunk(self.variant.repeats, widening.pool)
        return intervals.interval(
            log_slowdown,
            math.hypot(error, self._solo_error(noise)),
            known=self.known_tails(level, widening.pool),
            lowest=self.frozen.bounds[0] + self.variant.awake,
            groups=self.frozen.groups,
            level=level,
            widening=widening,
            limit=limit,
            at_least=at_least,
            loaded_runs=self.variant.loaded_runs,
        )

    def known_tails(self, level: float, pool: Variance) -> intervals.Tails:
        """Return what intervals of that level rest on. Raises InputError for a level that is no
        probability."""
        known = self.tails.get((level, pool))
        if known is None:
            noise = shrunk(self.variant.repeats, pool)
            errors = np.hypot(self.frozen.errors, self._solo_error(noise))
            known = intervals.tails(self.frozen.residuals, errors, noise=noise, level=level)
            if len(self.tails) >= _LEVELS:
                # Levels come with requests: there is no end to them.
                self.tails.clear()
            self.tails[level, pool] = known
        return known

    def _solo_error(self, noise: float) -> float:
        """The standard error of the solo runs that every slowdown is over."""
        return noise / math.sqrt(self.variant.solo_runs)

    def fill(self, rows: Floats) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Fill the missing readings (NaN) of ``rows`` (n, p) in place: a column is taken to be
        slowed as the median of the rest of its family, or, if none of that was read, not at all.

        Rows stay as they are if they lack more than ``MISSING_SHARE`` of the columns, or a column
        that the model uses with all of its family. Return which rows are complete afterwards, and
        in which of these a column that the model uses was filled, (n,) each."""
        missing = np.isnan(rows)
        lacking = missing.sum(axis=1)
        complete, filled = lacking == 0, np.zeros(len(rows), dtype=np.bool_)
        fillable = ~complete & (lacking <= MISSING_SHARE * rows.shape[1])
        alike: dict[bytes, list[int]] = {}
        for i in np.flatnonzero(fillable).tolist():
            alike.setdefault(missing[i].tobytes(), []).append(i)
        for places in alike.values():
            lacks = missing[places[0]]
            unread = self.unread(lacks)
            if (unread & self.used).any():
                continue
            some = rows[places]
            for code in set(self.family[lacks].tolist()):
                members = self.family == code
                gaps = (members & lacks).nonzero()[0]
                known = (members & ~lacks).nonzero()[0]
                slowed = _medians(some[:, known] - self.log_idle[known])
                some[:, gaps] = self.log_idle[gaps] + slowed
            rows[places] = some
            complete[places] = True
            filled[places] = (lacks & self.used).any()
        return complete, filled

    def unread(self, missing: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return (p,): which of the ``missing`` columns (p,) are of a family that has no reading at
        all."""
        is_read = np.bincount(self.family[~missing], minlength=len(missing)) > 0
        return np.asarray(missing & ~is_read[self.family], dtype=np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class Blindness:
    """Columns of a full variant, of p, that its quick one is blind to: ``families`` (k, p) are
    those of each family that the full model uses and the quick variant does not have, and ``more``
    (p,) those that are not quick ones."""

    families: NDArray[np.bool_]
    more: NDArray[np.bool_]

    @classmethod
    def between(cls, full: Scorer, quick: Scorer) -> Blindness:
        """Return it for the two variants of a model."""
        names = np.array(full.variant.families)
        alien = sorted(set(names[full.used].tolist()).difference(quick.variant.families))
        families = names == np.array(alien, dtype=names.dtype)[:, None]
        return cls(families, ~np.isin(full.variant.columns, quick.variant.columns))

    def of(self, missing: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return (n,): whether the quick variant must not stand in for the full one, whose
        ``missing`` columns are (n, p): nothing was read of one of ``families``, although something
        of ``more`` was. Such readings have failed; a quick fingerprint has none of them, and is
        what the quick variant was validated on."""
        blind = np.zeros(len(missing), dtype=np.bool_)
        if not len(self.families):
            return blind
        for family in self.families:
            blind |= missing[:, family].all(axis=1)
        return np.asarray(blind & ~missing[:, self.more].all(axis=1))


def _medians(relatives: Floats) -> Floats:
    """The median of each row of (n, k) without NaN, (n, 1); 0 where k is. ``numpy.median`` takes
    most of the time of filling a row."""
    n, k = relatives.shape
    if not k:
        return np.zeros((n, 1))
    ordered = np.sort(relatives, axis=1)
    low, high = (k - 1) // 2, k // 2
    return np.asarray((ordered[:, low : low + 1] + ordered[:, high : high + 1]) / 2.0)


@lru_cache(maxsize=32)
def scorer_of(variant: Variant, model: str | None = None) -> Scorer:
    """The scorer of a model, None for the chosen one. Raises UnknownNameError."""
    return Scorer(**parts_of(variant, model))


def parts_of(variant: Variant, model: str | None = None) -> dict[str, Any]:
    """Return what a scorer is made of, by the names of its fields."""
    frozen = variant.model(model)
    margins = extrapolation.margins(
        low=variant.low, high=variant.high, spread=variant.spread, weights=frozen.weights
    )
    log_low, log_high = np.log(variant.low), np.log(variant.high)
    return {
        "variant": variant,
        "frozen": frozen,
        "log_idle": np.log(variant.idle),
        "log_low": log_low,
        "log_high": log_high,
        "log_floor": log_low - margins,
        "log_edge": log_high + margins,
        "used": extrapolation.used(frozen.weights),
        "family": np.unique(variant.families, return_inverse=True)[1],
        "margins": margins,
    }


def choose(
    file: ModelFile,
    scorers: Mapping[VariantName, Scorer],
    rows: Mapping[VariantName, Floats],
    wanted: VariantName | None,
    warnings: list[str],
) -> tuple[Scorer, Floats, bool]:
    """The scorer that serves an environment, its row (p,) without a missing reading, and whether
    one that the model uses was filled in.

    ``rows`` are the environment by the columns of each variant, NaN where there is no reading.
    It is the ``wanted`` variant; else the full one, or the quick one where readings for the full
    one are missing, none for the quick one is, and it is not blind (``Blindness``). What was done
    about missing readings is added to ``warnings``.

    Raises:
        InputError: more than ``MISSING_SHARE`` of the columns are missing, or a column that the
            model uses with all of its family.
    """
    name: VariantName = wanted or "full"
    missing = np.isnan(rows[name])
    lacking = int(missing.sum())
    if (
        wanted is None
        and lacking
        and "quick" in rows
        and not np.isnan(rows["quick"]).any()
        and not Blindness.between(scorers[name], scorers["quick"]).of(missing[None, :])[0]
    ):
        quick = scorers["quick"]
        warnings.append(
            f"Predicted from the {len(quick.variant.columns)} quick surrogates: the environment "
            f"has no reading of {lacking} others."
        )
        return quick, rows["quick"], False
    scorer, row = scorers[name], rows[name]
    if not lacking:
        return scorer, row, False
    unread = scorer.unread(missing)
    rows_to_fill = row[None, :].copy()
    complete, filled = scorer.fill(rows_to_fill)
    if not complete[0]:
        raise _unreadable(file, scorer, missing, unread & scorer.used)
    for which, how in (
        (missing & ~unread, "slowed as the rest of the family"),
        (unread, f"as on the idle node, since {scorer.frozen.name} hardly depends on that"),
    ):
        if which.any():
            names = ", ".join(_names(scorer, which))
            warnings.append(f"No reading of {names}: taken to be {how}.")
    return scorer, np.asarray(rows_to_fill[0], dtype=np.float64), bool(filled[0])


def _unreadable(
    file: ModelFile, scorer: Scorer, missing: NDArray[np.bool_], needed: NDArray[np.bool_]
) -> InputError:
    """The error for an environment whose ``missing`` columns (p,) cannot be filled: ``needed`` are
    those that the model uses and of whose family nothing was read, if any."""
    signed = "the signature of a program has them when its iterations last long enough."
    columns = len(scorer.variant.columns)
    if missing.sum() <= MISSING_SHARE * columns:
        return InputError(
            f"The environment has no reading of {', '.join(_names(scorer, needed))}, on which the "
            f"prediction of {file.app} by {scorer.frozen.name} depends, nor of any other surrogate "
            "of the same resource.",
            hint="A fingerprint says why they fail (kongming fingerprint --suite full), and needs "
            f"a folder with room to write in (--dir); {signed}",
        )
    names = _names(scorer, missing)
    return InputError(
        f"The environment has no reading of {len(names)} of the model's {columns} "
        f"surrogates ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''}).",
        hint=f"A fingerprint of a larger suite has them (kongming fingerprint --suite full); "
        f"{signed}",
    )


def _names(scorer: Scorer, columns: NDArray[np.bool_]) -> list[str]:
    """The names of ``columns`` (p,)."""
    return [scorer.variant.columns[j] for j in np.flatnonzero(columns)]
