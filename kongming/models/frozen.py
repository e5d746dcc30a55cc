"""Predictors made from a document, with numpy alone and without pickle.

Four forms hold every model. ``load`` checks all of it before anything is computed: types, sizes,
finite numbers, and that trees end (children come after their parent and inside the arrays).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kongming.dataset import Floats
from kongming.errors import InputError

__all__ = ["Constant", "Kernel", "Linear", "Predictor", "Trees", "load"]

_ROWS = 2048
"""Rows at a time: what keeps the walk's arrays in cache and a kernel's matrix small."""


class Predictor(Protocol):
    """What a frozen model does: features (n, p) to predictions (n,), in its space."""

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
class Kernel:
    """Radial basis functions around support vectors, on standardised columns."""

    mean: Floats
    scale: Floats
    gamma: float
    support: Floats
    dual: Floats
    intercept: float

    def predict(self, X: Floats) -> Floats:
        predicted = np.full(len(X), self.intercept)
        if not len(self.dual):
            return predicted
        norms = np.sum(self.support**2, axis=1)
        for start in range(0, len(X), _ROWS):
            z = (X[start : start + _ROWS] - self.mean) / self.scale
            squared = np.sum(z**2, axis=1)[:, None] + norms - 2.0 * (z @ self.support.T)
            predicted[start : start + _ROWS] += (
                np.exp(-self.gamma * np.maximum(squared, 0.0)) @ self.dual
            )
        return predicted


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """One tree as parallel arrays; ``left`` of a leaf is the leaf itself, as is ``right``."""

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
        for start in range(0, len(X), _ROWS):
            rows = np.ascontiguousarray(data[start : start + _ROWS])
            flat = rows.ravel()
            first = np.arange(len(rows)) * rows.shape[1]
            for tree in self.trees:
                node = np.zeros(len(rows), dtype=np.intp)
                for _ in range(tree.depth):
                    beyond = flat.take(first + tree.feature.take(node)) > tree.threshold.take(node)
                    node = tree.children.take(2 * node + beyond)
                predicted[start : start + _ROWS] += tree.value.take(node)
        return predicted


def load(document: object, columns: int) -> Predictor:
    """The predictor of a frozen model over so many columns.

    Raises:
        InputError: the document is not a valid frozen model.
    """
    if not isinstance(document, Mapping):
        raise _invalid("is not an object", document)
    kind = document.get("type")
    if kind == "constant":
        return Constant(_number(document, "value"))
    if kind == "linear":
        return Linear(_numbers(document, "coef", columns), _number(document, "intercept"))
    if kind == "kernel":
        return _kernel(document, columns)
    if kind == "trees":
        trees = document.get("trees")
        single = document.get("single_precision")
        if not isinstance(trees, Sequence) or isinstance(trees, str) or not trees:
            raise _invalid("has no trees", trees)
        if not isinstance(single, bool):
            raise _invalid("does not say its precision", single)
        return Trees(tuple(_tree(tree, columns) for tree in trees), single)
    raise _invalid("is of an unknown type", kind)


def _kernel(document: Mapping[str, Any], columns: int) -> Kernel:
    dual = _numbers(document, "dual", None)
    support = document.get("support")
    if not isinstance(support, list) or len(support) != len(dual):
        raise _invalid("has no support vector for each weight", len(dual))
    rows = [_numbers({"support": row}, "support", columns) for row in support]
    scale, gamma = _numbers(document, "scale", columns), _number(document, "gamma")
    if not (scale > 0.0).all() or gamma <= 0.0:
        raise _invalid("has a scale that is not above 0", gamma)
    return Kernel(
        mean=_numbers(document, "mean", columns),
        scale=scale,
        gamma=gamma,
        support=np.array(rows, dtype=np.float64).reshape(len(rows), columns),
        dual=dual,
        intercept=_number(document, "intercept"),
    )


def _tree(document: object, columns: int) -> Tree:
    if not isinstance(document, Mapping):
        raise _invalid("has a tree that is not an object", document)
    value = _numbers(document, "value", None)
    n = len(value)
    if n == 0:
        raise _invalid("has a tree without nodes", 0)
    threshold = _numbers(document, "threshold", n)
    feature = _indices(document, "feature", n, columns)
    left, right = (_indices(document, side, n, n, lowest=-1) for side in ("left", "right"))
    depths = [0] * n
    reached = [0] * n
    reached[0] = 1
    for i in range(n):
        if (left[i] < 0) != (right[i] < 0):
            raise _invalid("has a node with one child", i)
        for child in (left[i], right[i]):
            if child < 0:
                continue
            # Children after their parent: so no path returns, and every walk ends.
            if child <= i:
                raise _invalid("has a node whose child comes before it", i)
            depths[child] = depths[i] + 1
            reached[child] += 1
    if any(count != 1 for count in reached):
        raise _invalid("has a node without exactly one parent", reached.index(max(reached)))
    leaf = left < 0
    own = np.arange(n)
    return Tree(
        feature=feature,
        threshold=threshold,
        children=np.stack([np.where(leaf, own, left), np.where(leaf, own, right)], axis=1).ravel(),
        value=value,
        depth=max(depths),
    )


def _number(document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _invalid(f"has no valid {key}", value)
    return float(value)


def _numbers(document: Mapping[str, Any], key: str, size: int | None) -> Floats:
    values = document.get(key)
    if not isinstance(values, list) or (size is not None and len(values) != size):
        raise _invalid(f"has no valid list {key}", type(values).__name__)
    return np.array([_number({key: value}, key) for value in values], dtype=np.float64)


def _indices(
    document: Mapping[str, Any], key: str, size: int, end: int, *, lowest: int = 0
) -> NDArray[np.intp]:
    values = document.get(key)
    if not isinstance(values, list) or len(values) != size:
        raise _invalid(f"has no valid list {key}", type(values).__name__)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value < end:
            raise _invalid(f"has a {key} out of bounds", value)
    return np.array(values, dtype=np.intp)


def _invalid(what: str, found: object) -> InputError:
    shown = found if isinstance(found, int | float | str) or found is None else type(found).__name__
    return InputError(
        f"The model document is damaged: a frozen model {what}.",
        found=shown,
        hint="Train it again: kongming train",
    )
