"""Where the programs of one block run, and the load that all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kongming.profiling import profiler
from kongming.profiling.blocks import loaded
from kongming.profiling.plans.placement import choose, shares_core
from kongming.profiling.plans.steps import Plan, Step
from kongming.profiling.runs.outcome import Outcome
from kongming.records.application import Application
from kongming.records.run import Run
from tests import builders
from tests.profiling.scripted import Runner
from tests.profiling.test_placement import machine

THREADS = machine(1, 3, 1, siblings={"1,2": {"shares_core": True}})
"""Three CPUs, two of them of one core: a program of two CPUs has that core, one of one CPU the
other, so that the neighbours change places."""


@pytest.mark.parametrize("neighbour", [None, "small"])
def test_each_program_of_a_block_has_the_placement_that_it_claims(
    neighbour: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps = {
        name: Application(name=name, command="true", cpus=cpus)
        for name, cpus in (("small", 1), ("large", 2), ("little", 1))
    }
    load: list[int] = []
    begun: list[int] = []
    probed: list[int] = []
    seats: dict[str, tuple[int, tuple[int, ...], int]] = {}

    class Noted(Runner):
        def run(self, cpus: Any = (), **more: Any) -> Outcome:
            seats[self.app.name] = (probed[-1], tuple(cpus), load[-1])
            return super().run(cpus, **more)

    @contextmanager
    def opened(app: Application, *_: object, **__: object) -> Iterator[Runner]:
        yield Noted(app, lambda _: 1.0)

    class Load:
        inducers = ()

        def __init__(self, cpu: int) -> None:
            self.cpu = cpu

        def __enter__(self) -> Load:
            begun.append(self.cpu)
            load.append(self.cpu)
            return self

        def __exit__(self, *_: object) -> None:
            load.pop()

        def wait_phase(self, _: float) -> None: ...

        def check(self) -> None: ...

    def fingerprint(site: Any, suite: str, *_: object) -> Any:
        probed.append(site.app_cpus[0])
        return builders.fingerprint({"compute.int": 1e-9}, suite=suite, elapsed_s=0.0)

    monkeypatch.setattr(profiler, "open_runner", opened)
    monkeypatch.setattr(loaded, "settle", lambda: 0.0)
    monkeypatch.setattr(loaded, "site_fingerprint", fingerprint)
    monkeypatch.setattr(loaded, "induce_all", lambda *_, cpu, **__: Load(cpu))
    monkeypatch.setattr(loaded, "loop", lambda _, cpus, *__, **___: Load(cpus[0]))
    silent = "kongming.profiling.runs.coupling.CouplingLog.read"
    monkeypatch.setattr(silent, lambda _, site: ({}, site))
    levels = (builders.level("memory.streaming.8M"),) if neighbour is None else ()
    steps = [Step(k, 0, "induced", app, levels, 0, neighbour) for k, app in enumerate(apps)]
    suite: Any = SimpleNamespace(surrogates=(), names_of=lambda _: ("compute.int",), version="1")
    signature = builders.signature("small", {"compute.int": 1e-9})
    events = profiler.profile(
        apps,
        Plan("quick", "cross-core", "quick", 1, tuple(steps)),
        node=THREADS,
        suite=suite,
        work_dir=Path(),
        io_dir=Path(),
        signatures={"small": [signature]},
    )
    runs = [event for event in events if isinstance(event, Run)]
    assert sorted(run.app for run in runs) == sorted(apps)
    assert not [run.error for run in runs if not run.ok]
    for name, (probe_cpu, cpus, load_cpu) in seats.items():
        assert len(cpus) == apps[name].cpus
        assert probe_cpu == cpus[0]
        assert not any(shares_core(THREADS, cpu, load_cpu) for cpu in cpus)
        assert load_cpu == choose(THREADS, "cross-core", len(cpus)).neighbour
    # Those that can share a load do.
    assert len(begun) == 2
