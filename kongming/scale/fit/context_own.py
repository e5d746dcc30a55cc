"""Each context's own fit, and how far its predictions follow the model over all contexts.

A context with runs is answered between plain Ernest in relative errors, fitted to it alone, and the
model over all contexts: as far along as the latter was nearer to what was left out, of this context
and of others with as many runs, as far beyond them (a ridge regression through ``TRUST``, as of a
stack's forms). So contexts that say nothing about each other do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.ernest import ErnestFit, fit_ernest
from kongming.scale.fit.stack import beyond, share_of_way
from kongming.scale.fit.terms import Term
from kongming.scale.points import Integers, Points, Runs

LEAST = 2
"""Minimum number of configurations of a context that is fitted alone."""

TRUST = 0.5
"""Share of the way from a context's own fit to the model over all of them that is taken without
evidence."""

REACH = (0.3, 0.3, 0.3, 0.7)
"""Distances (in logs) at which what was left out counts half: of how far it was beyond the
context's machines, beyond those of all contexts, and beyond its scales, and of the number of
configurations it was predicted from."""

OTHER = 1.0
"""What was left out of another context counts as if it were so many of these away."""

HERE = 0.05
"""Distance (in logs) within which a configuration was run: its own runs tell it."""


@dataclass(frozen=True, eq=False, slots=True)
class OwnFits:
    """``fits`` (contexts,) are None for those with too few runs; ``places`` (n, 4) as in ``REACH``
    of what was left out of the contexts ``owner`` (n,); ``way`` and ``needed`` (n,) are logs of the
    common model's prediction and of the typical time over the own fit's prediction."""

    fits: tuple[ErnestFit | None, ...]
    places: Floats
    owner: Integers
    way: Floats
    needed: Floats

    @classmethod
    def untested(cls, fits: tuple[ErnestFit | None, ...]) -> OwnFits:
        """Of which nothing was left out."""
        none = np.empty(0)
        return cls(fits, np.empty((0, 4)), np.empty(0, np.intp), none, none)

    def trust(self, places: Floats, owner: int) -> Floats:
        """(m,) share of the way at ``places`` (m, 4) of a context."""
        near = self._near(places, np.full(len(places), owner))
        return share_of_way(near, self.way, self.needed, TRUST)

    def left_out(self) -> Floats:
        """(n,) the same for what was left out, learnt from all else."""
        near = self._near(self.places, self.owner)
        np.fill_diagonal(near, 0.0)
        return share_of_way(near, self.way, self.needed, TRUST)

    def _near(self, places: Floats, owner: Integers) -> Floats:
        steps = (places[:, None, :] - self.places[None, :, :]) / np.array(REACH)
        apart = np.sum(steps**2, axis=2) + OTHER * (owner[:, None] != self.owner[None, :])
        return np.asarray(1.0 / (1.0 + apart))

    def document(self) -> dict[str, Any]:
        return {
            "fits": [None if fit is None else fit.document() for fit in self.fits],
            "places": self.places.tolist(),
            "owner": self.owner.tolist(),
            "way": self.way.tolist(),
            "needed": self.needed.tolist(),
        }


def fit_own(runs: Runs, terms: Sequence[Term], items: float | None) -> ErnestFit | None:
    """Fit a context alone; None with too few runs."""
    if runs.count < LEAST or len(np.unique(runs.points.machines)) < 2:
        return None
    return fit_ernest(runs, terms, items, relative=True, rounds=0)


def places_in(points: Points, own: Points, ranges: tuple[float, float]) -> Floats:
    """(n, 4) places as in ``REACH`` of points in a context with these ``own`` configurations;
    ``ranges``: the fewest and most machines of all contexts."""
    machines, scale = np.log(own.machines), np.log(own.scale)
    at = np.log(points.machines)
    return np.column_stack(
        [
            beyond(at, float(machines.min()), float(machines.max())),
            beyond(at, float(np.log(ranges[0])), float(np.log(ranges[1]))),
            beyond(np.log(points.scale), float(scale.min()), float(scale.max())),
            np.full(len(points), np.log(len(own))),
        ]
    )


def away_from(points: Points, own: Points) -> Floats:
    """(n,) 0 at the context's own configurations, 1 away from them."""
    squared = np.log(points.machines[:, None] / own.machines) ** 2
    squared = squared + np.log(points.scale[:, None] / own.scale) ** 2
    return np.asarray(1.0 - np.exp(-squared.min(axis=1) / (2.0 * HERE**2)))
