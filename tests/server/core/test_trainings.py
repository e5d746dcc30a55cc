"""Which training speaks for a node, and what is worked out again where another one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.engine.catalog import Catalog
from kongming.engine.columns import Columns
from kongming.engine.scoring import Served
from kongming.engine.trainings import Trainings
from kongming.learning.model_file import ModelFile, read, seal
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, SUITE

APPS, NODES = ("alpha", "beta", "gamma"), ("trainer", "elsewhere")

# The model of an application is trained on this node, with readings of this spread, or goes.
events = st.tuples(
    st.sampled_from(APPS), st.sampled_from([*NODES, None]), st.sampled_from([0.1, 0.2, 0.3])
)


def model(app: str, node_id: str, spread: float) -> ModelFile:
    payload = worlds.document(app, {"stream.triad": 0.5}, node_id=node_id)
    del payload["checksum"]
    for variant in payload["variants"].values():
        variant["spread"] = dict.fromkeys(variant["columns"], spread)
    return read(seal(payload))


def catalog() -> Catalog:
    """One in which each application, and one that is never trained, was signed on ``trainer``."""
    columns = Columns()
    columns.learn(list(IDLE), ["memory"] * len(IDLE))
    known = Catalog(columns, lambda _node, _suite: np.log(list(IDLE.values())), 0.1)
    known.put_signatures([worlds.signature(app, {"stream.triad": 0.3}) for app in ("a", *APPS)])
    return known


@given(st.lists(events, max_size=12))
def test_the_first_is_that_of_those_that_are_left(
    changes: list[tuple[str, str | None, float]],
) -> None:
    trainings = Trainings()
    present: dict[str, Served] = {}
    for app, node_id, _ in changes:
        firsts = {node: trainings.first((node, 0)) for node in NODES}
        before = present.pop(app, None)
        if node_id is not None:
            present[app] = Served(0, worlds.model(app, node_id=node_id), 1, 0, {})
        moved = trainings.replace(before, present.get(app))

        for node in NODES:
            there = [served for served in present.values() if served.file.node_id == node]
            first = min(there, key=lambda served: served.key, default=None)
            assert trainings.first((node, 0)) is first
            assert ((node, 0) in moved) == (first is not firsts[node])


@given(st.lists(events, max_size=8))
def test_the_spread_follows_from_what_is_in_service_alone(
    changes: list[tuple[str, str | None, float]],
) -> None:
    known = catalog()
    spreads: dict[str, tuple[str, float]] = {}
    for app, node_id, spread in changes:
        spreads.pop(app, None)
        if node_id is None:
            known.drop_model(app, "cross-core")
        else:
            spreads[app] = node_id, spread
            known.put_model(model(app, node_id, spread), 1, in_service=True)

    there = {app: spread for app, (node_id, spread) in spreads.items() if node_id == "trainer"}
    of_first = there[min(there)] if there else 0.0
    for app in ("a", *APPS):
        pressure = known.pressure(app, "cross-core", known.suite(SUITE))
        assert pressure.spread.tolist() == [there.get(app, of_first)] * len(IDLE)


def test_what_changes_no_signature_works_none_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = catalog()
    known.put_model(model("beta", "trainer", 0.1), 1, in_service=True)
    resolved: list[object] = []
    resolve = Catalog._resolve
    monkeypatch.setattr(
        Catalog, "_resolve", lambda self, key: (resolved.append(key), resolve(self, key))
    )

    known.reference_changed("trainer")
    known.put_model(model("zeta", "trainer", 0.2), 1, in_service=True)
    assert not resolved

    # Those of the others have another spread, and are what they were.
    before = known.moves
    known.put_model(model("alpha", "trainer", 0.3), 1, in_service=True)
    assert resolved == [("alpha", "cross-core")]
    assert known.moves > before
