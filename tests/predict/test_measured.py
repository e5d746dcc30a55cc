"""A fingerprint that was taken by hand is answered as the same one is once it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kongming import Fingerprint
from kongming.engine.load.measured import explain_measured, predict_measured
from kongming.local_service import LocalService
from kongming.records.answers import Forecast
from kongming.records.errors import UntrainedError
from kongming.records.moments import unix
from kongming.records.questions import Question
from kongming.store import Reference, Store
from tests import builders
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, NOW, SUITE

SLOWER = {name: 1.5 * seconds for name, seconds in IDLE.items()}
QUESTION = Question("memory", "node-2")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """It knows the node of the training, and one of its kind by name alone."""
    with Store.open(store_url) as store:
        document = worlds.document("memory", worlds.SENSITIVITY["memory"])
        store.put_node(builders.node(id="trainer", name="name-trainer"))
        store.put_model("memory", document["identity"], "trainer", "cross-core", document)
        yield store


def taken(**facts: object) -> Fingerprint:
    """The loaded node-2, of which no reference is known."""
    times = worlds.slowed({"stream.triad": 0.4}, SLOWER)
    return worlds.fingerprint(times, NOW, "node-2", **facts)


def stored(store: Store, fingerprint: Fingerprint) -> Forecast:
    store.add_fingerprint(fingerprint, purpose="adhoc")
    service = LocalService(store, now=lambda: unix(fingerprint.started_at) + 1.0)
    (answer,) = service.predict([QUESTION])
    assert isinstance(answer, Forecast)
    return answer


def test_like_nodes_lend_their_reference(store: Store) -> None:
    store.put_reference("trainer", SUITE, 0, SLOWER, 3, worlds.iso(NOW - 9e5))

    here = predict_measured(store, taken(), QUESTION)
    parts = explain_measured(store, taken(), QUESTION).contributions

    there = stored(store, taken())
    assert here.basis == there.basis == "model"
    assert here.slowdown == there.slowdown
    assert not here.slowdown.calibrated
    assert here.warnings == there.warnings
    assert any("that of one node of the same CPU model" in text for text in here.warnings)
    assert parts[0].surrogate == "stream.triad"
    assert parts[0].log_slowdown == pytest.approx(0.2)


def test_unlike_nodes_do_not(store: Store) -> None:
    store.put_reference("trainer", SUITE, 0, SLOWER, 3, worlds.iso(NOW - 9e5))

    with pytest.raises(UntrainedError, match="no idle reference"):
        predict_measured(store, taken(cpu_model="another"), QUESTION)


def test_references_of_like_nodes_are_read_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(40):
        node_id = f"like-{n}"
        store.put_node(builders.node(id=node_id, name=node_id))
        store.put_reference(node_id, SUITE, 0, SLOWER, 3, worlds.iso(NOW - 9e5))
    calls: list[object] = []
    references = Store.references

    def counted(self: Store, **filters: Any) -> list[Reference]:
        calls.append(filters)
        return references(self, **filters)

    monkeypatch.setattr(Store, "references", counted)

    answer = predict_measured(store, taken(), QUESTION)

    assert any("the median of 32 nodes" in text for text in answer.warnings)
    assert len(calls) <= 2
