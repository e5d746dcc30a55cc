"""A decision tree whose splits are hyperplanes and whose leaves are lines (paper 004)."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from kongming.arrays import Floats
from kongming.explore.tree.annealing import Criterion, Shape, best_split
from kongming.explore.tree.lines import Line, fit_line

_CHUNK = 1 << 12
_EXACT = 1e-10
"""Share of the variance of all samples below which a leaf is not split."""


@dataclass
class Node:
    """A region. ``rows`` are its samples; a leaf has no ``normal``."""

    rows: np.ndarray
    line: Line
    depth: int = 0
    normal: Floats | None = None
    offset: float = 0.0
    children: list[Node] = field(default_factory=list)
    tried: int = 0

    @property
    def error(self) -> float:
        """Squared leave-one-out residuals, summed over the node's leaves. The cuts, which saw all
        samples, stay as they are: new samples are missed by more."""
        if self.children:
            return sum(child.error for child in self.children)
        return float((self.line.residuals**2).sum())

    def leaves(self) -> list[Node]:
        if not self.children:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]


class ObliqueModelTree(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A regression tree with oblique or axis-parallel splits and least squares in each leaf.

    Args:
        split: ``oblique`` (hyperplanes by simulated annealing) or ``axis``.
        criterion: ``linear``, the paper's score of R2 in both parts; ``residual``, squared error
            about both lines; ``variance``, about both means (C.4).
        iterations: temperatures of the annealing of each split.
        min_samples_leaf: of each part of a split; by default the columns and 2 more.
        prune: whether splits that do not lower the leave-one-out error are taken back.
        random_state: a seed, a generator or None, as everywhere in scikit-learn.

    Attributes:
        leaf_count_: leaves of the fitted tree.
        feature_importances_ (p,): the drop of the squared error along each column, summing to 1.
    """

    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "split": ("oblique", "axis"),
        "criterion": ("linear", "residual", "variance"),
    }

    def __init__(
        self,
        *,
        split: Shape = "oblique",
        criterion: Criterion = "linear",
        iterations: int = 30,
        min_samples_leaf: int | None = None,
        prune: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.split = split
        self.criterion = criterion
        self.iterations = iterations
        self.min_samples_leaf = min_samples_leaf
        self.prune = prune
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to ``X`` (n, p) and ``y`` (n,).

        Raises:
            ValueError: a parameter or the data is not valid.
        """
        self._check_parameters()
        data, wanted = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        rows = np.arange(len(data))
        root = Node(rows, fit_line(data, wanted))
        self._settle(root, data, wanted)
        return self

    def grow(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Keep the splits of the fitted tree, and split its leaves further by all samples given:
        the online training of paper 004, C.3. Fits where nothing was fitted."""
        if not hasattr(self, "root_"):
            return self.fit(X, y)
        data, wanted = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=False)
        self._refill(self.root_, np.arange(len(data)), data, wanted, None)
        self._settle(self.root_, data, wanted, fixed=True)
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return (n,) predictions for ``X`` (n, p)."""
        data = self._checked(X)
        predicted = np.empty(len(data))
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            leaves = self._leaves(part)
            # The slopes of each row fit into a cache only part by part.
            along = np.einsum("ij,ij->i", part, self._slopes[leaves])
            np.add(self._intercepts[leaves], along, out=predicted[start : start + _CHUNK])
        return predicted

    def apply(self, X: ArrayLike) -> np.ndarray:
        """The (n,) leaf of each row, counted from 0."""
        data = self._checked(X)
        parts = [
            self._leaves(data[start : start + _CHUNK]) for start in range(0, len(data), _CHUNK)
        ]
        return np.concatenate(parts)

    # Growth

    def _settle(self, root: Node, X: Floats, y: Floats, *, fixed: bool = False) -> None:
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        floor = _EXACT * float(((y - y.mean()) ** 2).sum())
        for leaf in root.leaves():
            self._expand(leaf, X, y, floor, rng)
            if self.prune:
                _prune(leaf)
        self.root_ = root
        self._flatten(root, X, y)

    def _expand(
        self, root: Node, X: Floats, y: Floats, floor: float, rng: np.random.Generator
    ) -> None:
        least = self.min_samples_leaf or min(X.shape[1], max(len(X) // 4, 1)) + 2
        waiting = [root]
        while waiting:
            node = waiting.pop()
            rows = node.rows
            if len(rows) < 2 * least or len(rows) == node.tried or node.error <= floor:
                continue
            node.tried = len(rows)
            split = best_split(
                X[rows],
                y[rows],
                shape=self.split,
                criterion=self.criterion,
                least=least,
                iterations=self.iterations,
                rng=rng,
            )
            if split is None:
                continue
            left = X[rows] @ split.normal <= split.offset
            if not least <= left.sum() <= len(rows) - least:
                continue
            node.normal, node.offset = split.normal, split.offset
            for part in (rows[left], rows[~left]):
                line = fit_line(X[part], y[part], node.line)
                node.children.append(Node(part, line, node.depth + 1))
            waiting += node.children

    def _refill(
        self, node: Node, rows: np.ndarray, X: Floats, y: Floats, parent: Line | None
    ) -> None:
        node.rows = rows
        if len(rows):
            node.line = fit_line(X[rows], y[rows], parent)
        if node.children and node.normal is not None:
            left = X[rows] @ node.normal <= node.offset
            for child, part in zip(node.children, (rows[left], rows[~left]), strict=True):
                self._refill(child, part, X, y, node.line)

    # The arrays that predict

    def _flatten(self, root: Node, X: Floats, y: Floats) -> None:
        splits: list[Node] = []
        leaves: list[Node] = []

        def place(node: Node) -> int:
            """Splits count from 0 upwards, leaves from -1 downwards."""
            if not node.children:
                leaves.append(node)
                return -len(leaves)
            at = len(splits)
            splits.append(node)
            turns.append([0, 0])
            turns[at] = [place(child) for child in node.children]
            return at

        turns: list[list[int]] = []
        place(root)
        p = X.shape[1]
        self._turns = np.array(turns, dtype=np.intp).reshape(-1, 2)
        self._normals = np.array([node.normal for node in splits]).reshape(-1, p)
        self._offsets = np.array([node.offset for node in splits])
        self._intercepts = np.array([leaf.line.intercept for leaf in leaves])
        self._slopes = np.array([leaf.line.slopes for leaf in leaves]).reshape(-1, p)
        self.leaf_count_ = len(leaves)
        self.leaves_ = leaves
        drops = np.zeros(p)
        scale = X.std(axis=0)
        for node in splits:
            weight = np.abs(node.normal if node.normal is not None else 0.0) * scale
            drop = max(float((node.line.residuals**2).sum()) - node.error, 0.0)
            drops += drop * weight / max(weight.sum(), 1e-300)
        for leaf in leaves:
            drops += len(leaf.rows) * (leaf.line.slopes * scale) ** 2
        self.feature_importances_ = drops / drops.sum() if drops.sum() > 0 else drops

    def _checked(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _leaves(self, part: Floats) -> np.ndarray:
        """The (n,) leaves of some rows, which descend the tree side by side."""
        at = np.zeros(len(part), dtype=np.intp)
        if not len(self._turns):
            return at
        turns = self._turns.ravel()
        sides = (part @ self._normals.T > self._offsets).ravel()
        moving = np.arange(len(part))
        row, here = moving * len(self._turns), at
        while len(moving):
            here = turns.take(2 * here + sides.take(row + here))
            at[moving] = here
            on = here >= 0
            moving, row, here = moving[on], row[on], here[on]
        return -1 - at

    def _check_parameters(self) -> None:
        for name, allowed in self._choices.items():
            if getattr(self, name) not in allowed:
                raise self._refused(name, f"one of {', '.join(allowed)}")
        for name, least in (("iterations", 0), ("min_samples_leaf", 1)):
            value: Any = getattr(self, name)
            if value is None and name == "min_samples_leaf":
                continue
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise self._refused(name, f"a whole number from {least}")

    def _refused(self, name: str, allowed: str) -> ValueError:
        return ValueError(
            f"The {name!r} parameter of ObliqueModelTree must be {allowed}. "
            f"Got {getattr(self, name)!r} instead."
        )


def _prune(node: Node) -> None:
    """Take back splits below which the lines left out predict no better than the node's own."""
    for child in node.children:
        _prune(child)
    if node.children and node.error >= float((node.line.residuals**2).sum()):
        node.children, node.normal = [], None
