"""What a selection is scored by, and that the search finds the good ones within its budget."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.learning.estimators.fitness import LeftOut, Refits
from kongming.learning.estimators.genetic_search import Layout, Selection, Settings, search
from kongming.learning.estimators.gram import Gram
from kongming.learning.estimators.linear import LinearRegressor


def problem(seed: int, n: int = 40, p: int = 6) -> tuple[Any, Any, Any]:
    """Columns over nine orders of magnitude, a target of the first two, and a generator."""
    draws = np.random.default_rng(seed)
    X = draws.normal(size=(n, p)) * 10.0 ** -draws.integers(0, 9, p)
    y = 2.0 + X[:, 0] / X[:, 0].std() + 0.1 * draws.normal(size=n)
    return X, y + 0.5 * X[:, 1] / X[:, 1].std(), draws


def fifths(n: int) -> list[range]:
    return [range(start, n, 5) for start in range(5)]


@given(seed=st.integers(0, 10**6), p=st.integers(1, 8))
def test_a_gram_matrix_gives_the_least_squares_of_any_selection(seed: int, p: int) -> None:
    X, y, draws = problem(seed, p=max(p, 2))
    columns = draws.random(X.shape[1]) < 0.6
    observations = draws.random(len(y)) < 0.7
    observations[:15] = True
    coef, intercept = Gram(X, y, LeftOut.of([], y, relative=False)).solve(observations, columns)
    assert (coef[~columns] == 0.0).all()
    if columns.any():
        plain = LinearRegressor().fit(X[observations][:, columns], y[observations])
        np.testing.assert_allclose(X @ coef + intercept, plain.predict(X[:, columns]), atol=1e-5)
    else:
        assert intercept == pytest.approx(y[observations].mean())


@given(seed=st.integers(0, 10**6), relative=st.booleans())
@settings(max_examples=2 * settings.default.max_examples // 5, deadline=None)
def test_a_gram_matrix_scores_as_fitting_anew_does(seed: int, relative: bool) -> None:
    X, y, draws = problem(seed)
    left_out = LeftOut.of(fifths(len(y)), y, relative=relative)
    observations = draws.random((12, len(y))) < draws.uniform(0.6, 1.0, (12, 1))
    columns = draws.random((12, X.shape[1])) < draws.uniform(0.0, 1.0, (12, 1))
    anew = Refits(X, y, left_out, lambda a, b: LinearRegressor().fit(a, b).predict)
    np.testing.assert_allclose(
        Gram(X, y, left_out).errors(observations, columns),
        anew.errors(observations, columns),
        rtol=1e-4,
    )


def test_singular_selections_have_a_finite_error() -> None:
    X, y, _ = problem(3, n=12)
    X = np.hstack([X, X, np.ones((12, 1)), np.zeros((12, 1))])
    left_out = LeftOut.of(fifths(12), y, relative=False)
    observations = np.ones((2, 12), dtype=bool)
    observations[1, 3:] = False
    errors = Gram(X, y, left_out).errors(observations, np.ones((2, X.shape[1]), dtype=bool))
    assert np.isfinite(errors).all()


def test_what_leaves_nothing_to_train_on_cannot_be_scored() -> None:
    X, y, _ = problem(0, n=10)
    left_out = LeftOut.of([range(5), range(5, 10)], y, relative=False)
    observations = np.zeros((1, 10), dtype=bool)
    observations[0, 2] = True
    for columns in (np.ones((1, 6), dtype=bool), np.zeros((1, 6), dtype=bool)):
        for scorer in (Gram(X, y, left_out), Refits(X, y, left_out, _mean_of_the_training)):
            assert scorer.errors(observations, columns).tolist() == [np.inf]


def _mean_of_the_training(X: Any, y: Any) -> Any:
    return lambda rows: np.full(len(rows), y.mean())


def test_all_left_out_rows_are_scored_whatever_is_selected() -> None:
    y = np.array([1.0, 1.0, 1.0, 1.0, 9.0])
    left_out = LeftOut.of([[row] for row in range(5)], y, relative=False)
    scorer = Refits(np.zeros((5, 1)), y, left_out, _mean_of_the_training)
    observations = np.array([[True] * 4 + [False]])
    assert scorer.errors(observations, np.array([[True]])) == pytest.approx(8.0 / 5)


def test_a_row_that_is_left_out_twice_counts_once() -> None:
    y = np.array([1.0, 2.0, 3.0])
    left_out = LeftOut.of([[0], [0, 1], [2]], y, relative=False)
    costs = np.concatenate(left_out.costs)
    assert costs == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])
    relative = LeftOut.of([[2]], y, relative=True)
    assert relative.costs[0] == pytest.approx([1.0 / 3.0])


def test_folds_that_leave_nothing_are_no_folds() -> None:
    y = np.arange(3.0)
    assert not LeftOut.of([[], [0, 1, 2]], y, relative=False)
    assert not LeftOut.of([], y, relative=False)


class Known:
    """A score that is best for the columns 1 and 4 and without the inducer of number 1."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def errors(self, observations: Any, columns: Any) -> Any:
        self.seen += [a.tobytes() + b.tobytes() for a, b in zip(observations, columns, strict=True)]
        wanted = np.zeros(columns.shape[1], dtype=bool)
        wanted[[1, 4]] = True
        spoiled = observations[:, LAYOUT.inducer == 1].sum(axis=1)
        hits = (wanted & columns).sum(axis=1)
        return np.asarray(1.0 - 0.3 * hits + 0.05 * spoiled)


