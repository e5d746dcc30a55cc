from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest
from kongming_agent.reporting.link import (
    MOST_ASSIGNMENTS,
    MOST_PROFILES,
    Beat,
    Link,
    Orders,
    Registration,
)
from kongming_agent.reporting.spool import Spool

from kongming.backoff import Backoff
from kongming.records.errors import UnavailableError
from kongming.rpc.v1 import fleet_pb2
from tests.agent.conftest import refused_records
from tests.agent.fleet import Fleet, serve
from tests.builders import fingerprint, node, run, signature

TIMES = {"memory.random.8M": 2e-8, "compute.int": 1e-9}


class FakeNode:
    """A node without anything behind it."""

    def __init__(self) -> None:
        self.orders: list[Orders] = []
        self.estimates: dict[int, object] = {}
        self.reference = fingerprint(TIMES)
        self.facts = node()

    def registration(self) -> Registration:
        return Registration(
            node=self.facts, agent_version="1", suite_version="2", references=(self.reference,)
        )

    def beat(self) -> Beat:
        return Beat(0.004, {"load1": 0.5}, dict(self.estimates))  # type: ignore[arg-type]

    def ordered(self, orders: Orders) -> None:
        self.orders.append(orders)


@contextmanager
def linked(
    address: str, spool: Spool, fake_node: FakeNode | None = None, least_heartbeat_s: float = 0.1
) -> Iterator[Link]:
    link = Link(
        lambda: grpc.insecure_channel(address),
        spool,
        fake_node or FakeNode(),
        timeout_s=5.0,
        longest_retry_s=0.2,
        rng=random.Random(1),
        server=address,
        least_heartbeat_s=least_heartbeat_s,
    )
    yield link
    link.close()


