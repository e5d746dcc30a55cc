"""One campaign, measured in turns by the agent into its spool and by ``kongming`` into a store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kongming_agent.agent_config import Files, Profile, Settings
from kongming_agent.profiling import SpoolSink, profile_allowed
from kongming_agent.reporting.spool import Spool

from kongming.campaigns.campaign import Budget
from kongming.campaigns.journal import Journal
from kongming.campaigns.journaled_store import JournaledStore
from kongming.cli import main
from kongming.profiling.events import Event
from kongming.profiling.plans.identity import identity
from kongming.profiling.plans.steps import Plan
from kongming.records.application import Application
from kongming.records.errors import IncompatibleError, InputError
from kongming.records.fingerprint import NodeFacts
from kongming.rpc.v1 import fleet_pb2
from kongming.store import Store
from tests.agent.spooled import record_of
from tests.builders import run, signature

APPS = """
[apps.nap]
command = "sleep 0.01"
"""


def scripted(
    apps: Mapping[str, Application],
    plan: Plan,
    *,
    node: NodeFacts,
    campaign: str,
    done: frozenset[int],
    stop_when: Callable[[], bool],
    **_: object,
) -> Iterator[Event]:
    """The profiler's events of the steps that are not done, without running anything."""
    for step in plan.steps:
        if stop_when():
            return
        if step.index in done:
            continue
        about: Any = {
            "identity": identity(apps[step.app]),
            "node_id": node.id,
            "placement": plan.placement,
            "campaign": campaign,
            "step": step.index,
        }
        if step.kind == "signature":
            yield signature(step.app, {"compute_int": 1e-9}, **about)
        else:
            yield run(step.app, 1.0, {"compute_int": 1e-9}, levels=step.levels, **about)


class Node:
    """An agent with its own list, and a store, which share their campaigns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._apps = folder / "apps.toml"
        self._apps.write_text(APPS)
        self.store_url = f"sqlite:///{folder / 'store.db'}"
        self.journals = folder / "campaigns"

    def agent(self, steps: int) -> Any:
        """What ``kongming-agent profile`` measures until ``steps`` were made."""
        profile = Profile(apps=str(self._apps), allow=("nap",), placement="same-core")
        settings = Settings(profile=profile, files=Files(state=str(self._folder)))
        spool = Spool(self._folder / "spool.db")
        try:
            return profile_allowed(settings, ["nap"], spool, Steps(steps)).to_dict()
        finally:
            spool.close()

    def command(self, steps: int, capsys: pytest.CaptureFixture[str]) -> Any:
        """What ``kongming profile`` prints that measures until ``steps`` were made."""
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kongming.campaigns.campaign.Budget", lambda minutes: Steps(steps))
            status = main.run(
                [
                    *("profile", str(self._apps), "--placement", "same-core"),
                    *("--journal", str(self.journals), "--store", self.store_url, "--json"),
                ]
            )
        assert status == 0
        return json.loads(capsys.readouterr().out)

    def stored(self) -> list[int]:
        """The step of every run and signature in the store."""
        with Store.open(self.store_url) as store:
            return sorted(record.step for record in (*store.runs(), *store.signatures()))

    def spooled(self) -> list[int]:
        """The step of every run and signature in the spool."""
        spool = Spool(self._folder / "spool.db")
        entries = spool.oldest(limit=1000, most_bytes=1 << 30)
        spool.close()
        return sorted(record_of(entry).step for entry in entries)  # type: ignore[union-attr]


class Steps(Budget):
    """Spent after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__(None)
        self._left = iter([False] * steps)

    def __call__(self) -> bool:
        return next(self._left, True)


