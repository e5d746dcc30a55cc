"""What applications cost each other: measured slowdowns, and what is believed of them.

Everything is in natural logs of slowdowns. Beside several neighbours the logs add up, as
``kongming.colocation`` adds up the logs of what each neighbour does to a surrogate, and no
neighbour makes a program faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kongming.dataset import Floats
from kongming.errors import InputError, UnknownNameError, UntrainedError
from kongming.run import geometric_mean, noise_floor_pct

NORMAL_95 = 1.6448536269514722
"""Standard deviations that 95 of 100 normal errors stay below."""


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """The slowdown of ``app`` beside ``beside``, repeat by repeat."""

    app: str
    beside: str
    slowdowns: tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class PairTable:
    """Measured pairs of ``apps`` (by name).

    ``logs`` (a, a): log slowdown of the row's application beside the column's, 0 or more, NaN
    where nothing is known. ``solo_s`` (a,): seconds alone, NaN where unknown. ``estimated`` are
    the pairs that were not measured but filled in, ``floored`` how many measured ones said that a
    neighbour makes a program faster, and count as no slowdown. ``noise_pct`` is the geometric
    mean of the pairs' repeat noise, None without repeats.
    """

    apps: tuple[str, ...]
    logs: Floats
    solo_s: Floats
    measured: int
    repeats: int
    floored: int
    noise_pct: float | None
    estimated: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[MeasuredPair], solo_s: Mapping[str, float]) -> PairTable:
        """Rows of one pair are its repeats, and their geometric mean counts.

        Raises:
            InputError: there is no pair, or a slowdown is not a finite number above 0.
        """
        found: dict[tuple[str, str], list[float]] = {}
        for pair in pairs:
            for value in pair.slowdowns:
                if not (math.isfinite(value) and value > 0.0):
                    raise InputError(
                        "cannot be true.",
                        field=f"slowdown of {pair.app} beside {pair.beside}",
                        found=value,
                        allowed="a finite number above 0",
                    )
                found.setdefault((pair.app, pair.beside), []).append(value)
        if not found:
            raise InputError("There is no measured pair.", field="pairs")
        apps = tuple(sorted({name for pair in found for name in pair}))
        place = {app: i for i, app in enumerate(apps)}
        logs = np.full((len(apps), len(apps)), math.nan)
        floored = 0
        for (app, beside), values in sorted(found.items()):
            log = math.log(geometric_mean(values))
            floored += log < 0.0
            logs[place[app], place[beside]] = max(log, 0.0)
        noises = [noise_floor_pct(values) for values in found.values() if len(values) > 1]
        known = [noise for noise in noises if noise is not None and noise > 0.0]
        return cls(
            apps=apps,
            logs=logs,
            solo_s=np.array([solo_s.get(app, math.nan) for app in apps], dtype=np.float64),
            measured=len(found),
            repeats=min(len(values) for values in found.values()),
            floored=floored,
            noise_pct=geometric_mean(known) if known else None,
        )

    def place(self, app: str) -> int:
        """Raises UnknownNameError for an application that no pair names."""
        if app not in self.apps:
            raise UnknownNameError("application in the table of pairs", app, self.apps)
        return self.apps.index(app)

    def only(self, apps: Sequence[str]) -> PairTable:
        """The table of these applications alone."""
        rows = np.array([self.place(app) for app in sorted(set(apps))], dtype=np.intp)
        return replace(
            self,
            apps=tuple(self.apps[i] for i in rows),
            logs=self.logs[np.ix_(rows, rows)],
            solo_s=self.solo_s[rows],
        )

    def filled(self, *, everything: bool = False) -> PairTable:
        """With pairs that were not measured estimated: of an application beside itself, or
        (``everything``) any. ``estimate`` says how.

        Raises:
            UntrainedError: other pairs are missing, or nothing can be estimated from the rest.
        """
        missing = [
            (self.apps[i], self.apps[j]) for i, j in np.argwhere(np.isnan(self.logs)).tolist()
        ]
        if not missing:
            return self
        lacking = [(a, b) for a, b in missing if a != b]
        if lacking and not everything:
            shown = ", ".join(f"{a} beside {b}" for a, b in lacking[:3])
            more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
            raise UntrainedError(
                f"Nobody measured {shown}{more}.",
                hint="Measure them (kongming evaluate APPS.toml --pairs), leave those applications "
                "out, or estimate them from the others with --estimate-missing.",
            )
        return replace(self, logs=estimate(self.logs), estimated=tuple(missing))


@dataclass(frozen=True, eq=False, slots=True)
class Beliefs:
    """What a policy thinks that applications cost each other.

    ``logs`` and ``upper`` (a, a): the median and the upper end of its interval, in logs.
    ``source`` says where they are from; ``made_up`` that no model said so.
    """

    logs: Floats
    upper: Floats
    source: str
    made_up: bool = False
    estimated: int = 0

    def slowdowns(self) -> tuple[Floats, Floats]:
        """(a, a) each: the medians, and the upper ends."""
        return np.exp(self.logs), np.exp(self.upper)

    def error_pct(self, table: PairTable) -> float | None:
        """The median over measured pairs of |predicted - measured| / measured, in per cent;
        None where no measured pair is left."""
        guessed = {(table.place(a), table.place(b)) for a, b in table.estimated}
        shape = table.logs.shape
        known = [i for i in np.ndindex(*shape) if i not in guessed]
        if not known:
            return None
        rows, columns = np.array(known, dtype=np.intp).T
        errors = np.abs(np.expm1(self.logs[rows, columns] - table.logs[rows, columns]))
        return float(100.0 * np.median(errors))


def known_truth(table: PairTable) -> Beliefs:
    """The oracle's: the measured slowdowns themselves."""
    return Beliefs(table.logs, table.logs, "measured")


