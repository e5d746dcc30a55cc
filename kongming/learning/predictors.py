"""The forms of a frozen model: numbers in arrays, and predictions with only numpy.
``predictor_loading`` reads and checks documents before it creates these objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats

__all__ = ["Constant", "Groups", "Kernel", "Linear", "Predictor", "Sum", "Tree", "Trees"]

_KERNEL_ROWS = 2048
"""Maximum rows per block of a kernel, which keep its matrix small."""

_WALK_ROWS = 8192
"""Rows per block of a walk through trees: its arrays stay in cache, and its steps are few."""


class Predictor(Protocol):
    """A frozen model: features (n, p) to predictions (n,), in its space."""

    def predict(self, X: Floats) -> Floats: ...


@dataclass(frozen=True, eq=False, slots=True)
class Constant:
    value: float

    def predict(self, X: Floats) -> Floats:
        return np.full(len(X), self.value)


@dataclass(frozen=True, eq=False, slots=True)
class Linear:
    coef: Floats
    intercept: float

    def predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef + self.intercept, dtype=np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class Groups:
    """The largest of each group's columns, times the group's coefficient."""

    groups: tuple[NDArray[np.intp], ...]
    coef: Floats

    def predict(self, X: Floats) -> Floats:
        predicted = np.zeros(len(X))
        for members, coef in zip(self.groups, self.coef.tolist(), strict=True):
            if coef != 0.0:
                predicted += coef * worst(X, members)
        return predicted


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """Radial basis functions around support vectors, on standardised columns."""

    mean: Floats
    scale: Floats
    gamma: float
    support: Floats
    dual: Floats
    intercept: float
    norms: Floats = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norms", np.sum(self.support**2, axis=1))

    def predict(self, X: Floats) -> Floats:
        if len(X) <= _KERNEL_ROWS:
            return self._near(X) @ self.dual + self.intercept
        predicted = np.full(len(X), self.intercept)
        for start in range(0, len(X), _KERNEL_ROWS):
            near = self._near(X[start : start + _KERNEL_ROWS])
            predicted[start : start + _KERNEL_ROWS] += near @ self.dual
        return predicted

    def _near(self, X: Floats) -> Floats:
        return radial((X - self.mean) / self.scale, self.support, self.norms, self.gamma)


@dataclass(frozen=True, eq=False, slots=True)
class Sum:
    """The sum of several parts."""

    parts: tuple[Predictor, ...]

    def predict(self, X: Floats) -> Floats:
        predicted = np.zeros(len(X))
        for part in self.parts:
            predicted += part.predict(X)
        return predicted


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """One tree as parallel arrays; ``children`` holds left and right of each node in turn, and
    those of a leaf are the leaf itself."""

    feature: NDArray[np.intp]
    threshold: Floats
    children: NDArray[np.intp]
    value: Floats
    depth: int


@dataclass(frozen=True, eq=False, slots=True)
class Trees:
    """A sum of trees: at a node a row goes left when its feature is at most the threshold."""

    trees: tuple[Tree, ...]
    single_precision: bool

    def predict(self, X: Floats) -> Floats:
        predicted = np.zeros(len(X))
        data = X.astype(np.float32).astype(np.float64) if self.single_precision else X
        for start in range(0, len(X), _WALK_ROWS):
            rows = np.ascontiguousarray(data[start : start + _WALK_ROWS])
            self._add(rows, predicted[start : start + _WALK_ROWS])
        return predicted

    def _add(self, rows: Floats, predicted: Floats) -> None:
        n = len(rows)
        flat, first = rows.ravel(), np.arange(n) * rows.shape[1]
        # Arrays of a step are allocated once: memory traffic dominates its time. All indices were
        # checked when the trees were read, so "clip" never clips; it only avoids the copy that
        # "raise" makes.
        node, place = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp)
        value, threshold = np.empty(n), np.empty(n)
        beyond = np.empty(n, dtype=np.bool_)
        for tree in self.trees:
            node.fill(0)
            for _ in range(tree.depth):
                tree.feature.take(node, out=place, mode="clip")
                np.add(place, first, out=place)
                flat.take(place, out=value, mode="clip")
                tree.threshold.take(node, out=threshold, mode="clip")
                np.greater(value, threshold, out=beyond)
                np.add(node, node, out=node)
                np.add(node, beyond, out=node)
                tree.children.take(node, out=place, mode="clip")
                node, place = place, node
            predicted += tree.value.take(node)


def worst(X: Floats, members: NDArray[np.intp]) -> Floats:
    """Return (n,): the largest of the columns ``members`` in each row of ``X`` (n, p)."""
    # Column by column: a maximum along short rows takes several times as long.
    largest = X[:, members[0]].copy()
    for j in members[1:]:
        np.maximum(largest, X[:, j], out=largest)
    return largest


def radial(z: Floats, support: Floats, norms: Floats, gamma: float) -> Floats:
    """Return (n, m): exp(-gamma d²) of the distances d between rows of ``z`` (n, p) and of
    ``support`` (m, p), whose squared lengths are ``norms`` (m,)."""
    near = z @ support.T
    near *= -2.0
    near += (z * z).sum(axis=1)[:, None]
    near += norms
    # Rounding may make a distance slightly negative.
    np.maximum(near, 0.0, out=near)
    near *= -gamma
    return np.asarray(np.exp(near, out=near), dtype=np.float64)
