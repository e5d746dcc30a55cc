"""Pairs and traces to simulate with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from random import Random

import numpy as np

from kongming.simulate import Fleet, MeasuredPair, Outcome, PairTable, Study, Trace, alike

APPS = ("hog", "quiet", "victim")
SLOWDOWN = {
    ("hog", "hog"): 1.5,
    ("hog", "quiet"): 1.05,
    ("hog", "victim"): 1.1,
    ("quiet", "hog"): 1.1,
    ("quiet", "quiet"): 1.0,
    ("quiet", "victim"): 1.0,
    ("victim", "hog"): 2.0,
    ("victim", "quiet"): 1.02,
    ("victim", "victim"): 1.15,
}
SOLO_S = {"hog": 20.0, "quiet": 10.0, "victim": 30.0}


def table(slowdown: dict[tuple[str, str], float] = SLOWDOWN) -> PairTable:
    return PairTable.of([MeasuredPair(a, b, (s,)) for (a, b), s in slowdown.items()], SOLO_S)


def trace(
    arrivals: Sequence[float],
    apps: Sequence[str],
    *,
    work: Sequence[float] | None = None,
    limit: float | Sequence[float] = math.inf,
) -> Trace:
    places = [APPS.index(app) for app in apps]
    works = [SOLO_S[app] for app in apps] if work is None else work
    return Trace.of(APPS, arrivals, places, works, limit, "made for a test")


def drawn(jobs: int, seed: int, *, every_s: float = 8.0, limit: float = 1.2) -> Trace:
    random = Random(seed)
    now, arrivals, apps, works = 0.0, [], [], []
    for _ in range(jobs):
        now += random.expovariate(1.0 / every_s)
        arrivals.append(now)
        apps.append(random.choice(APPS))
        works.append(random.uniform(1.0, 40.0))
    return trace(arrivals, apps, work=works, limit=limit)


def study(jobs: Trace, fleet: Fleet | None = None, **options: object) -> Study:
    return Study(jobs, fleet or alike(2, 2), table(), None, **options)  # type: ignore[arg-type]


def work_done(simulation: Study, outcome: Outcome) -> list[float]:
    """What each job did between its start and its end, integrated over who was next to it."""
    kind_of = simulation.fleet.kind_of()
    logs = simulation.table.logs
    done = [0.0] * len(simulation.trace)
    for node, kind in enumerate(kind_of):
        jobs = np.flatnonzero(outcome.node == node)
        moments = np.unique(np.concatenate([outcome.start_s[jobs], outcome.end_s[jobs]]))
        for begin, end in itertools.pairwise(moments):
            here = [j for j in jobs if outcome.start_s[j] <= begin and outcome.end_s[j] >= end]
            assert len(here) <= simulation.fleet.kinds[kind].slots
            for job in here:
                log = sum(
                    logs[simulation.trace.app_of[job], simulation.trace.app_of[other]]
                    for other in here
                    if other != job
                )
                speed = simulation.fleet.kinds[kind].speed
                done[job] += (end - begin) * speed * math.exp(-log)
    return done
