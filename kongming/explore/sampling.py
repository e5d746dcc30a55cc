"""Uniform draws from the allowed points of a space, and lists of all of them.

Dimensions that no clause links are drawn apart. A group of linked dimensions is listed if it is
small enough, which also finds one allowed point in millions, or if so little of it is allowed that
rejection would take longer; of another, points are drawn and the forbidden ones rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kongming.arrays import Floats
from kongming.explore.dimensions import Dimension

MOST_LISTED = 1 << 21
"""Points of a group that are listed at most; of a larger group, if few of them are allowed."""
FEW = 20_000
"""Allowed points of a group that are listed wherever they can be: as many as stand for a space."""
_CHUNK = 1 << 17
_AT_ONCE = 1 << 15
"""Points of a group that are listed at a time: few enough to stay in the cache of a processor."""
_MOST_CODES = 1 << 25
"""Values of dimensions that are looked at to list a group of more points than ``MOST_LISTED``: text
in many clauses takes a quarter of a microsecond each."""
_MOST_TRIES = 1 << 26
"""Draws after which a group counts as empty."""

Judge = Callable[[Floats], tuple[Floats, np.ndarray]]
"""Of (n, d) codes: the codes with NaN where a dimension does not exist, and (n,) allowed."""


@dataclass
class Group:
    """Dimensions (by place) that clauses link, and how their joint values are judged."""

    places: tuple[int, ...]
    dimensions: Sequence[Dimension]
    judge: Judge | None

    @property
    def product(self) -> int | None:
        product = 1
        for dimension in self.dimensions:
            count = dimension.count
            if count is None:
                return None
            product *= count
        return product

    @cached_property
    def listed(self) -> tuple[Floats, Floats] | None:
        """All allowed (n, g) codes and their (n,) cumulated weights; None if there are too many."""
        product = self.product
        if product is None or (product > MOST_LISTED and not self._few_allowed(product)):
            return None
        starts = range(0, product, _AT_ONCE)
        parts = [self._allowed_at(np.arange(a, min(a + _AT_ONCE, product))) for a in starts]
        codes = np.concatenate(parts)
        weights = np.stack(
            [each.weights(codes[:, at]) for at, each in enumerate(self.dimensions)], axis=1
        )
        absent = np.isnan(codes)
        if absent.any():
            # What differs in absent dimensions alone is one point, as likely as the mean of those
            # in which they exist.
            mean = [1.0 / (dimension.count or 1) for dimension in self.dimensions]
            weights = np.where(absent, mean, weights)
            first = first_of_each(codes)
            codes, weights = codes[first], weights[first]
        return np.ascontiguousarray(codes), np.cumsum(weights.prod(axis=1))

    def _allowed_at(self, places: np.ndarray) -> Floats:
        """The (n, g) codes of the allowed ones of the points at (k,) places of the product, of
        which the last dimension varies fastest."""
        columns: list[Floats] = []
        for dimension, code_at in reversed(list(zip(self.dimensions, self._codes_at, strict=True))):
            # Much faster than numpy's divmod.
            above = places // (dimension.count or 1)
            columns.insert(0, code_at(places - above * (dimension.count or 1)))
            places = above
        # A column is together in memory, as expressions read it.
        codes = np.array(columns).T
        if self.judge is None:
            return codes
        codes, allowed = self.judge(codes)
        return codes[allowed]

    @cached_property
    def _codes_at(self) -> list[Callable[[np.ndarray], Floats]]:
        return [dimension.code_at() for dimension in self.dimensions]

    def _few_allowed(self, product: int) -> bool:
        """Return whether so few points of a large group are allowed, by a sample that is always the
        same, that going through all of it takes no more tries than to draw each of them."""
        if self.judge is None or product * len(self.dimensions) > _MOST_CODES:
            return False
        sample = np.random.default_rng(0).integers(product, size=_CHUNK)
        return len(self._allowed_at(sample)) * product <= FEW * _CHUNK

    def draw(self, count: int, rng: np.random.Generator, most_tries: int | None = None) -> Floats:
        """(count, g) codes; fewer (also none) where few tries find an allowed point."""
        if self.listed is not None:
            codes, cumulated = self.listed
            if not len(codes):
                return codes
            at = np.searchsorted(cumulated, rng.uniform(0.0, cumulated[-1], count), side="right")
            return codes[np.minimum(at, len(codes) - 1)]
        if self.judge is None:
            return np.stack([dimension.draw(count, rng) for dimension in self.dimensions], axis=1)
        chunks: list[Floats] = []
        have, tries, size = 0, 0, max(64, min(count, _CHUNK))
        while have < count and tries < (most_tries or _MOST_TRIES):
            codes = np.stack([dimension.draw(size, rng) for dimension in self.dimensions], axis=1)
            codes, allowed = self.judge(codes)
            chunks.append(codes[allowed])
            have += len(chunks[-1])
            tries += size
            size = min(2 * size, _CHUNK)
        return np.concatenate(chunks)[:count]


def groups(
    dimensions: Sequence[Dimension],
    linked: Sequence[frozenset[str]],
    judge: Callable[[tuple[int, ...]], Judge],
) -> list[Group]:
    """Join the dimensions that each set of ``linked`` names."""
    names = [dimension.name for dimension in dimensions]
    parent = list(range(len(names)))

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    bound: set[int] = set()
    for together in linked:
        places = sorted(names.index(name) for name in together)
        bound.update(places)
        for place in places[1:]:
            parent[root(place)] = root(places[0])
    members: dict[int, list[int]] = {}
    for place in range(len(names)):
        members.setdefault(root(place), []).append(place)
    return [
        Group(
            tuple(places),
            [dimensions[place] for place in places],
            judge(tuple(places)) if bound.intersection(places) else None,
        )
        for places in members.values()
    ]


def combined(parts: Sequence[Floats]) -> Floats:
    """Each row of each (n, g) part with each of all others, the last varying fastest.

    Grids of numpy have at most 64 axes.
    """
    count = repeats = math.prod(len(part) for part in parts)
    codes = np.empty((count, sum(part.shape[1] for part in parts)))
    at = 0
    for part in parts if count else ():
        repeats //= len(part)
        rows = np.tile(np.repeat(np.arange(len(part)), repeats), count // (repeats * len(part)))
        codes[:, at : at + part.shape[1]] = part[rows]
        at += part.shape[1]
    return codes


def first_of_each(codes: Floats) -> np.ndarray:
    """The places of distinct rows, in the order of their codes."""
    # numpy counts NaN as different from NaN here.
    comparable = np.where(np.isnan(codes), -np.inf, codes)
    return np.asarray(np.unique(comparable, axis=0, return_index=True)[1])
