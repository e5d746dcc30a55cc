"""Environments put together."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning import colocation
from kongming.records.errors import IncompatibleError, InputError
from tests import builders

IDLE = {"stream.triad": 2e-9, "os.switch": 2e-6}


def test_log_slowdowns_over_idle_are_added() -> None:
    first = {"stream.triad": 4e-9, "os.switch": 2e-6}
    second = {"stream.triad": 6e-9, "os.switch": 3e-6}
    composed = colocation.compose(IDLE, [first, second], IDLE)
    assert composed == pytest.approx({"stream.triad": 12e-9, "os.switch": 3e-6})


def test_what_may_be_noise_counts_once_however_many_neighbours_there_are() -> None:
    spread = {"stream.triad": math.log(1.1)}
    quiet = {"stream.triad": 2e-9 * 1.05, "os.switch": 2e-6}
    strong = {"stream.triad": 4e-9, "os.switch": 2e-6}

    def triad(*neighbours: colocation.Times) -> float:
        return colocation.environment(neighbours, IDLE, spread)["stream.triad"] / 2e-9

    assert triad(quiet) == pytest.approx(1.05)
    assert triad(*[quiet] * 16) == pytest.approx(1.05)
    assert triad(*[dict(quiet) for _ in range(16)]) == pytest.approx(1.05)
    assert triad(strong, quiet) == triad(quiet, strong) == pytest.approx(2.0)
    # As much beyond the spread as each has by itself.
    assert triad(strong, strong) / 1.1 == pytest.approx((2.0 / 1.1) ** 2)


def test_a_neighbour_never_makes_a_surrogate_faster() -> None:
    composed = colocation.compose(IDLE, [{"stream.triad": 1e-9, "os.switch": 2e-6}], IDLE)
    assert composed == pytest.approx(IDLE)


def test_one_neighbours_signature_is_the_environment_itself() -> None:
    seen = {"stream.triad": 1.9e-9, "os.switch": 5e-6}
    assert colocation.environment([seen], IDLE) == seen
    assert colocation.environment([], IDLE) == pytest.approx(IDLE)


def test_only_what_all_have_is_in_the_result() -> None:
    composed = colocation.compose(IDLE, [{"stream.triad": 4e-9}], IDLE)
    assert list(composed) == ["stream.triad"]


@given(
    factors=st.lists(st.floats(0.2, 20.0), min_size=1, max_size=5),
    more=st.floats(1.0, 5.0),
    spread=st.floats(0.0, 2.0),
)
def test_more_pressure_never_gives_less(factors: list[float], more: float, spread: float) -> None:
    def triad(values: list[float]) -> float:
        neighbours = [{"stream.triad": 2e-9 * value} for value in values]
        composed = colocation.compose(IDLE, neighbours, IDLE, {"stream.triad": spread})
        return composed["stream.triad"]

    assert triad([factors[0] * more, *factors[1:]]) >= triad(factors) * (1 - 1e-12)
    assert triad([*factors, more]) >= triad(factors) * (1 - 1e-12)
    assert triad(factors) == pytest.approx(triad(factors[::-1]))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_cannot_be_true_is_refused(seconds: float) -> None:
    with pytest.raises(InputError, match=r"stream\.triad: is not a valid time"):
        colocation.compose(IDLE, [{"stream.triad": seconds}], IDLE)


def test_repeated_signatures_are_averaged_in_logs() -> None:
    repeats = [
        builders.signature("a", {"stream.triad": 2e-9, "os.switch": 1e-6}),
        builders.signature("a", {"stream.triad": 8e-9}),
    ]
    averaged = colocation.mean_signature(repeats)
    assert averaged == pytest.approx({"stream.triad": 4e-9, "os.switch": 1e-6})


def test_signatures_that_differ_are_not_averaged() -> None:
    signature = builders.signature("a", IDLE)
    with pytest.raises(IncompatibleError, match="placement"):
        colocation.mean_signature(
            [signature, dataclasses.replace(signature, placement="same-core")]
        )
    with pytest.raises(InputError):
        colocation.mean_signature([])
