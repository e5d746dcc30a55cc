"""A job's runtime on loaded nodes: which term follows which node, and how sure it is."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.records.errors import CannotAnswerError, ExtrapolationError, InputError
from kongming.records.prediction import Interval
from kongming.records.scaling import Scaling, SlowedNode
from kongming.scale.decide.combination import Combination, combine, model_for
from kongming.scale.decide.job_parts import kind_of_term
from kongming.scale.fit.fitting import Settings, fit_runs
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.nearest import NearestFit
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.spread import Spread
from kongming.scale.fit.terms import DEFAULT, EXTENSIONS, SETUP, read_terms
from kongming.scale.points import Configuration, Runs
from tests.scale.shapes import grid, measured, published


def fitted(runs: Runs, kind: str = "ernest-relative", terms: str = "default") -> ScaleModel:
    return fit_runs(runs, Settings(read_terms(terms, items=None), kind=kind))


@cache
def regression() -> ScaleModel:
    """Of the published shape, with 3% noise."""
    return fitted(measured(published("regression"), grid(), 0.03))


def node(name: str, median: float, down: float = 0.0, up: float = 0.0, **of: Any) -> SlowedNode:
    """A node whose interval's halves are ``down`` and ``up``, in logs."""
    interval = Interval(median, median * math.exp(-down), median * math.exp(up))
    return SlowedNode(name, f"name-{name}", interval, **of)


@pytest.fixture(scope="module")
def kmeans() -> ScaleModel:
    """Serial work, parallel work and a tree, with 3% noise."""
    return fitted(
        measured(lambda m, s: 2.0 + 80.0 * s / m + 0.5 * np.log(m), grid(repeats=2), 0.03)
    )


def test_each_term_follows_its_node(kmeans: ScaleModel) -> None:
    nodes = [node("a", 1.1), node("b", 1.0), node("c", 2.0)]
    combined = combine(kmeans, Scaling(4, 0.1), nodes, name="kmeans")

    parts = {part.term: part for part in combined.scaled.parts}
    assert parts["intercept"].node_id == "a"
    assert parts["scale/machines"].node_id == parts["log(machines)"].node_id == "c"
    assert (combined.scaled.driver, combined.scaled.slowest) == ("a", "c")
    assert combined.slowest.name == "name-c"
    assert math.fsum(part.share for part in parts.values()) == pytest.approx(1.0)
    assert math.fsum(part.idle_s for part in parts.values()) == pytest.approx(combined.idle.median)
    slowed = sum(part.idle_s * (1.1 if part.kind == "serial" else 2.0) for part in parts.values())
    assert combined.runtime.median == pytest.approx(slowed)
    assert combined.slowdown.median == pytest.approx(slowed / combined.idle.median)
    assert parts["intercept"].share == pytest.approx(parts["intercept"].idle_s * 1.1 / slowed)
    assert list(combined.scaled.parts) == sorted(
        combined.scaled.parts, key=lambda part: -part.share
    )


def test_the_driver_can_be_named(kmeans: ScaleModel) -> None:
    nodes = [node("a", 1.1), node("b", 1.0), node("c", 2.0)]
    on_best, on_slowest = (
        combine(kmeans, Scaling(4, 0.1), nodes, driver=driver).runtime.median
        for driver in ("b", "c")
    )
    assert on_best < combine(kmeans, Scaling(4, 0.1), nodes).runtime.median < on_slowest
    with pytest.raises(InputError, match="driver"):
        combine(kmeans, Scaling(4, 0.1), nodes, driver="d")


slowdowns = st.tuples(st.floats(0.8, 5.0), st.floats(0.0, 0.4), st.floats(0.0, 0.6))
some = st.lists(slowdowns, min_size=1, max_size=5)


def some_nodes(drawn: list[tuple[float, float, float]]) -> list[SlowedNode]:
    return [node(f"n{i}", *values) for i, values in enumerate(drawn)]


