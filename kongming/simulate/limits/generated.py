"""Generated jobs with limits as users give them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.records.errors import InputError
from kongming.simulate.limits.jobs import LimitedJobs

ARRIVALS = ("poisson", "bursty", "daily")

_MINUTES = (5, 10, 15, 30, 60, 120, 240, 480, 720, 1440, 2880)
"""The limits that users choose among: round values (Tsafrir, Etsion & Feitelson 2005)."""

_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Generated:
    """Parameters of a generated trace.

    ``load`` is the processor time of all runs over that of the machine while jobs arrive.
    Each application has a width (powers of 2 up to a quarter of the machine), a median run time
    (log uniform, 2 minutes to 8 hours), a spread of its runs (log normal, 5 to 40 %) and a
    frequency by Zipf's law. 4 % of its runs end early, by an error of its user (log uniform from a
    hundredth of the median), and 2 % are of an input that takes 2 to 4 times as long.

    A user's limit is a round value of 1.3 to 10 times the application's median (log uniform), the
    same for all its jobs, and for a fifth of the applications the greatest there is: so most users
    ask for several times what they need, and few need more than they ask for, as in recorded traces
    (Mu'alem & Feitelson 2001).

    ``daily`` arrivals are Poisson with a rate that swings between 0.2 and 1.8 of the mean once a
    day; ``bursty`` jobs come in groups of one application, of geometric size with mean ``burst``.
    """

    arrivals: str
    jobs: int
    load: float
    capacity: int
    zipf: float = 1.0
    burst: float = 10.0
    apps: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, valid, allowed in (
            ("arrivals", self.arrivals, self.arrivals in ARRIVALS, ", ".join(ARRIVALS)),
            ("jobs", self.jobs, self.jobs >= 1, "1 or more"),
            ("load", self.load, 0.0 < self.load < math.inf, "above 0"),
            ("capacity", self.capacity, self.capacity >= 4, "4 processors or more"),
            ("zipf", self.zipf, 0.0 <= self.zipf < math.inf, "0 or more"),
            ("burst", self.burst, 1.0 <= self.burst < math.inf, "1 or more"),
            ("apps", self.apps, self.apps >= 1, "1 or more"),
        ):
            if not valid:
                raise InputError("is out of range.", field=name, value=value, allowed=allowed)

    def generate(self) -> LimitedJobs:
        """Generate the jobs."""
        random = np.random.default_rng([self.seed, 18])
        width = 2 ** random.integers(0, int(math.log2(self.capacity / 4)) + 1, self.apps)
        median_s = np.exp(random.uniform(math.log(120.0), math.log(8 * 3600.0), self.apps))
        spread = random.uniform(0.05, 0.4, self.apps)
        limit_s = self._limits(random, median_s)
        weights = 1.0 / (1.0 + np.arange(self.apps)) ** self.zipf
        weights /= weights.sum()
        groups = np.ones(self.jobs, dtype=np.int64)
        if self.arrivals == "bursty":
            groups = np.minimum(random.geometric(1.0 / self.burst, self.jobs), self.jobs)
            groups = groups[: np.searchsorted(np.cumsum(groups), self.jobs) + 1]
        drawn = random.choice(self.apps, self.jobs, p=weights)[: len(groups)]
        app_of = np.repeat(drawn, groups)[: self.jobs]
        run_s = median_s[app_of] * np.exp(spread[app_of] * random.standard_normal(self.jobs))
        kind = random.random(self.jobs)
        early = np.exp(random.uniform(math.log(0.01), 0.0, self.jobs))
        run_s = np.where(kind < 0.04, median_s[app_of] * early, run_s)
        run_s = np.where(kind > 0.98, run_s * random.uniform(2.0, 4.0, self.jobs), run_s)
        run_s = np.maximum(run_s, 1.0)
        limits, widths = limit_s[app_of], width[app_of]
        work_s = float((np.minimum(run_s, limits) * widths).sum())
        arrival_s = self._arrivals(random, groups, work_s / (self.load * self.capacity))
        return LimitedJobs(
            arrival_s=arrival_s,
            app_of=app_of,
            processors=widths,
            run_s=run_s,
            limit_s=limits,
            known_from_s=arrival_s + np.minimum(run_s, limits),
            capacity=self.capacity,
            source=f"{self.arrivals}, load {self.load:g}, Zipf {self.zipf:g}, seed {self.seed}",
        )

    def _limits(self, random: np.random.Generator, median_s: Floats) -> Floats:
        wanted = median_s * np.exp(random.uniform(math.log(1.3), math.log(10.0), self.apps))
        round_s = 60.0 * np.array(_MINUTES)
        limits = round_s[np.minimum(np.searchsorted(round_s, wanted), len(round_s) - 1)]
        return np.asarray(np.where(random.random(self.apps) < 0.2, round_s[-1], limits))

    def _arrivals(
        self, random: np.random.Generator, groups: NDArray[np.int64], span_s: float
    ) -> Floats:
        """Arrival times over ``span_s`` seconds; those of a group are equal."""
        shares = np.cumsum(random.exponential(1.0, len(groups)))
        times = span_s * shares / shares[-1]
        if self.arrivals == "daily":
            # Time as the integral of the rate has it, to time as the clock has it.
            clock = np.linspace(0.0, span_s, 10_000)
            turn = 2.0 * math.pi * clock / _DAY_S
            passed = clock - 0.8 * _DAY_S / (2.0 * math.pi) * np.sin(turn)
            times = np.interp(times * passed[-1] / span_s, passed, clock)
        return np.repeat(times, groups)[: self.jobs]
