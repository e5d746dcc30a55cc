"""What a campaign knows of what it, or another command, measured before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kongming_agent import agent_command as agent
from kongming_agent import profiling

from kongming.campaigns.adaptive_levels import LevelChooser
from kongming.campaigns.campaign import Budget
from kongming.campaigns.environment_campaign import EnvironmentCampaign
from kongming.campaigns.profile_campaign import ProfileCampaign
from kongming.cli.profile.profiling import profile_applications
from kongming.profiling.blocks import state
from kongming.profiling.environments.environment import Environment
from kongming.profiling.plans.steps import Plan, Step
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError, StoreError
from tests import builders

TIMES = {"compute.int": 1e-9}


def test_what_another_command_measured_while_this_waited_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = tuple(Step(i, i, "solo", "a", (), i) for i in range(3))
    plan = Plan("quick", "cross-core", "quick", 1, steps)
    runs = [builders.run("a", 1.0, step=0)]
    sink: Any = SimpleNamespace(
        runs=lambda **_: list(runs), campaign_steps_done=lambda _: {run.step for run in runs}
    )
    settings: Any = SimpleNamespace(
        apps={}, node=None, suite=None, io_dir=Path(), inducer_apps={}, signatures={}
    )
    begun = ProfileCampaign(settings, sink, "id", plan, list(runs), frozenset({0}))
    runs.append(builders.run("a", 1.1, step=1))
    seen: dict[str, Any] = {}

    def profile(*_: object, **given: Any) -> Iterator[Any]:
        seen.update(given)
        yield from ()

    monkeypatch.setattr("kongming.profiling.profiler.profile", profile)
    assert list(begun.events(lambda: False)) == []
    assert seen["done"] == {0, 1}
    assert [run.metric for run in seen["earlier"]] == [1.0, 1.1]


def test_levels_of_another_command_are_those_of_their_blocks() -> None:
    ladder = [(builders.level(name),) for name in ("stream.triad", "stream.copy", "stream.add")]
    chooser = LevelChooser(ladder, ())
    chooser.add(builders.run("a", 2.0, levels=ladder[0], step=7))
    assert chooser([Step(7, 0, "induced", "a")]) == ladder[0]
    later = [chooser([Step(step, step, "induced", "a")]) for step in (8, 9)]
    assert set(later) == set(ladder[1:])


def test_signatures_of_an_interrupted_profile_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = SimpleNamespace(name="quick", placement="same-core", seed=1, steps=[0])
    campaign = SimpleNamespace(
        plan=plan, done=frozenset({0}), earlier=[], id="c", drive=lambda *_: None
    )
    monkeypatch.setattr(ProfileCampaign, "begin", lambda *_: campaign)
    taken = builders.signature("a", TIMES)
    sink: Any = SimpleNamespace(signatures=lambda campaign: [taken] if campaign == "c" else [])
    settings: Any = SimpleNamespace(apps={"a": None})
    _, view = profile_applications(sink, settings, Budget(None), quiet=True)
    assert view.rows["a"].signatures == 1


def test_a_set_up_that_failed_is_not_tried_again_for_each_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = []

    def opened(app: Application, *_: object, **__: object) -> None:
        tries.append(app.name)
        raise ApplicationRunError("no input")

    monkeypatch.setattr(state, "open_runner", opened)
    more: Any = dict.fromkeys(("plan", "names", "sites", "identities", "writing"))
    more["stack"] = ExitStack()
    apps = {"press": Application("press", "true", setup="false")}
    execution = state.CampaignState(apps=apps, campaign="", work_dir=Path(), **more)
    for _ in range(3):
        with pytest.raises(ApplicationRunError, match="no input"):
            execution.as_neighbour("press")
    assert tries == ["press"]


def test_an_idle_run_that_failed_is_measured_again() -> None:
    planned = [Environment("idle", "idle"), Environment("quota", "quota", {"share": 0.5})]
    document = {"made": [each.to_dict() for each in planned], "repeats": 1, "seed": 1}
    settings: Any = SimpleNamespace(apps={"a": None})
    stored: Any = SimpleNamespace(id="c", document=document, finished_at=None)
    store: Any = SimpleNamespace(campaign_steps_done=lambda _: {0, 1})
    campaign = EnvironmentCampaign(settings, store, stored)
    idle = next(task.step for task in campaign.steps if task.environment.kind == "idle")
    store.runs = lambda **_: [builders.run("a", None, step=step) for step in (0, 1)]
    assert campaign.done == {0, 1} - {idle}
    store.runs = lambda **_: [builders.run("a", 1.0, step=idle)]
    assert campaign.done == {0, 1}


@pytest.mark.parametrize("requested", [True, False])
def test_a_requested_profile_that_cannot_be_kept_now_asks_for_another_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, requested: bool
) -> None:
    def full(*_: object) -> None:
        raise StoreError("The spool cannot be written.")

    monkeypatch.setattr(profiling, "allowed", lambda *_: {})
    monkeypatch.setattr(profiling, "profile_allowed", full)
    monkeypatch.setattr(agent, "_ends_with", lambda _: True)
    call: Any = agent.profile_cli.callback
    parent = os.getppid() if requested else None
    arguments = (("nap",), None, str(tmp_path), False, requested, parent, "")
    if requested:
        assert call(*arguments) == profiling.LATER
    else:
        with pytest.raises(StoreError):
            call(*arguments)
