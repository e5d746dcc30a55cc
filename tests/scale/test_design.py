"""Designs: optimal against an independent solver, within their bounds, and quick."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.records.errors import InputError
from kongming.scale.design.candidates import (
    Criterion,
    Experiments,
    candidates,
    find_design,
    next_best,
    target_variance,
)
from kongming.scale.design.exchange import round_weights
from kongming.scale.design.planning import configuration, read_design
from kongming.scale.design.relaxation import Problem, criterion, information, relax
from kongming.scale.fit.terms import matrix, read_terms
from kongming.scale.points import Configuration, Points
from tests.variants import variants

TERMS = read_terms("default", items=None).terms
TARGET = Configuration(64, 1.0)


def experiments(
    machines: int = 16, scales: int = 10, *, costly: bool = False, **more: Any
) -> Experiments:
    points = candidates(range(1, machines + 1), np.linspace(0.01, 0.1, scales).tolist())
    cost = points.scale + 0.005 * points.machines if costly else np.ones(len(points))
    return Experiments(points, cost, TERMS, **more)


def problem_of(some: Experiments, budget: float, kind: Criterion) -> Problem:
    A = matrix(some.terms, some.points, None)
    size = A.mean(axis=0)
    aims = {
        "A": np.eye(4),
        "D": None,
        "I": (matrix(some.terms, Points.of([TARGET]), None) / size).T,
    }
    n = len(A)
    return Problem(
        A / size, aims[kind], np.zeros((4, 4)), some.cost, budget, np.zeros(n), np.ones(n)
    )


@pytest.mark.parametrize("kind", ["A", "D", "I"])
@pytest.mark.parametrize("costly", [False, True])
def test_the_relaxation_agrees_with_another_solver(kind: Criterion, costly: bool) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    budget = 0.5 if costly else 8.0
    problem = problem_of(experiments(costly=costly), budget, kind)
    relaxation = relax(problem)
    weights = cvxpy.Variable(len(problem.features))
    M = problem.features.T @ cvxpy.diag(weights) @ problem.features
    if problem.aims is None:
        goal = -cvxpy.log_det(M)
    else:
        goal = sum(cvxpy.matrix_frac(column, M) for column in problem.aims.T)
    other = cvxpy.Problem(
        cvxpy.Minimize(goal), [weights >= 0, weights <= 1, problem.cost @ weights <= budget]
    )
    other.solve(solver="CLARABEL")
    best = float(np.exp(other.value / 4)) if problem.aims is None else other.value
    assert relaxation.value == pytest.approx(best, rel=1e-4)
    assert relaxation.bound <= best * (1.0 + 1e-6)


@pytest.mark.thorough
@settings(max_examples=2 * settings.default.max_examples // 5)
@given(
    st.integers(2, 6),
    st.integers(2, 5),
    st.integers(4, 12),
    st.sampled_from(["A", "D", "I"]),
    st.integers(0, 2**31),
)
def test_the_gap_bounds_every_other_choice(
    machines: int, scales: int, budget: int, kind: Criterion, seed: int
) -> None:
    some = experiments(machines + 2, scales)
    problem = problem_of(some, float(budget), kind)
    relaxation = relax(problem)
    assert relaxation.gap <= 1e-4
    assert (relaxation.weights >= 0.0).all()
    assert (relaxation.weights <= 1.0).all()
    assert float(some.cost @ relaxation.weights) <= budget * (1.0 + 1e-9)
    random = np.random.default_rng(seed)
    for _ in range(5):
        other = random.permutation(len(some.cost))[:budget]
        weights = np.zeros(len(some.cost))
        weights[other] = 1.0
        assert criterion(problem, information(problem, weights)) >= relaxation.bound * (1.0 - 1e-9)
    counts = round_weights(problem, relaxation.weights)
    assert counts.sum() <= budget
    assert criterion(problem, information(problem, counts.astype(float))) >= relaxation.bound


@pytest.mark.parametrize("kind", variants("IAD"))
def test_whole_experiments_are_near_the_fractions(kind: Criterion) -> None:
    design = find_design(experiments(), 12.0, kind=kind, target=TARGET)
    assert int(design.counts.sum()) == 12
    assert design.efficiency > 0.9
    assert design.relaxed.gap < 1e-4


def test_the_target_is_predicted_better_than_by_the_papers_choice_and_evenly() -> None:
    design = find_design(experiments(), 8.0, kind="I", target=TARGET)
    shown = design.variances
    assert shown["chosen"] <= shown["paper"] < shown["uniform"]
    assert shown["chosen"] == pytest.approx(target_variance(experiments(), design.counts, TARGET))


@pytest.mark.thorough
@settings(max_examples=2 * settings.default.max_examples // 5)
@given(
    st.integers(4, 12),
    st.integers(3, 6),
    st.integers(4, 10),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_no_design_is_worse_than_those_that_it_is_compared_with(
    machines: int, scales: int, cheapest: int, costly: bool, timed: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    points = candidates(range(1, machines + 1), np.linspace(0.01, 0.1, scales).tolist())
    terms = matrix(TERMS, points, None)
    seconds = terms @ (random.random(4) * np.array([10.0, 2000.0, 5.0, 3.0])) + 0.1
    cost = seconds * points.machines if costly else np.ones(len(points))
    least = float(np.sort(cost)[:cheapest].sum())
    budget = least * random.uniform(1.0, 4.0) if costly else float(cheapest)
    some = Experiments(points, cost, TERMS, seconds=seconds if timed else None)
    try:
        design = find_design(some, budget, kind="I", target=TARGET)
    except InputError:
        assert costly  # as little as that buys four experiments of one kind
        return
    for name, other in design.variances.items():
        assert design.variances["chosen"] <= other * (1.0 + 1e-9), name
    assert float(cost @ design.counts) <= budget * (1.0 + 1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_few_experiments_are_near_the_best_of_all_choices(seed: int) -> None:
    random = np.random.default_rng(seed)
    machines = sorted(random.choice(np.arange(1, 17), size=4, replace=False).tolist())
    points = candidates(machines, [0.01, 0.04, 0.1])
    seconds = 5.0 + 500.0 * points.scale / points.machines + 0.3 * points.machines
    cost = seconds * points.machines
    some = Experiments(points, cost, TERMS, seconds=seconds)
    budget = float(np.sort(cost)[:4].sum()) * 2.0
    best = np.inf
    for size in range(4, 9):
        for chosen in combinations(range(len(cost)), size):
            counts = np.zeros(len(cost))
            counts[list(chosen)] = 1.0
            if float(cost @ counts) <= budget:
                best = min(best, target_variance(some, counts, TARGET))
    design = find_design(some, budget, kind="I", target=TARGET)
    assert design.variances["chosen"] <= 1.05 * best


def test_a_budget_of_machine_seconds_is_kept() -> None:
    some = experiments(costly=True)
    design = find_design(some, 0.5, kind="A")
    assert float(some.cost @ design.counts) <= 0.5 * (1 + 1e-9)
    assert design.cost == pytest.approx(float(some.cost @ design.counts))


def test_lower_bounds_and_repeats_are_kept() -> None:
    wanted = Configuration(5, 0.05)
    points = candidates(range(1, 17), [0.01, 0.05, 0.1])
    some = Experiments(points, np.ones(len(points)), TERMS, at_least={wanted: 2}, repeats=3)
    design = find_design(some, 9.0, kind="D")
    chosen = dict(zip(points.configurations(), design.counts.tolist(), strict=True))
    assert chosen[wanted] >= 2
    assert max(chosen.values()) <= 3
    with pytest.raises(InputError, match="2 or more"):
        find_design(some, 1.0)


def test_what_was_done_already_counts() -> None:
    done = Points.of([Configuration(1, 0.01), Configuration(1, 0.1), Configuration(2, 0.1)] * 4)
    fresh = find_design(experiments(), 4.0, kind="I", target=TARGET)
    after = find_design(experiments(done=done), 4.0, kind="I", target=TARGET)
    assert after.value < fresh.value
    assert not np.array_equal(after.counts, fresh.counts)


def test_one_machine_count_cannot_tell_the_terms_apart() -> None:
    points = candidates([4], [0.01, 0.05, 0.1])
    with pytest.raises(InputError, match="cannot tell the terms apart"):
        find_design(Experiments(points, np.ones(3), TERMS), 3.0)


@pytest.mark.parametrize("kind", ["A", "D", "I"])
@pytest.mark.parametrize(("budget", "costly"), [(1.0, False), (3.0, False), (30.0, True)])
def test_fewer_experiments_than_terms_are_refused(
    kind: Criterion, budget: float, costly: bool
) -> None:
    """Rounding errors make singular information look regular."""
    points = candidates(range(1, 9), np.linspace(0.01, 0.1, 10).tolist())
    cost = 1000.0 * points.scale if costly else np.ones(len(points))
    limit = "--budget-machine-seconds" if costly else "--experiments"
    some = Experiments(points, cost, TERMS, limit=limit)
    with pytest.raises(InputError, match=f"{limit}: So few experiments") as caught:
        find_design(some, budget, kind=kind, target=TARGET)
    assert "Allow 4 experiments" in (caught.value.hint or "")
    assert ("the cheapest 4 cost 40" in (caught.value.hint or "")) is costly


WRONG = {
    "1_0@1": "is not a configuration",
    "\u0663@1": "is not a configuration",
    "0@1": "is not a configuration",
    f"{'9' * 400}@1": r"machines: .*Allowed: 1 to 1e\+09",
    "64@1e300": r"scale: .*Allowed: 1e-15 to 1e\+18",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_a_configuration_is_one_that_a_table_may_have(text: str, message: str) -> None:
    assert configuration(" 4 @ 50%", "--target") == Configuration(4, 0.5)
    with pytest.raises(InputError, match=f"--target.*{message}"):
        configuration(text, "--target")


@pytest.mark.parametrize(
    "entry",
    [
        '{"machines": 2, "scale": 1e999}',
        '{"machines": 1e999, "scale": 1}',
        '{"machines": 2.7, "scale": 1}',
        '{"machines": 2, "scale": 1, "runs": 1.9}',
        '{"machines": 2, "scale": 1, "runs": NaN}',
    ],
)
def test_an_experiment_of_a_design_is_in_range(tmp_path: Path, entry: str) -> None:
    file = tmp_path / "design.json"
    file.write_text(f'{{"experiments": [{{"machines": 2.0, "scale": 1}}, {entry}]}}')
    with pytest.raises(InputError, match=r"experiments\[2\]: is out of range"):
        read_design(file)


def test_the_next_best_lowers_the_variance_more_than_others() -> None:
    done = Points.of([Configuration(m, s) for m in (1, 4, 8) for s in (0.01, 0.1)])
    some = experiments(done=done)
    best, now, after = next_best(some, TARGET)
    assert after < now
    at = some.points.configurations()
    for other in (0, 40, 100, 159):
        counts = np.zeros(len(at))
        counts[other] = 1.0
        assert after <= target_variance(some, counts, TARGET) * (1.0 + 1e-6)
    assert best in at


def test_two_terms_are_told_apart() -> None:
    terms = read_terms("intercept,scale/machines", items=None).terms
    some = Experiments(candidates(range(1, 5), [0.1, 1.0]), np.ones(8), terms)
    design = find_design(some, 2.0)
    A = matrix(terms, some.points, None)
    A = A / A.mean(axis=0)
    best = min(
        float(np.trace(np.linalg.inv(A[list(pair)].T @ A[list(pair)])))
        for pair in combinations(range(8), 2)
        if np.ptp(A[list(pair), 1]) > 0.0
    )
    assert design.value == pytest.approx(best)
    with pytest.raises(InputError, match="cannot tell the terms apart"):
        find_design(Experiments(candidates(range(1, 2), [1.0]), np.ones(1), terms, repeats=5), 2.0)
