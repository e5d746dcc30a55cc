"""How the benchmark of strangers judges its turns."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from benchmarks.service.strangers import median_interval, over, undecided


@pytest.mark.parametrize("count", [3, 5, 9, 15, 40])
def test_the_interval_holds_the_true_median(count: int) -> None:
    source = random.Random(count)
    held = 0
    for _ in range(1000):
        low, high = median_interval([math.exp(source.gauss(0.0, 1.0)) for _ in range(count)])
        held += low <= 1.0 <= high
    # With three it can be no more than 1 - 2 / 2**3.
    assert held / 1000 > (0.72 if count == 3 else 0.88)
    # And is no wider than it must be.
    if count == 40:
        assert held / 1000 < 0.97


@pytest.mark.parametrize(
    ("turns", "names"),
    [
        ([2.4, 2.8, 2.9, 4.0, 3.5, 1.7, 2.4, 2.2, 2.0], ([], ["p99 next to strangers"])),
        ([3.4, 3.8, 3.9, 4.0, 3.5, 1.7, 3.1, 3.2, 5.0], (["p99 next to strangers"], [])),
        ([1.4, 1.8, 1.9, 2.0, 1.5, 9.0, 1.1, 1.2, 1.0], ([], [])),
    ],
)
def test_one_turn_decides_nothing(turns: list[float], names: tuple[list[str], list[str]]) -> None:
    low, high = median_interval(turns)
    ratio = {"median": statistics.median(turns), "low": low, "high": high}
    document = {"memory_bytes": {"one_message": 0, "grown": 0}, "ratio": {"p99": ratio}}
    assert (over(document), undecided(document)) == names
