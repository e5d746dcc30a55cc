from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.probes.aggregation import Chunk, aggregate

# No processor takes less than 1 ps for an operation.
batch = st.tuples(st.integers(1, 10**6), st.integers(1, 10**9)).map(
    lambda timed: (timed[0], max(timed[1], timed[0] // 500 + 1))
)
batches = st.lists(batch, min_size=1, max_size=20)


@st.composite
def chunk(draw: st.DrawFn) -> Chunk:
    timed = draw(batches)
    start = draw(st.integers(0, 10**12))
    total = sum(ns for _, ns in timed)
    return Chunk(
        name=draw(st.sampled_from(["a", "b"])),
        start_ns=start,
        end_ns=start + total + draw(st.integers(0, 1000)),
        ops=float(sum(ops for ops, _ in timed)),
        ns=total,
        batches=tuple((float(ops), ns) for ops, ns in timed),
        partial=draw(st.booleans()),
    )


chunks = st.lists(chunk(), min_size=1, max_size=12)


@given(chunks)
def test_mean_is_all_time_over_all_operations(seen: list[Chunk]) -> None:
    for name, reading in aggregate(seen).items():
        mine = [entry for entry in seen if entry.name == name]
        expected = sum(entry.ns for entry in mine) / sum(entry.ops for entry in mine) * 1e-9
        assert reading.seconds_per_op == pytest.approx(expected)
        assert reading.n == sum(len(entry.batches) for entry in mine)
        assert reading.partial == any(entry.partial for entry in mine)


@given(chunks)
def test_quantiles_lie_within_the_batches(seen: list[Chunk]) -> None:
    for name, reading in aggregate(seen).items():
        costs = [
            ns / ops * 1e-9 for entry in seen if entry.name == name for ops, ns in entry.batches
        ]
        assert reading.median is not None
        assert reading.p90 is not None
        assert min(costs) <= reading.median <= reading.p90 <= max(costs)


@given(chunks, st.randoms(use_true_random=False))
def test_order_does_not_matter(seen: list[Chunk], shuffler: random.Random) -> None:
    shuffled = list(seen)
    shuffler.shuffle(shuffled)
    assert aggregate(shuffled) == aggregate(seen)


@given(chunks, st.integers(0, 10**12), st.integers(0, 10**12))
def test_windows_drop_what_straddles(seen: list[Chunk], start: int, length: int) -> None:
    window = (start, start + length)
    inside = [entry for entry in seen if start <= entry.start_ns and entry.end_ns <= start + length]
    assert aggregate(seen, [window]) == aggregate(inside)


def test_adjacent_windows_do_not_join() -> None:
    straddling = Chunk("a", 5, 15, 1.0, 10, ((1.0, 10),))
    assert aggregate([straddling], [(0, 10), (10, 20)]) == {}
    assert set(aggregate([straddling], [(0, 10), (4, 20)])) == {"a"}


@pytest.mark.parametrize(
    ("ops", "ns"), [(0.0, 10), (-1.0, 10), (1.0, 0), (1.0, -5), (float("nan"), 10)]
)
def test_what_cannot_be_true_is_a_reading_with_the_reason(ops: float, ns: int) -> None:
    reading = aggregate([Chunk("a", 0, 10, ops, ns, ())])["a"]
    assert not reading.ok
    assert "implausible" in (reading.error or "")


def test_sound_chunks_count_beside_one_that_is_not() -> None:
    sound = Chunk("a", 0, 10, 10.0, 100, ((10.0, 100),))
    reading = aggregate([Chunk("a", 0, 10, 0.0, 10, ()), sound])["a"]
    assert reading.seconds_per_op == pytest.approx(10e-9)


def test_part_of_a_block_costs_what_the_whole_would() -> None:
    piece = Chunk("a", 0, 10, 0.0625, 1_000_000, ((0.0625, 1_000_000),), partial=True)
    reading = aggregate([piece])["a"]
    assert reading.seconds_per_op == pytest.approx(0.016)
    assert reading.partial
    assert reading.ops == 0


def test_direct_only_if_all_of_it_was() -> None:
    def block(direct: bool | None) -> Chunk:
        return Chunk("a", 0, 10, 1.0, 10, ((1.0, 10),), direct=direct)

    assert aggregate([block(True), block(False)])["a"].direct is False
    assert aggregate([block(True)])["a"].direct is True
    assert aggregate([block(None)])["a"].direct is None


def test_a_time_that_no_processor_reaches_is_a_failed_reading() -> None:
    fast = Chunk("a", start_ns=0, end_ns=1, ops=1e9, ns=1, batches=((1e9, 1),))
    reading = aggregate([fast])["a"]
    assert not reading.ok
    assert "faster than any processor" in (reading.error or "")
