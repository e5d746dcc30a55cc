"""Applications, campaigns that resume, and versions of models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kongming.store import Store
from tests import builders


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store.open(store_url) as opened:
        yield opened


def test_campaign_resumes_until_it_is_finished(store: Store) -> None:
    first = store.open_campaign("key", {"seed": 1})
    assert store.open_campaign("other", {"seed": 9}).id != first.id
    resumed = store.open_campaign("key", {"seed": 2})
    assert resumed == first
    assert resumed.document == {"seed": 1}
    store.finish_campaign(first.id)
    second = store.open_campaign("key", {"seed": 2})
    assert second.id != first.id
    finished = {c.id: c.finished_at for c in store.campaigns()}
    assert finished[first.id] is not None
    assert finished[second.id] is None


def test_steps_done_are_those_with_a_run_or_a_signature(store: Store) -> None:
    campaign = store.open_campaign("key", {})
    for step, metric in ((0, 1.0), (3, None), (3, 2.0)):
        store.add_run(builders.run("sort", metric, campaign=campaign.id, step=step))
    store.add_run(builders.run("sort", 1.0, campaign="another", step=7))
    store.add_signature(
        builders.signature("sort", {"stream.triad": 1e-9}, campaign=campaign.id, step=5)
    )
    assert store.campaign_steps_done(campaign.id) == {0, 3, 5}


def test_applications_come_from_what_was_put_and_what_was_run(store: Store) -> None:
    assert store.application("sort") is None
    store.put_application("sort", "old", {"command": "sort -n"})
    store.put_application("sort", "new", {"command": "sort", "metric": {"unit": "ops/s"}})
    store.put_application("sort", "new", {"command": "sort -u", "metric": {"unit": "ops/s"}})
    store.add_run(
        builders.run("imported", 5.0, metric_unit="MB/s", started_at="2026-02-01T00:00:00Z")
    )
    latest = store.application("sort")
    assert latest is not None
    assert (latest.identity, latest.document["command"]) == ("new", "sort -u")
    old = store.application("sort", identity="old")
    assert old is not None
    assert old.document["command"] == "sort -n"
    listed = {(e.name, e.identity): (e.metric_unit, e.last_run_at) for e in store.applications()}
    assert listed == {
        ("sort", "old"): ("s", None),
        ("sort", "new"): ("ops/s", None),
        ("imported", builders.identity_of("imported")): ("MB/s", "2026-02-01T00:00:00Z"),
    }


def test_models_have_versions(store: Store) -> None:
    put = [
        store.put_model("sort", "i", node, placement, {"schema": 1, "who": who})
        for who, node, placement in (
            ("a", "node-1", "cross-core"),
            ("b", "node-2", "cross-core"),
            ("c", "node-1", "same-core"),
        )
    ]
    assert put == [1, 2, 1]
    newest = store.model("sort", "cross-core")
    assert newest is not None
    assert newest["who"] == "b"
    assert (store.model("sort", "cross-core", node_id="node-1") or {})["who"] == "a"
    assert (store.model("sort", "cross-core", version=1) or {})["who"] == "a"
    assert store.model("sort", "cross-core", identity="j") is None
    assert store.model("gzip", "cross-core") is None
    assert [(m.placement, m.version) for m in store.models(app="sort")] == [
        ("cross-core", 2),
        ("cross-core", 1),
        ("same-core", 1),
    ]
    assert store.delete_model("sort", "cross-core", version=1) == 1
    assert store.delete_model("sort", "cross-core") == 1
    assert len(store.models()) == 1
