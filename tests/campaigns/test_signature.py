"""Which surrogates a signature has readings of by now, and how it ends when the program fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.probes.aggregation import Chunk, aggregate
from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite
from kongming.profiling.plans.placement import choose
from kongming.profiling.plans.steps import SIGNATURE_ITERATIONS
from kongming.profiling.runs.runner import open_runner
from kongming.profiling.runs.signature import (
    SHORTEST_SLICE_S,
    covered,
    joined,
    slice_seconds,
    take_signature,
)
from kongming.profiling.site import Site
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError

moments = st.integers(0, 60)
spans = st.tuples(moments, moments).map(lambda pair: (min(pair), max(pair)))
chunks = st.builds(
    lambda name, span: Chunk(name, *span, ops=1.0, ns=1, batches=((1.0, 1),)),
    st.sampled_from("abc"),
    spans,
)


def chunk(name: str, start: int, end: int) -> Chunk:
    return Chunk(name, start, end, ops=10.0, ns=end - start, batches=((10.0, end - start),))


def test_only_what_lies_wholly_inside_one_iteration_counts() -> None:
    windows = [(10, 20), (25, 40)]
    inside = [chunk("start", 10, 12), chunk("end", 35, 40), chunk("whole", 10, 20)]
    across = [chunk("before", 9, 12), chunk("gap", 20, 25), chunk("both", 15, 30)]
    assert covered([*inside, *across], windows) == {"start", "end", "whole"}
    assert covered(inside, []) == frozenset()
    assert covered([], windows) == frozenset()


@given(st.lists(chunks), st.lists(spans), st.lists(spans))
def test_more_iterations_never_cover_less(
    seen: list[Chunk], windows: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    assert covered(seen, windows) <= covered(seen, [*windows, *more])
    assert covered(seen, [*windows, *more]) == covered(seen, windows) | covered(seen, more)


@given(st.lists(chunks), st.lists(spans))
def test_what_is_covered_is_what_gets_a_reading(
    seen: list[Chunk], windows: list[tuple[int, int]]
) -> None:
    assert covered(seen, windows) == set(aggregate(seen, windows))


NAMES = ("compute.int", "os.syscall")


def here(folder: Path) -> Site:
    node = node_facts()
    suite = load_suite(node, folder)
    return Site(node, suite, "same-core", choose(node, "same-core"), folder)


@pytest.mark.alone
@pytest.mark.real
def test_it_is_taken_over_whole_iterations(tmp_path: Path) -> None:
    site = here(tmp_path)
    app = Application(name="a", command="sleep 0.7")
    with open_runner(app, tmp_path) as runner:
        fingerprint, iterations = take_signature(
            runner, site, NAMES, suite="quick", iteration_s=0.7
        )
    low, high = SIGNATURE_ITERATIONS
    assert iterations >= low
    # On a busy machine a slice may lie inside no iteration, however long the program is looped.
    assert set(fingerprint.times()) == set(NAMES) or (fingerprint.times() and iterations >= high)
    assert fingerprint.cpu == site.app_cpus[0]


@pytest.mark.real
def test_a_program_that_fails_while_it_loops_has_none(tmp_path: Path) -> None:
    command = "echo x >> {dir}/n; echo no third time; sleep 0.1; test $(wc -l < {dir}/n) -lt 3"
    app = Application(name="a", command=command)
    with (
        open_runner(app, tmp_path) as runner,
        pytest.raises(ApplicationRunError, match=r"(?s)a failed .*exit status 1.*no third time"),
    ):
        take_signature(runner, here(tmp_path), NAMES, suite="quick", iteration_s=0.1)


@given(st.floats(0.01, 100.0), st.integers(1, 60), st.floats(0.005, 0.1))
def test_slices_are_the_usual_ones_unless_the_program_is_short(
    iteration_s: float, surrogates: int, usual: float
) -> None:
    chosen = slice_seconds(usual, iteration_s, surrogates)
    assert min(usual, SHORTEST_SLICE_S) <= chosen <= usual
    if SIGNATURE_ITERATIONS[0] * iteration_s >= 2 * surrogates * usual:
        assert chosen == pytest.approx(usual)


@given(st.lists(spans, max_size=8), st.integers(0, 10))
def test_joined_windows_hold_the_same_and_small_gaps_only(
    drawn: list[tuple[int, int]], gap: int
) -> None:
    windows, start = [], 0
    for low, high in drawn:
        windows.append((start + low, start + high))
        start += high
    merged = joined(windows, gap)
    assert len(merged) <= len(windows)
    for window in windows:
        assert any(low <= window[0] and window[1] <= high for low, high in merged)
    added = sum(high - low for low, high in merged) - sum(high - low for low, high in windows)
    assert 0 <= added <= gap * (len(windows) - len(merged))
