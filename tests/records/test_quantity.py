"""Numbers that no program or machine has are refused where a record is made."""

from __future__ import annotations

import math

import pytest

from kongming.records.errors import ImplausibleError
from kongming.records.quantity import LARGEST, is_quantity
from tests import builders


@pytest.mark.parametrize("metric", [1e-100, 1.0, 1e100, 0.0, -3.0])
def test_a_metric_that_can_be_computed_with(metric: float) -> None:
    assert builders.run("sort", metric, wall_s=1.0).metric == metric


@pytest.mark.parametrize("metric", [5e-324, -5e-324, 1e-101, 1.7e308, -1e101, math.nan, math.inf])
def test_a_metric_that_cannot(metric: float) -> None:
    assert not is_quantity(metric)
    with pytest.raises(ImplausibleError, match="metric"):
        builders.run("sort", metric, wall_s=1.0)


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, math.nan, math.inf])
def test_a_signal_of_which_two_cannot_be_added(value: float) -> None:
    with pytest.raises(ImplausibleError, match=r"passive\.load1"):
        builders.fingerprint({"stream.triad": 1e-9}, passive={"steal": 0.1, "load1": value})


def test_the_largest_signal() -> None:
    passive = {"load1": LARGEST, "steal": -LARGEST}
    assert builders.fingerprint({"stream.triad": 1e-9}, passive=passive).passive == passive
