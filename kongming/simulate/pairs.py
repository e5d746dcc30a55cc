"""Pairwise slowdowns of co-located applications: measured ones, and the estimates a policy uses.

All values are natural logs of slowdowns. With several neighbours the logs above 0 add up, as
``kongming.learning.colocation`` adds up the logs of each neighbour's effect on a surrogate. A
program that waits may be faster next to a busy neighbour, by as much as next to the one that keeps
a CPU awake the longest (``together``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.records.errors import InputError, UnknownNameError, UntrainedError
from kongming.records.run import geometric_mean, noise_floor_pct

NORMAL_95 = 1.6448536269514722
"""95th percentile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Slowdown of ``app`` co-located with ``neighbour``, one value per repeat."""

    app: str
    neighbour: str
    slowdowns: tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class PairTable:
    """Measured pairs of ``apps`` (sorted by name).

    ``logs`` (a, a): log slowdown of the row's application co-located with the column's, NaN where
    unknown. ``solo_s`` (a,): solo seconds, NaN where unknown. ``estimated`` lists the pairs that
    were filled in instead of measured. ``noise_pct`` is the geometric mean of the pairs' repeat
    noise, None without repeats.
    """

    apps: tuple[str, ...]
    logs: Floats
    solo_s: Floats
    measured: int
    repeats: int
    noise_pct: float | None
    estimated: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[MeasuredPair], solo_s: Mapping[str, float]) -> PairTable:
        """Build a table from measurements; repeats of a pair are averaged geometrically.

        Raises:
            InputError: there is no pair, or a slowdown is not a finite number above 0.
        """
        slowdowns: dict[tuple[str, str], list[float]] = {}
        for pair in pairs:
            for value in pair.slowdowns:
                if not (math.isfinite(value) and value > 0.0):
                    raise InputError(
                        "is implausible.",
                        field=f"slowdown of {pair.app} next to {pair.neighbour}",
                        value=value,
                        allowed="a finite number above 0",
                    )
                slowdowns.setdefault((pair.app, pair.neighbour), []).append(value)
        if not slowdowns:
            raise InputError(
                "There is no measured pair.",
                field="pairs",
                hint="Measure pairs: kongming corun A B, or kongming evaluate APPS.toml --pairs. "
                "Or name a table of them: --pairs FILE",
            )
        apps = tuple(sorted({name for pair in slowdowns for name in pair}))
        index = {app: i for i, app in enumerate(apps)}
        logs = np.full((len(apps), len(apps)), math.nan)
        for (app, neighbour), values in sorted(slowdowns.items()):
            logs[index[app], index[neighbour]] = math.log(geometric_mean(values))
        noises = [noise_floor_pct(values) for values in slowdowns.values() if len(values) > 1]
        positive = [noise for noise in noises if noise is not None and noise > 0.0]
        return cls(
            apps=apps,
            logs=logs,
            solo_s=np.array([solo_s.get(app, math.nan) for app in apps], dtype=np.float64),
            measured=len(slowdowns),
            repeats=min(len(values) for values in slowdowns.values()),
            noise_pct=geometric_mean(positive) if positive else None,
        )

    @property
    def faster(self) -> int:
        """Measured pairs with a slowdown below 1: no estimate is."""
        return int(np.count_nonzero(self.logs < 0.0))

    def place(self, app: str) -> int:
        """Index of an application. Raises UnknownNameError if no pair names it."""
        if app not in self.apps:
            raise UnknownNameError("application in the table of pairs", app, self.apps)
        return self.apps.index(app)

    def only(self, apps: Sequence[str]) -> PairTable:
        """Restrict the table to these applications."""
        rows = np.array([self.place(app) for app in sorted(set(apps))], dtype=np.intp)
        return replace(
            self,
            apps=tuple(self.apps[i] for i in rows),
            logs=self.logs[np.ix_(rows, rows)],
            solo_s=self.solo_s[rows],
        )

    def filled(self, apps: Sequence[str] | None = None, *, everything: bool = False) -> PairTable:
        """Restrict the table to ``apps`` (default: all), and fill in pairs that were not measured
        with ``estimate``, from the whole table: those of an application co-located with itself, or
        all (``everything``).

        Raises:
            UntrainedError: other pairs are missing, or the rest does not suffice for an estimate.
        """
        table = self if apps is None else self.only(apps)
        missing = [
            (table.apps[i], table.apps[j]) for i, j in np.argwhere(np.isnan(table.logs)).tolist()
        ]
        if not missing:
            return table
        unmeasured = [(a, b) for a, b in missing if a != b]
        if unmeasured and not everything:
            shown = ", ".join(f"{a} next to {b}" for a, b in unmeasured[:3])
            more = f" and {len(unmeasured) - 3} more" if len(unmeasured) > 3 else ""
            raise UntrainedError(
                f"There is no measurement of {shown}{more}.",
                hint="Measure them (kongming evaluate APPS.toml --pairs), leave those applications "
                "out, or estimate them from the others with --estimate-missing.",
            )
        logs = estimate(self.logs, [self.place(app) for app in table.apps])
        return replace(table, logs=logs, estimated=tuple(missing))


@dataclass(frozen=True, eq=False, slots=True)
class Beliefs:
    """The pairwise slowdowns that a policy assumes.

    ``logs`` and ``upper`` (a, a): the median and the upper end of its interval, in logs;
    ``at_least`` (a, a): where it is only a lower bound, so that no limit is known to be kept; None
    where none is. ``source`` names their origin; ``made_up`` marks synthetic errors instead of a
    model.
    """

    logs: Floats
    upper: Floats
    source: str
    made_up: bool = False
    estimated: int = 0
    at_least: NDArray[np.bool_] | None = None

    def slowdowns(self) -> tuple[Floats, Floats]:
        """(a, a) each: the medians and the upper ends as factors."""
        return np.exp(self.logs), np.exp(self.upper)

    def bounded(self) -> list[frozenset[int]]:
        """The neighbours next to which only a lower bound is predicted, for each application."""
        if self.at_least is None:
            return [frozenset()] * len(self.logs)
        return [frozenset(np.flatnonzero(row).tolist()) for row in self.at_least]

    def error_pct(self, table: PairTable) -> float | None:
        """Median prediction error over measured pairs, |predicted - measured| / measured in per
        cent; None without a measured pair."""
        estimated = {(table.place(a), table.place(b)) for a, b in table.estimated}
        shape = table.logs.shape
        measured = [i for i in np.ndindex(*shape) if i not in estimated]
        if not measured:
            return None
        rows, columns = np.array(measured, dtype=np.intp).T
        errors = np.abs(np.expm1(self.logs[rows, columns] - table.logs[rows, columns]))
        return float(100.0 * np.median(errors))


def together(logs: Iterable[float]) -> float:
    """Return the log slowdown next to several neighbours from those next to each of them: slowdowns
    add up; that a CPU is kept awake makes a program faster once.

    What any neighbour costs (``kongming.learning.presence``) is in each, and adds up as well."""
    values = list(logs)
    return math.fsum(max(value, 0.0) for value in values) + min([0.0, *values])


def known_truth(table: PairTable) -> Beliefs:
    """Return the measured slowdowns themselves, for the oracle."""
    return Beliefs(table.logs, table.logs, "measured")


def beliefs_of(
    predicted: Mapping[tuple[str, str], tuple[float, float | None]],
    table: PairTable,
    *,
    source: str,
    everything: bool = False,
    at_least: Collection[tuple[str, str]] = (),
) -> Beliefs:
    """Build beliefs from predicted slowdowns (median, upper end or None) by application and
    neighbour; those of ``at_least`` are lower bounds.

    A missing prediction of an application co-located with itself is estimated from the others, and
    a lower bound if one that says most of it is.

    Raises:
        UntrainedError: a pair has no prediction.
    """
    # Those of other applications say what these suffer and inflict.
    apps = sorted({*table.apps, *(app for pair in predicted for app in pair)})
    index = {app: i for i, app in enumerate(apps)}
    every, widths = np.full((len(apps), len(apps)), math.nan), np.zeros((len(apps), len(apps)))
    for (app, neighbour), (median, upper) in predicted.items():
        place = index[app], index[neighbour]
        every[place] = math.log(median)
        if upper is not None:
            widths[place] = max(math.log(upper) - every[place], 0.0)
    bounds = np.zeros(every.shape, dtype=np.bool_)
    for app, neighbour in at_least:
        bounds[index[app], index[neighbour]] = True
    own = [index[app] for app in table.apps]
    logs = every[np.ix_(own, own)]
    missing = np.isnan(logs)
    for i, j in np.argwhere(missing).tolist():
        if i != j and not everything:
            raise UntrainedError(
                f"There is no prediction for {table.apps[i]} next to {table.apps[j]}.",
                hint="Give every pair a prediction, or profile and train the missing applications.",
            )
    if missing.any():
        logs = estimate(every, own)
        widths[np.isnan(every)] = float(np.median(widths[~np.isnan(every)]))
        from_bounds = bounds.any(axis=1, keepdims=True) | bounds.any(axis=0, keepdims=True)
        bounds |= np.isnan(every) & from_bounds
    widths, bounds = widths[np.ix_(own, own)], bounds[np.ix_(own, own)]
    return Beliefs(
        logs,
        logs + widths,
        source,
        estimated=int(np.count_nonzero(missing)),
        at_least=bounds if bounds.any() else None,
    )


def made_up(table: PairTable, error: float, seed: int) -> Beliefs:
    """Add synthetic normal errors of standard deviation ``error`` (in logs) to the measured
    slowdowns.

    No model predicts these values, so results based on them must say so. The upper end of the
    interval is that of a predictor that knows the size of its errors (95% stay below it).

    Raises:
        InputError: the error is not a number from 0.
    """
    if not 0.0 <= error < math.inf:
        raise InputError(
            "is out of range.", field="--prediction-error", value=error, allowed="a number from 0"
        )
    noise = np.random.default_rng([seed, 7]).normal(0.0, error, table.logs.shape)
    logs = np.maximum(table.logs + noise, np.minimum(table.logs, 0.0))
    return Beliefs(
        logs,
        logs + NORMAL_95 * error,
        f"made up: measured with errors of {error:g} (standard deviation of the log)",
        made_up=True,
    )


def estimate(logs: Floats, own: Sequence[int]) -> Floats:
    """Return the rows and columns ``own`` of ``logs`` (a, a), NaN replaced by an additive
    main-effects model: the row application's sensitivity plus the column application's pressure,
    fitted to all of ``logs`` by least squares, 0 or more.

    Raises:
        UntrainedError: one of ``own`` has no known pair as the slowed one, or none as the
            neighbour.
    """
    n = len(logs)
    known: NDArray[np.bool_] = ~np.isnan(logs)
    if not (known[own].any(axis=1).all() and known[:, own].any(axis=0).all()):
        raise UntrainedError(
            "An application lacks measurements as the slowed one or as the neighbour of another.",
            hint="Measure at least one pair of each application.",
        )
    rows, columns = np.nonzero(known)
    design = np.zeros((len(rows), 2 * n))
    design[np.arange(len(rows)), rows] = 1.0
    design[np.arange(len(rows)), n + columns] = 1.0
    effects = np.linalg.lstsq(design, logs[known], rcond=None)[0]
    estimated = np.maximum(effects[:n, None] + effects[None, n:], 0.0)
    return np.where(known, logs, estimated)[np.ix_(own, own)]
