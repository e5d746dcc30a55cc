"""Predictors made from a document, with numpy alone and without pickle.

A few forms (``predictors``) represent every model. ``load`` checks a document completely before
use: types, sizes, finite numbers, that every index points to a column, and that trees end (children
come after their parent and inside the arrays).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.learning.predictors import (
    Constant,
    Groups,
    Kernel,
    Linear,
    Predictor,
    Sum,
    Tree,
    Trees,
)
from kongming.records.errors import InputError

__all__ = ["Predictor", "load"]


def load(document: object, columns: int) -> Predictor:
    """Return the predictor of a frozen model over ``columns`` columns.

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
    if kind == "groups":
        return _groups(document, columns)
    if kind == "kernel":
        return _kernel(document, columns)
    if kind == "sum":
        return _sum(document, columns)
    if kind == "trees":
        trees = document.get("trees")
        single = document.get("single_precision")
        if not isinstance(trees, Sequence) or isinstance(trees, str) or not trees:
            raise _invalid("has no trees", trees)
        if not isinstance(single, bool):
            raise _invalid("has no precision", single)
        return Trees(tuple(_tree(tree, columns) for tree in trees), single)
    raise _invalid("is of an unknown type", kind)


def _sum(document: Mapping[str, Any], columns: int) -> Sum:
    parts = document.get("parts")
    if not isinstance(parts, list) or not parts:
        raise _invalid("has no parts", parts)
    for part in parts:
        # One level is enough for every model, and limits the depth of a document.
        if isinstance(part, Mapping) and part.get("type") == "sum":
            raise _invalid("has a sum within a sum", len(parts))
    return Sum(tuple(load(part, columns) for part in parts))


def _groups(document: Mapping[str, Any], columns: int) -> Groups:
    groups = document.get("groups")
    if not isinstance(groups, list) or not groups:
        raise _invalid("has no groups of columns", groups)
    members = []
    for group in groups:
        if not isinstance(group, list) or not group:
            raise _invalid("has a group without columns", group)
        members.append(_indices({"group": group}, "group", len(group), columns))
        if len(set(group)) < len(group):
            raise _invalid("has a column twice in a group", len(group))
    return Groups(tuple(members), _numbers(document, "coef", len(groups)))


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
            # Children come after their parent, so every walk ends.
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
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(f"has no valid {key}", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _invalid(f"has a {key} that is not a finite number", number)
    return number


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


def _invalid(what: str, value: object) -> InputError:
    shown = value if isinstance(value, int | float | str) or value is None else type(value).__name__
    return InputError(
        f"The model document is damaged: a frozen model {what}.",
        value=shown,
        hint="Train it again: kongming train",
    )
