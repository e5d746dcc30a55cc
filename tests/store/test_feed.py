"""What one server writes, the others learn of: in order, without gaps, through outages."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NoReturn

import pytest

from kongming.records.errors import InputError, StoreError
from kongming.records.resident import Resident
from kongming.store import Change, Reported, Retention, Store
from tests import builders
from tests.postgres.server import PostgresServer
from tests.server.process import eventually

TIMES = {"stream.triad": 3e-9}
SPREAD_S = 60.0
"""The longest that a change may take to arrive on a busy machine."""


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store.open(store_url) as opened:
        yield opened


class Follower:
    """Collects what a watch gives."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._arrived = threading.Condition()

    def __call__(self, changes: Sequence[Change]) -> None:
        with self._arrived:
            self.changes += changes
            self._arrived.notify_all()

    def wait_for(self, condition: Callable[[list[Change]], bool], timeout_s: float) -> bool:
        with self._arrived:
            return self._arrived.wait_for(lambda: condition(self.changes), timeout_s)


def report(store: Store, node_id: str = "node-1") -> str:
    fingerprint = builders.fingerprint(TIMES, node=builders.node(id=node_id, name=node_id))
    store.add_reported([Reported(node_id, 1, fingerprint)])
    return fingerprint.id


def has_change(key: str, changes: Sequence[Change]) -> bool:
    return any(change.key == key for change in changes)


def kinds(store: Store, since: int) -> list[tuple[str, str, str]]:
    return [(c.kind, c.owner, c.key) for c in store.news_since(since)[0]]


def test_each_kind_of_change_is_reported(store: Store) -> None:
    assert store.last_change() == 0
    key = report(store)
    store.put_reference("node-1", "1-a", 0, TIMES, 10, "2026-01-01T00:00:00Z")
    store.put_model("sort", "i", "node-1", "cross-core", {})
    store.promote("sort", "cross-core", 1)
    signature = builders.signature("sort", TIMES)
    store.add_signature(signature)
    store.put_assignment(Resident("job", "sort", "node-1", 0, "cross-core", "bound"))
    store.add_run(builders.run("sort", 1.0, kind="corun", neighbours=("other",)))
    assert kinds(store, 0) == [
        ("node", "node-1", "node-1"),
        ("fingerprint", "node-1", key),
        ("reference", "node-1", "1-a/0"),
        ("model", "sort", "cross-core"),
        ("model", "sort", "cross-core"),
        # The other test node has other facts under the same id.
        ("node", "node-1", "node-1"),
        ("signature", "sort", signature.id),
        ("calibration", "sort", "cross-core"),
        ("assignment", "node-1", "job"),
        ("calibration", "sort", "cross-core"),
    ]
    assert [c.sequence for c in store.news_since(0)[0]] == list(range(1, 11))
    assert [c.sequence for c in store.news_since(2, limit=3)[0]] == [3, 4, 5]
    assert {c.origin for c in store.news_since(0)[0]} == {store.origin}


def test_what_changes_nothing_is_not_reported(store: Store) -> None:
    fingerprint = builders.fingerprint(TIMES)
    for _ in range(2):
        store.add_reported([Reported("node-1", 1, fingerprint)])
        store.put_reference("node-1", "1-a", 0, TIMES, 10, "2026-01-02T00:00:00Z")
    last = store.last_change()
    store.put_reference("node-1", "1-a", 0, TIMES, 10, "2026-01-01T00:00:00Z")
    store.add_run(builders.run("sort", 1.0, TIMES, kind="environment"))
    store.add_reported([Reported("node-1", 1, builders.run("sort", 1.0), requested=False)])
    store.delete_model("sort", "cross-core")
    # The second reference was as new as the first, which counts as put again.
    assert last == 4
    assert store.last_change() == last


def test_what_failed_is_not_reported(store: Store) -> None:
    good, bad = builders.fingerprint(TIMES), builders.fingerprint(TIMES)
    with pytest.raises(InputError, match="purpose"):
        store.add_all(
            runs=[builders.run("sort", 1.0, TIMES)], fingerprints=[(good, "live"), (bad, "liv")]
        )
    assert store.news_since(0)[0] == []


def test_one_change_for_many_fingerprints_of_one_cpu(store: Store) -> None:
    prints = [builders.fingerprint(TIMES) for _ in range(10)]
    store.add_reported([Reported("node-1", n, p) for n, p in enumerate(prints)])
    assert kinds(store, 1) == [("fingerprint", "node-1", prints[-1].id)]


def test_who_was_away_for_too_long_reads_everything_again(store: Store) -> None:
    report(store)
    last = store.last_change()
    store.retain(Retention(changes_s=60.0), now=time.time() + 61.0)
    assert [c.kind for c in store.news_since(0)[0]] == ["reset"]
    assert store.news_since(last)[0] == []
    report(store)
    assert [c.kind for c in store.news_since(last)[0]] == ["fingerprint"]
    # A store that was put back from a copy has not come so far yet.
    [reset] = store.news_since(last + 99)[0]
    assert (reset.kind, reset.sequence) == ("reset", last + 1)