LAYOUT = Layout.of(
    12, ["a"] * 4 + ["b"] * 5 + ["solo"] * 3, names=["a", "b", "solo"], needed="solo"
)


def found_by(scorer: Any, seed: int, evaluations: int = 600, **changes: Any) -> Selection:
    chosen = Settings(
        **{"evaluations": evaluations, "population": 30, "patience": 8, "price": 0.01} | changes
    )
    return search(scorer, LAYOUT, range(12), chosen, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_columns_and_drops_what_spoils(seed: int) -> None:
    selection = found_by(Known(), seed)
    assert np.flatnonzero(selection.columns).tolist() == [1, 4]
    assert selection.counts[1] == 0
    assert selection.counts[2] >= 1
    assert selection.observations.sum() == selection.counts.sum()
    assert selection.cost < 0.5


@given(seed=st.integers(0, 10**6), evaluations=st.integers(1, 150))
@settings(max_examples=25, deadline=None)
def test_each_selection_is_scored_once_and_not_more_than_asked(seed: int, evaluations: int) -> None:
    scorer = Known()
    selection = found_by(scorer, seed, evaluations)
    assert len(set(scorer.seen)) == len(scorer.seen) == selection.evaluations <= evaluations


def test_more_evaluations_never_find_worse() -> None:
    costs = [found_by(Known(), 3, budget).cost for budget in (1, 20, 60, 200, 600)]
    assert costs == sorted(costs, reverse=True)


def test_the_search_ends_when_nothing_is_gained() -> None:
    hasty, patient = (found_by(Known(), 1, 5000, patience=k).evaluations for k in (2, 12))
    assert hasty < patient < 5000


def test_the_same_seed_finds_the_same_and_the_global_generators_are_left_alone() -> None:
    random.seed(5)
    np.random.seed(5)
    wanted = random.random(), np.random.random()
    first = found_by(Known(), 11)
    random.seed(5)
    np.random.seed(5)
    second = found_by(Known(), 11)
    assert (random.random(), np.random.random()) == wanted
    assert np.array_equal(first.observations, second.observations)
    assert np.array_equal(first.columns, second.columns)
    assert first.evaluations == second.evaluations


def test_a_dearer_column_is_left_out() -> None:
    assert found_by(Known(), 2, price=0.31).columns.sum() == 0
    assert found_by(Known(), 2, price=0.1).columns.sum() == 2


def test_the_first_observations_of_an_inducer_are_the_ones_trained_on() -> None:
    layout = Layout.of(1, ["a", "solo", "a", "solo", "a"], ["a", "solo"], "solo")
    observations, columns = layout.selections([[1, 2, 1], [0, 0, 2]])
    assert observations.tolist() == [
        [True, True, True, False, False],
        [False, True, False, True, False],
    ]
    assert columns.tolist() == [[True], [False]]
    assert (layout.least.tolist(), layout.most.tolist()) == ([0, 1], [3, 2])
