"""The split of a node: a hyperplane by simulated annealing (paper 004, section 3.2, Algorithm 2).

Several chains are annealed side by side, so that numpy judges all their proposals at once.
"""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from kongming.arrays import Floats
from kongming.explore.tree.moments import Moments

Shape = Literal["oblique", "axis"]
Criterion = Literal["linear", "residual", "variance"]

_CHAINS = 8
_COOLING = (0.5, 0.005)
"""The first and the last temperature: the step in standard deviations of the samples, and (a tenth
of it) the loss of score that is accepted once in e proposals."""
_MACHINE_STEPS = 3000
_MOST_WIDENED = 400
"""Samples of a node up to which the widest gap is looked for."""
_CUTS = 31
"""Cuts across a direction that are judged."""


class Split(NamedTuple):
    """``x @ normal <= offset`` goes left."""

    normal: Floats
    offset: float
    score: float


def best_split(
    X: Floats,
    y: Floats,
    *,
    shape: Shape,
    criterion: Criterion,
    least: int,
    iterations: int,
    rng: np.random.Generator,
) -> Split | None:
    """The split of (n, p) samples with the lowest score, or None if no part may be so small.

    The score is -(|S1| R2(S1) + |S2| R2(S2)) / (|S1| + |S2|), with R2 of least squares in each
    part (``linear``); the share of the squared error about the lines (``residual``) or about the
    means (``variance``) that is left.

    Args:
        least: samples that each part keeps at least.
        iterations: temperatures; none for axis-parallel splits, which are searched.
    """
    n, p = X.shape
    centre, scale = X.mean(axis=0), X.std(axis=0)
    live = scale > 1e-12 * np.maximum(1.0, np.abs(centre))
    if n < 2 * least or not live.any():
        return None
    scale = np.where(live, scale, 1.0)
    U = (X - centre) / scale * live
    spread = y.std() or 1.0
    search = _Search(U, Moments(U, (y - y.mean()) / spread), criterion, least)
    normals, offsets, scores = _cuts(np.eye(p)[live], search)
    if not len(scores) or not np.isfinite(scores).any():
        return None
    order = np.argsort(scores, kind="stable")
    best = _refined(search, normals[order[0]], float(offsets[order[0]]), float(scores[order[0]]))
    if shape == "oblique" and live.sum() > 1:
        steep = _cuts(_slope_directions(U, y, live), search)
        normals, offsets, scores = (
            np.concatenate(pair) for pair in zip((normals, offsets, scores), steep, strict=True)
        )
        if criterion == "linear":
            # R2 is blind to a step until the cut is almost at it; the error is not.
            search.criterion = "residual"
            errors = search.scores(search.sides(normals, offsets))
            start = _best(normals, offsets, errors)
            normal, offset, _ = _anneal(search, *start, iterations // 2, live, rng)
            search.criterion = "linear"
            normals, offsets = np.concatenate([normals, normal[None]]), np.append(offsets, offset)
            scores = search.scores(search.sides(normals, offsets))
        annealed = _refined(
            search, *_anneal(search, *_best(normals, offsets, scores), iterations, live, rng)
        )
        # Only what is really better bends away from the axes.
        if annealed[2] < best[2] - 1e-9:
            best = annealed
    normal, offset, score = best
    if not search.is_hinge(normal, offset):
        if shape == "oblique" and criterion != "variance" and n <= _MOST_WIDENED:
            normal, offset = _widest(search, normal, offset, score)
        offset = _between_samples(U @ normal, offset)
    return Split(normal / scale, float(offset + centre @ (normal / scale)), float(score))


class _Search:
    """Scores of hyperplanes in standardised coordinates."""

    def __init__(self, U: Floats, moments: Moments, criterion: Criterion, least: int) -> None:
        self.U, self.moments, self.criterion, self.least = U, moments, criterion, least

    def sides(self, normals: Floats, offsets: Floats) -> np.ndarray:
        return np.asarray(normals @ self.U.T <= offsets[:, None])

    def scores(self, sides: np.ndarray) -> Floats:
        """(k,) scores of (k, n) sides; infinite where a part is too small."""
        inside = sides.sum(axis=1)
        fits = np.minimum(inside, len(self.U) - inside) >= self.least
        scores = np.full(len(sides), np.inf)
        if not fits.any():
            return scores
        lines = self.criterion != "variance"
        judged = sides if fits.all() else sides[fits]
        count, errors, deviation = self.moments.errors(judged, lines=lines)
        if self.criterion == "linear":
            share = np.divide(errors, deviation, out=np.zeros_like(errors), where=deviation > 1e-12)
            scores[fits] = -(count * (1.0 - share)).sum(axis=1) / len(self.U)
        else:
            scores[fits] = errors.sum(axis=1) / len(self.U)
        return scores

    def hinges(self, normals: Floats, offsets: Floats) -> tuple[Floats, Floats]:
        """Return where the lines of the two sides meet: the kink of a function that is
        continuous."""
        slopes = self.moments.slopes(self.sides(normals, offsets))
        difference = slopes[:, 0] - slopes[:, 1]
        length = np.linalg.norm(difference[:, 1:], axis=1)
        usable = length > 1e-9
        length = np.where(usable, length, 1.0)
        met = difference[:, 1:] / length[:, None]
        return (
            np.where(usable[:, None], met, normals),
            np.where(usable, -difference[:, 0] / length, offsets),
        )

    def is_hinge(self, normal: Floats, offset: float) -> bool:
        """Return whether the lines of both sides meet within the gap between them."""
        met, at = self.hinges(normal[None], np.array([offset]))
        before, after = self.sides(normal[None], np.array([offset])), self.sides(met, at)
        return bool((before == after).all() or (before != after).all())


def _slope_directions(U: Floats, y: Floats, live: np.ndarray) -> Floats:
    """Return where the function rises, and where the line through all samples errs: of a function
    of a weighted sum, both are directions of its weights."""
    directions = []
    target = y - y.mean()
    for _ in range(2):
        slopes = np.linalg.lstsq(U, target - target.mean(), rcond=None)[0] * live
        length = np.linalg.norm(slopes)
        if length > 1e-12:
            directions.append(slopes / length)
        target = np.abs(target - target.mean() - U @ slopes)
    return np.array(directions).reshape(-1, U.shape[1])


def _best(normals: Floats, offsets: Floats, scores: Floats) -> tuple[Floats, Floats, Floats]:
    """The candidates that the chains begin with."""
    order = np.argsort(scores, kind="stable")[:_CHAINS]
    return normals[order], offsets[order], scores[order]


def _cuts(directions: Floats, search: _Search) -> tuple[Floats, Floats, Floats]:
    """Normals, offsets and scores of cuts across each direction, at quantiles of the samples."""
    normals, offsets = [], []
    for direction in directions:
        projected = search.U @ direction
        values = np.unique(projected)
        middles = (values[1:] + values[:-1]) / 2.0
        if len(middles) > _CUTS:
            wanted = np.quantile(projected, np.linspace(0.0, 1.0, _CUTS + 2)[1:-1])
            places = np.searchsorted(middles, wanted).clip(0, len(middles) - 1)
            middles = middles[np.unique(places)]
        normals += [direction] * len(middles)
        offsets += middles.tolist()
    if not normals:
        return np.empty((0, search.U.shape[1])), np.empty(0), np.empty(0)
    across, at = np.array(normals), np.array(offsets)
    return across, at, search.scores(search.sides(across, at))


def _refined(
    search: _Search, normal: Floats, offset: float, score: float
) -> tuple[Floats, float, float]:
    """The best of all cuts across the same direction between this one's neighbours."""
    values = np.unique(search.U @ normal)
    middles = (values[1:] + values[:-1]) / 2.0
    reach = len(middles) // _CUTS + 1
    at = int(np.searchsorted(middles, offset))
    near = middles[max(at - reach, 0) : at + reach]
    if not len(near):
        return normal, offset, score
    scores = search.scores(search.sides(np.repeat(normal[None], len(near), axis=0), near))
    best = int(np.argmin(scores))
    if scores[best] < score:
        return normal, float(near[best]), float(scores[best])
    return normal, offset, score


def _anneal(
    search: _Search,
    normals: Floats,
    offsets: Floats,
    scores: Floats,
    iterations: int,
    live: np.ndarray,
    rng: np.random.Generator,
) -> tuple[Floats, float, float]:
    """Anneal the chains; half of them begin in a random direction through a random sample."""
    fill = max(_CHAINS - len(normals), _CHAINS // 2)
    directions = rng.normal(size=(fill, search.U.shape[1])) * live
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    through = (directions * search.U[rng.integers(len(search.U), size=fill)]).sum(axis=1)
    keep = _CHAINS - fill
    normals = np.concatenate([normals[:keep], directions])
    offsets = np.concatenate([offsets[:keep], through])
    scores = np.concatenate([scores[:keep], search.scores(search.sides(directions, through))])
    at = int(np.argmin(scores))
    best = (normals[at], float(offsets[at]), float(scores[at]))
    hot, cold = _COOLING
    for step in range(iterations):
        if step == 2 * iterations // 3:
            # What is left of the heat is spent around the best split so far.
            normals = np.repeat(best[0][None], _CHAINS, axis=0)
            offsets, scores = np.full(_CHAINS, best[1]), np.full(_CHAINS, best[2])
        temperature = hot * (cold / hot) ** (step / max(iterations - 1, 1))
        if step % 4 == 3 and search.criterion != "variance":
            moved, places = search.hinges(normals, offsets)
        else:
            moved = normals + temperature * rng.normal(size=normals.shape) * live
            moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
            places = offsets + temperature * rng.normal(size=len(offsets))
        proposed = search.scores(search.sides(moved, places))
        with np.errstate(invalid="ignore", over="ignore"):
            worse = proposed - scores
            accept = (worse <= 0.0) | (
                rng.uniform(size=len(worse)) < np.exp(-worse / (0.1 * temperature))
            )
        accept &= np.isfinite(proposed) | ~np.isfinite(scores)
        normals = np.where(accept[:, None], moved, normals)
        offsets = np.where(accept, places, offsets)
        scores = np.where(accept, proposed, scores)
        at = int(np.argmin(scores))
        if scores[at] < best[2]:
            best = (normals[at].copy(), float(offsets[at]), float(scores[at]))
    return best


def _widest(search: _Search, normal: Floats, offset: float, score: float) -> tuple[Floats, float]:
    """Return the hyperplane of the widest gap, of those that divide the samples alike: for a step
    it is likeliest to lie where the step is (a linear support vector machine)."""
    sides = search.sides(normal[None], np.array([offset]))
    machine = SVC(kernel="linear", C=1e4, max_iter=_MACHINE_STEPS)
    with warnings.catch_warnings():
        # It stops early on purpose; what it found is judged below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(search.U, sides[0])
    direction = -machine.coef_[0]
    length = float(np.linalg.norm(direction))
    if length < 1e-12:
        return normal, offset
    candidate, at = direction / length, np.array([machine.intercept_[0] / length])
    scores = search.scores(search.sides(candidate[None], at))
    return (candidate, float(at[0])) if scores[0] <= score + 1e-9 else (normal, offset)


def _between_samples(projected: Floats, offset: float) -> float:
    """Half-way between the nearest samples on both sides."""
    left, right = projected[projected <= offset], projected[projected > offset]
    if not len(left) or not len(right):
        return offset
    return float((left.max() + right.min()) / 2.0)
