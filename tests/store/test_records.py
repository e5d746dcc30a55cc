"""What is put into a store comes out as it was."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from kongming.records.errors import InputError, UnknownNameError
from kongming.store import Store
from tests import builders

TIMES = {"memory.random.1K": 1.2e-9, "stream.triad": 3e-9}


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store.open(store_url) as opened:
        yield opened


def test_run_comes_back_whole(store: Store) -> None:
    run = builders.run(
        "sort",
        2.5,
        TIMES,
        levels=(builders.level(),),
        before=builders.fingerprint(TIMES),
        config={"size": 3},
        parts={"map": 1.0},
        campaign="c",
        step=4,
    )
    store.add_run(run)
    assert store.runs() == [run]
    [bare] = store.runs(fingerprints=False)
    assert bare.fingerprint is None
    assert bare.wall_s == run.wall_s


def test_adding_again_changes_nothing(store: Store) -> None:
    run = builders.run("sort", 2.5, TIMES)
    fingerprint, signature = builders.fingerprint(TIMES), builders.signature("sort", TIMES)
    for _ in range(2):
        store.add_run(run)
        store.add_fingerprint(fingerprint)
        store.add_signature(signature)
    assert store.runs() == [run]
    assert store.fingerprints(purpose="adhoc") == [fingerprint]
    assert store.signatures() == [signature]


def test_runs_are_filtered_and_oldest_first(store: Store) -> None:
    runs = [
        builders.run("sort", 1.0),
        builders.run("gzip", 2.0),
        builders.run("sort", None),
        builders.run("sort", 3.0, levels=(builders.level(),), placement="same-core"),
        builders.run("sort", 4.0, identity="other", node_id="node-2", campaign="c"),
    ]
    for run in reversed(runs):
        store.add_run(run)
    assert store.runs() == runs
    assert store.runs(app="gzip") == [runs[1]]
    assert store.runs(ok=False) == [runs[2]]
    assert store.runs(kind="induced", placement="same-core") == [runs[3]]
    assert store.runs(identity="other", node_id="node-2", campaign="c", ok=True) == [runs[4]]
    assert store.runs(limit=2) == runs[-2:]
    assert store.runs(app="nothing") == []


def test_runs_of_one_level_share_a_fingerprint_and_need_few_statements(store: Store) -> None:
    shared = builders.fingerprint(TIMES)
    for _ in range(20):
        store.add_run(builders.run("sort", 1.0, fingerprint=shared))
    statements: list[str] = []

    @event.listens_for(store._engine, "before_cursor_execute")
    def count(connection: object, cursor: object, statement: str, *rest: Any) -> None:
        statements.extend([statement] if statement.startswith("SELECT") else [])

    runs = store.runs()
    assert all(run.fingerprint == shared for run in runs)
    assert len(statements) == 2
    assert len(store.fingerprints()) == 1


def test_more_fingerprints_than_one_statement_asks_for(store: Store) -> None:
    runs = [builders.run("sort", 1.0, {"stream.triad": 1e-9 * (i + 1)}) for i in range(501)]
    store.add_all(runs=runs)
    assert store.runs() == runs


def test_fingerprints_are_filtered_and_newest_first(store: Store) -> None:
    first = builders.fingerprint(TIMES)
    second = builders.fingerprint(TIMES, cpu=1)
    third = builders.fingerprint(TIMES, node=builders.node(id="node-2"), suite_version="1-other")
    for fingerprint, purpose in ((first, "idle"), (second, "reference"), (third, "idle")):
        store.add_fingerprint(fingerprint, purpose)
    assert store.fingerprints() == [third, second, first]
    assert store.fingerprints(purpose="idle", node_id="node-1") == [first]
    assert store.fingerprints(cpu=1) == [second]
    assert store.fingerprints(suite_version="1-other") == [third]
    assert store.fingerprints(limit=1) == [third]
    with pytest.raises(UnknownNameError, match="reference"):
        store.add_fingerprint(first, "referense")


def test_time_orders_records_however_it_is_written(store: Store) -> None:
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T01:00:01+01:00"]
    runs = [builders.run("sort", 1.0, started_at=moment) for moment in times]
    for run in reversed(runs):
        store.add_run(run)
    assert store.runs() == runs
    with pytest.raises(InputError, match="started_at"):
        store.add_run(builders.run("sort", 1.0, started_at="yesterday"))


def test_metric_below_zero_is_kept_as_a_run_that_is_not_ok(store: Store) -> None:
    store.add_run(builders.run("sort", -1.0, wall_s=2.0))
    assert [run.metric for run in store.runs(ok=False)] == [-1.0]


def test_nan_in_a_model_is_refused(store: Store) -> None:
    with pytest.raises(InputError):
        store.put_model("sort", "i", "node-1", "cross-core", {"error": math.nan})


def test_signatures_are_filtered_and_newest_first(store: Store) -> None:
    old, new = builders.signature("sort", TIMES), builders.signature("sort", TIMES)
    other = builders.signature("gzip", TIMES, placement="same-core", campaign="c")
    for signature in (new, other, old):
        store.add_signature(signature)
    assert store.signatures(app="sort") == [new, old]
    assert store.signatures(placement="same-core", campaign="c") == [other]
    assert len(store.fingerprints(purpose="signature")) == 3


def test_newer_node_facts_win(store: Store) -> None:
    store.add_fingerprint(builders.fingerprint(TIMES, started_at="2026-01-02T00:00:00Z"))
    older = builders.fingerprint(
        TIMES, node=builders.node(kernel="old"), started_at="2026-01-01T00:00:00Z"
    )
    store.add_fingerprint(older)
    assert store.node("node-1") == builders.node()
    store.put_node(builders.node(kernel="new"))
    assert store.nodes() == [builders.node(kernel="new")]
    with pytest.raises(UnknownNameError, match="node-1"):
        store.node("node-9")


def test_what_a_wrong_clock_dated_does_not_stay_until_then(store: Store) -> None:
    future = "2990-01-01T00:00:00Z"
    store.add_fingerprint(builders.fingerprint(TIMES, started_at=future), "idle")
    store.put_reference("node-1", "1-a", 0, {"stream.triad": 2e-9}, 10, future)
    grown = builders.node(memory_bytes=64 << 30)
    store.add_fingerprint(builders.fingerprint(TIMES, node=grown), "idle")
    store.put_reference("node-1", "1-a", 0, TIMES, 10, "2026-01-03T00:00:00Z")
    assert store.node("node-1") == grown
    reference = store.reference("node-1", "1-a")
    assert reference is not None
    assert reference.times == TIMES


def test_an_import_leaves_facts_that_are_dated_ahead(store: Store) -> None:
    future = "2990-01-01T00:00:00Z"
    fingerprint = builders.fingerprint(TIMES, node=builders.node(kernel="new"), started_at=future)
    store.add_fingerprint(fingerprint, "idle")
    store.add_all(nodes=[builders.node(kernel="old")])
    assert store.node("node-1").kernel == "new"


def test_reference_is_replaced_by_a_newer_one_of_the_same_cpu(store: Store) -> None:
    assert store.reference("node-1", "1-a") is None
    store.put_reference("node-1", "1-a", 0, TIMES, 10, "2026-01-01T00:00:00Z")
    store.put_reference("node-1", "1-a", 0, {"stream.triad": 2e-9}, 12, "2026-01-03T00:00:00Z")
    store.put_reference("node-1", "1-a", 1, TIMES, 11, "2026-01-02T00:00:00Z")
    newest = store.reference("node-1", "1-a")
    assert newest is not None
    assert (newest.cpu, newest.readings, newest.times) == (0, 12, {"stream.triad": 2e-9})
    other = store.reference("node-1", "1-a", cpu=1)
    assert other is not None
    assert (other.readings, other.taken_at) == (11, "2026-01-02T00:00:00Z")
    with pytest.raises(InputError, match=r"stream\.triad"):
        store.put_reference("node-1", "1-a", 0, {"stream.triad": 0.0}, 10, "2026-01-04T00:00:00Z")
