"""Which runs found their files evicted from the page cache, and which read as they always do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.evaluate.predicted_pairs import Scale, measured_pairs
from kongming.learning.dataset import build
from kongming.records import control, eviction
from kongming.records.judging import judge, learned_from
from kongming.records.run import LoadLevel, Run, Usage
from tests import builders

MIB = 1 << 20

TIMES = {"compute.int": 2e-9, "memory.random.8M": 3e-8}

BYTES = st.integers(0, 1 << 34)
SECONDS = st.floats(0.1, 100.0)


def run(read_bytes: int, wall_s: float = 2.0, app: str = "a", **changes: object) -> Run:
    usual = builders.run(app, wall_s, TIMES, campaign="c", usage=Usage(read_bytes=read_bytes))
    return replace(usual, **changes)


def runs_of(read: Sequence[int], wall_s: float = 2.0, app: str = "a") -> list[Run]:
    return [run(read_bytes, wall_s, app) for read_bytes in read]


def test_a_run_that_reads_what_is_cached_otherwise_is_marked() -> None:
    runs = runs_of([0, MIB, 0, 100 * MIB])
    assert control.evicted(runs) == {runs[3].id}
    # 100 MiB at the assumed rate are 0.78 of 2 seconds.
    share = 100 * MIB / eviction.BYTES_PER_S / 2.0
    assert eviction.excesses(runs)[runs[3].id] == pytest.approx(-math.log(1.0 - share))


@pytest.mark.parametrize(
    "read",
    [
        pytest.param([512 * MIB] * 5, id="always from the device"),
        pytest.param([100 * MIB, 120 * MIB, 290 * MIB, 110 * MIB], id="not three times the usual"),
        pytest.param([0, 0, 0, 20 * MIB], id="too little for its time"),
        pytest.param([0, 0, 100 * MIB], id="too few others"),
        pytest.param([0, 0, 100 * MIB, 100 * MIB, 100 * MIB], id="mostly"),
    ],
)
def test_a_run_that_reads_as_its_program_does_is_not(read: list[int]) -> None:
    assert control.evicted(runs_of(read)) == frozenset()


def test_runs_are_compared_within_one_program_and_campaign() -> None:
    cold = run(100 * MIB)
    assert control.evicted([*runs_of([0, 0, 0]), cold]) == {cold.id}
    assert control.evicted([*runs_of([0, 0, 0], app="b"), cold]) == frozenset()
    elsewhere = replace(cold, campaign="another")
    assert control.evicted([*runs_of([0, 0, 0]), elsewhere]) == frozenset()


def test_a_neighbour_that_takes_the_page_cache_each_time_is_not_chance() -> None:
    alone = runs_of([0] * 8)
    pair = [run(100 * MIB, kind="corun", neighbours=("b",)) for _ in range(3)]
    assert control.evicted([*alone, *pair]) == frozenset()
    mixed = [pair[0], *(run(0, kind="corun", neighbours=("b",)) for _ in range(2))]
    assert control.evicted([*alone, *mixed]) == {pair[0].id}


def test_an_environment_may_leave_no_memory_for_files() -> None:
    tight = run(100 * MIB, kind="environment", config={"environment": "memory-64M"})
    assert control.evicted([*runs_of([0] * 5), tight]) == frozenset()


def test_runs_without_what_they_read_stay_unmarked() -> None:
    assert control.evicted([replace(each, usage=Usage()) for each in runs_of([0] * 9)]) == set()


@pytest.mark.parametrize("placement", ["cross-core", "same-core"])
def test_training_leaves_out_what_was_evicted(placement: str) -> None:
    load = (LoadLevel("stream.triad", "memory"),)
    runs = [
        run(size, placement=placement, levels=levels, kind="induced" if levels else "solo")
        for size, levels in [(0, ()), (0, ()), (0, ()), (0, load), (100 * MIB, ())]
    ]
    runs[3] = replace(
        runs[3], fingerprint=builders.fingerprint({**TIMES, "memory.random.8M": 1e-7})
    )
    assert control.left_out(runs) == {runs[4].id}
    assert learned_from(runs) == runs[:4]
    assert [(each.name, each.reason) for each in build(runs).dropped_runs] == [
        (runs[4].id, "was disturbed: its files had left the page cache")
    ]
    judgement = judge(runs)
    assert judgement.left_out_runs == 1
    assert "1 run is left out of training, as it was disturbed" in str(judgement)


@pytest.mark.parametrize("placement", ["cross-core", "same-core"])
def test_scores_of_pairs_leave_out_what_was_evicted(placement: str) -> None:
    coruns = [run(read, kind="corun", neighbours=("b",)) for read in (0, 100 * MIB, 0, 0)]
    runs = [replace(each, placement=placement) for each in [*runs_of([0] * 3), *coruns]]
    (pair,) = measured_pairs(runs, [("a", "b")], Scale("raw", {"a": 1.0}))
    assert pair.marked == (False, True, False, False)
    (usual,) = measured_pairs(
        [replace(each, usage=Usage()) for each in runs], [("a", "b")], Scale("raw", {"a": 1.0})
    )
    # Nothing was read around these runs, so nothing is known of them.
    assert usual.marked == ()


def test_a_machine_that_evicts_often_leaves_nothing_out_and_its_verdict_says_so() -> None:
    runs = runs_of([0] * 5 + [100 * MIB] * 3)
    assert len(control.evicted(runs)) == 3
    assert control.left_out(runs) == frozenset()
    assert "its files had left the page cache before 3 of 8 runs" in str(judge(runs))


def test_each_control_leaves_out_what_it_found() -> None:
    slow = {**TIMES, "compute.int": 4e-9}
    quiet, disturbed = builders.fingerprint(TIMES), builders.fingerprint(slow)
    runs = [replace(each, before=quiet, after=quiet) for each in runs_of([0] * 8)]
    runs[0] = replace(runs[0], before=disturbed, after=disturbed)
    runs[1] = replace(runs[1], usage=Usage(read_bytes=100 * MIB))
    assert control.left_out(runs) == {runs[0].id, runs[1].id}


def test_the_watch_marks_the_newest_run_until_its_load_is_to_blame() -> None:
    watch = control.Watch("same-core")
    assert [watch.excess_of("alone", run(0)) for _ in range(3)] == [0.0] * 3
    cold = [run(100 * MIB, kind="corun", neighbours=("b",)) for _ in range(2)]
    assert watch.excess_of("b", cold[0]) > control.LIMIT
    # Taken again it reads as much: the neighbour does that.
    assert watch.excess_of("b", cold[1]) == 0.0
    assert watch.excess_of("alone", run(100 * MIB)) > control.LIMIT


def test_the_watch_counts_arithmetic_as_well() -> None:
    watch = control.Watch("cross-core")
    quiet = builders.fingerprint(TIMES)
    slow = builders.fingerprint({**TIMES, "compute.int": 4e-9})
    runs = [replace(each, before=quiet, after=quiet) for each in runs_of([0] * 3)]
    assert [watch.excess_of("alone", each) for each in runs] == [0.0] * 3
    assert watch.excess_of("alone", replace(run(0), before=slow, after=slow)) > control.LIMIT


@given(st.lists(st.tuples(BYTES, SECONDS), max_size=12), st.lists(SECONDS, max_size=12))
def test_programs_do_not_mark_each_other(
    ours: list[tuple[int, float]], theirs: list[float]
) -> None:
    """Least of all one that reads nothing."""
    mine = [run(read, wall_s) for read, wall_s in ours]
    other = [run(0, wall_s, "b") for wall_s in theirs]
    assert control.evicted([*mine, *other]) == control.evicted(mine)


@given(st.lists(st.tuples(BYTES, SECONDS), min_size=4, max_size=12), st.integers(1, 8))
def test_twice_the_bytes_in_twice_the_time_is_the_same(
    sizes: list[tuple[int, float]], factor: int
) -> None:
    runs = [run(read, wall_s) for read, wall_s in sizes]
    larger = [
        replace(
            each,
            wall_s=factor * each.wall_s,
            usage=Usage(read_bytes=factor * each.usage.read_bytes),
        )
        for each in runs
    ]
    before, after = eviction.excesses(runs), eviction.excesses(larger)
    assert before.keys() == after.keys()
    assert all(after[run_id] == pytest.approx(value) for run_id, value in before.items())


@given(st.lists(BYTES, min_size=1, max_size=15))
def test_most_runs_are_never_marked(read: list[int]) -> None:
    runs = runs_of(read)
    marked = control.evicted(runs)
    assert 2 * len(marked) <= len(runs)
    assert marked == control.evicted(runs[::-1])
    assert all(each.usage.read_bytes > 0 for each in runs if each.id in marked)


LEVEL = (LoadLevel("stream.triad", "memory"),)


def test_a_load_that_is_seen_once_may_itself_take_the_page_cache() -> None:
    runs = [*runs_of([0] * 6), run(400 * MIB, 6.0, kind="induced", levels=LEVEL)]
    assert control.evicted(runs) == frozenset()
    # While measuring a second run decides.
    watch = control.Watch("cross-core")
    assert [watch.excess_of((), each) > control.LIMIT for each in runs] == [False] * 6 + [True]
    again = run(400 * MIB, 6.0, kind="induced", levels=LEVEL)
    assert watch.excess_of(LEVEL, again) == 0.0


@pytest.mark.parametrize("changes", [{"error": "killed"}, {"passive": {"cut_off": 1.0}}])
def test_a_run_that_came_to_its_end_is_kept_for_one_that_did_not(
    changes: dict[str, object],
) -> None:
    disturbed, unfinished = run(400 * MIB, 6.0), run(0, 0.3, **changes)
    assert control.least_disturbed([(0.4, disturbed), (0.0, unfinished)]) is disturbed
    assert control.least_disturbed([(0.4, unfinished)]) is unfinished


def test_the_verdict_counts_what_training_counts() -> None:
    runs = [*runs_of([0] * 8), *runs_of([200 * MIB] * 3), run(0, error="killed")]
    judgement = judge(runs)
    assert "its files had left the page cache before 3 of 11 runs" in str(judgement)
    assert judgement.left_out_runs == 0
