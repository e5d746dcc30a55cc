"""Live fingerprints become hourly figures, and only what may go goes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from kongming import Fingerprint
from kongming.records.errors import InputError
from kongming.records.resident import Resident
from kongming.store import (
    Reported,
    Retained,
    Retention,
    Store,
    StoredForecast,
    StoredOperation,
    retention,
    schema,
)
from kongming.store.retention import DAY_S
from tests import builders

START = datetime(2026, 3, 1, 5, tzinfo=UTC)
HOUR_S = 3600.0


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store.open(store_url) as opened:
        yield opened


def live(minute: int, seconds: float = 1e-9, **changes: Any) -> Fingerprint:
    moment = (START + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return builders.fingerprint(
        {"stream.triad": seconds},
        started_at=moment,
        passive={"load1": float(minute % 60)},
        **changes,
    )


def report(store: Store, *prints: Fingerprint) -> None:
    store.add_reported([Reported("node-1", 1, fingerprint) for fingerprint in prints])


def at(hours: float, **settings: float) -> tuple[float, Retention]:
    """So many hours after the start, as ``retain`` wants it."""
    return START.timestamp() + hours * HOUR_S, Retention(**{"live_s": HOUR_S} | settings)


def retain(store: Store, hours: float, **settings: float) -> Retained:
    now, retention = at(hours, **settings)
    return store.retain(retention, now=now)


def test_whole_hours_become_figures(store: Store) -> None:
    prints = [live(minute, (1 + minute % 60) * 1e-9) for minute in range(150)]
    report(store, *prints)
    assert retain(store, 1.5).rolled_up == 0
    done = retain(store, 3.2)
    assert (done.rolled_up, done.hours, done.finished) == (120, 2, True)
    assert store.fingerprints() == prints[:119:-1]
    first, second = store.hourly_fingerprints("node-1")
    assert (first.hour_at, second.hour_at) == (START.timestamp(), START.timestamp() + HOUR_S)
    assert (first.count, first.cpu, first.suite_version) == (60, 0, "1-0123abcd")
    assert first.surrogates["stream.triad"] == pytest.approx((30.5e-9, 6.9e-9, 54.1e-9))
    assert first.passive == {"load1": 29.5}
    assert store.hourly_fingerprints("node-1", since=second.hour_at) == [second]
    assert store.hourly_fingerprints("node-1", cpu=0, until=second.hour_at) == [first]
    assert store.hourly_fingerprints("node-1", cpu=1) == []
    again = retain(store, 3.2)
    assert (again.rolled_up, sum(again.deleted.values())) == (0, 0)


def test_each_cpu_has_figures_of_its_own(store: Store) -> None:
    report(store, live(0, 1e-9), live(1, 3e-9, cpu=1), live(200), live(200, cpu=1))
    retain(store, 3.0)
    medians = {h.cpu: h.surrogates["stream.triad"][0] for h in store.hourly_fingerprints("node-1")}
    assert medians == {0: 1e-9, 1: 3e-9}


def test_late_ones_are_weighed_in(store: Store) -> None:
    report(store, *(live(minute, 1e-9) for minute in range(3)), live(200))
    retain(store, 3.0)
    report(store, live(30, 5e-9))
    assert retain(store, 3.0).rolled_up == 1
    [hour] = store.hourly_fingerprints("node-1")
    assert hour.count == 4
    assert hour.surrogates["stream.triad"][0] == pytest.approx(2e-9)


def test_a_node_that_cannot_be_aggregated_keeps_no_other_from_being(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("node-1", "node-2", "node-3")
    for name in names:
        node = builders.node(id=name, name=name)
        prints = [live(0, node=node), live(200, node=node)]
        store.add_reported([Reported(name, 1, each) for each in prints])
    summary = retention._summary

    def broken(prints: list[Fingerprint]) -> Any:
        if prints[0].node.id == "node-2":
            raise OverflowError("intermediate overflow in fsum")
        return summary(prints)

    monkeypatch.setattr(retention, "_summary", broken)
    done = retain(store, 3.0)
    # It says that not all was done.
    assert (done.rolled_up, done.complete_at) == (2, None)
    assert [len(store.hourly_fingerprints(name)) for name in names] == [1, 0, 1]
    assert "Fingerprints of node node-2 could not be aggregated." in caplog.text


def test_an_hour_with_more_than_one_transaction_takes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kongming.store.retention._ROWS", 25)
    report(store, *(live(minute) for minute in range(130)))
    assert retain(store, 5.0).rolled_up == 129
    assert [h.count for h in store.hourly_fingerprints("node-1")] == [60, 60, 9]


def test_the_newest_and_those_of_runs_stay(store: Store) -> None:
    used, newest = live(0), live(2)
    report(store, used, live(1), newest)
    run = builders.run("sort", 1.0, before=used)
    store.add_run(run)
    store.add_fingerprint(live(0), "idle")
    store.put_reference("node-1", "1-a", 0, {"stream.triad": 1e-9}, 1, "2026-01-01T00:00:00Z")
    assert retain(store, 24 * 1000).rolled_up == 1
    assert store.latest_fingerprints() == [newest]
    assert store.runs() == [run]
    assert len(store.fingerprints()) == 3
    assert len(store.references()) == 1


def test_what_nobody_asked_for_goes_with_its_fingerprints(store: Store) -> None:
    def records(name: str) -> list[Reported]:
        run = builders.run(
            "sort", 1.0, before=live(1), fingerprint=live(2), started_at=live(1).started_at
        )
        signature = builders.signature("sort", {}, fingerprint=live(3))
        requested = name == "asked"
        return [Reported("node-1", 1, record, requested=requested) for record in (run, signature)]

    store.add_reported(records("asked"))
    store.add_reported(records("unasked"))
    assert [len(store.runs()), len(store.signatures()), len(store.fingerprints())] == [2, 2, 6]
    retain(store, 12.0, unasked_s=HOUR_S)
    assert store.runs() == store.runs(requested=True)
    assert store.signatures() == store.signatures(requested=True)
    assert [len(store.runs()), len(store.signatures()), len(store.fingerprints())] == [1, 1, 3]


def test_agents_that_are_gone_and_references_that_were_replaced_go(store: Store) -> None:
    store.put_agent("old", {}, START.timestamp())
    store.put_agent("new", {}, START.timestamp() + 20 * HOUR_S)
    for suite, day in (("1-a", "01"), ("1-b", "02")):
        store.put_reference(
            "node-1", suite, 0, {"stream.triad": 1e-9}, 1, f"2026-01-{day}T00:00:00Z"
        )
    retain(store, 24.0, gone_s=12 * HOUR_S)
    assert [agent.node_id for agent in store.agents()] == ["new"]
    assert [reference.suite_version for reference in store.references()] == ["1-b"]


def test_readings_of_references_go_and_the_newest_reference_stays(store: Store) -> None:
    readings = [live(60 * 24 * day, (1 + day) * 1e-9) for day in range(3)]
    store.add_reported(
        [Reported("node-1", 1, reading, purpose="reference") for reading in readings]
    )
    retain(store, 40.0, gone_s=24 * HOUR_S)
    assert store.fingerprints(purpose="reference") == readings[:0:-1]
    retain(store, 24.0 * 500)
    assert store.fingerprints(purpose="reference") == []
    (reference,) = store.references()
    assert reference.times == pytest.approx({"stream.triad": 3e-9})


def test_old_figures_placements_and_operations_go(store: Store) -> None:
    report(store, *(live(60 * hour) for hour in range(10)))
    now = START.timestamp()
    for key, state in (("old", "released"), ("runs", "bound")):
        store.put_assignment(Resident(key, "sort", "node-1", 0, "cross-core", state, now, now, now))
        store.add_forecast(StoredForecast(key, "sort", "node-1", "cross-core", 1, now))
    store.put_operation(StoredOperation("op-1", "train", "done", created_at=now, ended_at=now))
    heard = {"told_at": now + 11.5 * HOUR_S}
    store.put_operation(StoredOperation("op-2", "train", "running", created_at=now, document=heard))
    # Nothing was heard of these since: a server that ended, and a request to cancel.
    old = {"told_at": now + HOUR_S}
    store.put_operation(StoredOperation("op-3", "train", "running", created_at=now, document=old))
    store.put_operation(StoredOperation("op-3/cancel", "cancel", "done", created_at=now))
    done = retain(store, 12.0, hourly_s=5 * HOUR_S, assignments_s=HOUR_S, operations_s=HOUR_S)
    assert done.finished
    hours = [round((h.hour_at - now) / HOUR_S) for h in store.hourly_fingerprints("node-1")]
    assert hours == [7, 8]
    assert [p.assignment_id for p in store.assignments()] == ["runs"]
    assert store.forecast("old") is None
    assert store.forecast("runs") is not None
    assert [operation.id for operation in store.operations()] == ["op-2"]


def test_a_budget_ends_it_early_and_it_goes_on_later(store: Store) -> None:
    report(store, *(live(60 * hour) for hour in range(5)))
    now, retention = at(24.0)
    assert not store.retain(retention, now=now, budget_s=0.0).finished
    assert len(store.fingerprints()) == 5
    assert store.retain(retention, now=now).rolled_up == 4


def test_what_is_only_deleted_goes_where_aggregating_never_comes_to_an_end(store: Store) -> None:
    report(store, *(live(60 * hour) for hour in range(5)))
    ended = START.timestamp()
    store.put_assignment(
        Resident("old", "sort", "node-1", 0, "cross-core", "released", ended, ended, ended)
    )
    retention = Retention(live_s=HOUR_S, assignments_s=HOUR_S, changes_s=60.0)
    done = store.retain(retention, now=time.time() + DAY_S, budget_s=0.0)
    assert (done.finished, done.complete_at, done.rolled_up) == (False, None, 0)
    assert store.assignments() == []
    assert done.deleted["change"] > 0


def test_a_pass_goes_on_with_the_node_where_the_last_one_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report_hours(node_id: str, first: int) -> None:
        hours = range(first, first + 3)
        node = builders.node(id=node_id)
        prints = [live(60 * hour, node=node) for hour in hours]
        store.add_reported([Reported(node_id, 1, each) for each in prints])

    report_hours("node-1", 0)
    report_hours("node-2", 0)
    # Each look at the clock takes a second, and a node two looks.
    clock = SimpleNamespace(monotonic=itertools.count().__next__, time=time.time)
    monkeypatch.setattr("kongming.store.retention.time", clock)
    now, retention = at(24.0)
    first = store.retain(retention, now=now, budget_s=2.0)
    assert (first.rolled_up, first.finished, first.complete_at) == (2, False, None)
    report_hours("node-1", 3)
    second = store.retain(retention, now=now + HOUR_S, budget_s=2.0)
    assert (second.rolled_up, second.finished, second.complete_at) == (2, True, now)
    assert len(store.hourly_fingerprints("node-2")) == 2
    assert store.retain(retention, now=now + HOUR_S, budget_s=2.0).rolled_up == 3


def test_time_is_left_for_aggregating_where_deleting_takes_longer_than_a_pass(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(store, *(live(60 * hour) for hour in range(3)))
    clock = SimpleNamespace(monotonic=lambda: clock.now, time=time.time, now=0.0)
    monkeypatch.setattr("kongming.store.retention.time", clock)
    delete = store._delete

    def slow(table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
        clock.now += 60.0
        return delete(table, condition)

    monkeypatch.setattr(store, "_delete", slow)
    now, retention = at(24.0)
    assert store.retain(retention, now=now, budget_s=5.0).rolled_up == 2


def test_a_damaged_fingerprint_keeps_no_node_from_being_aggregated(store: Store) -> None:
    nodes = [builders.node(id=f"node-{number}") for number in (1, 2)]
    for node in nodes:
        prints = [live(60 * hour, node=node) for hour in range(3)]
        store.add_reported([Reported(node.id, 1, each) for each in prints])
    table = schema.fingerprint
    with store._engine.begin() as connection:
        oldest = table.c.started_at == START.replace(tzinfo=None)
        damage = sa.update(table).values(document={"facts": "x", "kinds": "x", "names": "x"})
        connection.execute(damage.where(oldest, table.c.node_id == "node-1"))
    damaged: list[str] = []
    store.damage = lambda what, why: damaged.append(what)
    done = retain(store, 24.0)
    assert (done.rolled_up, done.finished, len(damaged)) == (4, True, 1)
    assert [len(store.hourly_fingerprints(node.id)) for node in nodes] == [1, 2]


def test_a_damaged_time_or_hour_keeps_nothing_from_being_aggregated(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        report(store, live(0), live(600))
        retain(store, 4.0)
        report(store, *(live(minute) for minute in range(3)))
        damaged: list[str] = []
        store.damage = lambda what, why: damaged.append(what)
        with store._engine.begin() as connection:
            connection.exec_driver_sql("UPDATE fingerprint_hour SET document = 'x'")
            connection.exec_driver_sql(
                "UPDATE fingerprint SET started_at = '2026' WHERE started_at LIKE '%05:01%'"
            )
        assert retain(store, 4.0).rolled_up == 3
        assert [hour.count for hour in store.hourly_fingerprints("node-1")] == [2]
        assert len(damaged) == 2


def test_two_servers_thin_each_fingerprint_once(store: Store, store_url: str) -> None:
    report(store, *(live(minute) for minute in range(300)))
    now, retention = at(24.0)
    with Store.open(store_url) as other:
        while not (store.retain(retention, now=now).finished):
            other.retain(retention, now=now)
    assert sum(h.count for h in store.hourly_fingerprints("node-1")) == 299


def test_safe_defaults_and_settings_that_lose_too_much() -> None:
    assert Retention().live_s >= DAY_S
    assert Retention().hourly_s >= 365 * DAY_S
    with pytest.raises(InputError, match="live_s"):
        Retention(live_s=60.0)
    with pytest.raises(InputError, match="hourly_s"):
        Retention(hourly_s=float("nan"))


def test_the_size_is_reported(store: Store) -> None:
    before = store.size_bytes()
    report(store, *(live(minute) for minute in range(500)))
    assert store.size_bytes() > before
    assert store.retain(now=time.time()).finished