def beliefs_of(
    predicted: Mapping[tuple[str, str], tuple[float, float | None]],
    table: PairTable,
    *,
    source: str,
    everything: bool = False,
) -> Beliefs:
    """Predicted slowdowns (median, upper end or None) by application and neighbour.

    Where an application beside itself was not predicted, it is estimated from the others.

    Raises:
        UntrainedError: a pair has no prediction.
    """
    shape = table.logs.shape
    logs, widths = np.full(shape, math.nan), np.zeros(shape)
    for i, app in enumerate(table.apps):
        for j, beside in enumerate(table.apps):
            said = predicted.get((app, beside))
            if said is None:
                continue
            median, upper = said
            logs[i, j] = max(math.log(median), 0.0)
            if upper is not None:
                widths[i, j] = max(math.log(upper) - logs[i, j], 0.0)
    lacking = np.isnan(logs)
    for i, j in np.argwhere(lacking).tolist():
        if i != j and not everything:
            raise UntrainedError(
                f"Nothing was predicted for {table.apps[i]} beside {table.apps[j]}.",
                hint="Give every pair a prediction, or train and profile what lacks one.",
            )
    if lacking.any():
        logs = estimate(logs)
        widths[lacking] = float(np.median(widths[~lacking]))
    return Beliefs(logs, logs + widths, source, estimated=int(np.count_nonzero(lacking)))


def made_up(table: PairTable, error: float, seed: int) -> Beliefs:
    """The measured slowdowns with normal errors of standard deviation ``error`` in logs.

    No model predicted so: what rests on it has to say so. The interval's upper end is that of a
    predictor that knows the size of its errors (95% stay below).
    """
    noise = np.random.default_rng([seed, 7]).normal(0.0, error, table.logs.shape)
    logs = np.maximum(table.logs + noise, 0.0)
    return Beliefs(
        logs,
        logs + NORMAL_95 * error,
        f"made up: measured with errors of {error:g} (standard deviation of the log)",
        made_up=True,
    )


def estimate(logs: Floats) -> Floats:
    """``logs`` (a, a) with NaN replaced by what the row's application suffers and the column's
    inflicts: two sums of main effects by least squares, 0 or more.

    Raises:
        UntrainedError: an application has no pair in which it suffers, or none in which it
            inflicts.
    """
    n = len(logs)
    known: NDArray[np.bool_] = ~np.isnan(logs)
    if not (known.any(axis=1).all() and known.any(axis=0).all()):
        raise UntrainedError(
            "An application was never measured beside another, or no other beside it.",
            hint="Measure at least one pair of each application.",
        )
    rows, columns = np.nonzero(known)
    design = np.zeros((len(rows), 2 * n))
    design[np.arange(len(rows)), rows] = 1.0
    design[np.arange(len(rows)), n + columns] = 1.0
    effects = np.linalg.lstsq(design, logs[known], rcond=None)[0]
    guess = np.maximum(effects[:n, None] + effects[None, n:], 0.0)
    return np.where(known, logs, guess)
