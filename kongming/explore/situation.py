"""View that a policy has when it chooses the next points: pure data, and candidates to choose
from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kongming.arrays import Floats
from kongming.explore.features import Features
from kongming.explore.space import Space
from kongming.explore.tree import ObliqueModelTree


@dataclass
class Situation:
    """The runs so far. Codes are those of ``Space``.

    ``runs`` (n, d) are the distinct points that succeeded, ``values`` (n,) their means, ``counts``
    (n,) how many runs of each did; ``repeatable`` are those of them that may be run again.
    ``succeeded`` (m, d) and ``failed`` are the codes of each run that did and that did not,
    ``pending`` further ones, ``again`` those that the batch repeats already.
    ``failures`` says of each run, in their order, whether it failed. ``pool`` stands for the space:
    all of it if ``complete``. ``cost_of`` gives (n,) costs of codes, or is None where all cost the
    same; ``budget_in_costs``: the budget pays those. ``noise``: the standard deviation of repeats,
    None if unknown; ``grow`` fits the policy's tree, of whose leaves each run is the best spread of
    ``draws``.
    """

    space: Space
    pool: Floats
    complete: bool
    runs: Floats
    values: Floats
    counts: np.ndarray
    repeatable: Floats
    succeeded: Floats
    failed: Floats
    failures: np.ndarray
    pending: Floats
    again: Floats
    weights: tuple[float, float, float]
    cost_of: Callable[[Floats], Floats] | None
    budget_in_costs: bool
    noise: float | None
    budget: int
    rng: np.random.Generator
    seed: int
    grow: Callable[[Floats, Floats], ObliqueModelTree]
    draws: int

    def tree(self) -> ObliqueModelTree | None:
        """A tree of all runs; None while there are fewer than two."""
        if len(self.values) < 2:
            return None
        return self.grow(self.features(self.runs), self.values)

    @cached_property
    def features(self) -> Features:
        return Features(self.space.dimensions)

    @cached_property
    def even_features(self) -> Features:
        """Columns on whose scales listed values lie evenly, for distances and where runs fail."""
        return Features(self.space.dimensions, "even")

    @cached_property
    def taken(self) -> set[bytes]:
        """The points that were run or are pending."""
        return keys(np.concatenate([self.runs, self.failed, self.pending]))

    def candidates(self, limit: int) -> Floats:
        """Draw at most ``limit`` codes that were never run nor suggested, uniformly."""
        pool = self.pool
        most = limit + len(self.taken)
        if len(pool) > most:
            pool = pool[np.sort(self.rng.choice(len(pool), most, replace=False, shuffle=False))]
        left = without(pool, self.taken)
        if len(left) > limit:
            left = left[np.sort(self.rng.choice(len(left), limit, replace=False))]
        return left


def keys(codes: Floats) -> set[bytes]:
    """Rows of codes as keys of a set; equal points have equal keys."""
    return {row.tobytes() for row in codes + 0.0}


def without(codes: Floats, taken: set[bytes]) -> Floats:
    """The codes that are not among the keys."""
    if not taken or not len(codes):
        return codes
    bound = np.frombuffer(b"".join(taken), dtype=np.float64).reshape(-1, codes.shape[1])
    # Only rows that agree in a weighted sum of their codes are compared as a whole. Sums are taken
    # column by column: numpy's own sums depend on how an array lies in memory.
    suspects = np.isin(_mixed(codes), _mixed(bound))
    keep = np.ones(len(codes), dtype=bool)
    for row in np.flatnonzero(suspects):
        keep[row] = (codes[row] + 0.0).tobytes() not in taken
    return codes[keep]


def _mixed(codes: Floats) -> Floats:
    mix = np.random.default_rng(0).uniform(1.0, 2.0, size=(codes.shape[1],))
    total = np.zeros(len(codes))
    filled = np.nan_to_num(codes, nan=-1e9)
    for place in range(codes.shape[1]):
        total += mix[place] * filled[:, place]
    return total
