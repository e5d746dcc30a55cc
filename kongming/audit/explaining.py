"""Which surrogates explain which programs: rank correlation of runs with the fingerprint before.

Ranks are taken within each machine, so that a fast machine is no explanation. Readings that
resemble their neighbours count as fewer (Bartlett's formula for two autocorrelated series).
Of surrogates that say the same, the strongest is chosen, its part is taken out of the program and
of all others, and the next is chosen from what is left (partial rank correlation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import special

from kongming.audit.intervals import order_ranks
from kongming.audit.multiple import benjamini_hochberg, holm
from kongming.audit.series import Ints, Series
from kongming.dataset import Floats

__all__ = ["Explanation", "Fingerprints", "correlations", "explain", "fingerprints"]

RUNS_FOR_EXPLAINING = 20

MISSING_SHARE = 0.2
"""A surrogate that is missing for more of the runs is left out."""

MOST_CHOSEN = 5


@dataclass(frozen=True, eq=False, slots=True)
class Fingerprints:
    """By step of a session, what surrogates and signals read: ``values`` (steps, names), NaN where
    missing; ``key`` (steps,) ascending is session and position in one number, ``round`` their
    block; ``names`` are indices of columns."""

    key: Ints
    wide: int
    session: Ints
    round: Ints
    names: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class Explanation:
    """A surrogate (or signal) and a program. ``rho`` is the rank correlation within machines, ``p``
    of no correlation, ``adjusted`` the same with false discoveries controlled over all surrogates.
    ``chosen`` counts from 1 in the order of choosing; None if it says nothing more than those that
    were chosen. ``partial`` is its correlation beside those chosen before it."""

    name: int
    rho: float
    p: float
    adjusted: float
    effective: float
    chosen: int | None
    partial: float | None


def fingerprints(series: Series) -> Fingerprints:
    """All fingerprints, as a matrix."""
    of_name = np.array([one.kind != "program" for one in series.names], dtype=bool)
    rows = np.flatnonzero(of_name[series.name])
    names = np.flatnonzero(of_name)
    wide = int(series.steps.position.max(initial=0)) + 2
    key, step = np.unique(
        series.steps.session[rows] * wide + series.steps.position[rows], return_inverse=True
    )
    values = np.full((len(key), len(names)), np.nan)
    values[step, np.searchsorted(names, series.name[rows])] = series.value[rows]
    session = np.empty(len(key), dtype=np.int64)
    block = np.empty(len(key), dtype=np.int64)
    session[step], block[step] = series.steps.session[rows], series.steps.round[rows]
    timed = np.array([series.names[k].timed for k in names.tolist()], dtype=bool)
    # A run has signals of its own time: those were not known before it.
    steps = ~np.isnan(values[:, timed]).all(axis=1) if timed.any() else np.zeros(len(key), bool)
    return Fingerprints(key[steps], wide, session[steps], block[steps], names, values[steps])


def explain(
    series: Series, prints: Fingerprints, program: int, machines: Ints, alpha: float = 0.05
) -> list[Explanation]:
    """Of one program, over these machines; the strongest first. Empty below
    ``RUNS_FOR_EXPLAINING`` runs with a fingerprint."""
    if not len(prints.key):
        return []
    ys, xs = [], []
    for machine in machines.tolist():
        where = series.slices.get((program, machine))
        if where is None:
            continue
        y, x = _met(series, prints, where)
        if len(y) >= 5:
            ys.append(y if series.names[program].lower_is_better else -y)
            xs.append(x)
    total = sum(map(len, ys))
    if total < RUNS_FOR_EXPLAINING:
        return []
    missing = np.isnan(np.concatenate(xs)).mean(axis=0)
    names = np.flatnonzero(missing <= MISSING_SHARE)
    if not len(names):
        return []
    y_scores = [_scores(one[:, None])[:, 0] for one in ys]
    x_scores = [_scores(one[:, names]) for one in xs]
    varies = np.concatenate(x_scores).any(axis=0)
    names, x_scores = names[varies], [one[:, varies] for one in x_scores]
    found = correlations(y_scores, x_scores, alpha)
    return [
        Explanation(
            name=int(prints.names[names[k]]),
            rho=float(found["rho"][k]),
            p=float(found["p"][k]),
            adjusted=float(found["adjusted"][k]),
            effective=float(found["effective"][k]),
            chosen=int(found["chosen"][k]) or None,
            partial=float(found["partial"][k]) if found["chosen"][k] else None,
        )
        for k in sorted(
            range(len(names)),
            key=lambda k: (found["chosen"][k] or np.inf, found["p"][k], -abs(found["rho"][k])),
        )
    ]


def correlations(
    y: Sequence[Floats], x: Sequence[Floats], alpha: float = 0.05
) -> Mapping[str, Floats]:
    """By machine, ``y`` (n,) and ``x`` (n, p), each of mean 0 within the machine, in order of time.

    Returns (p,) each: rho, p, adjusted, effective, chosen (0: not), partial.
    """
    whole_y, whole_x = np.concatenate(y), np.concatenate(x)
    rho, effective, p = _tested(list(y), list(x), 0)
    adjusted = benjamini_hochberg(p)
    chosen = np.zeros(len(rho))
    partial = np.zeros(len(rho))
    edges = np.cumsum([len(one) for one in y])[:-1]
    candidate = adjusted <= alpha
    step = 0
    part, part_p = rho, np.where(candidate, p, np.nan)
    while candidate.any() and step < MOST_CHOSEN:
        # The first is judged by the discoveries, further ones by what they add.
        passed = candidate if step == 0 else candidate & (holm(part_p) <= alpha)
        if not passed.any():
            break
        best = int(np.argmax(np.where(passed, np.abs(part), -1.0)))
        step += 1
        chosen[best], partial[best] = step, part[best]
        candidate[best] = False
        taken = whole_x[:, chosen > 0]
        basis, _ = np.linalg.qr(taken)
        left_y = whole_y - basis @ (basis.T @ whole_y)
        left_x = whole_x - basis @ (basis.T @ whole_x)
        part, _, part_p = _tested(np.split(left_y, edges), np.split(left_x, edges), step)
        part_p = np.where(candidate, part_p, np.nan)
    return {
        "rho": rho,
        "p": p,
        "adjusted": adjusted,
        "effective": effective,
        "chosen": chosen,
        "partial": partial,
    }


def _met(series: Series, prints: Fingerprints, where: slice) -> tuple[Floats, Floats]:
    """Runs and the fingerprint of the highest position below theirs in their session and block."""
    session, position = series.steps.session[where], series.steps.position[where]
    at = np.searchsorted(prints.key, session * prints.wide + position, side="left") - 1
    known = at >= 0
    known &= (prints.session[at] == session) & (prints.round[at] == series.steps.round[where])
    return series.value[where][known], prints.values[at[known]]


def _scores(x: Floats) -> Floats:
    """By column: ranks of mean 0 and variance 1; 0 where missing or constant."""
    made = np.zeros(x.shape)
    for k in range(x.shape[1]):
        known = np.isfinite(x[:, k])
        if known.sum() < 3:
            continue
        ranks = order_ranks(x[known, k])
        ranks -= ranks.mean()
        scale = ranks.std()
        if scale > 0.0:
            made[known, k] = ranks / scale
    return made


def _tested(y: Sequence[Floats], x: Sequence[Floats], taken: int) -> tuple[Floats, Floats, Floats]:
    """Pooled correlation, effective number and p by column; ``taken`` were regressed out."""
    products = np.sum([a @ b for a, b in zip(y, x, strict=True)], axis=0)
    squares = np.sum([(b**2).sum(axis=0) for b in x], axis=0)
    scale = np.sqrt(squares * sum(float(a @ a) for a in y))
    rho = np.where(scale > 1e-9, products / np.where(scale > 1e-9, scale, 1.0), 0.0)
    rho = np.clip(rho, -0.999999, 0.999999)
    effective = np.sum([len(a) / _cross_inflation(a, b) for a, b in zip(y, x, strict=True)], axis=0)
    # Each machine's mean is taken out as well.
    freedom = effective - len(y) - taken - 2.0
    z = np.arctanh(rho) * np.sqrt(np.maximum(freedom, 0.0))
    p = np.where(freedom > 1.0, special.erfc(np.abs(z) / sqrt(2.0)), 1.0)
    return rho, effective, p


def _cross_inflation(y: Floats, x: Floats) -> Floats:
    """By column of ``x``, how many pairs count as one: 1 + 2 sum of products of correlations."""
    n = len(y)
    lags = int(min(n // 4, 2.0 * sqrt(n)))
    if lags < 1:
        return np.ones(x.shape[1])
    both = np.column_stack((y, x))
    length = 1 << (n + lags).bit_length()
    spectrum = np.fft.rfft(both - both.mean(axis=0), length, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, length, axis=0)[: lags + 1]
    scale = covariance[0]
    rho = covariance[1:] / np.where(scale > 1e-12, scale, 1.0)
    found = 1.0 + 2.0 * (rho[:, :1] * rho[:, 1:]).sum(axis=0)
    return np.asarray(np.clip(found, 1.0, float(n)))
