"""The share of a context's own fit in its answer, while the context has few configurations.

A few configurations tell the level of a context, which the process over all contexts takes from
them, shrunk by their noise; they hardly tell a shape of their own: four terms that are fitted to
two machine counts may have any. So the answer is an average (in logs) of the model over all
contexts and of the own fit. The weights follow from the errors of both near the question, when this
context and others were predicted from as few of their configurations: where contexts have little in
common, more of it is the own fit's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.points import Integers

FEW = 5
"""A context with fewer configurations than this is answered by the average. With as many or more
the own fit is the nearer one where contexts have nothing in common."""

DRAWN = 3
"""Sets of so few configurations that are drawn from each other context."""

POWER = 3.0
"""Weights are the errors to the power of minus this."""

FLOOR, LARGEST = 0.01, 1.0
"""Is added to a mean error (in logs), below which a difference is of no use; larger errors are
alike."""

PRIOR, PRIOR_COUNT = (0.1, 0.2), 0.05
"""Assumed errors of the model over all contexts and of an own fit, and the number of contexts at
the question that they count as."""


@dataclass(frozen=True, eq=False, slots=True)
class Compared:
    """Configurations that were left out of the contexts ``owner`` (n,): ``places`` (n, 5) as in
    ``context_own.REACH``; ``way`` and ``needed`` (n,) are logs of the common model's prediction and
    of the typical time over the own fit's prediction."""

    places: Floats
    owner: Integers
    way: Floats
    needed: Floats

    @classmethod
    def joined(cls, parts: Sequence[Compared], columns: int) -> Compared:
        """Return all ``parts`` together; of none it has no rows."""
        nothing = np.empty(0)
        empty = cls(np.empty((0, columns)), np.empty(0, np.intp), nothing, nothing)
        parts = [empty, *parts]
        return cls(
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.owner for part in parts]),
            np.concatenate([part.way for part in parts]),
            np.concatenate([part.needed for part in parts]),
        )

    def document(self) -> dict[str, Any]:
        return {
            "places": self.places.tolist(),
            "owner": self.owner.tolist(),
            "way": self.way.tolist(),
            "needed": self.needed.tolist(),
        }


def share_of_own(near: Floats, compared: Compared) -> Floats:
    """(m,) weight of the own fit at questions to which what was left out is as ``near`` (m, n).
    However much was left out of a context, it counts as one."""
    count = np.bincount(compared.owner)[compared.owner]
    near = near / np.maximum(count, 1)
    common, own = (
        (near @ np.minimum(np.abs(errors), LARGEST) + PRIOR_COUNT * assumed)
        / (near.sum(axis=1) + PRIOR_COUNT)
        + FLOOR
        for errors, assumed in zip(
            (compared.needed - compared.way, compared.needed), PRIOR, strict=True
        )
    )
    return np.asarray(common**POWER / (common**POWER + own**POWER))


def subsets(count: int, of: int, owner: int) -> list[Integers]:
    """Return sets of ``count`` numbers below ``of``, drawn at random; always the same for a context
    ``owner``."""
    if count >= of:
        return []
    random = np.random.default_rng([owner, count])
    return [np.sort(random.permutation(of)[:count]) for _ in range(DRAWN)]
