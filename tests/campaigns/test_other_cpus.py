"""Campaigns that are continued on other CPUs than they were begun on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kongming.campaigns.campaign import key_of
from kongming.campaigns.evaluation import settings_of
from kongming.campaigns.profile_campaign import ORDER, ProfileSettings
from kongming.campaigns.stored_profiles import Place, profiles_held
from kongming.cli import main
from kongming.profiling.plans.identity import identities_of
from kongming.records.application import Application
from kongming.records.fingerprint import NodeFacts
from kongming.store import Store
from tests import builders
from tests.agent.test_shared_campaigns import APPS, Steps, scripted
from tests.probes.conftest import fake
from tests.profiling.test_placement import machine

__all__ = ["fake"]


def settings(node: NodeFacts, cpus: int, placement: str = "cross-core") -> ProfileSettings:
    apps = {"a": Application(name="a", command="true", cpus=cpus)}
    suite: Any = SimpleNamespace(version="1")
    return ProfileSettings(apps, node, suite, placement, Path())


def part(node: NodeFacts, *cpus: int) -> NodeFacts:
    """What is left to a job, or by taskset."""
    facts = node.to_dict()
    facts["topology"]["cpus"] = list(cpus)
    return NodeFacts.from_dict(facts)


CORES = machine(1, 8, 1)
THREADS = machine(1, 4, 2)
"""CPUs 0 and 4 are of one core."""


@pytest.mark.parametrize("placement", ["same-core", "cross-core"])
@pytest.mark.parametrize("cpus", [1, 2])
def test_cpus_of_other_numbers_are_the_same_campaign_as_before_this_was_in_its_key(
    cpus: int, placement: str
) -> None:
    """A job of a cluster gets other CPUs each time."""
    keys = {
        settings(part(CORES, *numbers), cpus, placement).key
        for numbers in ((0, 1, 2), (5, 6, 7), range(8))
    }
    known = settings(CORES, cpus, placement)
    assert keys == {
        key_of(
            {
                "plan": "quick",
                "order": ORDER,
                "placement": placement,
                "suite": known.timed,
                "suite_version": "1",
                "repeats": 1,
                "levels": None,
                "node": CORES.id,
                "apps": identities_of(known.apps),
            }
        )
    }


def test_a_program_on_threads_of_a_core_is_another_campaign_than_one_on_cores() -> None:
    on_cores, on_threads, on_others = (
        settings(part(THREADS, *numbers), 2) for numbers in ((0, 1, 2), (0, 4, 1), (3, 7, 2))
    )
    assert on_threads.key == on_others.key
    assert on_cores.key == settings(CORES, 2).key
    assert on_threads.key != on_cores.key
    pairs = [key_of(settings_of("pairs", 2, each, each.apps)) for each in (on_cores, on_threads)]
    assert pairs[0] != pairs[1]


def test_a_profile_of_another_layout_is_none_of_a_program(store_url: str) -> None:
    on_cores, on_threads = (
        settings(part(THREADS, *numbers), 2) for numbers in ((0, 1, 2), (0, 4, 1))
    )
    place = Place(THREADS.id, "cross-core", "1")
    with Store.open(store_url) as store:
        campaign = store.open_campaign(on_threads.key, on_threads.document(), campaign_id="c")
        store.add_run(builders.run("a", 1.0, campaign="c"))
        store.finish_campaign(campaign.id)
        held = [
            profiles_held(
                store,
                identities_of(each.apps),
                "quick",
                place,
                layouts=each.layouts(each.apps).get("layouts", {}),
            )
            for each in (on_cores, on_threads)
        ]
    assert [list(profiles) for profiles in held] == [[], ["a"]]


def test_a_campaign_that_goes_on_on_other_cpus_says_so(
    fake: Path,
    store_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "apps.toml").write_text(APPS)
    monkeypatch.setattr("kongming.profiling.profiler.profile", scripted)

    def profiled(node: NodeFacts, steps: int) -> tuple[str, str]:
        monkeypatch.setattr("kongming.probes.node.node_facts", lambda: node)
        monkeypatch.setattr("kongming.campaigns.campaign.Budget", lambda _: Steps(steps))
        capsys.readouterr()
        command = ("profile", str(tmp_path / "apps.toml"), "--dir", str(tmp_path))
        assert main.run([*command, "--store", store_url, "--json"]) == 0
        shown = capsys.readouterr()
        return json.loads(shown.out)["campaign"], shown.err

    # The runs of ``scripted`` have this node in their fingerprints.
    here = builders.node()
    first, begun = profiled(here, 3)
    same, resumed = profiled(here, 3)
    assert "is measured" not in begun + resumed
    elsewhere = builders.node(
        cpus=(2, 3), cores={"2": 2, "3": 3}, sockets={"2": 0, "3": 0}, llc_cpus=((2, 3),),
        siblings={"2,3": {"shares_core": False}},
    )  # fmt: skip
    moved, warned = profiled(elsewhere, 8)
    assert first == same == moved
    now, then = "on CPU 2 (neighbour: 3)", "on CPU 0 (neighbour: 1)"
    assert f"nap is measured {now} from here on, and was measured {then}" in " ".join(
        warned.split()
    )
