"""How much each part of a job is slowed, from profiles at several configurations."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.records.prediction import Interval
from kongming.records.scaling import (
    ProfiledSlowdown,
    Scaling,
    SlowedNode,
    profile_name,
    profiled_at,
)
from kongming.scale.decide.combination import CORRELATION, combine
from kongming.scale.decide.part_slowdowns import around, nearest_mean, part_slowdowns
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.nearest import NearestFit
from kongming.scale.fit.terms import read_terms
from tests.scale.shapes import grid, measured


def interval(median: float, wide: float = 0.0) -> Interval:
    """An interval whose halves are ``wide``, in logs."""
    return Interval(median, median * math.exp(-wide), median * math.exp(wide))


positive = st.floats(0.01, 1.0)


@st.composite
def profiles(draw: Any, least: int = 1) -> tuple[Any, list[Interval]]:
    count, kinds = draw(st.integers(least, 4)), draw(st.integers(1, 3))
    rows = [[draw(positive) for _ in range(kinds)] for _ in range(count)]
    shares = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
    medians = [draw(st.floats(0.6, 6.0)) for _ in range(count)]
    return shares, [interval(median, draw(st.floats(0.0, 0.5))) for median in medians]


@given(profiles(), st.floats(0.6, 6.0))
@settings(max_examples=100, deadline=None)
def test_profiles_that_agree_slow_all_parts_alike(drawn: Any, slowdown: float) -> None:
    shares, slowdowns = drawn
    same = [interval(slowdown, 0.1)] * len(slowdowns)
    assert part_slowdowns(shares, same, CORRELATION) == pytest.approx(slowdown)


@given(profiles())
@settings(max_examples=100, deadline=None)
def test_no_part_is_faster_than_idle_and_every_profile(drawn: Any) -> None:
    shares, slowdowns = drawn
    estimated = part_slowdowns(shares, slowdowns, CORRELATION)
    assert np.isfinite(estimated).all()
    assert estimated.min() >= min(1.0, *(slowdown.median for slowdown in slowdowns)) - 1e-9


@given(profiles(least=2), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_order_of_profiles_and_of_parts_does_not_matter(drawn: Any, random: Any) -> None:
    shares, slowdowns = drawn
    rows = random.sample(range(len(slowdowns)), len(slowdowns))
    kinds = random.sample(range(shares.shape[1]), shares.shape[1])
    estimated = part_slowdowns(shares, slowdowns, CORRELATION)
    mixed = part_slowdowns(shares[rows][:, kinds], [slowdowns[row] for row in rows], CORRELATION)
    assert mixed == pytest.approx(estimated[kinds], rel=1e-5, abs=1e-5)


@given(st.floats(1.0, 4.0), st.floats(1.0, 4.0), st.floats(0.05, 0.4), st.floats(0.6, 0.95))
@settings(max_examples=50, deadline=None)
def test_exact_profiles_are_followed(first: float, second: float, few: float, many: float) -> None:
    shares = np.array([[few, 1.0 - few], [many, 1.0 - many]])
    truth = np.array([first, second])
    slowdowns = [interval(float(value)) for value in shares @ truth]
    estimated = part_slowdowns(shares, slowdowns, CORRELATION)
    assert shares @ estimated == pytest.approx([value.median for value in slowdowns], rel=0.01)


def errors_on_generated_jobs(seed: int, apart: float) -> tuple[float, float]:
    """Mean absolute log errors at new configurations: of two profiles, and of one alone.

    A job of serial and parallel work and messages, profiled on one machine and on six; each part
    is slowed by up to 2.5, ``apart`` of which is its own. What a profile says errs by 8 %.
    """
    random = np.random.default_rng(seed)
    places = np.array([(1.0, 0.5), (6.0, 0.5)])
    both, alone = [], []
    for _ in range(300):
        coef = random.random(3) * (1.0, 20.0, 0.5)
        common, own = 1.5 * random.random(), 1.5 * random.random(3)
        factors = 1.0 + (1.0 - apart) * common + apart * own

        def shares(at: Any, coef: Any = coef) -> Any:
            machines, scale = at[..., 0], at[..., 1]
            seconds = np.stack([np.ones_like(scale), scale / machines, machines], axis=-1) * coef
            return seconds / seconds.sum(axis=-1, keepdims=True)

        observed = (shares(places) @ factors) * np.exp(0.08 * random.standard_normal(2))
        slowdowns = [interval(float(value), 1.645 * 0.08) for value in observed]
        new = np.stack([random.integers(1, 9, 5), 0.25 + random.random(5)], axis=-1)
        truth = np.log(shares(new) @ factors)
        estimated = np.log(shares(new) @ part_slowdowns(shares(places), slowdowns, CORRELATION))
        both.append(np.abs(estimated - truth).mean())
        alone.append(np.abs(np.log(observed)[:, None] - truth).mean())
    return float(np.mean(both)), float(np.mean(alone))


def test_two_profiles_tell_more_than_one_where_parts_differ() -> None:
    both, alone = errors_on_generated_jobs(1, apart=1.0)
    assert both < 0.75 * alone


def test_two_profiles_tell_as_much_as_one_where_parts_are_alike() -> None:
    both, alone = errors_on_generated_jobs(2, apart=0.0)
    assert both < alone


def test_the_nearest_profile_counts_most() -> None:
    slowdowns = np.array([1.2, 3.0])
    assert nearest_mean(np.array([0.0, 1.0]), slowdowns) == pytest.approx(1.2, rel=1e-6)
    assert nearest_mean(np.array([1.0, 1.0]), slowdowns) == pytest.approx(math.sqrt(3.6))


def test_an_interval_reaches_as_far_as_the_widest() -> None:
    widened = around(2.0, [Interval(1.0, 0.5, 1.1), Interval(4.0, 3.9, 8.0, calibrated=False)])
    assert (widened.lower, widened.median, widened.upper) == pytest.approx((1.0, 2.0, 4.0))
    assert not widened.calibrated


@pytest.fixture(scope="module")
def job() -> ScaleModel:
    """On one machine nearly all is parallel work, on many it is mostly messages."""
    runs = measured(lambda m, s: 0.5 + 40.0 * s / m + 0.5 * m, grid(repeats=2), 0.02)
    return fit_runs(runs, Settings(read_terms("default", items=None), kind="ernest-relative"))


def seconds(machines: float, scale: float, parallel: float) -> float:
    return 0.5 + parallel * 40.0 * scale / machines + 0.5 * machines


def profiles_of(parallel: float) -> list[ProfiledSlowdown]:
    """Exact profiles of few machines and of many, on a node that slows parallel work alone."""
    return [
        ProfiledSlowdown(m, s, interval(seconds(m, s, parallel) / seconds(m, s, 1.0), 0.02))
        for m, s in ((1, 0.1), (16, 0.05))
    ]


def node(name: str, slowdown: Interval | None = None) -> SlowedNode:
    return SlowedNode(name, name, slowdown or interval(1.0))


@pytest.mark.parametrize(("machines", "scale"), [(2, 0.1), (4, 0.05), (16, 0.1), (8, 0.02)])
def test_a_job_is_slowed_as_its_parts_are(job: ScaleModel, machines: int, scale: float) -> None:
    """At configurations where no profile was taken."""
    truth = seconds(machines, scale, 2.0) / seconds(machines, scale, 1.0)
    combined = combine(job, Scaling(machines, scale), [node("a")], profiled={"a": profiles_of(2.0)})
    assert combined.slowdown.median == pytest.approx(truth, rel=0.08)
    parts = {part.kind: part for part in combined.scaled.parts}
    assert parts["parallel"].share > parts["parallel"].idle_s / combined.idle.median
    assert any("1 machine at scale 0.1" in note for note in combined.notes)


@given(st.floats(1.0, 4.0), st.floats(1.0, 4.0), st.floats(0.0, 0.3))
@settings(max_examples=20, deadline=None)
def test_a_profile_is_right_where_it_was_taken(first: float, second: float, wide: float) -> None:
    """Even where no slowdowns of the parts explain both."""
    model = exact_job()
    places = ((1, 0.1, interval(first, wide)), (16, 0.05, interval(second, wide)))
    profiled = {"a": [ProfiledSlowdown(*place) for place in places]}
    for machines, scale, slowdown in places:
        combined = combine(model, Scaling(machines, scale), [node("a")], profiled=profiled)
        assert combined.slowdown.median == pytest.approx(slowdown.median, rel=1e-6)
    between = combine(model, Scaling(4, 0.07), [node("a")], profiled=profiled).slowdown.median
    assert min(first, second) * (1.0 - 1e-9) <= between


def test_one_profile_slows_all_parts_alike(job: ScaleModel) -> None:
    slowdown = interval(1.6, 0.1)
    profiled = {"a": [ProfiledSlowdown(4, 0.1, slowdown)]}
    for scaling in (Scaling(1, 0.1), Scaling(8, 0.1)):
        from_node = combine(job, scaling, [node("a", slowdown)])
        from_profile = combine(job, scaling, [node("a")], profiled=profiled)
        assert from_node.runtime.median == pytest.approx(from_profile.runtime.median)
        assert from_node.runtime.upper == pytest.approx(from_profile.runtime.upper)


@cache
def exact_job() -> ScaleModel:
    """Without noise."""
    runs = measured(lambda m, s: 0.5 + 40.0 * s / m + 0.5 * m, grid(), 0.0)
    return fit_runs(runs, Settings(read_terms("default", items=None), kind="ernest-relative"))


@given(st.floats(1.0, 3.0), st.floats(1.0, 3.0), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_nodes_with_and_without_parts_go_together(first: float, second: float, random: Any) -> None:
    model = exact_job()
    nodes = [node("a"), node("b", interval(second, 0.05)), node("c")]
    of: Any = {"profiled": {"a": profiles_of(first), "c": profiles_of(1.0)}, "driver": "c"}
    combined = combine(model, Scaling(4, 0.1), nodes, **of)
    again = combine(model, Scaling(4, 0.1), random.sample(nodes, 3), **of)
    assert combined.runtime == again.runtime
    assert combined.scaled.slowest == again.scaled.slowest
    assert math.fsum(part.share for part in combined.scaled.parts) == pytest.approx(1.0)
    assert combined.runtime.lower <= combined.runtime.median <= combined.runtime.upper
    fewer = combine(model, Scaling(4, 0.1), nodes[1:], **of)
    assert combined.runtime.median >= fewer.runtime.median * (1.0 - 1e-9)


def test_a_model_without_terms_takes_the_nearest_profile(job: ScaleModel) -> None:
    near = NearestFit(np.array([2.0, 8.0]), np.array([0.1, 0.1]), np.array([9.0, 4.0]))
    profiled = profiles_of(2.0)
    combined = combine(
        replace(job, fit=near), Scaling(16, 0.05), [node("a")], profiled={"a": profiled}
    )
    assert combined.slowdown.median == pytest.approx(profiled[1].slowdown.median)


@given(st.integers(1, 99_999), st.integers(1, 4000).map(lambda n: n / 1000))
def test_names_of_profiles(machines: int, scale: float) -> None:
    name = profile_name("a.b-c", machines, scale)
    assert profiled_at(name, "a.b-c") == (machines, pytest.approx(scale))
    assert profiled_at(name, "a") is None


@pytest.mark.parametrize(
    "name", ["sort", "sort.4", "sort.x1", "sort.0x1", "sort.4x0", "sort.4x1.5.", "sort.999999x1"]
)
def test_other_names_are_no_profiles(name: str) -> None:
    assert profiled_at(name, "sort") is None
