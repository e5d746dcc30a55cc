"""How a fingerprint is kept: what many have in common once, and only its numbers in each row.

A node reports a fingerprint a minute. Its facts, the surrogates' descriptions and the names of
the passive signals are the same each time; they are *parts*, found by a hash of their content.
A row of the first two revisions holds the whole JSON form instead, and is read as such.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from kongming.errors import InputError
from kongming.fingerprint import Fingerprint, NodeFacts, Reading

Parts = dict[str, Any]
"""Parts by their id."""

_COUNTERS = ("nr_periods", "nr_throttled", "throttled_us")
"""Of the control group: they rise all the time, and are kept in the row."""

_NUMBERS = ("seconds_per_op", "median", "p90", "n", "ops", "elapsed_s")


def part(document: object) -> tuple[str, object]:
    """A part's id, and the part. Raises InputError for NaN, which is not JSON."""
    try:
        text = json.dumps(document, allow_nan=False, separators=(",", ":"), sort_keys=True)
    except ValueError as error:
        raise InputError(f"A record cannot be kept: {error}.") from error
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest(), document


def facts(node: NodeFacts) -> tuple[str, object]:
    """The part of a node's facts: without what its control group counts."""
    document = node.to_dict()
    document["cgroup"] = {k: 0 if k in _COUNTERS else v for k, v in node.cgroup.items()}
    return part(document)


class FactsAtHand:
    """``facts`` for one who packs fingerprints of the same nodes again and again."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[NodeFacts, tuple[str, object]]] = {}

    def __call__(self, node: NodeFacts) -> tuple[str, object]:
        known = self._made.get(node.id)
        # The very same object, not an equal one: comparing costs as much as making.
        if known is not None and known[0] is node:
            return known[1]
        if len(self._made) >= _NODES_AT_HAND:
            self._made.clear()
        made = facts(node)
        self._made[node.id] = (node, made)
        return made


_NODES_AT_HAND = 20_000


@lru_cache(maxsize=128)
def _kinds_part(suite: str, kinds: tuple[tuple[Any, ...], ...]) -> tuple[str, object]:
    return part({"suite": suite, "surrogates": [list(kind) for kind in kinds]})


@lru_cache(maxsize=128)
def _names_part(names: tuple[str, ...]) -> tuple[str, object]:
    return part(list(names))


def pack(
    fingerprint: Fingerprint, facts_of: Callable[[NodeFacts], tuple[str, object]] = facts
) -> tuple[dict[str, Any], Parts]:
    """A row's document, and the parts that it names.

    Raises:
        InputError: a number that cannot be true.
    """
    kinds, values = [], []
    for name, reading in fingerprint.surrogates.items():
        kinds.append((name, reading.family, reading.op, reading.size_bytes, reading.direct))
        values.append(_values(name, reading))
    _check_finite("elapsed_s", fingerprint.elapsed_s)
    if not all(map(math.isfinite, fingerprint.passive.values())):
        for name, value in fingerprint.passive.items():
            _check_finite(f"passive.{name}", value)
    facts_id, facts_part = facts_of(fingerprint.node)
    kinds_id, kinds_part = _kinds_part(fingerprint.suite, tuple(kinds))
    names_id, names_part = _names_part(tuple(fingerprint.passive))
    document: dict[str, Any] = {
        "facts": facts_id,
        "kinds": kinds_id,
        "names": names_id,
        "at": fingerprint.started_at,
        "elapsed_s": fingerprint.elapsed_s,
        "values": values,
        "passive": list(fingerprint.passive.values()),
    }
    counted = {k: v for k in _COUNTERS if (v := fingerprint.node.cgroup.get(k, 0)) != 0}
    for name, value in counted.items():
        _check_finite(f"node.cgroup.{name}", value)
    if counted:
        document["cgroup"] = counted
    if fingerprint.warnings:
        document["warnings"] = list(fingerprint.warnings)
    return document, {facts_id: facts_part, kinds_id: kinds_part, names_id: names_part}


def _values(name: str, reading: Reading) -> list[Any] | str:
    if not reading.ok:
        return reading.error or "no timed work"
    mean, median, p90 = reading.seconds_per_op, reading.median, reading.p90
    if not (_is_cost(mean) and _is_cost(median) and _is_cost(p90)):
        costs = zip(_NUMBERS, (mean, median, p90), strict=False)
        key, value = next(one for one in costs if not _is_cost(one[1]))
        raise InputError(
            "cannot be true.",
            field=f"surrogates.{name}.{key}",
            found=value,
            allowed="a finite time above 0 s",
        )
    if not math.isfinite(reading.elapsed_s):
        _check_finite(f"surrogates.{name}.elapsed_s", reading.elapsed_s)
    values = [mean, median, p90, reading.n, reading.ops, reading.elapsed_s]
    return [*values, True] if reading.partial else values


def _is_cost(seconds: float | None) -> bool:
    return seconds is not None and 0.0 < seconds < math.inf


def _check_finite(field: str, value: float) -> None:
    if not math.isfinite(value):
        raise InputError("A record cannot be kept: no number.", field=field, found=value)


def part_ids(document: Mapping[str, Any]) -> Iterator[str]:
    """The parts that a row's document names."""
    if "schema" not in document:
        yield from (document["facts"], document["kinds"], document["names"])


def unpack(
    fingerprint_id: str,
    cpu: int,
    suite_version: str,
    document: Mapping[str, Any],
    parts: Mapping[str, Any],
) -> Fingerprint:
    """The fingerprint of a row of any revision; ``parts`` holds those that it names."""
    if "schema" in document:
        return Fingerprint.from_dict(document)
    node = parts[document["facts"]]
    if "cgroup" in document:
        node = node | {"cgroup": node["cgroup"] | document["cgroup"]}
    kinds = parts[document["kinds"]]
    return Fingerprint(
        node=NodeFacts.from_dict(node),
        suite=kinds["suite"],
        suite_version=suite_version,
        cpu=cpu,
        started_at=document["at"],
        elapsed_s=document["elapsed_s"],
        surrogates={
            kind[0]: _reading(kind, values)
            for kind, values in zip(kinds["surrogates"], document["values"], strict=True)
        },
        passive=dict(zip(parts[document["names"]], document["passive"], strict=True)),
        warnings=tuple(document.get("warnings", ())),
        id=fingerprint_id,
    )


def _reading(kind: list[Any], values: list[Any] | str) -> Reading:
    name, family, op, size_bytes, direct = kind
    described: dict[str, Any] = {"name": name, "family": family, "op": op}
    described |= {"size_bytes": size_bytes, "direct": direct}
    if isinstance(values, str):
        return Reading(**described, error=values)
    numbers: dict[str, Any] = dict(zip(_NUMBERS, values, strict=False))
    return Reading(**described, **numbers, partial=len(values) > len(_NUMBERS))