def ends(combined: Combination) -> tuple[float, float, float]:
    return combined.runtime.lower, combined.runtime.median, combined.runtime.upper


@given(some)
@settings(max_examples=25, deadline=None)
def test_idle_nodes_take_what_the_scale_model_says(drawn: list[tuple[float, float, float]]) -> None:
    model = regression()
    nodes = [node(f"n{i}", 1.0) for i in range(len(drawn))]
    combined = combine(model, Scaling(8, 0.1), nodes)
    alone = model.predict(Configuration(8.0, 0.1))
    assert combined.runtime.median == pytest.approx(alone.median, rel=1e-9)
    assert combined.runtime.lower == pytest.approx(alone.lower, rel=2e-3)
    assert combined.runtime.upper == pytest.approx(alone.upper, rel=2e-3)
    assert combined.slowdown.median == combined.slowdown.upper == 1.0
    assert not combined.extrapolating


@given(some, st.integers(0, 4), st.floats(1.0, 3.0), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_no_node_can_be_slowed_more_without_the_job_taking_longer(
    drawn: list[tuple[float, float, float]], which: int, factor: float, driver: int
) -> None:
    model = regression()
    nodes = some_nodes(drawn)
    which, driver = which % len(nodes), driver % len(nodes)
    worse = list(nodes)
    worse[which] = replace(nodes[which], slowdown=nodes[which].slowdown.scaled(factor))
    scaling = Scaling(8, 0.1)
    before, after = (
        ends(combine(model, scaling, some, driver=f"n{driver}")) for some in (nodes, worse)
    )
    assert all(late >= soon * (1.0 - 1e-12) for soon, late in zip(before, after, strict=True))


@given(some, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_the_order_of_nodes_does_not_matter(
    drawn: list[tuple[float, float, float]], random: Any
) -> None:
    model = regression()
    nodes = some_nodes(drawn)
    mixed = random.sample(nodes, len(nodes))
    combined, again = (
        combine(model, Scaling(8, 0.1), some, driver="n0") for some in (nodes, mixed)
    )
    assert ends(combined) == ends(again)
    assert combined.scaled.slowest == again.scaled.slowest
    assert combined.runtime.lower <= combined.runtime.median <= combined.runtime.upper


def exact(deviation: float) -> ScaleModel:
    """Serial work of 2 s and 8 s to share out on 4 machines, predicted with a normal error."""
    model = fitted(measured(lambda m, s: 2.0 + 320.0 * s / m, grid()))
    spread = Spread(
        np.empty((0, 0)), deviation, True, 1.0, 1.0, freedom=1e6, coverage=0.9, covered=40
    )
    return replace(model, spread=spread, report={**model.report, "noise_floor_pct": None})


@pytest.mark.parametrize(("machines", "correlation"), [(1, 0.5), (4, 0.0), (16, 0.5), (16, 0.9)])
def test_intervals_cover_what_they_say(machines: int, correlation: float) -> None:
    """Of 4000 jobs whose scale model and slowdowns err as their intervals say."""
    random = np.random.default_rng(3)
    deviation, wide = 0.06, 1.6449
    model = exact(deviation)
    medians = 1.0 + random.random(machines)
    down, up = 0.10, 0.18
    nodes = [node(f"n{i}", m, wide * down, wide * up) for i, m in enumerate(medians.tolist())]
    combined = combine(model, Scaling(machines, 0.1 * machines / 4), nodes, correlation=correlation)
    n = 4000
    z = math.sqrt(correlation) * random.standard_normal((n, 1)) + math.sqrt(
        1.0 - correlation
    ) * random.standard_normal((n, machines))
    slowed = medians * np.exp(z * np.where(z < 0.0, down, up))
    idle = np.exp(deviation * random.standard_normal(n))
    truth = idle * (2.0 * slowed[:, 0] + 8.0 * slowed.max(axis=1))
    held = np.mean((truth >= combined.runtime.lower) & (truth <= combined.runtime.upper))
    assert held == pytest.approx(0.9, abs=0.02)
    # The product of two medians, of which one interval reaches farther up, is a little below it.
    assert np.mean(truth <= combined.runtime.median) == pytest.approx(0.5, abs=0.05)
    assert combined.runtime.calibrated
    # Neither part alone is as wide as the two together.
    lonely = combine(model, Scaling(machines, 0.1 * machines / 4), [node("n0", 1.0)])
    ratio = combined.runtime.upper / combined.runtime.median
    assert ratio > lonely.runtime.upper / lonely.runtime.median
    assert ratio > combined.slowdown.upper / combined.slowdown.median


def test_noise_of_repeats_counts_once() -> None:
    """Where a slowdown's interval is nothing but noise, the scale model's holds it already."""
    model = fitted(measured(published("pca"), grid(repeats=6), 0.05))
    noise = 1.6449 * 0.05
    quiet = [node(f"n{i}", 1.0, noise * 0.9, noise * 0.9) for i in range(16)]
    combined = combine(model, Scaling(16, 0.1), quiet)
    assert combined.runtime.median == pytest.approx(combined.idle.median)
    assert combined.runtime.upper == pytest.approx(combined.idle.upper, rel=2e-3)


def test_the_slowest_of_many_is_likelier_slower_than_any(kmeans: ScaleModel) -> None:
    single, many = (
        combine(kmeans, Scaling(16, 0.1), [node(f"n{i}", 1.5, 0.3, 0.3) for i in range(count)])
        for count in (1, 16)
    )
    assert single.slowdown.median == pytest.approx(1.5, rel=0.02)
    assert 1.5 * 1.1 < many.slowdown.median < 1.5 * math.exp(0.4)


def test_a_job_is_slowed_at_least_so_much_where_a_node_is(kmeans: ScaleModel) -> None:
    known, quick = node("a", 2.0), node("b", 1.1)
    open_ = replace(quick, slowdown=replace(quick.slowdown, at_least=True))
    for nodes, at_least in ((known, quick), False), ((known, open_), True):
        combined = combine(kmeans, Scaling(4), nodes)
        assert combined.slowdown.at_least is combined.runtime.at_least is at_least


def test_extrapolation_of_either_part_is_reported(kmeans: ScaleModel) -> None:
    inside = combine(kmeans, Scaling(4, 0.1), [node("a", 1.2)])
    assert (inside.extrapolating, inside.scaled.reasons) == (False, ())
    scaled = combine(kmeans, Scaling(64, 0.1), [node("a", 1.2)])
    assert scaled.extrapolating
    assert scaled.scaled.reasons[0].startswith("scale model: machines 64 is above")
    slowed = combine(kmeans, Scaling(4, 0.1), [node("a", 1.2), node("b", 3.0, extrapolating=True)])
    assert slowed.scaled.reasons == ("slowdown: outside of the training environments on name-b",)
    with pytest.raises(ExtrapolationError, match="machines 64"):
        combine(kmeans, Scaling(64, 0.1), [node("a", 1.2)], strict=True)


def test_without_terms_everything_follows_the_slowest() -> None:
    near = NearestFit(np.array([2.0, 8.0]), np.array([0.1, 0.1]), np.array([9.0, 4.0]))
    model = replace(fitted(measured(published("pca"), grid())), fit=near)
    combined = combine(model, Scaling(8, 0.1), [node("a", 1.0), node("b", 1.7)])
    (part,) = combined.scaled.parts
    assert (part.kind, part.node_id, part.share) == ("whole", "b", 1.0)
    assert combined.runtime.median == pytest.approx(4.0 * 1.7)
    assert any("the slowest node determines" in note for note in combined.notes)


@pytest.mark.thorough
def test_a_local_fit_has_the_shares_of_its_terms() -> None:
    runs = measured(lambda m, s: 2.0 + 80.0 * s / m, grid(repeats=2), 0.03)
    model = fitted(runs, "ernest-residuals")
    combined = combine(model, Scaling(4, 0.1), [node("a", 1.0), node("b", 2.0)])
    assert {part.kind for part in combined.scaled.parts} >= {"serial", "parallel"}
    assert combined.idle.median < combined.runtime.median < 2.0 * combined.idle.median


@pytest.mark.thorough
def test_beyond_a_cliff_its_step_is_on_every_machine() -> None:
    def cliff(machines: Any, scale: Any) -> Any:
        load = scale / machines
        beyond = np.where(load > 0.03, 20.0 + 900.0 * (load - 0.03), 0.0)
        return 2.0 + 100.0 * load + beyond

    model = fitted(measured(cliff, grid(), 0.01), "auto")
    assert "cliff" in model.report
    combined = combine(model, Scaling(2, 0.1), [node("a", 1.0), node("b", 2.0)])
    steps = {part.term: part for part in combined.scaled.parts}
    assert steps["cliff step"].node_id == "b"
    assert steps["cliff step"].kind == "parallel"


def test_kinds_of_terms() -> None:
    known = {key: kind_of_term(key) for key in (*DEFAULT, *EXTENSIONS, SETUP)}
    assert [key for key, kind in known.items() if kind == "serial"] == ["intercept", SETUP]
    assert [key for key, kind in known.items() if kind == "communication"] == [
        "log(machines)",
        "machines",
        "sqrt",
    ]
    assert kind_of_term("ceil(64*scale/machines)") == "parallel"
    assert kind_of_term("scale*log(machines)") == "communication"
    assert kind_of_term("scale") == "serial"


@pytest.mark.parametrize(
    ("nodes", "field"),
    [
        ([], "nodes"),
        ([node("a", 1.0), node("a", 1.0)], "nodes"),
        ([node("a", 1.0), node("b", 1.0), node("c", 1.0)], "machines"),
    ],
)
def test_nodes_that_cannot_be_meant(
    kmeans: ScaleModel, nodes: list[SlowedNode], field: str
) -> None:
    with pytest.raises(InputError) as caught:
        combine(kmeans, Scaling(2, 0.1), nodes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "values", [{"machines": 0}, {"scale": 0.0}, {"scale": math.nan}, {"iterations": 0.5}]
)
def test_a_job_that_cannot_be(values: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Scaling(**({"machines": 4} | values))  # type: ignore[arg-type]


def test_several_machines_of_a_node_are_reported(kmeans: ScaleModel) -> None:
    (note,) = combine(kmeans, Scaling(4, 0.1), [node("a", 1.0)]).notes
    assert note.startswith("4 machines on one node")


def test_a_cliff_that_is_not_crossed_has_no_answer(kmeans: ScaleModel) -> None:
    with pytest.raises(CannotAnswerError, match="memory"):
        combine(replace(kmeans, memory_load=0.01), Scaling(2, 0.1), [node("a", 1.0)])


def test_a_thousand_nodes(kmeans: ScaleModel) -> None:
    nodes = [node(f"n{i}", 1.0 + i / 2000, 0.1, 0.1) for i in range(1000)]
    combined = combine(kmeans, Scaling(1000, 0.1), nodes, driver="n999")
    assert combined.scaled.slowest == "n999"
    assert 1.45 < combined.slowdown.median < 2.0


def test_the_model_of_a_file_is_that_of_the_application(kmeans: ScaleModel) -> None:
    several = ScaleFile(
        None, "", tuple(replace(kmeans, group=group) for group in ("sort", "kmeans"))
    )
    assert model_for(several, "sort").group == "sort"
    with pytest.raises(InputError, match="several jobs"):
        model_for(several, "pca")
    assert model_for(ScaleFile(None, "", (kmeans,)), "pca") is kmeans
