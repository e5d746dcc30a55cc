"""Over-allocation: launch more machines than needed and drop the slowest before the job starts.

Ernest (NSDI 2016), section 4.3: by memory and network bandwidth. A parallel step ends with its
slowest machine, so the runtime follows the slowest machine that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lgamma
from typing import Any

import numpy as np
from scipy.special import betainc, betaincinv, expit, log_expit

from kongming.arrays import Floats
from kongming.quantities import count, per_cent
from kongming.records.errors import CannotAnswerError, InputError
from kongming.scale.points import MACHINES, check_within

PRIOR = 0.5
"""Machines within the target, and outside of it, that are assumed besides the measured ones
(Jeffreys' prior of a share)."""

_TAIL, _PLACES = 1e-12, 2000


@dataclass(frozen=True, slots=True)
class Dropping:
    """Kept and dropped nodes. Slowness is 1 for the typical node; ``gain`` is the share of a
    parallel step's time that is saved, ``mean_gain`` that of a job that follows the mean."""

    retained: tuple[str, ...]
    dropped: tuple[str, ...]
    worst_before: float
    worst_after: float
    gain: float
    mean_gain: float


@dataclass(frozen=True, slots=True)
class Extra:
    """Number of extra machines: the slowest kept machine is within ``slowness`` (times the typical
    node) with probability ``probability``; ``without`` is that probability without extra machines.
    Both count that a few measured machines tell little of the share that is fast enough.
    ``share`` is extra over required machines, ``gain`` the share of a parallel step that is saved
    on average."""

    extra: int
    share: float
    probability: float
    without: float
    slowness: float
    gain: float


def slowness(readings: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Slowness by node: its worst reading over that of the typical node.

    ``readings`` are by node and name, in time per operation (less is better). A reading that at
    least half of the nodes lack is ignored.

    Raises:
        InputError: a reading is not a number above 0, or the nodes have none in common.
    """
    nodes = list(readings)
    names = dict.fromkeys(name for values in readings.values() for name in values)
    worst = dict.fromkeys(nodes, 0.0)
    used = 0
    for name in names:
        values = {node: readings[node][name] for node in nodes if name in readings[node]}
        for node, value in values.items():
            if not (np.isfinite(value) and value > 0.0):
                raise InputError(
                    "is out of range.", field=f"{node}: {name}", value=value, allowed="above 0"
                )
        if len(values) <= len(nodes) / 2:
            continue
        used += 1
        typical = float(np.median(list(values.values())))
        for node, value in values.items():
            worst[node] = max(worst[node], value / typical)
    missing = [node for node, value in worst.items() if value == 0.0]
    if not used or missing:
        raise InputError(
            "The nodes have no reading in common."
            if not used
            else f"{missing[0]} lacks every reading that the others share.",
            hint="Take the same fingerprint on every node: kongming fingerprint --json",
        )
    return worst


def drop_slowest(slow: Mapping[str, float], keep: int) -> Dropping:
    """Keep the ``keep`` fastest nodes.

    Raises:
        InputError: ``keep`` is not between 1 and the number of nodes.
    """
    if not 1 <= keep <= len(slow):
        raise InputError(
            "is out of range.", field="--keep", value=keep, allowed=f"1 to {len(slow)} nodes"
        )
    order = sorted(slow, key=lambda node: (slow[node], node))
    retained, dropped = order[:keep], order[keep:]
    # A launch without extra machines corresponds to a random choice of ``keep`` nodes.
    before = _expected_worst(np.array([slow[node] for node in order]), keep)
    after = slow[retained[-1]]
    mean_before = float(np.mean([slow[node] for node in order]))
    return Dropping(
        retained=tuple(retained),
        dropped=tuple(dropped),
        worst_before=before,
        worst_after=after,
        gain=1.0 - after / before,
        mean_gain=1.0 - float(np.mean([slow[node] for node in retained])) / mean_before,
    )


def extra_machines(
    spread: Sequence[float],
    wanted: int,
    *,
    target: float = 1.1,
    probability: float = 0.95,
    most: int | None = None,
) -> Extra:
    """Number of extra machines to launch so that the ``wanted`` fastest are all within ``target``
    times the typical node, with this probability. ``spread`` holds measured slownesses: they are
    taken for a sample of all machines, of which an unknown share is within the target. ``gain`` is
    of machines that are like the measured ones.

    Raises:
        InputError: a value is out of range.
        CannotAnswerError: no number of extras up to ``most`` suffices; without ``most``: none does,
            as no measured machine is within the target.
    """
    values = np.asarray(spread, dtype=np.float64)
    if len(values) < 2 or not np.isfinite(values).all() or (values <= 0.0).any():
        raise InputError("At least two nodes must be measured to estimate how they differ.")
    check_within("--machines", wanted, MACHINES)
    if not target > 0.0 or not 0.0 < probability < 1.0:
        raise InputError("is out of range.", field="--target", value=target, allowed="above 0")
    values = np.sort(values / float(np.median(values)))
    within = int(np.count_nonzero(values <= target))
    if within == 0:
        raise CannotAnswerError(
            f"No measured machine is within {target:g} times the typical one: extras do not help.",
            hint="Allow slower machines (--target).",
        )
    shares = _shares(within, len(values))
    extra = _needed(wanted, shares, probability, most)
    if extra is None:
        raise CannotAnswerError(
            f"Even {count(most or 0, 'extra machine')} will leave a machine slower than "
            f"{target:g} times the typical one in more than "
            f"{per_cent(100 * (1 - probability), '.0f')} of launches.",
            hint="Allow slower machines (--target), or more extras (--most).",
        )
    return Extra(
        extra=extra,
        share=extra / wanted,
        probability=_expected(wanted, wanted + extra, shares),
        without=_expected(wanted, wanted, shares),
        slowness=target,
        gain=1.0
        - _worst_of_fastest(values, wanted, wanted + extra)
        / _worst_of_fastest(values, wanted, wanted),
    )


def _shares(within: int, measured: int) -> tuple[Floats, Floats]:
    """(n,) shares of machines within the target that are possible after so many of the measured
    ones were, and the probability of each: the posterior distribution, in equal steps of its
    logit."""
    a, b = within + PRIOR, measured - within + PRIOR
    # From the other end, a share near 1 keeps its digits.
    low, rest = float(betaincinv(a, b, _TAIL)), float(betaincinv(b, a, _TAIL))
    logits = np.linspace(np.log(low / (1.0 - low)), np.log((1.0 - rest) / rest), _PLACES)
    logs = a * log_expit(logits) + b * log_expit(-logits)
    weights = np.exp(logs - logs.max())
    return expit(logits), weights / weights.sum()


def _needed(
    wanted: int, shares: tuple[Floats, Floats], probability: float, most: int | None
) -> int | None:
    """Fewest extras with which ``wanted`` machines are fast enough, with this probability; None if
    more than ``most``."""

    def suffices(extra: int) -> bool:
        return _expected(wanted, wanted + extra, shares) >= probability

    low, high = -1, 0
    while not suffices(high):
        if most is not None and high >= most:
            return None
        low, high = high, 2 * high + 1 if most is None else min(2 * high + 1, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _expected(wanted: int, launched: int, shares: tuple[Floats, Floats]) -> float:
    """Probability that ``wanted`` or more of the launched machines are fast enough: beta-binomial,
    by its sum over ``_shares``."""
    return float(_enough(wanted, launched, shares[0]) @ shares[1])


def _enough(wanted: int, launched: int, share: float | Floats) -> Any:
    """Probability that ``wanted`` or more of the launched machines are in a share of all."""
    # As bdtrc, which counts no further than an integer of C.
    return betainc(float(wanted), float(launched - wanted) + 1.0, share)


def _worst_of_fastest(ascending: Floats, wanted: int, launched: int) -> float:
    """Mean of the slowest of the ``wanted`` fastest of the launched machines, each drawn from the
    values."""
    n = len(ascending)
    within = np.concatenate([[0.0], _enough(wanted, launched, np.arange(1, n + 1) / n)])
    return float(np.diff(within) @ ascending)


def _expected_worst(ascending: Floats, keep: int) -> float:
    """Mean of the maximum over all subsets of size ``keep``."""
    n = len(ascending)
    # The i-th value is the maximum if it is drawn and no larger one is.
    logs = np.array([_log_choose(i, keep - 1) for i in range(n)]) - _log_choose(n, keep)
    return float(np.sum(np.exp(logs) * ascending))


def _log_choose(n: int, k: int) -> float:
    if k > n:
        return float("-inf")
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
