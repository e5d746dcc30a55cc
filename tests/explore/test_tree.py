"""The tree of oblique splits: a scikit-learn regressor that finds kinks and steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kongming.explore import ObliqueModelTree
from kongming.explore.tree.lines import fit_line


@parametrize_with_checks([ObliqueModelTree(iterations=4, random_state=0)])
def test_it_is_a_scikit_learn_regressor(estimator: Any, check: Any) -> None:
    check(estimator)


def _grid() -> np.ndarray:
    axis = (np.arange(60) + 0.5) / 60
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize(
    ("shape", "ratio"), [("step", 0.5), pytest.param("kink", 0.1, marks=pytest.mark.thorough)]
)
def test_oblique_splits_near_a_slanted_line(shape: str, ratio: float) -> None:
    grid = _grid()
    above = grid @ np.array([1.2, 0.7]) - 1.0
    y = np.exp(np.abs(above)) if shape == "kink" else above + 2.0 * (above > 0.0)
    near = np.abs(above) / np.hypot(1.2, 0.7) < 0.05
    errors = []
    for split in ("oblique", "axis"):
        misses = []
        for seed in range(3):
            rows = np.random.default_rng(seed).choice(len(grid), 200, replace=False)
            tree = ObliqueModelTree(split=split, random_state=seed)  # type: ignore[arg-type]
            predicted = tree.fit(grid[rows], y[rows]).predict(grid[near])
            misses.append(np.mean((predicted - y[near]) ** 2))
        errors.append(np.median(misses))
    assert errors[0] < ratio * errors[1]


def test_a_tree_grows_by_the_columns_that_it_was_fitted_to() -> None:
    X = np.random.default_rng(0).random((40, 3))
    tree = ObliqueModelTree(random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="2 features"):
        tree.grow(X[:, :2], X[:, 0])


def test_options() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(120, 3))
    y = np.where(X[:, 0] > 0.5, 3.0, 0.0) + X[:, 1]
    variance = ObliqueModelTree(criterion="variance", split="axis", random_state=0).fit(X, y)
    assert np.abs(variance.predict(X) - y).max() < 0.2
    same = [ObliqueModelTree(random_state=3).fit(X, y).predict(X) for _ in range(2)]
    assert np.array_equal(*same)
    importances = variance.feature_importances_
    assert importances.argmax() == 0
    assert importances.sum() == pytest.approx(1.0)
    assert set(variance.apply(X)) == set(range(variance.leaf_count_))
    for wrong in ({"split": "round"}, {"criterion": "gini"}, {"iterations": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ObliqueModelTree(**wrong).fit(X, y)  # type: ignore[arg-type]


def test_a_line_is_one_leaf_and_fewer_runs_than_columns_are_enough() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(40, 3))
    line = ObliqueModelTree(random_state=0).fit(X, X @ np.array([1.0, -2.0, 3.0]))
    assert line.leaf_count_ == 1
    few = ObliqueModelTree(random_state=0).fit(X[:2], np.array([1.0, 2.0]))
    assert np.isfinite(few.predict(X)).all()
    constant = ObliqueModelTree(random_state=0).fit(X, np.full(40, 7.0))
    assert constant.predict(X) == pytest.approx(np.full(40, 7.0))


@pytest.mark.parametrize("samples", [4, 7, 9, 10, 14])
def test_a_line_through_all_samples_is_not_without_error(samples: int) -> None:
    """Noise in nine columns: what is left out is not predicted, however well the rest is fitted."""
    ratios = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(samples, 9)), rng.normal(size=samples)
        ratios.append(float(np.std(fit_line(X, y).residuals) / np.std(y)))
    assert np.median(ratios) > 0.5


def test_growing_online_keeps_the_first_splits() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 2))
    y = np.where(X[:, 0] + X[:, 1] > 1.0, 5.0, 0.0) + X[:, 0]
    tree = ObliqueModelTree(random_state=0).grow(X[:60], y[:60])
    first = tree.root_.normal
    assert first is not None
    tree.grow(X, y)
    assert np.array_equal(tree.root_.normal, first)
    assert np.mean((tree.predict(X) - y) ** 2) < 0.2


def test_predictions_do_not_depend_on_the_parts_they_are_computed_in() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((200, 3))
    tree = ObliqueModelTree(random_state=0).fit(X, np.where(X.sum(axis=1) > 1.5, 5.0, X[:, 0]))
    many = rng.random((10_000, 3))
    assert tree.leaf_count_ > 1
    places = [0, 4095, 4096, 9999]
    assert tree.predict(many)[places] == pytest.approx(tree.predict(many[places]), rel=1e-12)
    assert np.array_equal(tree.apply(many)[places], tree.apply(many[places]))
    line = tree._intercepts[tree.apply(many)] + (many * tree._slopes[tree.apply(many)]).sum(axis=1)
    assert tree.predict(many) == pytest.approx(line)
