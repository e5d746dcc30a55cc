"""What is not measured of applications as they are is said, and goes with the measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kongming.profiling import profiler
from kongming.profiling.blocks import signature as block
from kongming.profiling.cautions import cautions
from kongming.profiling.plans.steps import Plan, Step
from kongming.records.application import Application
from kongming.records.run import Signature
from tests import builders
from tests.profiling.scripted import Runner


def test_a_signature_of_several_cpus_says_that_it_is_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def opened(app: Application, *_: object, **__: object) -> Iterator[Runner]:
        yield Runner(app, lambda _: 1.0)

    taken = builders.fingerprint({"compute.int": 1e-9}, warnings=("another one",))
    monkeypatch.setattr(profiler, "open_runner", opened)
    monkeypatch.setattr(block, "settle", lambda: 0.0)
    monkeypatch.setattr(block, "take_signature", lambda *_, **__: (taken, 3))
    silent = "kongming.profiling.runs.coupling.CouplingLog.read"
    monkeypatch.setattr(silent, lambda _, site: ({}, site))
    suite: Any = SimpleNamespace(surrogates=(), names_of=lambda _: ("compute.int",), version="1")
    apps = {
        name: Application(name=name, command="true", cpus=cpus)
        for name, cpus in (("small", 1), ("large", 2))
    }
    steps = tuple(Step(index, index, "signature", app) for index, app in enumerate(apps))
    events = profiler.profile(
        apps,
        Plan("quick", "cross-core", "quick", 1, steps),
        node=builders.node(cpus=(0, 1, 2), cores={"0": 0, "1": 1, "2": 2}, llc_cpus=((0, 1, 2),)),
        suite=suite,
        work_dir=Path(),
        io_dir=Path(),
    )
    warnings = {
        event.app: event.fingerprint.warnings for event in events if isinstance(event, Signature)
    }
    assert warnings["small"] == ("another one",)
    assert warnings["large"][0] == "another one"
    assert "as a neighbour it runs on one" in warnings["large"][1]


def test_files_that_stay_warm_are_named_before_a_campaign(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "input").touch()
    walk = Application(name="walk", command="find data", workdir=str(tmp_path), cache="cold")
    apps = {
        "walk": walk,
        "warm": replace(walk, name="warm", cache="warm"),
        "read": replace(walk, name="read", command="cat input {dir}/made"),
    }
    (text,) = cautions(apps)
    assert text.startswith("walk is to start with a cold cache, but files below data stay")


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"command": "search --all"}, True),
        ({"command": ("./scan",)}, True),
        ({"command": ("./scan", "input")}, False),
        ({"command": "search --input=input"}, False),
        ({"command": "search {dir}/copy", "setup": "dd of={dir}/copy"}, False),
        ({"command": "search -o {dir}/result"}, True),
        ({"command": "search --all", "cache": "warm"}, False),
    ],
)
def test_a_cold_program_without_an_input_is_named_before_a_campaign(
    tmp_path: Path, fields: dict[str, Any], warned: bool
) -> None:
    (tmp_path / "input").touch()
    (tmp_path / "scan").touch()
    app = Application(name="scan", workdir=str(tmp_path), **{"cache": "cold", **fields})
    assert ["only its scratch folder is evicted" in text for text in cautions({"scan": app})] == (
        [True] if warned else []
    )
