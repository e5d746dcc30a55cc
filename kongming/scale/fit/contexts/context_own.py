"""Each context's own fit, and how far its predictions follow the model over all contexts.

A context with runs is answered between plain Ernest in relative errors, fitted to it alone, and the
model over all contexts: as far along as the latter was nearer to what was left out, of this context
and of others with as many runs, as far beyond them (a ridge regression through ``TRUST``, as of a
stack's forms), less one standard error of that share, which contexts are the clusters of, and no
farther than most of what was tested. A step that is shorter than a third of the error which such
steps left is not taken (the non-negative garrote), between the configurations of the context, where
its own fit has runs on both sides, none that is shorter than that error. So contexts that say
nothing about each other do little harm, and so does a cliff that only some of them have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.scale.fit.contexts.context_cliff import JUMP, Step
from kongming.scale.fit.contexts.context_few import FEW, Compared, share_of_own
from kongming.scale.fit.ernest import ErnestFit, fit_ernest
from kongming.scale.fit.low_end import CHANCE
from kongming.scale.fit.shrinkage import distinct, error_left, share_of_way, standard_error
from kongming.scale.fit.stack import INDISTINCT, WIDEST_APART, beyond
from kongming.scale.fit.terms import Term
from kongming.scale.points import Integers, Points, Runs

LEAST = 2
"""Minimum number of configurations of a context that is fitted alone."""

TRUST = 0.2
"""Share of the way from a context's own fit to the model over all of them that is taken without
evidence."""

FURTHER, FURTHER_RANK = 0.05, 0.75
"""An answer is at most this far (in logs) from the own fit, and as much farther as this quantile of
the common model's distances from it on what was left out."""

MISSES, UNMET = 4.0, 0.5
"""And it is farther by a share of a step across a cliff that the own fit has not seen: all of it
but so many times the share of such steps that were not met when left out, to which so many are
added. Twenty that were all met allow 90 % of the step, a quarter missed none of it."""

LEAST_UNSURE = 0.1
"""Least share of the squared distance between own fit and common model that is their variance."""

PRIOR_COUNT = 4.0
"""Number of left-out fewest machines that the assumed chance of a cliff counts as."""

REACH = (0.15, 0.15, 0.3, 0.7, 0.5)
"""Distances (in logs) at which what was left out counts half: of how far it was beyond the
context's machines, beyond those of all contexts, and beyond its scales, of the number of
configurations it was predicted from, and of the step across a cliff that these had not."""

OTHER = 1.0
"""What was left out of another context counts as if it were so many of these away."""

HERE = 0.05
"""Distance (in logs) within which a configuration was run: its own runs tell it."""

BEYOND_OWN = [0, 2]
"""Columns of the places that have the distance beyond the context's own machines and scales."""

STEP = len(REACH) - 1
"""Column of the places that has the step across a cliff."""


@dataclass(frozen=True, slots=True)
class Furthest:
    """Largest distance (in logs) of an answer from the own fit, and the share of a step across a
    cliff by which it may be farther."""

    distance: float
    share: float

    def at(self, places: Floats) -> Floats:
        """(n,) largest distances at ``places`` (n, 5)."""
        return np.asarray(self.distance + self.share * np.abs(places[:, STEP]))


