"""Traces of arriving jobs: read from a CSV, or synthetic."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.files.csv_rows import read_rows
from kongming.records.errors import InputError, UnknownNameError, UntrainedError

COLUMNS = ("arrival_s", "app", "limit", "work")

ARRIVALS = ("poisson", "bursty")


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """n jobs in the order of their arrival.

    ``app_of`` (n,) are indices into ``apps``, ``work_s`` (n,) solo seconds on a node of speed 1,
    ``limit`` (n,) the largest acceptable slowdown, infinite for none.
    """

    apps: tuple[str, ...]
    arrival_s: Floats
    app_of: NDArray[np.int32]
    work_s: Floats
    limit: Floats
    source: str

    def __len__(self) -> int:
        return len(self.arrival_s)

    @classmethod
    def of(
        cls,
        apps: Sequence[str],
        arrival_s: Any,
        app_of: Any,
        work_s: Any,
        limit: Any,
        source: str,
    ) -> Trace:
        """Build a trace sorted by arrival; jobs that arrive together keep their order.

        Raises:
            InputError: there is no job, or a value is out of range.
        """
        arrival = np.asarray(arrival_s, dtype=np.float64)
        n = len(arrival)
        if n == 0:
            raise InputError("There is no job to place.", field="trace")
        work = np.asarray(work_s, dtype=np.float64)
        limits = np.broadcast_to(np.asarray(limit, dtype=np.float64), n)
        for name, values, valid in (
            ("arrival_s", arrival, np.isfinite(arrival) & (arrival >= 0.0)),
            ("work", work, np.isfinite(work) & (work > 0.0)),
            ("limit", limits, limits >= 1.0),
        ):
            if not valid.all():
                bad = int(np.argmin(valid))
                raise InputError("is out of range.", field=name, value=float(values[bad]))
        order = np.argsort(arrival, kind="stable")
        indices = np.asarray(app_of, dtype=np.int32)
        return cls(tuple(apps), arrival[order], indices[order], work[order], limits[order], source)

    def classes(self) -> tuple[NDArray[np.int32], list[int], list[float]]:
        """Classes of jobs that are equal to a policy: the class of each job (n,), and per class
        its application's index and its limit."""
        limits, limit_of = np.unique(self.limit, return_inverse=True)
        codes, class_of = np.unique(
            self.app_of.astype(np.int64) * len(limits) + limit_of.ravel(), return_inverse=True
        )
        return (
            class_of.ravel().astype(np.int32),
            (codes // len(limits)).tolist(),
            limits[codes % len(limits)].tolist(),
        )

    def used(self) -> Trace:
        """Return the same jobs with only the applications that occur, sorted by name."""
        indices = np.unique(self.app_of)
        names = sorted(self.apps[index] for index in indices)
        new_index = np.zeros(len(self.apps), dtype=np.int32)
        for index in indices.tolist():
            new_index[index] = names.index(self.apps[index])
        return replace(self, apps=tuple(names), app_of=new_index[self.app_of])


def read_trace(path: Path, apps: Sequence[str], solo_s: Floats, limit: float) -> Trace:
    """Read a trace from a CSV with a header: arrival_s, app, and optionally limit (a slowdown) and
    work (solo seconds). Missing values default to ``limit`` and to the application's ``solo_s``.

    Raises:
        InputError: the file cannot be read, or a cell is not plausible (with row and column).
        UntrainedError: a row has neither work nor an application whose solo time is known.
    """
    index = {app: i for i, app in enumerate(apps)}
    solos = solo_s.tolist()
    arrivals, works, limits, jobs = array("d"), array("d"), array("d"), array("i")
    for row in read_rows(path, COLUMNS[:2], COLUMNS):
        arrivals.append(row.number_in("arrival_s"))
        name = row.name("app")
        if name not in index:
            unknown = UnknownNameError("application in the table of pairs", name, apps)
            raise InputError(
                "is not in the table of pairs.",
                field=row.where("app"),
                value=name,
                hint=unknown.hint,
            )
        app = index[name]
        jobs.append(app)
        own = row.text("limit")
        limits.append(row.number_in("limit", least=1.0) if own else limit)
        work = row.optional("work")
        if work is None:
            work = solos[app]
            if math.isnan(work):
                raise UntrainedError(
                    f"{row.where('work')}: is empty, and the solo time of {name} is unknown.",
                    hint="Fill the column 'work', or give solo_s in the table of pairs.",
                )
        works.append(work)
    if not arrivals:
        raise InputError(f"{path} has a header but no rows.")
    return Trace.of(apps, arrivals, jobs, works, limits, str(path))


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Parameters of a synthetic trace.

    ``load`` is the solo work that arrives, over the capacity of all slots without interference.
    Applications follow Zipf's law with exponent ``zipf``, in a random order from ``seed``. With
    ``bursty`` arrivals, jobs come in simultaneous groups of one application, of geometric size with
    mean ``burst``.
    """

    arrivals: str
    jobs: int
    load: float
    zipf: float = 1.0
    burst: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, valid, allowed in (
            ("arrivals", self.arrivals, self.arrivals in ARRIVALS, " or ".join(ARRIVALS)),
            ("jobs", self.jobs, self.jobs >= 1, "1 or more"),
            ("load", self.load, 0.0 < self.load < math.inf, "above 0"),
            ("zipf", self.zipf, 0.0 <= self.zipf < math.inf, "0 (uniform) or more"),
            ("burst", self.burst, 1.0 <= self.burst < math.inf, "1 or more"),
        ):
            if not valid:
                raise InputError("is out of range.", field=name, value=value, allowed=allowed)

    def generate(self, apps: Sequence[str], solo_s: Floats, capacity: float, limit: float) -> Trace:
        """Generate the trace. Raises UntrainedError if the solo time of an application is
        unknown."""
        unknown = [app for app, solo in zip(apps, solo_s, strict=True) if math.isnan(solo)]
        if unknown:
            raise UntrainedError(
                f"The solo time of {', '.join(unknown[:3])} is unknown.",
                hint="Give solo_s in the table of pairs, take the pairs from the store, or give a "
                "trace with the column 'work'.",
            )
        random = np.random.default_rng([self.seed, 1])
        ranks = random.permutation(len(apps))
        weights = 1.0 / (1.0 + ranks) ** self.zipf
        weights /= weights.sum()
        rate = self.load * capacity / float(weights @ solo_s)
        if self.arrivals == "poisson":
            arrival = np.cumsum(random.exponential(1.0 / rate, self.jobs))
            app_of = random.choice(len(apps), self.jobs, p=weights)
        else:
            sizes = np.minimum(random.geometric(1.0 / self.burst, self.jobs), self.jobs)
            groups = int(np.searchsorted(np.cumsum(sizes), self.jobs)) + 1
            times = np.cumsum(random.exponential(self.burst / rate, groups))
            arrival = np.repeat(times, sizes[:groups])[: self.jobs]
            drawn = random.choice(len(apps), groups, p=weights)
            app_of = np.repeat(drawn, sizes[:groups])[: self.jobs]
        source = f"{self.arrivals}, load {self.load:g}, Zipf {self.zipf:g}, seed {self.seed}"
        return Trace.of(apps, arrival, app_of, solo_s[app_of], limit, source)
