"""STACK: the mean of the penalised models' log slowdowns, shrunk by what is not known.

The mean of members with different errors has a smaller error. All members have the same weight: a
profile has too few runs to learn weights from, and one run slowed forty-fold decides them.

How it is shrunk is in ``kongming.learning.consensus``. Validation is of this mean alone, without
what any neighbour adds to it (``kongming.learning.presence``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kongming.arrays import Floats
from kongming.learning import spaces
from kongming.learning.consensus import consensus
from kongming.learning.dataset import Dataset
from kongming.learning.posterior import Posterior, learn
from kongming.learning.registry import STACK
from kongming.learning.validation import Validation

__all__ = ["disagreement", "posterior", "stacked"]


def posterior(dataset: Dataset) -> Posterior:
    """Return what the dataset leaves open."""
    features = spaces.features(dataset.times, np.exp(dataset.idle), "log", dataset.spread)
    loads = sum(kind != "solo" for kind in dataset.kinds)
    return learn(features, dataset.y, loads=loads)


def stacked(members: Sequence[Validation]) -> Validation:
    """Return the stack's validation from those of its members, two or more, over the same folds.

    However few runs there are, nothing is selected: the fewer there are, the less validation can
    tell models apart, and the more their mean gains. What the runs leave open has no part in it: a
    family that was left out lies in a direction in which no other run went, so that every
    prediction would be that nothing is slowed, which says nothing of what the members learned.
    """
    first = members[0]
    predicted = consensus(np.stack([member.predictions for member in members], axis=1), 0.0)
    return Validation(
        STACK,
        first.rows,
        first.measured - predicted,
        first.weights,
        first.folds,
        predicted,
        first.measured,
    )


def disagreement(members: Sequence[Validation]) -> Floats:
    """Return (n,): the standard deviation of the members' predictions for each left-out run."""
    predicted = np.stack([member.predictions for member in members], axis=1)
    return np.asarray(predicted.std(axis=1, ddof=1), dtype=np.float64)
