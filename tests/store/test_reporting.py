"""What agents deliver is taken once, in any order, and comes out as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kongming import Fingerprint, Reading
from kongming.records.errors import StoreError
from kongming.records.quantity import LARGEST
from kongming.store import Reported, Store, schema
from tests import builders

TIMES = {"memory.random.1K": 1.2e-9, "stream.triad": 3e-9}


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store.open(store_url) as opened:
        yield opened


def live(node_id: str = "node-1", times: dict[str, float] = TIMES, **changes: Any) -> Fingerprint:
    node = builders.node(id=node_id, name=node_id)
    return builders.fingerprint(times, node=node, suite="quick", **changes)


def reported(*records: Any, purpose: str = "live", first: int = 1) -> list[Reported]:
    return [
        Reported(r.node.id if isinstance(r, Fingerprint) else r.node_id, first + place, r, purpose)
        for place, r in enumerate(records)
    ]


def test_a_batch_of_many_nodes_is_kept_whole(store: Store) -> None:
    prints = [live(f"node-{number % 3}") for number in range(9)]
    run = builders.run("sort", 2.5, TIMES, before=builders.fingerprint(TIMES), node_id="node-1")
    signature = builders.signature("sort", TIMES)
    accepted = store.add_reported(reported(*prints, run, signature))
    assert accepted.new == tuple(r.id for r in (*prints, run, signature))
    assert accepted.duplicates == accepted.refused == ()
    assert {p.id: p for p in store.fingerprints(purpose="live")} == {p.id: p for p in prints}
    assert store.runs() == [run]
    assert store.signatures() == [signature]
    assert store.latest_fingerprints() == prints[-3:]
    assert store.latest_fingerprints(["node-2", "node-9"]) == [prints[-1]]
    assert [store.acknowledged(f"node-{number}") for number in range(4)] == [7, 11, 9, 0]


def test_an_id_of_one_node_hides_none_of_another(store: Store) -> None:
    mine = [live("node-1", id="p"), builders.run("sort", 1.0, TIMES, node_id="node-1", id="r")]
    theirs = [live("node-2", id="p"), builders.run("hog", 9.0, node_id="node-2", id="r")]
    assert store.add_reported(reported(*theirs)).new == ("p", "r")
    assert store.add_reported(reported(*mine)).new == ("p", "r")
    assert store.latest_fingerprints() == [mine[0], theirs[0]]
    assert {run.app for run in store.runs()} == {"sort", "hog"}
    again = store.add_reported(reported(*mine, *theirs))
    assert (again.new, again.duplicates) == ((), ("p", "r", "p", "r"))
    # Nor where both come at once; and no pair of ids looks like another one.
    both = [live("a", id="1:b:c"), live("a:1", id="b:c"), live("a", id="q"), live("b", id="q")]
    accepted = store.add_reported(reported(*both))
    assert (len(accepted.new), len(accepted.rows)) == (4, 4)


def test_duplicates_change_nothing(store: Store) -> None:
    batch = reported(live(), builders.run("sort", 1.0, TIMES), builders.signature("a", TIMES))
    ids = tuple(entry.record.id for entry in batch)
    assert store.add_reported(batch).new == ids
    before = (store.last_change(), store.runs(), store.fingerprints())
    again = store.add_reported(batch + batch)
    assert (again.new, again.duplicates, again.ids) == ((), ids, ids)
    assert (store.last_change(), store.runs(), store.fingerprints()) == before
    other = live()
    twice = store.add_reported(reported(other, other))
    assert (twice.new, twice.duplicates) == ((other.id,), ())


def test_what_cannot_be_kept_is_refused_and_the_rest_is_kept(store: Store) -> None:
    good, bad = live(), live()
    batch = [*reported(bad, purpose="liv"), *reported(good, first=2)]
    accepted = store.add_reported(batch)
    assert accepted.new == (good.id,)
    assert [refusal.id for refusal in accepted.refused] == [bad.id]
    assert "live" in accepted.refused[0].message
    assert store.fingerprints() == [good]


def test_reordered_and_older_ones_do_not_replace_the_latest(store: Store) -> None:
    first, second, third = live(), live(), live()
    other_cpu = live(cpu=1)
    for fingerprint in (second, third, first):
        store.add_reported(reported(fingerprint))
    store.add_reported(reported(other_cpu))
    assert store.latest_fingerprints() == [third, other_cpu]


def test_a_clock_that_was_ahead_does_not_block_what_follows(store: Store) -> None:
    wrong = live(started_at="2999-01-01T00:00:00Z")
    right = live()
    store.add_reported(reported(wrong))
    store.add_reported(reported(right))
    assert store.latest_fingerprints() == [right]


def test_a_reference_that_is_reported_becomes_the_reference(store: Store) -> None:
    idle = live(cpu=1)
    store.add_reported(reported(idle, purpose="reference"))
    [reference] = store.references(node_id="node-1")
    assert (reference.cpu, reference.times, reference.readings) == (1, TIMES, 1)
    assert store.latest_fingerprints() == []


def test_a_failed_reading_keeps_its_reason(store: Store) -> None:
    failed = Reading(name="iobench.read", family="read", op="one block", error="no space left")
    partial = builders.reading("stream.triad", 1e-9, partial=True, direct=True, size_bytes=4096)
    given = live(warnings=("buffered",))
    given = type(given).from_dict(given.to_dict() | {"id": "f-1"})
    changed = {"surrogates": {"iobench.read": failed, "stream.triad": partial}}
    fingerprint = builders.fingerprint({}, **changed, warnings=("buffered",), id="f-2")
    store.add_reported(reported(given, fingerprint))
    assert {print_.id: print_ for print_ in store.fingerprints()} == {
        "f-1": given,
        "f-2": fingerprint,
    }


def test_what_a_control_group_counts_makes_no_new_facts(store: Store) -> None:
    prints = [
        builders.fingerprint(
            TIMES,
            node=builders.node(cgroup={"version": 2, "nr_throttled": n, "throttled_us": 10 * n}),
        )
        for n in range(5)
    ]
    store.add_reported(reported(*prints))
    assert store.fingerprints() == prints[::-1]
    with store._reading() as connection:
        parts = connection.execute(schema.part.select()).all()
    assert len(parts) == 3


def test_two_stores_read_what_the_other_wrote(store: Store, store_url: str) -> None:
    with Store.open(store_url) as other:
        for _ in range(3):
            mine, theirs = live(), live()
            store.add_reported(reported(mine))
            other.add_reported(reported(theirs))
            assert other.fingerprints(limit=2) == store.fingerprints(limit=2) == [theirs, mine]


def test_a_part_that_is_lost_is_reported(store: Store, store_url: str) -> None:
    store.add_reported(reported(live()))
    with store._writing() as connection:
        connection.execute(schema.part.delete())
    with Store.open(store_url) as other, pytest.raises(StoreError, match="lost part"):
        other.latest_fingerprints()


NUMBERS = st.floats(min_value=1e-12, max_value=1e3)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)


@settings(
    max_examples=2 * settings.default.max_examples // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    times=st.dictionaries(NAMES, NUMBERS, max_size=4),
    passive=st.dictionaries(NAMES, st.floats(-LARGEST, LARGEST), max_size=4),
    cgroup=st.dictionaries(
        st.sampled_from(["version", "nr_periods", "throttled_us", "cpus"]), st.integers(0, 9)
    ),
)
def test_any_fingerprint_comes_out_as_it_went_in(
    store: Store, times: dict[str, float], passive: dict[str, float], cgroup: dict[str, int]
) -> None:
    fingerprint = builders.fingerprint(
        times, passive=passive, node=builders.node(cgroup=cgroup), cpu=3
    )
    store.add_reported(reported(fingerprint))
    assert [p for p in store.fingerprints() if p.id == fingerprint.id] == [fingerprint]
