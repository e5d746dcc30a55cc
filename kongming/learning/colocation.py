"""Composition of environments: what a program meets next to one or more neighbours.

Pure: names and seconds per operation in, names and seconds per operation out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kongming.records import control
from kongming.records.errors import IncompatibleError, InputError
from kongming.records.run import Signature

Times = Mapping[str, float]
"""Seconds per operation by surrogate."""

MOST_REPEATS = 8
"""Repeated signatures that are averaged at the most: the newest."""


NO_SPREAD: Mapping[str, float] = MappingProxyType({})


def compose(
    base: Times,
    signatures: Iterable[Times],
    idle: Times,
    spread: Mapping[str, float] = NO_SPREAD,
) -> dict[str, float]:
    """Return the base environment with each neighbour's log slowdown over ``idle`` added to it. A
    neighbour never makes a surrogate faster: its part is 0 or more. The result has the surrogates
    that all of them have. Nothing may be counted twice: a live ``base`` already contains the
    residents of the node, so ``signatures`` are of newcomers only.

    ``spread``, in logs, is that of readings on the idle node (0 where it is not named). What of a
    slowdown is within it may be noise, which is never below 0 here and would add up: of several
    neighbours only the greatest of these parts counts. So models, which take the spread off once,
    get the sum of what they would get of each neighbour alone.

    Raises:
        InputError: a time is not finite and above 0 s.
    """
    neighbours = list(signatures)
    copies = Counter(map(id, neighbours))
    distinct = {id(neighbour): neighbour for neighbour in neighbours}
    names = set(base) & set(idle)
    for neighbour in distinct.values():
        names &= set(neighbour)
    composed = {}
    for name in sorted(names):
        log_time = _log(name, base[name])
        noises = []
        for key, neighbour in distinct.items():
            pressure = max(_log(name, neighbour[name]) - _log(name, idle[name]), 0.0)
            noise = min(pressure, spread.get(name, 0.0))
            log_time += copies[key] * (pressure - noise)
            noises.append(noise)
        composed[name] = math.exp(log_time + max(noises, default=0.0))
    return composed


def environment(
    signatures: Sequence[Times], idle: Times, spread: Mapping[str, float] = NO_SPREAD
) -> dict[str, float]:
    """Return the environment next to these neighbours on an otherwise idle node. The signature of a
    single neighbour is that environment, as measured; several are composed over ``idle``; without
    neighbours it is ``idle``.
    """
    if len(signatures) == 1:
        return dict(signatures[0])
    return compose(idle, signatures, idle, spread)


def newest_repeats(signatures: Iterable[Signature]) -> tuple[Signature, ...]:
    """Return those of an application's signatures on one node that are averaged, oldest first: of
    the identity of the newest, ``MOST_REPEATS`` at the most; empty without any."""
    by_time = sorted(signatures, key=lambda s: (s.fingerprint.started_at, s.id))
    alike = [signature for signature in by_time if signature.identity == by_time[-1].identity]
    return tuple(alike[-MOST_REPEATS:])


def mean_signature(signatures: Sequence[Signature]) -> dict[str, float]:
    """Return the geometric mean of repeated signatures of one application at one placement, without
    those that were disturbed (``control``). A surrogate that is missing in some of them is averaged
    over the others.

    Raises:
        InputError: there is none.
        IncompatibleError: they differ in application, identity, node, placement or suite version.
    """
    if not signatures:
        raise InputError("There is no signature to average.", field="signatures")
    first = signatures[0]
    for what, values in (
        ("application", {s.app for s in signatures}),
        ("identity", {s.identity for s in signatures}),
        ("node", {s.node_id for s in signatures}),
        ("placement", {s.placement for s in signatures}),
        ("suite version", {s.fingerprint.suite_version for s in signatures}),
    ):
        if len(values) > 1:
            raise IncompatibleError(
                f"The signatures of {first.app} differ in {what} and are not mixed.",
                hint=f"Give signatures of one {what} only.",
            )
    if len(signatures) == 1:
        return first.fingerprint.times()
    logs: dict[str, list[float]] = {}
    for signature in control.undisturbed(signatures):
        for name, seconds in signature.fingerprint.times().items():
            logs.setdefault(name, []).append(_log(name, seconds))
    return {name: math.exp(math.fsum(values) / len(values)) for name, values in logs.items()}


def _log(name: str, seconds: float) -> float:
    if not (math.isfinite(seconds) and seconds > 0.0):
        raise InputError(
            "is not a valid time.", field=name, value=seconds, allowed="a finite time above 0 s"
        )
    return math.log(seconds)