@pytest.fixture
def node(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr("kongming.profiling.profiler.profile", scripted)
    return Node(tmp_path)


def test_the_agent_goes_on_with_what_a_command_began(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    first = node.command(5, capsys)
    assert (first["complete"], node.stored()) == (False, list(range(5)))
    second = node.agent(100)
    assert (second["campaign"], second["complete"]) == (first["campaign"], True)
    # The whole campaign is delivered, and no step is measured twice.
    steps = node.spooled()
    assert steps == list(range(len(steps)))
    assert second["runs"] + second["signatures"] == len(steps) - 5
    third = node.command(100, capsys)
    assert (third["campaign"], third["complete"]) == (first["campaign"], True)
    assert node.stored() == steps
    assert list(node.journals.iterdir()) == []


def test_a_command_goes_on_with_what_the_agent_began(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    first = node.agent(5)
    assert (first["complete"], node.spooled()) == (False, list(range(5)))
    second = node.command(100, capsys)
    assert (second["campaign"], second["complete"]) == (first["campaign"], True)
    steps = node.stored()
    assert steps == list(range(len(steps)))
    third = node.agent(100)
    assert (third["campaign"], third["complete"]) == (first["campaign"], True)
    assert (third["runs"], third["signatures"]) == (0, 0)
    assert node.spooled() == steps
    assert list(node.journals.iterdir()) == []


def test_by_turns_until_the_end(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    campaigns = {
        node.agent(3)["campaign"],
        node.command(3 + 3, capsys)["campaign"],
        node.agent(6 + 3)["campaign"],
        node.command(100, capsys)["campaign"],
    }
    assert len(campaigns) == 1
    assert node.stored() == list(range(len(node.stored())))


def test_what_was_delivered_before_an_interruption_still_counts(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    record = run("nap", 1.0)
    for _ in range(2):
        sink = SpoolSink(spool, tmp_path / "campaigns")
        campaign = sink.open_campaign("key", {"seed": 7})
        if not sink.runs(campaign=campaign.id):
            sink.add_run(record)
        spool.delivered([record.id])
        assert sink.runs(campaign=campaign.id) == [record]
        assert campaign.document == {"seed": 7}
        sink.close()
    assert spool.oldest() == []
    spool.close()


def test_a_campaign_that_was_killed_as_it_ended_is_over(tmp_path: Path) -> None:
    """Between its two notes; what the spool holds is not delivered twice."""
    spool = Spool(tmp_path / "spool.db")
    record = run("nap", 1.0)
    sink = SpoolSink(spool, tmp_path / "campaigns")
    first = sink.open_campaign("key", {})
    sink.add_run(record)
    # Killed between the two steps of its end.
    spool.forget_steps("campaign:key")
    sink.close()
    again = SpoolSink(spool, tmp_path / "campaigns")
    assert again.open_campaign("key", {}).id == first.id
    assert len(spool.oldest()) == 1
    again.finish_campaign(first.id)
    again.close()
    new = SpoolSink(spool, tmp_path / "campaigns")
    assert new.open_campaign("key", {}).id != first.id
    assert new.campaign_steps_done("") == frozenset()
    new.close()
    spool.close()


def test_what_a_server_asked_for_is_reported_under_its_id(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    sink = SpoolSink(spool, tmp_path / "campaigns", "id-1")
    campaign = sink.open_campaign("key", {})
    record = run("nap", 1.0, campaign=campaign.id)
    sink.add_run(record)
    # Here it is of the campaign that it was measured in, which others may go on with.
    assert sink.runs(campaign=campaign.id) == [record]
    sink.close()
    (entry,) = spool.oldest()
    assert fleet_pb2.ReportedRun.FromString(entry.body).run.campaign == "id-1"
    spool.close()


def test_a_new_journal_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        journal = Journal(tmp_path / "campaigns", "key", by="agent")
        journal.begin("c1", {"seed": 7})
        journal.close()
    finally:
        os.umask(before)
    assert journal.path.parent.stat().st_mode & 0o777 == 0o700
    assert journal.path.stat().st_mode & 0o777 == 0o600
    # Who lets others read it has chosen to.
    journal.path.chmod(0o640)
    Journal(tmp_path / "campaigns", "key", by="store").close()
    assert journal.path.stat().st_mode & 0o777 == 0o640


def test_a_torn_line_is_one_run_that_is_measured_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "key", by="agent")
    journal.begin("c1", {"seed": 7})
    journal.add(run("nap", 1.0))
    journal.add(run("nap", 2.0))
    journal.close()
    data = journal.path.read_bytes()
    journal.path.write_bytes(data[:-20])
    again = Journal(tmp_path, "key", by="agent")
    assert [record.wall_s for record in again.records] == [1.0]  # type: ignore[union-attr]
    again.add(run("nap", 3.0))
    again.close()
    third = Journal(tmp_path, "key", by="agent")
    assert [record.wall_s for record in third.records] == [1.0, 3.0]  # type: ignore[union-attr]
    third.close()


def test_two_commands_never_measure_one_campaign_at_a_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "key", by="agent")
    with pytest.raises(InputError, match="measures this campaign"):
        Journal(tmp_path, "key", by="store")
    journal.close()


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.jsonl").write_text('{"campaign": "c1", "format": 99, "document": {}}\n')
    with pytest.raises(IncompatibleError, match="version 99"):
        Journal(tmp_path, "key", by="store")
    (tmp_path / "key.jsonl").write_text("hello\n")
    with pytest.raises(IncompatibleError, match="line 1"):
        Journal(tmp_path, "key", by="store")


def test_two_different_campaigns_are_not_mixed(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.open_campaign("key", {"seed": 1})
        journal = Journal(tmp_path / "campaigns", "key", by="agent")
        journal.begin("another", {"seed": 2})
        journal.close()
        shared = JournaledStore(store, tmp_path / "campaigns")
        with pytest.raises(IncompatibleError, match="two unfinished campaigns"):
            shared.open_campaign("key", {"seed": 3})
        shared.close()


def test_a_campaign_of_the_agent_loads_nothing_that_models_or_stores(
    fake: Path, tmp_path: Path
) -> None:
    (tmp_path / "apps.toml").write_text(APPS)
    (tmp_path / "agent.toml").write_text(
        f"[profile]\napps = '{tmp_path / 'apps.toml'}'\nallow = ['nap']\nplacement = 'same-core'\n"
        "minutes = 0.001\n"
    )
    script = (
        "import json, sys\n"
        "from kongming_agent import agent_command as main\n"
        "main.run(['profile', 'nap', '--config', 'agent.toml', '--state', '.', '--json'])\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert "kongming.campaigns.profile_campaign" in modules
    heavy = {"numpy", "scipy", "sklearn", "lightgbm", "deap", "sqlalchemy"}
    heavy |= {"kongming.store", "kongming.learning", "kongming.engine"}
    assert modules & heavy == set()
