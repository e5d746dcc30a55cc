"""Repeat noise of a program: its own repeats, drawn towards those of other programs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kongming.learning.repeat_noise import (
    DEFAULT_POOL,
    Variance,
    pool,
    repeat_variance,
    shrunk,
)


def programs(n: int, degrees: float, between: float, seed: int = 0) -> list[Variance]:
    """Variances about 0.04^2 that differ by a chi-squared of ``between`` degrees of freedom, each
    estimated with ``degrees``."""
    random = np.random.default_rng(seed)
    true = 0.04**2 * between / random.chisquare(between, n)
    return [Variance(v * random.chisquare(degrees) / degrees, degrees) for v in true.tolist()]


def test_a_pool_is_found_again_from_variances_that_are_drawn_from_it() -> None:
    pooled = pool(programs(400, 5.0, 8.0))
    assert math.sqrt(pooled.value) == pytest.approx(0.04, rel=0.05)
    assert pooled.degrees == pytest.approx(8.0, rel=0.3)
    alike = pool(programs(400, 5.0, 1e6))
    assert alike.degrees > 25.0


def test_few_programs_are_no_pool() -> None:
    assert pool(programs(2, 5.0, 8.0)) == DEFAULT_POOL
    assert pool([Variance(0.0, 0.0)] * 9) == DEFAULT_POOL


def test_two_repeats_say_little_and_many_say_all() -> None:
    others = Variance(0.04**2, 4.0)
    assert shrunk(Variance(0.0, 1.0), others) > 0.03
    assert shrunk(Variance(0.2**2, 1000.0), others) == pytest.approx(0.2, rel=0.01)
    assert shrunk(Variance(0.0, 0.0), others) == pytest.approx(0.04)


def test_a_shrunk_deviation_errs_less_than_a_programs_own() -> None:
    random = np.random.default_rng(1)
    true = 0.04**2 * 4.0 / random.chisquare(4.0, 200)
    own = [Variance(v * random.chisquare(5.0) / 5.0, 5.0) for v in true.tolist()]
    others = pool(own)
    drawn = np.log([shrunk(variance, others) ** 2 for variance in own] / true)
    alone = np.log([variance.value for variance in own] / true)
    assert np.mean(drawn**2) < 0.8 * np.mean(alone**2)


def test_repeats_are_compared_at_the_same_level_only() -> None:
    logs = np.array([0.0, 0.2, 1.0, 1.0, 5.0])
    variance = repeat_variance(["a", "a", "b", "b", "c"], logs)
    assert (variance.value, variance.degrees) == (pytest.approx(0.01), 2.0)
    assert repeat_variance(["a", "b"], np.zeros(2)).degrees == 0.0
