"""The runs of pairs, without any program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kongming.profiling.cautions import cautions
from kongming.profiling.runs import corun as module
from kongming.profiling.runs.corun import corun
from kongming.records.application import Application
from kongming.records.errors import ProbeError
from kongming.records.run import NEIGHBOUR_IDENTITIES, Run
from tests import builders
from tests.profiling.scripted import Runner


@contextmanager
def opened(app: Application, *_: object, **__: object) -> Iterator[Runner]:
    yield Runner(app, lambda _: 1.0)


@contextmanager
def looped(*_: object, **__: object) -> Iterator[Any]:
    yield SimpleNamespace(wait_phase=lambda _: 1.0, check=lambda: None)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(module, "open_runner", opened)
    monkeypatch.setattr(module, "loop", looped)
    monkeypatch.setattr(module, "settle", lambda: 0.0)
    monkeypatch.setattr(module.CouplingLog, "read", lambda _, site: ({}, site))
    return monkeypatch


def measured(
    apps: Mapping[str, Application], *, into: list[Run] | None = None, **options: Any
) -> list[Run]:
    runs = [] if into is None else into
    first, second = sorted(apps)
    events = corun(
        [(first, second), (second, first)],
        apps,
        placement="cross-core",
        node=options.pop("node", builders.node()),
        suite=SimpleNamespace(surrogates=(), version="1"),  # type: ignore[arg-type]
        work_dir=Path(),
        io_dir=Path(),
        **options,
    )
    runs.extend(event for event in events if isinstance(event, Run))
    return runs


def test_a_failure_of_the_probes_is_one_failed_run(scripted: pytest.MonkeyPatch) -> None:
    taken = iter(range(1000))

    def fingerprint(*_: object) -> Any:
        if next(taken) == 2:
            raise ProbeError("The probes ended by themselves.")
        return builders.fingerprint({"compute.int": 1e-9}, suite="quick")

    scripted.setattr(module, "site_fingerprint", fingerprint)
    apps = {name: Application(name=name, command="true") for name in ("a", "b")}
    runs = measured(apps, repeats=2)
    assert [run.step for run in runs] == list(range(8))
    (failed,) = (run for run in runs if not run.ok)
    assert failed.step == 1
    assert failed.error == "The probes ended by themselves."


def test_a_lasting_failure_of_the_probes_ends_a_campaign_and_leaves_its_steps(
    scripted: pytest.MonkeyPatch,
) -> None:
    taken = iter(range(1000))

    def fingerprint(*_: object) -> Any:
        # Once in the second run, and in all from the fourth on.
        if (number := next(taken)) == 2 or number >= 5:
            raise ProbeError("There is no binary.")
        return builders.fingerprint({"compute.int": 1e-9}, suite="quick")

    scripted.setattr(module, "site_fingerprint", fingerprint)
    apps = {name: Application(name=name, command="true") for name in ("a", "b")}
    runs: list[Run] = []
    with pytest.raises(ProbeError, match="There is no binary"):
        measured(apps, repeats=2, into=runs)
    assert [(run.step, run.ok) for run in runs] == [(0, True), (1, False), (2, True)]
    # The campaign goes on where it was, once the probes work again.
    scripted.setattr(
        module, "site_fingerprint", lambda *_: builders.fingerprint({"compute.int": 1e-9})
    )
    again = measured(apps, repeats=2, done=frozenset(run.step for run in runs))
    assert [run.step for run in again] == [3, 4, 5, 6, 7]


def test_a_neighbour_of_several_cpus_is_seated_on_one_with_a_warning(
    scripted: pytest.MonkeyPatch,
) -> None:
    scripted.setattr(
        module, "site_fingerprint", lambda *_: builders.fingerprint({"compute.int": 1e-9})
    )
    node = builders.node(cpus=(0, 1, 2), cores={"0": 0, "1": 1, "2": 2}, llc_cpus=((0, 1, 2),))
    apps = {
        "a": Application(name="a", command="true"),
        "b": Application(name="b", command="true", cpus=2),
    }
    warned = {
        (run.app, run.neighbours): "b uses 2 CPUs" in " ".join(run.warnings)
        for run in measured(apps, node=node, repeats=1)
    }
    assert warned == {
        ("a", ("b",)): True,
        ("b", ("a",)): False,
        ("a", ()): False,
        ("b", ()): False,
    }
    assert [text.partition(",")[0] for text in cautions(apps)] == ["b uses 2 CPUs"]


def test_a_co_run_says_which_program_its_neighbour_was(scripted: pytest.MonkeyPatch) -> None:
    apps = {name: Application(name=name, command=("true", name)) for name in ("a", "b")}
    runs = measured(apps, repeats=1, fingerprints=False)
    identities = {run.app: run.identity for run in runs}
    assert identities["a"] != identities["b"]
    for run in runs:
        named = {name: identities[name] for name in run.neighbours}
        assert run.config == ({NEIGHBOUR_IDENTITIES: named} if named else {})
