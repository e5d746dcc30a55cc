"""A campaign in which every run takes as long as a test says, without any program or load."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kongming.probes.suite import Suite
from kongming.profiling import profiler
from kongming.profiling.blocks import loaded
from kongming.profiling.plans.steps import Plan, Step
from kongming.profiling.runs.outcome import Outcome
from kongming.records import moments
from kongming.records.application import Application
from kongming.records.errors import InducerError
from kongming.records.run import Run
from tests import builders

APP = "scripted"

Takes = Callable[[int], float | None]
"""Seconds of the run of that number since the start; None: it fails after as long as it may."""


class Runner:
    """Each run ends by itself or at its limit, at once, or as long after it as ``ending_s``."""

    ending_s = 0.0

    def __init__(self, app: Application, takes: Takes) -> None:
        self.app, self.takes, self.limits = app, takes, list[float | None]()
        self.clock = 0.0

    def run(self, *_: object, timeout_s: float | None = None, **__: object) -> Outcome:
        limit = self.app.timeout_s if timeout_s is None else timeout_s
        seconds = self.takes(len(self.limits))
        self.limits.append(limit)
        failed = "exit status 1" if seconds is None else None
        wall_s = limit or 0.0 if seconds is None else seconds
        late = limit is not None and seconds is not None and seconds > limit
        if late:
            wall_s, failed = (limit or 0.0) + self.ending_s, "did not end"
        self.clock += wall_s
        return Outcome(
            moments.now(),
            0,
            int(1e9 * wall_s),
            wall_s,
            None if failed else wall_s,
            error=failed,
            timed_out=late,
        )

    def close(self) -> None:
        """Nothing to close."""


def plan_of(kinds: Sequence[str]) -> Plan:
    """Each a block of its own: runs alone, and under the load of that name."""
    steps = tuple(
        Step(place, place, "solo", APP, (), kinds[:place].count("solo"))
        if kind == "solo"
        else Step(place, place, "induced", APP, (builders.level(kind),))
        for place, kind in enumerate(kinds)
    )
    return Plan("quick", "cross-core", "quick", 1, steps)


def campaign(
    patch: pytest.MonkeyPatch,
    plan: Plan,
    takes: Takes,
    *,
    timeout_s: float = 1e9,
    disturbed: Callable[[int], bool] = lambda _: False,
    load_s: float = math.inf,
    fingerprint_s: float = 0.0,
    **more: Any,
) -> tuple[list[Run], list[float | None]]:
    """The runs of a campaign, and after how many seconds each take of one would have been ended.
    ``disturbed`` by the number of a quick fingerprint, each of which takes ``fingerprint_s``; each
    load ends after ``load_s``, on the clock of the runs and fingerprints."""
    app = Application(name=APP, command="true", timeout_s=timeout_s)
    runner = Runner(app, takes)
    taken = iter(range(10**6))

    def fingerprint(*_: object) -> Any:
        slower = 2.0 if disturbed(next(taken)) else 1.0
        runner.clock += fingerprint_s
        return builders.fingerprint(
            {"compute.int": 1e-9 * slower}, suite="quick", elapsed_s=fingerprint_s
        )

    @contextmanager
    def opened(*_: object) -> Iterator[Runner]:
        yield runner

    class Load:
        inducers = ()

        def __enter__(self) -> Load:
            self.until = runner.clock + load_s
            return self

        def __exit__(self, *_: object) -> None: ...

        def check(self) -> None:
            if runner.clock > self.until:
                raise InducerError("it ended.")

    patch.setattr(profiler, "open_runner", opened)
    patch.setattr(loaded, "settle", lambda: 0.0)
    patch.setattr(loaded, "site_fingerprint", fingerprint)
    patch.setattr(loaded, "time", SimpleNamespace(monotonic=lambda: runner.clock))
    patch.setattr(loaded, "induce_all", lambda *_, **__: Load())
    patch.setattr("kongming.profiling.runs.coupling.CouplingLog.read", lambda _, site: ({}, site))
    suite: Any = SimpleNamespace(
        surrogates=(), names_of=lambda _: ("compute.int",), version="1-0123abcd"
    )
    events = profiler.profile(
        {APP: app},
        plan,
        node=builders.node(),
        suite=cast("Suite", suite),
        work_dir=Path(),
        io_dir=Path(),
        **more,
    )
    runs = [event for event in events if isinstance(event, Run)]
    return runs, runner.limits