def test_everything_is_delivered_in_order_and_leaves_the_spool(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    added = []
    for _ in range(3):
        added += [fingerprint(TIMES), run("sort", 1.0, TIMES), signature("sort", TIMES)]
    for number in range(0, 9, 3):
        spool.add_fingerprint(added[number], "live", 0)  # type: ignore[arg-type]
        spool.add_run(added[number + 1])  # type: ignore[arg-type]
        spool.add_signature(added[number + 2])  # type: ignore[arg-type]
    with linked(address, spool) as link:
        link.step()
        assert link.connected
        assert link.delivered == {"fingerprint": 3, "run": 3, "signature": 3}
    assert [row[0] for row in servicer.stored()] == [each.id for each in added]
    assert spool.oldest() == []
    assert servicer.beats[0].probe_cost == 0.004
    assert servicer.beats[0].passive == {"load1": 0.5}


def test_a_large_spool_goes_out_in_batches(fleet: tuple[Fleet, str], spool: Spool) -> None:
    servicer, address = fleet
    for _ in range(150):
        spool.add_fingerprint(fingerprint(TIMES), "live", 0)
    with linked(address, spool) as link:
        link.step()
    sequences = [row[2] for row in servicer.stored()]
    assert sequences == sorted(sequences)
    assert len(sequences) == 150


def test_a_server_that_is_away_is_tried_again_and_nothing_is_lost(
    tmp_path: Path, spool: Spool
) -> None:
    first = Fleet(tmp_path / "fleet")
    server, port = serve(first)
    server.stop(None).wait()
    first.close()
    spooled = run("sort", 1.0)
    spool.add_run(spooled)
    with linked(f"127.0.0.1:{port}", spool) as link:
        assert 0.0 < link.step() <= 0.5
        assert not link.connected
        assert spool.counts()["run"] == 1
        again = Fleet(tmp_path / "fleet")
        server, _ = serve(again, port)
        assert link.flush(10.0)
        assert [row[0] for row in again.stored()] == [spooled.id]
        server.stop(None).wait()
        again.close()


def test_what_the_server_refuses_is_put_aside_and_the_rest_goes_on(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    runs = [run("sort", 1.0) for _ in range(3)]
    servicer.refuse = {runs[1].id}
    for each in runs:
        spool.add_run(each)
    with linked(address, spool) as link:
        link.step()
        assert link.refused == 1
    assert [row[0] for row in servicer.stored()] == [runs[0].id, runs[2].id]
    assert refused_records(spool) == [(runs[1].id, "run: refused")]


def test_what_was_measured_under_another_node_id_is_not_reported_as_this_nodes(
    fleet: tuple[Fleet, str], spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    servicer, address = fleet
    resized = node(id="node-2")
    earlier = [run("sort", 1.0), signature("sort", TIMES)]
    for _ in range(100):
        spool.add_fingerprint(fingerprint(TIMES), "live", 0)
    spool.add_run(earlier[0])  # type: ignore[arg-type]
    spool.add_signature(earlier[1])  # type: ignore[arg-type]
    later = [fingerprint(TIMES, node=resized), run("sort", 1.0, node_id="node-2")]
    spool.add_fingerprint(later[0], "live", 0)  # type: ignore[arg-type]
    spool.add_run(later[1])  # type: ignore[arg-type]
    fake_node = FakeNode()
    fake_node.facts = resized
    with linked(address, spool, fake_node) as link:
        link.step()
        assert link.connected
        assert (link.other_nodes, link.refused) == (102, 0)
    assert [row[0] for row in servicer.stored()] == [each.id for each in later]
    assert [id for id, _ in refused_records(spool)] == [each.id for each in earlier]
    (message,) = [r.getMessage() for r in caplog.records if "will not be" in r.getMessage()]
    assert message.startswith("102 records of the node node-1 will not be delivered")


def test_what_is_measured_under_a_new_id_waits_for_its_registration(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    fake_node = FakeNode()
    before, after = fingerprint(TIMES), fingerprint(TIMES, node=node(id="node-2"))
    registration = fake_node.registration

    def changing() -> Registration:
        """The node changes right after it was read."""
        answer = registration()
        if fake_node.facts != after.node:
            fake_node.facts = after.node
            spool.add_fingerprint(after, "live", 0)
        return answer

    fake_node.registration = changing  # type: ignore[method-assign]
    spool.add_fingerprint(before, "live", 0)
    with linked(address, spool, fake_node) as link:
        link.step()
        link.step()
        assert link.other_nodes == 1
    assert [row[0] for row in servicer.stored()] == [after.id]
    assert [each.node.id for each in servicer.registered] == ["node-1", "node-2"]


def test_fingerprints_of_an_older_agents_spool_are_delivered(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    spooled = fingerprint(TIMES)
    spool.add_fingerprint(spooled, "live", 0)
    with closing(sqlite3.connect(spool.path)) as database, database:
        ((body,),) = database.execute("SELECT body FROM records").fetchall()
        message = fleet_pb2.ReportedFingerprint.FromString(body)
        message.fingerprint.ClearField("node")
        database.execute("UPDATE records SET body = ?", (message.SerializeToString(),))
    with linked(address, spool) as link:
        link.step()
    assert [row[0] for row in servicer.stored()] == [spooled.id]


def test_one_record_that_spoils_a_call_does_not_hold_up_the_others(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    servicer.broken = "odd"
    runs = [run("sort", 1.0), run("odd", 1.0), run("sort", 1.0)]
    for each in runs:
        spool.add_run(each)
    with linked(address, spool) as link:
        link.step()
        assert link.connected
    assert [row[0] for row in servicer.stored()] == [runs[0].id, runs[2].id]
    ((id, reason),) = refused_records(spool)
    assert id == runs[1].id
    assert "implausible" in reason


def test_a_record_that_the_server_never_copes_with_does_not_hold_up_the_others_for_ever(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    servicer.crashing = "odd"
    runs = [run("sort", 1.0), run("odd", 1.0), run("sort", 1.0)]
    for each in runs:
        spool.add_run(each)
    with linked(address, spool) as link:
        link.step()
        # It may have been the server: nothing is given up yet.
        assert not refused_records(spool)
        for _ in range(20):
            link.step()
        assert link.connected
    assert [row[0] for row in servicer.stored()] == [runs[0].id, runs[2].id]
    ((id, _),) = refused_records(spool)
    assert id == runs[1].id


@pytest.mark.parametrize(
    ("column", "value"),
    [("body", b"\xff\xff"), ("body", b""), ("body", 7), ("body", ""), ("kind", "signature")],
)
def test_a_damaged_record_is_put_aside_and_holds_up_no_other(
    fleet: tuple[Fleet, str], spool: Spool, column: str, value: object
) -> None:
    servicer, address = fleet
    runs = [run("sort", 1.0) for _ in range(3)]
    for each in runs:
        spool.add_run(each)
    with closing(sqlite3.connect(spool.path)) as database, database:
        database.execute(f"UPDATE records SET {column} = ? WHERE id = ?", (value, runs[1].id))
    with linked(address, spool) as link:
        link.step()
        assert link.connected
    assert [row[0] for row in servicer.stored()] == [runs[0].id, runs[2].id]
    ((id, reason),) = refused_records(spool)
    assert id == runs[1].id
    assert "damaged" in reason


def test_an_impossible_acknowledgement_changes_no_number(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    servicer.acknowledged = 2**63 - 1
    spool.add_run(run("sort", 1.0))
    with linked(address, spool) as link:
        link.step()
        assert link.connected
    assert [row[2] for row in servicer.stored()] == [1]


def test_the_thread_survives_what_nobody_foresaw(fleet: tuple[Fleet, str], spool: Spool) -> None:
    servicer, address = fleet
    fake_node = FakeNode()
    failures = iter([OverflowError, ValueError])

    def beat() -> Beat:
        for failure in failures:
            raise failure("unforeseen")
        return Beat(0.004, {})

    fake_node.beat = beat  # type: ignore[method-assign]
    spool.add_run(run("sort", 1.0))
    stopping = threading.Event()
    with linked(address, spool, fake_node) as link:
        thread = threading.Thread(target=link.run, args=(stopping,))
        thread.start()
        deadline = time.monotonic() + 60.0
        while not servicer.beats and time.monotonic() < deadline:
            link.wake()
            time.sleep(0.01)
        stopping.set()
        link.wake()
        thread.join(60.0)
    assert servicer.beats
    assert link.failures >= 2


class Waits(threading.Event):
    """An event that keeps how long it was waited for, and is set at the ``last`` time."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.delays_s: list[float | None] = []
        self._last = last

    def wait(self, timeout: float | None = None) -> bool:
        self.delays_s.append(timeout)
        if len(self.delays_s) == self._last:
            self.set()
        return self.is_set()


def test_new_records_do_not_hurry_a_server_that_is_away(spool: Spool) -> None:
    stopping = Waits(last=4)
    attempts = 0

    def channel() -> grpc.Channel:
        nonlocal attempts
        attempts += 1
        # A record comes during each attempt. Where it hurried the next, nothing would end them.
        link.wake()
        if attempts == 20:
            stopping.set()
        raise UnavailableError("It is away.")

    link = Link(
        channel, spool, FakeNode(), timeout_s=1.0, longest_retry_s=60.0, rng=random.Random(1)
    )
    link.run(stopping)
    assert attempts == len(stopping.delays_s) == 4
    # Of half a second, doubled after each failure, and half of it random.
    least_s = (0.25, 0.5, 1.0, 2.0)
    assert all(s <= (d or 0.0) for s, d in zip(least_s, stopping.delays_s, strict=True))


def test_it_registers_again_when_the_reference_changed_or_the_server_forgot(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    fake_node = FakeNode()
    with linked(address, spool, fake_node) as link:
        link.step()
        link.step()
        assert len(servicer.registered) == 1
        fake_node.reference = fingerprint({"compute.int": 2e-9})
        link.step()
        assert len(servicer.registered) == 2
        assert servicer.registered[-1].references[0].id == fake_node.reference.id
        servicer.forget()
        spool.add_run(run("sort", 1.0))
        assert link.flush(5.0)
        assert len(servicer.registered) == 3
        servicer.orders = fleet_pb2.Instructions(register_again=True)
        time.sleep(0.25)
        link.step()
        link.step()
        assert len(servicer.registered) == 4


def test_a_reference_that_is_refused_does_not_hold_the_runs_back(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    servicer.refuses_references = True
    spooled = run("sort", 1.0)
    spool.add_run(spooled)
    with linked(address, spool) as link:
        link.step()
        assert link.connected
    assert [row[0] for row in servicer.stored()] == [spooled.id]
    assert not servicer.registered[0].references


def test_orders_reach_the_node(fleet: tuple[Fleet, str], spool: Spool) -> None:
    servicer, address = fleet
    servicer.orders = fleet_pb2.Instructions(
        profile_apps=["sort"],
        probe_now=True,
        assignment_ids=["job-1"],
    )
    fake_node = FakeNode()
    with linked(address, spool, fake_node) as link:
        link.step()
    assert fake_node.orders == [
        Orders(("sort",), True, frozenset({"job-1"})),
    ]


def test_a_server_cannot_have_the_agent_speak_more_often_than_its_settings_allow(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    servicer.heartbeat_s = 0.001
    again = fleet_pb2.Instructions(register_again=True)
    servicer.orders = again
    with linked(address, spool, least_heartbeat_s=60.0) as link:
        link.step()
        # Once at once, as a server requests that was started anew.
        servicer.orders = again
        link.step()
        assert (len(servicer.registered), len(servicer.beats)) == (2, 2)
        for _ in range(5):
            servicer.orders = again
            assert link.step() > 30.0
    assert (len(servicer.registered), len(servicer.beats)) == (2, 2)


def test_orders_without_end_are_cut(
    fleet: tuple[Fleet, str], spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    servicer, address = fleet
    fake_node = FakeNode()
    with linked(address, spool, fake_node) as link:
        for _ in range(2):
            servicer.orders = fleet_pb2.Instructions(
                profile_apps=["x" * 300, *(f"app-{n}" for n in range(2000))],
                assignment_ids=[f"job-{n}" for n in range(10000)],
            )
            time.sleep(0.25)
            link.step()
    for orders in fake_node.orders:
        assert 0 < len(orders.profile_apps) <= MOST_PROFILES
        assert len(orders.assignment_ids) == MOST_ASSIGNMENTS
        assert all(len(name) < 300 for name in orders.profile_apps)
    assert sum("not looked at" in line for line in caplog.messages) == 1


def test_estimates_are_sent_without_a_place_in_the_spool(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    fake_node = FakeNode()
    fake_node.estimates = {1: fingerprint(TIMES)}
    with linked(address, spool, fake_node) as link:
        link.step()
    assert [(each.sequence, each.domain) for each in servicer.estimates] == [(0, 1)]
    assert servicer.stored() == []


def test_a_heartbeat_goes_with_a_fingerprint(fleet: tuple[Fleet, str], spool: Spool) -> None:
    servicer, address = fleet
    servicer.heartbeat_s = 60.0
    with linked(address, spool) as link:
        for _ in range(3):
            spool.add_fingerprint(fingerprint(TIMES), "live", 0)
            link.step()
    assert servicer.reports == len(servicer.beats) == 3
    assert [beat.spooled for beat in servicer.beats] == [0, 0, 0]


def test_a_spool_that_was_lost_does_not_repeat_numbers_that_the_server_has_seen(
    fleet: tuple[Fleet, str], spool: Spool
) -> None:
    servicer, address = fleet
    servicer.acknowledged = 500
    spool.add_run(run("sort", 1.0))
    with linked(address, spool) as link:
        link.step()
    assert [row[2] for row in servicer.stored()] == [501]


def test_a_repeat_after_a_lost_answer_is_one_record(
    fleet: tuple[Fleet, str], spool: Spool, tmp_path: Path
) -> None:
    servicer, address = fleet
    spooled = run("sort", 1.0)
    spool.add_run(spooled)
    with linked(address, spool) as link:
        link.step()
    other = Spool(tmp_path / "copy.db")
    other.add_run(spooled)
    with linked(address, other) as link:
        link.step()
    other.close()
    assert [row[0] for row in servicer.stored()] == [spooled.id]


@pytest.mark.parametrize("seed", range(5))
def test_waits_grow_to_their_bound_and_are_drawn(seed: int) -> None:
    backoff = Backoff(0.5, 60.0, random.Random(seed))
    waits = [backoff.after_failure() for _ in range(12)]
    assert all(0.25 <= wait <= 60.0 for wait in waits)
    assert waits[0] <= 0.5
    assert min(waits[-3:]) >= 30.0
    assert len(set(waits)) == len(waits)
    backoff.after_success()
    assert backoff.after_failure() <= 0.5
