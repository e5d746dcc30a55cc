"""Surrogates that explain programs: rank correlation of runs with the fingerprint before them.

Ranks are within each recording, so that differences between machines, or between days that were
recorded apart, are no explanation: there are too few of them to prove anything. The
effective size of autocorrelated readings is smaller (Bartlett's formula for two series).
Of correlated surrogates the strongest is chosen first, regressed out of the program and of all
other surrogates, and the next is chosen by the residuals (partial rank correlation).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import special

from kongming.arrays import Floats
from kongming.audit.analysis.multiple import benjamini_hochberg, holm
from kongming.audit.analysis.quantile_intervals import order_ranks
from kongming.audit.analysis.series import Ints, Row, Series
from kongming.audit.analysis.settings import Settings

RUNS_FOR_EXPLANATION = 20
"""Minimum number of runs with a fingerprint."""

MISSING_SHARE = 0.2
"""A surrogate that is missing before more of the runs is left out."""

MAX_CHOSEN = 5
"""Maximum number of surrogates that explain one program."""


@dataclass(frozen=True, eq=False, slots=True)
class Fingerprints:
    """Readings of surrogates and signals by step of a session: ``values`` (steps, names), NaN where
    missing. ``key`` (steps,), ascending, is ``session * stride + position``, ``round`` the block;
    ``names`` are the name indices of the columns."""

    key: Ints
    stride: int
    round: Ints
    names: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class Explanation:
    """Correlation of a surrogate (or signal) with a program.

    ``rho`` is the rank correlation within recordings, ``p`` of none, ``adjusted`` the same
    with false discoveries controlled over all surrogates, programs and types of the audit.
    ``chosen`` is the order of choosing from 1; None if it adds nothing to those chosen. ``partial``
    is the correlation given those chosen before it.
    """

    name: int
    rho: float
    p: float
    adjusted: float
    effective: float
    chosen: int | None
    partial: float | None


@dataclass(frozen=True, eq=False, slots=True)
class _Candidates:
    """What may explain one program on the machines of one type.

    ``y`` (n,) of the program and ``x`` (n, p) of the surrogates are scores by recording, each of
    mean 0 within the recording and in order of time. ``names``, ``rho``, ``effective`` and ``p``
    are (p,).
    """

    program: int
    machine_type: int
    names: Ints
    y: Sequence[Floats]
    x: Sequence[Floats]
    rho: Floats
    effective: Floats
    p: Floats


def explanation_rows(series: Series, settings: Settings) -> list[Row]:
    """Rows of all programs and types."""
    return [
        {
            "type": series.types[candidates.machine_type],
            "program": series.names[candidates.program].name,
            "kind": series.names[explanation.name].kind,
            "name": series.names[explanation.name].name,
            "rho": explanation.rho,
            "effective": explanation.effective,
            "p": explanation.p,
            "adjusted_p": explanation.adjusted,
            "claimed": bool(explanation.adjusted <= settings.alpha),
            "chosen": explanation.chosen,
            "partial_rho": explanation.partial,
        }
        for candidates, explanations in _explained(series, settings.alpha)
        for explanation in explanations
    ]


def _explained(series: Series, alpha: float) -> Iterator[tuple[_Candidates, Sequence[Explanation]]]:
    """Explanations of each program on each type, the strongest first."""
    fingerprints = fingerprints_of(series)
    each = [
        candidates
        for program, name in enumerate(series.names)
        if name.kind == "program"
        for t in range(len(series.types))
        if (candidates := _candidates(series, fingerprints, program, t)) is not None
    ]
    if not each:
        return
    # Over the audit: within each program by itself, every twentieth of many would have a false one.
    adjusted = benjamini_hochberg(np.concatenate([candidates.p for candidates in each]))
    edges = np.cumsum([len(candidates.p) for candidates in each])[:-1]
    for candidates, own in zip(each, np.split(adjusted, edges), strict=True):
        yield candidates, _explanations(candidates, own, alpha)


def fingerprints_of(series: Series) -> Fingerprints:
    """All fingerprints of a series, as a matrix."""
    is_column = np.array([name.kind != "program" for name in series.names], dtype=bool)
    rows = np.flatnonzero(is_column[series.name])
    names = np.flatnonzero(is_column)
    stride = int(series.steps.position.max(initial=0)) + 2
    key, step = np.unique(
        series.steps.session[rows] * stride + series.steps.position[rows], return_inverse=True
    )
    values = np.full((len(key), len(names)), np.nan)
    values[step, np.searchsorted(names, series.name[rows])] = series.value[rows]
    block = np.empty(len(key), dtype=np.int64)
    block[step] = series.steps.round[rows]
    timed = np.array([series.names[k].timed for k in names.tolist()], dtype=bool)
    # The signals during a run were not known before it: they are no fingerprint.
    steps = ~np.isnan(values[:, timed]).all(axis=1) if timed.any() else np.zeros(len(key), bool)
    return Fingerprints(key[steps], stride, block[steps], names, values[steps])


def _candidates(
    series: Series, fingerprints: Fingerprints, program: int, machine_type: int
) -> _Candidates | None:
    """Return None below ``RUNS_FOR_EXPLANATION`` runs with a fingerprint."""
    if not len(fingerprints.key):
        return None
    ys, xs = [], []
    for machine in series.members(machine_type).tolist():
        where = series.slices.get((program, machine))
        if where is None:
            continue
        y, x, session = _runs_with_fingerprint(series, fingerprints, where)
        y = y if series.names[program].lower_is_better else -y
        for own in (session == number for number in np.unique(session)):
            if own.sum() >= 5:
                ys.append(y[own])
                xs.append(x[own])
    total = sum(map(len, ys))
    if total < RUNS_FOR_EXPLANATION:
        return None
    missing = np.isnan(np.concatenate(xs)).mean(axis=0)
    names = np.flatnonzero(missing <= MISSING_SHARE)
    if not len(names):
        return None
    y_scores = [_scores(y[:, None])[:, 0] for y in ys]
    x_scores = [_scores(x[:, names]) for x in xs]
    varies = np.concatenate(x_scores).any(axis=0)
    names, x_scores = names[varies], [scores[:, varies] for scores in x_scores]
    rho, effective, p = _test(y_scores, x_scores, 0)
    columns = fingerprints.names[names]
    return _Candidates(program, machine_type, columns, y_scores, x_scores, rho, effective, p)


def _explanations(candidates: _Candidates, adjusted: Floats, alpha: float) -> Sequence[Explanation]:
    chosen, partial = _chosen(candidates, adjusted, alpha)
    explanations = [
        Explanation(
            name=int(candidates.names[k]),
            rho=float(candidates.rho[k]),
            p=float(candidates.p[k]),
            adjusted=float(adjusted[k]),
            effective=float(candidates.effective[k]),
            chosen=int(chosen[k]) or None,
            partial=float(partial[k]) if chosen[k] else None,
        )
        for k in range(len(candidates.names))
    ]
    return sorted(explanations, key=lambda e: (e.chosen or np.inf, e.p, -abs(e.rho)))


def _chosen(candidates: _Candidates, adjusted: Floats, alpha: float) -> tuple[Ints, Floats]:
    """Choose among those that are discoveries; (p,) each: the order of choosing from 1 (0: not),
    and the partial correlation."""
    y, x = candidates.y, candidates.x
    all_y, all_x = np.concatenate(y), np.concatenate(x)
    chosen = np.zeros(len(adjusted), dtype=np.int64)
    partial = np.zeros(len(adjusted))
    edges = np.cumsum([len(values) for values in y])[:-1]
    candidate = adjusted <= alpha
    step = 0
    part, part_p = candidates.rho, np.where(candidate, candidates.p, np.nan)
    while candidate.any() and step < MAX_CHOSEN:
        # The first is tested as a discovery, further ones by what they add.
        passed = candidate if step == 0 else candidate & (holm(part_p) <= alpha)
        if not passed.any():
            break
        best = int(np.argmax(np.where(passed, np.abs(part), -1.0)))
        step += 1
        chosen[best], partial[best] = step, part[best]
        candidate[best] = False
        basis, _ = np.linalg.qr(all_x[:, chosen > 0])
        rest_y = all_y - basis @ (basis.T @ all_y)
        rest_x = all_x - basis @ (basis.T @ all_x)
        part, _, part_p = _test(np.split(rest_y, edges), np.split(rest_x, edges), step)
        part_p = np.where(candidate, part_p, np.nan)
    return chosen, partial


def _runs_with_fingerprint(
    series: Series, fingerprints: Fingerprints, where: slice
) -> tuple[Floats, Floats, Ints]:
    """Runs, the fingerprint of the step before theirs in their session and block, and sessions."""
    session, position = series.steps.session[where], series.steps.position[where]
    key = session * fingerprints.stride + position - 1
    at = np.minimum(np.searchsorted(fingerprints.key, key), len(fingerprints.key) - 1)
    known = fingerprints.key[at] == key
    known &= fingerprints.round[at] == series.steps.round[where]
    return series.value[where][known], fingerprints.values[at[known]], session[known]


def _scores(x: Floats) -> Floats:
    """Ranks of mean 0 and variance 1 by column; 0 where missing or constant."""
    scores = np.zeros(x.shape)
    for k in range(x.shape[1]):
        known = np.isfinite(x[:, k])
        if known.sum() < 3:
            continue
        ranks = order_ranks(x[known, k])
        ranks -= ranks.mean()
        scale = ranks.std()
        if scale > 0.0:
            scores[known, k] = ranks / scale
    return scores


def _test(y: Sequence[Floats], x: Sequence[Floats], removed: int) -> tuple[Floats, Floats, Floats]:
    """Pooled correlation, effective size and p-value by column; ``removed`` columns were regressed
    out."""
    products = np.sum([a @ b for a, b in zip(y, x, strict=True)], axis=0)
    squares = np.sum([(b**2).sum(axis=0) for b in x], axis=0)
    scale = np.sqrt(squares * sum(float(a @ a) for a in y))
    rho = np.where(scale > 1e-9, products / np.where(scale > 1e-9, scale, 1.0), 0.0)
    rho = np.clip(rho, -0.999999, 0.999999)
    effective = np.sum([len(a) / _cross_inflation(a, b) for a, b in zip(y, x, strict=True)], axis=0)
    # Each recording's mean takes a degree of freedom as well.
    freedom = effective - len(y) - removed - 2.0
    z = np.arctanh(rho) * np.sqrt(np.maximum(freedom, 0.0))
    p = np.where(freedom > 1.0, special.erfc(np.abs(z) / sqrt(2.0)), 1.0)
    return rho, effective, p


def _cross_inflation(y: Floats, x: Floats) -> Floats:
    """Variance inflation by column of ``x``: 1 + 2 sum of products of autocorrelations."""
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
    tau = 1.0 + 2.0 * (rho[:, :1] * rho[:, 1:]).sum(axis=0)
    return np.asarray(np.clip(tau, 1.0, float(n)))
