"""The queue before the store: groups, order, bounds, and what fails alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from kongming_server.ingest.write import Ingest, Report

from kongming.records.errors import InputError, OverloadedError, StoreError, UnavailableError
from kongming.store import Accepted, Reported
from tests import builders
from tests.virtual_time import InlineExecutor, run_in_virtual_time


class SlowStore:
    """Remembers its transactions; each waits until ``go`` is set, and ``refuse`` may raise."""

    def __init__(self) -> None:
        self.transactions: list[list[str]] = []
        self.stored: set[str] = set()
        self.go = threading.Event()
        self.go.set()
        self.refuse: Callable[[list[str]], None] = lambda ids: None

    def add_reported(self, records: Sequence[Reported]) -> Accepted:
        ids = [reported.record.id for reported in records]
        assert self.go.wait(20)
        self.refuse(ids)
        self.transactions.append(ids)
        new = tuple(record_id for record_id in dict.fromkeys(ids) if record_id not in self.stored)
        known = tuple(record_id for record_id in dict.fromkeys(ids) if record_id in self.stored)
        self.stored.update(new)
        rows = frozenset(reported.row_id for reported in records if reported.record.id in new)
        return Accepted(new=new, duplicates=known, rows=rows)


def test_a_store_that_fails_on_one_record_keeps_its_neighbours() -> None:
    async def test() -> None:
        store = SlowStore()

        def refuse(ids: list[str]) -> None:
            if "bad" in ids:
                raise StoreError("The store failed: nobody knows why.")

        store.refuse = refuse
        async with ingest_into(store) as ingest:
            results = await asyncio.gather(
                *(ingest.add(report(record_id)) for record_id in ("a", "b", "bad", "c")),
                return_exceptions=True,
            )
        assert [isinstance(outcome, StoreError) for outcome in results] == [
            False,
            False,
            True,
            False,
        ]
        assert store.stored == {"a", "b", "c"}

    run(test)


def test_a_store_that_is_away_is_not_asked_for_each_record() -> None:
    async def test() -> None:
        store = SlowStore()
        tries = []

        def refuse(ids: list[str]) -> None:
            tries.append(ids)
            raise StoreError("The store ended the connection.", away=True)

        store.refuse = refuse
        async with ingest_into(store, batch_records=100) as ingest:
            results = await asyncio.gather(
                *(ingest.add(report(str(number))) for number in range(8)), return_exceptions=True
            )
        assert all(isinstance(outcome, StoreError) for outcome in results)
        assert len(tries) <= 2

    run(test)


def test_the_queue_counts_bytes_as_well() -> None:
    async def test() -> None:
        store = SlowStore()
        store.go.clear()
        async with ingest_into(store, queue_bytes=1000, queue_wait_s=0.01) as ingest:
            first = asyncio.create_task(ingest.add(replace(report("a"), size=900)))
            while ingest.queued or not ingest.transactions:
                await asyncio.sleep(0.001)
            second = asyncio.create_task(ingest.add(replace(report("b"), size=900)))
            while not ingest.queued:
                await asyncio.sleep(0.001)
            with pytest.raises(OverloadedError):
                await ingest.add(replace(report("c"), size=900))
            store.go.set()
            await asyncio.gather(first, second)

    run(test)


def test_who_sends_much_waits_for_itself_and_not_the_others() -> None:
    async def test() -> None:
        store = SlowStore()
        store.go.clear()
        limits = {"batch_records": 2, "queue_records": 20, "queue_wait_s": 60.0}
        async with ingest_into(store, **limits) as ingest:
            thief = [
                asyncio.create_task(ingest.add(report(f"t{number}", by="thief")))
                for number in range(30)
            ]
            await asyncio.sleep(0.05)
            # One caller's reports fill half of the queue, and the other half has room.
            assert ingest.queued <= 10
            late = [asyncio.create_task(ingest.add(report(caller, by=caller))) for caller in "ab"]
            await asyncio.sleep(0.05)
            store.go.set()
            await asyncio.gather(*late)
            assert len(store.transactions) <= 5
            await asyncio.gather(*thief)
        assert len(store.stored) == 32

    run(test)


def test_a_node_that_sends_much_rests_and_others_do_not_wait_for_it() -> None:
    async def test() -> None:
        store = SlowStore()
        limits = {"batch_records": 500, "queue_records": 1000, "gather_s": 0.5}
        async with ingest_into(store, writer=InlineExecutor(), **limits) as ingest:
            thief = [
                await ingest.enqueue(report(f"t{number}", node_id="thief", by="thief"))
                for number in range(100)
            ]
            await asyncio.gather(*thief[:16])
            loop = asyncio.get_running_loop()
            begun = loop.time()
            # Those of another wait for a fifth of the time that its next ones do.
            await ingest.add(report("honest", by="honest"))
            honest_s = loop.time() - begun
            await thief[-1]
            thief_s = loop.time() - begun
        # The rest of it are three transactions more.
        assert (honest_s, thief_s) == (pytest.approx(0.2 * 0.5), pytest.approx(3 * 0.5))
        first, second, third = store.transactions[:3]
        assert 16 <= len(first) < 50
        assert second == ["honest"]
        assert len(third) <= len(first)
        assert sum(map(len, store.transactions)) == 101

    run_in_virtual_time(test)


def test_nodes_of_one_caller_do_not_rest_for_each_other() -> None:
    async def test() -> None:
        store = SlowStore()
        limits = {"batch_records": 500, "queue_records": 1000, "gather_s": 0.5}
        async with ingest_into(store, writer=InlineExecutor(), **limits) as ingest:
            much = [await ingest.enqueue(report(f"m{n}", by="fleet")) for n in range(100)]
            await much[0]
            await ingest.add(report("other", node_id="node-2", by="fleet"))
            assert not much[-1].done()
            await asyncio.gather(*much)

    run_in_virtual_time(test)


def report(*ids: str, node_id: str = "node-1", by: str = "") -> Report:
    taken = (builders.fingerprint({"compute.int": 1e-9}, id=record_id) for record_id in ids)
    return Report(tuple(Reported(node_id, 1, fingerprint) for fingerprint in taken), by=by)


@asynccontextmanager
async def ingest_into(
    store: SlowStore,
    committed: Callable[[Report, Accepted], None] | None = None,
    writer: Executor | None = None,
    **limits: Any,
) -> AsyncIterator[Ingest]:
    values = {"batch_records": 4, "queue_records": 8, "queue_wait_s": 0.2} | limits
    with writer or ThreadPoolExecutor(1) as writer:
        ingest = Ingest(store, writer, committed or (lambda r, a: None), **values)
        ingest.start()
        try:
            yield ingest
        finally:
            store.go.set()
            await ingest.close()


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def test_what_comes_during_a_transaction_shares_the_next_one() -> None:
    async def test() -> None:
        store = SlowStore()
        store.go.clear()
        async with ingest_into(store) as ingest:
            waiting = [await ingest.enqueue(report("a"))]
            while ingest.queued:
                await asyncio.sleep(0.001)
            waiting += [await ingest.enqueue(report(record_id)) for record_id in "bcdef"]
            store.go.set()
            accepted = await asyncio.gather(*waiting)
        assert store.transactions == [["a"], ["b", "c", "d", "e"], ["f"]]
        assert [answer.ids for answer in accepted] == [(record_id,) for record_id in "abcdef"]

    run(test)


def test_transactions_keep_their_distance_and_the_first_does_not_wait() -> None:
    async def test() -> None:
        store = SlowStore()
        limits = {"batch_records": 100, "gather_s": 1.0}
        async with ingest_into(store, writer=InlineExecutor(), **limits) as ingest:
            await ingest.add(report("first"))
            waiting = []
            for record_id in "abcd":
                waiting.append(await ingest.enqueue(report(record_id)))
                await asyncio.sleep(0.01)
            await asyncio.gather(*waiting)
        assert store.transactions == [["first"], ["a", "b", "c", "d"]]

    run_in_virtual_time(test)


def test_the_distance_grows_with_what_is_gathered() -> None:
    async def test() -> None:
        store = SlowStore()
        many = [f"{number:02d}" for number in range(20)]
        limits = {"batch_records": 100, "gather_s": 2.0}
        async with ingest_into(store, writer=InlineExecutor(), **limits) as ingest:
            await ingest.add(report(*many))
            loop = asyncio.get_running_loop()
            begun = loop.time()
            # After twenty at once the next one waits for the full time, and after one much less.
            await ingest.add(report("next"))
            long_s = loop.time() - begun
            await ingest.add(report("last"))
            short_s = loop.time() - begun - long_s
        assert store.transactions == [many, ["next"], ["last"]]
        assert (long_s, short_s) == (pytest.approx(2.0), pytest.approx(0.2 * 2.0))

    run_in_virtual_time(test)


def test_each_report_is_answered_for_its_own_records() -> None:
    async def test() -> None:
        store = SlowStore()
        store.stored.add("known")
        store.go.clear()
        async with ingest_into(store, batch_records=100) as ingest:
            first = await ingest.enqueue(report("x"))
            while ingest.queued:
                await asyncio.sleep(0.001)
            rest = [
                await ingest.enqueue(pending)
                for pending in (report("a", "known"), report("b"), report("b"))
            ]
            store.go.set()
            await first
            accepted = await asyncio.gather(*rest)
        assert accepted[0] == Accepted(new=("a",), duplicates=("known",))
        assert accepted[1] == Accepted(new=("b",))
        assert accepted[2] == Accepted(duplicates=("b",))

    run(test)


def test_commits_are_announced_in_their_order_before_they_are_answered() -> None:
    async def test() -> None:
        committed: list[str] = []
        store = SlowStore()
        async with ingest_into(store, lambda r, a: committed.extend(a.new)) as ingest:
            waiting = [await ingest.enqueue(report(f"{number}")) for number in range(8)]
            await waiting[0]
            assert committed[:1] == ["0"]
            await asyncio.gather(*waiting)
        assert committed == [str(number) for number in range(8)]

    run(test)


def test_what_cannot_be_kept_fails_alone() -> None:
    async def test() -> None:
        store = SlowStore()

        def refuse(ids: list[str]) -> None:
            if "bad" in ids:
                raise InputError("cannot be kept.", field="passive")

        store.refuse = refuse
        store.go.clear()
        async with ingest_into(store) as ingest:
            waiting = [
                await ingest.enqueue(report(record_id)) for record_id in ("a", "b", "bad", "c")
            ]
            store.go.set()
            results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[2], InputError)
        assert store.stored == {"a", "b", "c"}

    run(test)


def test_a_store_that_is_away_fails_what_waits_and_serves_again() -> None:
    async def test() -> None:
        store = SlowStore()

        def refuse(ids: list[str]) -> None:
            raise StoreError("The disk is full.")

        store.refuse = refuse
        async with ingest_into(store) as ingest:
            with pytest.raises(StoreError):
                await ingest.add(report("a"))
            store.refuse = lambda ids: None
            assert (await ingest.add(report("a"))).new == ("a",)

    run(test)


def test_a_full_queue_refuses_and_takes_again() -> None:
    async def test() -> None:
        store = SlowStore()
        store.go.clear()
        # Long enough for a busy machine to come to the late one in time.
        async with ingest_into(store, queue_wait_s=1.0) as ingest:
            first = await ingest.enqueue(report("first"))
            while ingest.queued:
                await asyncio.sleep(0.001)
            waiting = [await ingest.enqueue(report(f"{number}")) for number in range(8)]
            with pytest.raises(OverloadedError):
                await ingest.enqueue(report("too many"))
            late = asyncio.create_task(ingest.add(report("late")))
            await asyncio.sleep(0.05)
            store.go.set()
            assert (await late).new == ("late",)
            await asyncio.gather(first, *waiting)
        assert "too many" not in store.stored

    run(test)


def test_closing_writes_what_is_queued_and_takes_no_more() -> None:
    async def test() -> None:
        store = SlowStore()
        store.go.clear()
        async with ingest_into(store) as ingest:
            waiting = [await ingest.enqueue(report(f"{number}")) for number in range(6)]
            closing = asyncio.create_task(ingest.close())
            await asyncio.sleep(0.02)
            with pytest.raises(UnavailableError):
                await ingest.enqueue(report("late"))
            store.go.set()
            await closing
            await asyncio.gather(*waiting)
        assert len(store.stored) == 6

    run(test)


def test_a_caller_that_gave_up_loses_nothing() -> None:
    async def test() -> None:
        store = SlowStore()
        store.go.clear()
        async with ingest_into(store) as ingest:
            adding = asyncio.create_task(ingest.add(report("a")))
            await asyncio.sleep(0.02)
            adding.cancel()
            await asyncio.gather(adding, return_exceptions=True)
            store.go.set()
            assert (await ingest.add(report("b"))).new == ("b",)
        assert store.stored == {"a", "b"}

    run(test)
