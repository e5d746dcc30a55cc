"""The share of what a context's only configuration moves its predictions by that is taken.

The process carries what one configuration tells to other machine counts, by the sizes of its parts,
which are the same everywhere. Where a configuration tells of nothing but itself, as at a memory
cliff, that goes too far. So each other context is predicted without its runs and from each of its
configurations alone; the share is what would have served them best where both the configuration and
the question were near these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.contexts.context_process import Inputs, Process, squared_distances

REACH = 0.3
"""Distance (in logs) of the machines and of the scale, of the configuration or of the question, at
which what was left out counts half."""

SHARES = np.linspace(0.0, 1.0, 11)
"""Shares that are compared."""

SHARP = 50.0
"""The share is the mean of all, each weighted by the exponential of minus so many times its loss:
nearly the best of them, and no digit decides between two."""

FLOOR, LARGEST = 0.01, 1.0
"""Is added to an error (in logs), below which a difference is of no use; larger errors are alike.
The logs of these are what is minimised: the factor of an error counts, not its size."""

LEAST_CONTEXTS = 3
"""Minimum number of other contexts with several configurations: fewer prove no share."""

PRIOR = 0.1
"""Weight, in contexts at the question, of the squared distance of the share from 1."""


@dataclass(frozen=True, eq=False, slots=True)
class SingleRun:
    """The number ``point`` of the only configuration of a context in the process; ``places`` (n, 2)
    of what was left out of other contexts (as ``_at``), ``apart`` (n,) the squared distance of the
    configurations that it was predicted from to this one, ``losses`` (n, shares) with each share,
    in which each context counts as one."""

    process: Process
    point: int
    places: Floats
    apart: Floats
    losses: Floats

    @classmethod
    def of(cls, process: Process, owner: int) -> SingleRun | None:
        """Return that of a context; None if it has no or several configurations, or
        there are too few others."""
        owners = process.inputs.owner
        mine = np.flatnonzero(owners == owner)
        if owner < 0 or len(mine) != 1:
            return None
        at = _at(process.inputs)
        places, losses, contexts = [], [], 0
        for other in np.setdiff1d(owners, [owner]).tolist():
            points = np.flatnonzero(owners == other)
            contexts += len(points) > 1
            without = process.left_out_fold(points)[0]
            for i, point in enumerate(points.tolist()):
                rest = np.delete(points, i)
                if not len(rest):
                    continue
                before, after = np.delete(without, i), process.left_out_fold(rest)[0]
                left = before[:, None] - (before - after)[:, None] * SHARES
                loss = np.log(np.minimum(np.abs(left), LARGEST) + FLOOR)
                places.append(np.hstack([np.tile(at[point], (len(rest), 1)), at[rest]]))
                losses.append(loss / (len(points) * len(rest)))
        if contexts < LEAST_CONTEXTS:
            return None
        # Contexts often share their configurations.
        places_of, number = np.unique(np.concatenate(places), axis=0, return_inverse=True)
        together = np.zeros((len(places_of), len(SHARES)))
        np.add.at(together, number.ravel(), np.concatenate(losses))
        apart = squared_distances(places_of[:, :2], at[mine])[:, 0]
        return cls(process, int(mine[0]), places_of[:, 2:], apart, together)

    def share(self, at: Inputs) -> Floats:
        """(m,) share that is taken at these points."""
        near = 1.0 / (1.0 + squared_distances(_at(at), self.places) + self.apart)
        losses = near @ self.losses + PRIOR * (1.0 - SHARES) ** 2
        weights = np.exp(SHARP * (losses.min(axis=1, keepdims=True) - losses))
        return np.asarray(weights @ SHARES / weights.sum(axis=1))

    def untaken(self, at: Inputs) -> tuple[Floats, Floats]:
        """(m,) each: what is not taken of the process's mean, and the variance that this adds:
        either may be right."""
        moved, variance = self.process.moved_by(at, self.point)
        share = self.share(at)
        return (1.0 - share) * moved, (1.0 - share) * (variance + share * moved**2)


def _at(inputs: Inputs) -> Floats:
    """(n, 2) logs of machines and scale, in units of ``REACH``."""
    return np.column_stack([inputs.machines, inputs.numbers[:, 0]]) / REACH
