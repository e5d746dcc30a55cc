"""What a store holds while no server looks after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kongming.engine.load import Needs, load
from kongming.records.questions import Question
from kongming.records.resident import Resident
from kongming.store import Store
from tests import builders
from tests.server.core import worlds

NOW = worlds.NOW
EVERYTHING = Needs(nodes=None, company=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        opened.put_node(builders.node(id="node-1", name="name-node-1"))
        opened.put_reference("node-1", worlds.SUITE, 0, worlds.IDLE, 3, worlds.iso(NOW - 9e5))
        live = worlds.fingerprint(worlds.slowed({"stream.triad": 0.3}), node_id="node-1")
        opened.add_fingerprint(live, purpose="live")
        yield opened


def test_an_agent_without_its_node_is_passed_over(store: Store) -> None:
    """It is stored first: a server may end in between."""
    store.put_agent("node-2", {"suspect": "implausible"}, NOW)
    assert [report.facts.id for report in load(store, EVERYTHING, NOW).nodes(NOW)] == ["node-1"]


@pytest.mark.parametrize(("expires_at", "held"), [(NOW + 60.0, True), (NOW - 7200.0, False)])
def test_a_reservation_ends_with_its_time(store: Store, expires_at: float, held: bool) -> None:
    store.put_assignment(
        Resident(
            "job",
            "app",
            "node-1",
            0,
            "cross-core",
            "reserved",
            reserved_at=NOW - 9000.0,
            expires_at=expires_at,
        )
    )
    (report,) = load(store, EVERYTHING, NOW).nodes(NOW)
    assert [each.assignment_id for each in report.assignments] == (["job"] if held else [])


def test_late_fingerprints_change_what_the_history_says(store: Store) -> None:
    engine = load(store, EVERYTHING, NOW)
    engine.put_model(worlds.model("app", {"stream.triad": 1.0}), 1)

    def put(at: float, log: float) -> None:
        taken = worlds.fingerprint(worlds.slowed({"stream.triad": log}), NOW - at, "node-1")
        engine.put_fingerprint("node-1", 0, taken, now=NOW)

    question = Question("app", "node-1", stale_policy="history")
    later = NOW + 1e5
    before = engine.predict(question, later).slowdown.median
    for number in range(6):
        put(100.0 + number, 0.9)
    assert engine.predict(question, later).slowdown.median > 1.3 * before
