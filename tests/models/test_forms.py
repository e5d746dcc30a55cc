"""Frozen forms that are made of others or of groups of columns, and what is refused of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.learning import predictor_loading as frozen
from kongming.records.errors import InputError

LINEAR = {"type": "linear", "coef": [1.0, 0.0, 2.0], "intercept": 0.5}
GROUPS = {"type": "groups", "groups": [[0, 2], [1]], "coef": [2.0, 0.5]}
ROWS = np.array([[0.0, 1.0, 2.0], [3.0, -1.0, -2.0]])


def test_a_group_counts_by_the_largest_of_its_columns() -> None:
    assert frozen.load(GROUPS, 3).predict(ROWS).tolist() == [4.5, 5.5]


def test_a_sum_is_that_of_its_parts() -> None:
    parts = [LINEAR, GROUPS, {"type": "constant", "value": -1.0}]
    predicted = frozen.load({"type": "sum", "parts": parts}, 3).predict(ROWS)
    alone = [frozen.load(part, 3).predict(ROWS) for part in parts]
    np.testing.assert_allclose(predicted, np.sum(alone, axis=0))


def test_predicting_leaves_the_rows_as_they_are() -> None:
    rows = ROWS.copy()
    frozen.load({"type": "sum", "parts": [LINEAR, GROUPS]}, 3).predict(rows)
    np.testing.assert_array_equal(rows, ROWS)


@pytest.mark.parametrize(
    "document",
    [
        GROUPS | {"groups": []},
        GROUPS | {"groups": [[0, 2], []]},
        GROUPS | {"groups": [[0, 2], [3]]},
        GROUPS | {"groups": [[0, 2], [-1]]},
        GROUPS | {"groups": [[0, 2], [True]]},
        GROUPS | {"groups": [[0, 2], [1.0]]},
        GROUPS | {"groups": [[0, 0], [1]]},
        GROUPS | {"groups": [0, 2]},
        GROUPS | {"groups": "02"},
        GROUPS | {"coef": [2.0]},
        GROUPS | {"coef": [2.0, float("inf")]},
        {"type": "sum"},
        {"type": "sum", "parts": []},
        {"type": "sum", "parts": {"0": LINEAR}},
        {"type": "sum", "parts": [LINEAR, None]},
        {"type": "sum", "parts": [LINEAR, LINEAR | {"coef": [1.0]}]},
        {"type": "sum", "parts": [{"type": "sum", "parts": [LINEAR]}]},
        LINEAR | {"intercept": 10**400},
    ],
)
def test_a_damaged_form_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="damaged"):
        frozen.load(document, 3)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), n=st.integers(0, 50), trees=st.integers(1, 5))
def test_trees_are_walked_as_they_are_written(seed: int, n: int, trees: int) -> None:
    random = np.random.default_rng(seed)
    documents = [_grown(random, columns=4) for _ in range(trees)]
    text = json.dumps({"type": "trees", "single_precision": False, "trees": documents})
    rows = random.normal(size=(n, 4))
    wanted = [sum(_walked(tree, row) for tree in documents) for row in rows]
    np.testing.assert_allclose(frozen.load(json.loads(text), 4).predict(rows), wanted)


def _grown(random: np.random.Generator, columns: int) -> dict[str, list[Any]]:
    tree: dict[str, list[Any]] = {
        "feature": [0],
        "threshold": [0.0],
        "left": [-1],
        "right": [-1],
        "value": [float(random.normal())],
    }
    for _ in range(int(random.integers(0, 8))):
        leaves = [i for i, left in enumerate(tree["left"]) if left < 0]
        split = int(random.choice(leaves))
        tree["feature"][split] = int(random.integers(columns))
        tree["threshold"][split] = float(random.normal())
        for side in ("left", "right"):
            tree[side][split] = len(tree["value"])
            for key, value in (("feature", 0), ("threshold", 0.0), ("left", -1), ("right", -1)):
                tree[key].append(value)
            tree["value"].append(float(random.normal()))
    return tree


def _walked(tree: dict[str, list[Any]], row: Any) -> float:
    node = 0
    while tree["left"][node] >= 0:
        below = row[tree["feature"][node]] <= tree["threshold"][node]
        node = tree["left" if below else "right"][node]
    return float(tree["value"][node])