def test_changes_of_many_writers_have_no_gaps(store: Store, store_url: str) -> None:
    follower = Follower()

    def write(number: int) -> None:
        with Store.open(store_url) as mine:
            for step in range(15):
                report(mine, f"node-{number}-{step % 3}")

    with Store.open(store_url) as other, other.watch_changes(follower):
        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        total = store.last_change()
        assert follower.wait_for(lambda changes: len(changes) >= total, SPREAD_S)
    assert [c.sequence for c in follower.changes] == list(range(1, total + 1))
    assert sum(c.kind == "fingerprint" for c in follower.changes) == 60


def test_a_change_spreads(store: Store, store_url: str) -> None:
    follower = Follower()
    with Store.open(store_url) as other, other.watch_changes(follower) as watch:
        for _ in range(5):
            key = report(store)
            assert follower.wait_for(partial(has_change, key), SPREAD_S)
        assert watch.connected
        assert watch.position == store.last_change()
    before = len(follower.changes)
    report(store)
    assert len(follower.changes) == before


def test_own_changes_are_left_out_but_for_kinds_that_are_wanted(
    store: Store, store_url: str
) -> None:
    follower = Follower()
    with Store.open(store_url) as other:
        with store.watch_changes(follower, own=("signature",)) as watch:
            mine = [report(store, f"mine-{number}") for number in range(3)]
            store.add_signature(builders.signature("sort", TIMES))
            theirs = report(other, "theirs")
            assert follower.wait_for(lambda changes: has_change(theirs, changes), SPREAD_S)
            assert not any(has_change(key, follower.changes) for key in mine)
            own = [change.kind for change in follower.changes if change.origin == store.origin]
            assert own == ["signature"]
            # What is left out is passed over all the same.
            report(store, "mine-4")
            eventually(lambda: watch.position == store.last_change())
        assert store.news_since(0, own=())[1] == store.last_change()
        assert {change.origin for change in store.news_since(0, own=())[0]} == {other.origin}


def test_a_watch_goes_on_after_a_number(store: Store) -> None:
    report(store)
    known = store.last_change()
    key = report(store)
    follower = Follower()
    with store.watch_changes(follower, after=known):
        assert follower.wait_for(bool, SPREAD_S)
    assert [c.key for c in follower.changes] == [key]


def test_a_watch_of_a_server_with_thousands_of_connections(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2048 if hard == resource.RLIM_INFINITY else min(2048, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    connections = []
    try:
        connections = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        with Store.open(store_url) as store, store.watch_changes(lambda changes: None) as watch:
            eventually(lambda: watch.connected)
            reached = watch.seen_at
            report(store)
            eventually(lambda: watch.seen_at > reached)
        assert "lost" not in caplog.text
    finally:
        for connection in connections:
            os.close(connection)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_callback_that_fails_is_told_to_read_everything_again(store: Store) -> None:
    seen: list[str] = []
    done = threading.Event()

    def fail_once(changes: Sequence[Change]) -> None:
        seen.extend(c.kind for c in changes)
        if "reset" not in seen:
            raise RuntimeError("a mistake")
        done.set()

    with store.watch_changes(fail_once):
        report(store)
        assert done.wait(60.0)
    assert seen[-1] == "reset"


@pytest.mark.parametrize("fails", ["reading", "callback"])
def test_a_feed_that_stays_broken_is_logged_once(
    store: Store, fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[str] = []

    def fail(*arguments: object, **options: object) -> NoReturn:
        attempts.append(fails)
        raise StoreError("no such table: feed")

    with store.watch_changes(fail) as watch:
        eventually(lambda: watch.connected)
        if fails == "reading":
            monkeypatch.setattr(store, "news_since", fail)
        report(store)
        eventually(lambda: len(attempts) >= 5)
        monkeypatch.undo()
    lines = [record.getMessage() for record in caplog.records]
    assert sum("reconnecting" in line for line in lines) == 1, lines
    assert sum("callback" in line for line in lines) == (fails == "callback"), lines


def test_postgresql_restarts_under_load(postgres_server: PostgresServer, postgres_url: str) -> None:
    """What was acknowledged is there, and the watch catches up by itself."""
    follower = Follower()
    stop = threading.Event()
    acknowledged: list[str] = []
    refused: list[StoreError] = []

    def write(number: int) -> None:
        step = 0
        while not stop.is_set():
            try:
                acknowledged.append(report(writer, f"node-{number}"))
            except StoreError as error:
                refused.append(error)
                time.sleep(0.02)
            step += 1

    with (
        Store.open(postgres_url) as writer,
        Store.open(postgres_url) as other,
        other.watch_changes(follower),
    ):
        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGQUIT):
            reached = len(acknowledged) + 20
            deadline = time.monotonic() + 60.0
            while len(acknowledged) < reached and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(acknowledged) >= reached
            postgres_server.stop(how)
            postgres_server.start()
        stop.set()
        for thread in threads:
            thread.join()
        last = writer.last_change()
        assert follower.wait_for(lambda seen: bool(seen) and seen[-1].sequence == last, SPREAD_S)
        held = {p.id for p in writer.fingerprints()}
    assert refused
    assert set(acknowledged) <= held
    assert [c.sequence for c in follower.changes] == list(range(1, last + 1))
    spread = {c.key for c in follower.changes if c.kind == "fingerprint"}
    assert set(acknowledged) <= spread