@dataclass(frozen=True, eq=False, slots=True)
class OwnFits:
    """``fits`` (contexts,) are None for those with too few runs; ``counts`` (contexts,) are the
    numbers of their configurations, of which the common model may have a part; ``compared`` is what
    was left out of them, ``drawn`` what was left out of contexts that were predicted from as few
    configurations as another has."""

    fits: tuple[ErnestFit | None, ...]
    counts: Integers
    compared: Compared
    drawn: Compared

    @classmethod
    def untested(cls, fits: tuple[ErnestFit | None, ...], counts: Integers) -> OwnFits:
        """Make fits of which nothing was left out."""
        none = Compared.joined((), len(REACH))
        return cls(fits, counts, none, none)

    def step(self, places: Floats, owner: int, way: Floats, furthest: Furthest) -> Floats:
        """(m,) how much of the ``way`` (m,) is taken at ``places`` (m, 5) of a context."""
        near = self._near(places, np.full(len(places), owner))
        return self._step(near, places, way, furthest)

    def few(self, owner: int) -> bool:
        """Tell whether a context is answered by the average."""
        return bool(self.counts[owner] < FEW)

    def share_of_own(self, places: Floats, owner: int) -> Floats:
        """(m,) share of the own fit in the average at ``places`` (m, 5) of a context."""
        return self._share_of_own(self._near(places, np.full(len(places), owner)), places, owner)

    def left_out(self) -> tuple[Floats, Floats]:
        """Return logs (n,) of typical over predicted time of what was left out, learnt from all
        else, and the variance (n,) of ``disagreement``."""
        places, owner, way = self.compared.places, self.compared.owner, self.compared.way
        near = self._near(places, owner)
        np.fill_diagonal(near, 0.0)
        step = self._step(near, places, way, self.furthest())
        unsure = disagreement(way, step)
        for i in np.flatnonzero(self.counts < FEW).tolist():
            mine = np.flatnonzero(owner == i)
            if len(mine):
                share = self._share_of_own(near[mine], places[mine], i)
                step[mine] = (1.0 - share) * way[mine]
                unsure[mine] = averaged_variance(way[mine], share)
        return self.compared.needed - step, unsure

    def furthest(self) -> Furthest:
        """Return how far from the own fit answers may be."""
        if not len(self.compared.way):
            return Furthest(WIDEST_APART, 0.0)
        tested = float(np.quantile(np.abs(self.compared.way), FURTHER_RANK))
        step = self.compared.places[:, STEP]
        across = np.abs(step) > JUMP
        met = (self.compared.needed * np.sign(step) > 0.5 * np.abs(step))[across]
        missed = 1.0 - met.sum() / (len(met) + UNMET)
        return Furthest(FURTHER + tested, max(1.0 - MISSES * float(missed), 0.0))

    def chance_of_cliff(self) -> float:
        """Return how often times below a context's fewest machines were longer than its own fit
        and the common model say, by a factor that is taken for a cliff."""
        below, needed = self.compared.places[:, 0] < 0.0, self.compared.needed
        unforeseen = np.minimum(needed, needed - self.compared.way)[below] > JUMP
        return float((unforeseen.sum() + PRIOR_COUNT * CHANCE) / (below.sum() + PRIOR_COUNT))

    def _step(self, near: Floats, places: Floats, way: Floats, furthest: Furthest) -> Floats:
        tested = self.compared.way, self.compared.needed
        share = share_of_way(near, *tested, TRUST)
        unsure = standard_error(near, *tested, share, self.compared.owner)
        most = furthest.at(places)
        step = np.clip(np.maximum(share - unsure, 0.0) * way, -most, most)
        between = np.all(np.abs(places[:, BEYOND_OWN]) < HERE, axis=1)
        lost = np.where(between, 1.0, INDISTINCT)
        return distinct(step, lost * error_left(near, *tested, share))

    def _share_of_own(self, near: Floats, places: Floats, owner: int) -> Floats:
        """Compute ``share_of_own`` by the nearness (m, n) of what was left out besides
        ``drawn``."""
        others = self.drawn.owner != owner
        of_drawn = _nearness(places, self.drawn.places, np.ones((len(places), len(others)), bool))
        compared = Compared.joined([self.compared, self.drawn], len(REACH))
        return share_of_own(np.hstack([near, of_drawn * others]), compared)

    def _near(self, places: Floats, owner: Integers) -> Floats:
        other = owner[:, None] != self.compared.owner[None, :]
        return _nearness(places, self.compared.places, other)

    def document(self) -> dict[str, Any]:
        return {
            "fits": [None if fit is None else fit.document() for fit in self.fits],
            **self.compared.document(),
            "counts": self.counts.tolist(),
            "drawn": self.drawn.document(),
        }


def _nearness(places: Floats, left_out: Floats, other: NDArray[np.bool_]) -> Floats:
    """(m, n) nearness of places (m, 5) to what was ``left_out`` (n, 5), also of ``other`` (m, n)
    contexts."""
    steps = (places[:, None, :] - left_out[None, :, :]) / np.array(REACH)
    return np.asarray(1.0 / (1.0 + np.sum(steps**2, axis=2) + OTHER * other))


def averaged_variance(way: Floats, share: Floats) -> Floats:
    """(n,) variance (of logs) of an average with the ``share`` (n,) of an own fit that is ``way``
    (n,) from the common model: either may be right."""
    return np.asarray(share * (1.0 - share) * np.minimum(np.abs(way), WIDEST_APART) ** 2)


def disagreement(way: Floats, step: Floats) -> Floats:
    """(n,) variance (of logs) of an answer that takes a ``step`` (n,) of the ``way`` (n,) from the
    own fit to the common model: either may be right."""
    share = step / np.where(way == 0.0, 1.0, way)
    apart = np.minimum(np.abs(way), WIDEST_APART)
    return np.asarray(np.maximum(share * (1.0 - share), LEAST_UNSURE) * apart**2)


def fit_own(runs: Runs, terms: Sequence[Term], items: float | None) -> ErnestFit | None:
    """Fit a context alone; None with too few runs."""
    if runs.count < LEAST or len(np.unique(runs.points.machines)) < 2:
        return None
    return fit_ernest(runs, terms, items, relative=True, rounds=0)


def places_in(
    points: Points, own: Points, ranges: tuple[float, float], step: Step | None
) -> Floats:
    """(n, 5) places as in ``REACH`` of points in a context with these ``own`` configurations;
    ``ranges``: the fewest and most machines of all contexts; ``step``: the context's cliff."""
    jumps, known = (
        np.zeros(len(each)) if step is None else step.jump * step.share(each)
        for each in (points, own)
    )
    machines, scale = np.log(own.machines), np.log(own.scale)
    at = np.log(points.machines)
    return np.column_stack(
        [
            beyond(at, float(machines.min()), float(machines.max())),
            beyond(at, float(np.log(ranges[0])), float(np.log(ranges[1]))),
            beyond(np.log(points.scale), float(scale.min()), float(scale.max())),
            np.full(len(points), np.log(len(own))),
            beyond(jumps, float(known.min()), float(known.max())),
        ]
    )


def away_from(points: Points, own: Points) -> Floats:
    """(n,) 0 at the context's own configurations, 1 away from them."""
    squared = np.log(points.machines[:, None] / own.machines) ** 2
    squared = squared + np.log(points.scale[:, None] / own.scale) ** 2
    return np.asarray(1.0 - np.exp(-squared.min(axis=1) / (2.0 * HERE**2)))
