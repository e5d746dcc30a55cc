"""Visits to environments, without any program or limit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kongming.profiling.environments import visits
from kongming.profiling.environments.environment import Environment
from kongming.profiling.environments.tasks import Task
from kongming.profiling.environments.visits import Campaign, visit_environment
from kongming.profiling.runs.outcome import Outcome
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError
from kongming.records.run import Run
from tests import builders
from tests.profiling import scripted

HALF = Environment("quota-0.5", "quota", {"cpu_quota": 0.5})


class Throttled:
    """Limits under which each start is throttled ten times, and each run once."""

    app_procs = load_procs = warnings = ()
    memory_bytes = None

    def __init__(self) -> None:
        self.times = 0

    def __enter__(self) -> Throttled:
        return self

    def __exit__(self, *_: object) -> None: ...

    def throttled(self) -> dict[str, int]:
        return {"nr_throttled": self.times}


class Service(scripted.Runner):
    """Starts with its first run."""

    started = False

    def __init__(self, limits: Throttled, *, starts: bool = True) -> None:
        super().__init__(Application(name="a", command="true"), lambda _: 1.0)
        self.throttling, self.starts = limits, starts

    def start(self, *_: object) -> None:
        if not self.starts:
            raise ApplicationRunError("It was not ready in time.")
        if not self.started:
            self.throttling.times += 10
            self.started = True

    def run(self, *_: object, **__: object) -> Outcome:
        self.start()
        self.throttling.times += 1
        return super().run()


def visited(patch: pytest.MonkeyPatch, runner: Service) -> Sequence[Run]:
    patch.setattr(visits, "Limits", lambda *_, **__: runner.throttling)
    patch.setattr(visits, "settle", lambda: 0.0)
    taken = builders.fingerprint({"compute.int": 1e-9})
    patch.setattr(visits, "fingerprint_inside", lambda *_: taken)
    with ExitStack() as stack:
        runners: Any = {"a": runner}
        state = Campaign(
            apps={"a": runner.app},
            node=builders.node(),
            suite=SimpleNamespace(surrogates=(), version="1"),  # type: ignore[arg-type]
            placement="cross-core",
            work_dir=Path(),
            io_dir=Path(),
            campaign="",
            steps=2,
            stack=stack,
            needs={},
            identities={"a": "0" * 16},
            runners=runners,
        )
        tasks = [Task(step, 0, 0, HALF, "a") for step in range(2)]
        events = list(visit_environment(state, tasks, lambda: False))
    return [event for event in events if isinstance(event, Run)]


def test_the_throttling_of_a_run_is_without_the_start_of_a_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = visited(monkeypatch, Service(Throttled()))
    assert [run.passive["nr_throttled"] for run in runs] == [1.0, 1.0]


def test_a_service_that_does_not_start_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = visited(monkeypatch, Service(Throttled(), starts=False))
    assert [run.error for run in runs] == 2 * ["It was not ready in time."]
