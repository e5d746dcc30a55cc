"""The next load level of a profile, by what other programs taught about levels.

Programs differ in a few ways, and each load level tells of some of them: what a program did under
the levels so far says much about its slowdown under similar ones. A Gaussian process over the
levels, whose covariance is that of the programs measured before (weighted by how much they resemble
this one, and shrunk towards one that knows only resources and intensities), says by how much each
level would reduce the variance that is left over all of them. Pure.

The profiler's policies learn from the runs of one program, of which there are few or none here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.records.run import LoadLevel

Levels = tuple[LoadLevel, ...]

FEWEST_PROGRAMS = 3
"""Programs below which the order of the plan is kept: a covariance of fewer says nothing."""

FIRST = 2
"""Levels of the plan's own order that come first: with none measured, programs look alike."""

NOISE = 9e-4
"""Variance of a log slowdown, from noise of 3%."""

SHRINK = 1.0
"""Programs at which the covariance of programs and that of resources weigh the same."""

LEAD = 0.5
"""How much the first level of the plan's order is preferred to the last, other things equal."""


WINDOW = 3
"""Levels of the plan's order among which the next one is chosen. What predicts other levels best is
not all that a model of the program is trained on: far from the plan's order its errors grow."""


def next_level(
    ladder: Sequence[Levels],
    measured: Sequence[Mapping[int, float]],
    taught: Floats,
    used: Collection[int],
) -> int | None:
    """Return the place in ``ladder`` of the level whose measurement is worth most, or None.

    Args:
        ladder: levels in the plan's own order, most informative first.
        measured: for each program that is run under the level, its log slowdowns so far, by place.
        taught: (p, l) log slowdowns of other programs, NaN where not measured.
        used: places that are not chosen again.
    """
    left = [place for place in range(len(ladder)) if place not in used]
    if not left:
        return None
    known = taught[np.isfinite(taught).sum(axis=1) * 2 >= len(ladder)]
    if len(known) < FEWEST_PROGRAMS or len(ladder) - len(left) < FIRST:
        return left[0]
    gains = sum(_gains(ladder, own, _filled(known)) for own in measured)
    lead = 1.0 + LEAD * (1.0 - np.arange(len(ladder)) / len(ladder))
    near = left[:WINDOW]
    return near[int(np.argmax((gains * lead)[near]))]


def _gains(ladder: Sequence[Levels], own: Mapping[int, float], taught: Floats) -> Floats:
    """(l,) variance over all levels that the measurement of each would remove."""
    weights = _resemblance(own, taught)
    deviations = taught - weights @ taught
    observed = deviations.T @ (weights[:, None] * deviations)
    scale = float(np.mean(np.diag(observed))) or NOISE
    effective = 1.0 / float(np.sum(weights**2))
    share = SHRINK / (SHRINK + effective)
    covariance = (1.0 - share) * observed + share * scale * _similarity(ladder)
    done = sorted(own)
    if done:
        across = covariance[:, done]
        inner = covariance[np.ix_(done, done)] + NOISE * np.eye(len(done))
        covariance = covariance - across @ np.linalg.solve(inner, across.T)
    return np.asarray((covariance**2).sum(axis=0) / (np.diag(covariance) + NOISE))


def _resemblance(own: Mapping[int, float], taught: Floats) -> Floats:
    """(p,) weights of programs, summing to 1, by their distance to what was measured."""
    if not own:
        return np.full(len(taught), 1.0 / len(taught))
    places = list(own)
    away = ((taught[:, places] - np.array([own[place] for place in places])) ** 2).mean(axis=1)
    weights = np.exp(-0.5 * away / max(float(np.median(away)), NOISE))
    return np.asarray(weights / weights.sum())


def _similarity(ladder: Sequence[Levels]) -> Floats:
    """(l, l) likeness of levels, 1 for the same: by intensity on each family and surrogate."""
    names = sorted({name for mix in ladder for level in mix for name in _names(level)})
    features = np.zeros((len(ladder), len(names)))
    for place, mix in enumerate(ladder):
        for level in mix:
            for name in _names(level):
                features[place, names.index(name)] += level.intensity * level.copies
    distances = ((features[:, None] - features[None]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.5 * distances))


def _names(level: LoadLevel) -> tuple[str, str]:
    return f"family {level.family}", level.surrogate


def _filled(taught: Floats) -> Floats:
    """Fill levels that a program was not run under by its own mean and that of the level."""
    missing: NDArray[np.bool_] = ~np.isfinite(taught)
    if not missing.any():
        return taught
    overall = float(np.nanmean(taught))
    rows = np.nanmean(taught, axis=1) - overall
    counts = np.isfinite(taught).sum(axis=0)
    columns = np.where(counts > 0, np.nansum(taught, axis=0) / np.maximum(counts, 1), overall)
    return np.where(missing, rows[:, None] + columns[None], taught)
