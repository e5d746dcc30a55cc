"""Sequential repeats of pairs: when they stop, and what wavering applications get."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.profiling.plans.precision import LEAST, Progress, parse_precision
from kongming.records.errors import InputError
from kongming.records.run import Run
from tests import builders


def corun(cost: float | None, app: str = "a") -> Run:
    error = "failed" if cost is None else None
    return builders.run(app, cost or 1.0, kind="corun", neighbours=("b",), error=error)


@given(st.floats(0.001, 0.5), st.integers(0, 1000), st.floats(0.005, 0.2))
def test_a_pair_is_repeated_until_it_is_precise(spread: float, seed: int, target: float) -> None:
    rng = random.Random(seed)
    progress, costs = Progress(target), []
    while progress.wants("a", "b", ()) and len(costs) < 200:
        costs.append(math.exp(rng.gauss(0.0, spread)))
        progress.add(corun(costs[-1]))
    assert len(costs) >= LEAST
    logs = [math.log(cost) for cost in costs]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    assert error <= target or len(costs) == 200
    # The run before, it was not.
    if len(logs) > LEAST:
        assert statistics.stdev(logs[:-1]) / math.sqrt(len(logs) - 1) > target
    # Solo runs go on as long as any pair of the application does.
    assert progress.wants("a", None, ("b",)) == progress.wants("a", "b", ())
    assert progress.wants("a", None, ("b", "new"))


def test_without_a_target_every_planned_run_is_made() -> None:
    progress = Progress.of([corun(1.0) for _ in range(20)], None)
    assert progress.wants("a", "b", ())
    assert not progress.wavers("a")


def test_a_pair_that_fails_is_given_up() -> None:
    progress = Progress(0.03)
    for _ in range(LEAST):
        assert progress.wants("a", "b", ())
        progress.add(corun(None))
    assert not progress.wants("a", "b", ())


def test_solo_runs_that_differ_call_for_more() -> None:
    steady = [builders.run("a", cost, kind="solo") for cost in (1.0, 1.02, 0.99, 1.01)]
    wavering = [builders.run("b", cost, kind="solo") for cost in (1.0, 1.2, 0.9, 1.0)]
    progress = Progress.of([*steady, *wavering], 0.03)
    assert not progress.wavers("a")
    assert progress.wavers("b")


def test_an_application_counts_as_steady_only_once_it_is_known() -> None:
    progress = Progress(0.03)
    for _ in range(4):
        assert progress.wavers("a")
        progress.add(builders.run("a", 1.0, kind="solo"))
    assert not progress.wavers("a")


def test_precisions_are_per_cent() -> None:
    assert parse_precision("3%") == parse_precision(" 0.03 ") == 0.03
    for text, meant in (("3", "3%"), ("0,03", "0.03"), ("2,5%", "2.5%")):
        with pytest.raises(InputError) as caught:
            parse_precision(text)
        assert f"Did you mean {meant}?" in (caught.value.hint or "")
    for text in ("", "three", "0", "-3%", "80%", "nan"):
        with pytest.raises(InputError, match="precision"):
            parse_precision(text)
