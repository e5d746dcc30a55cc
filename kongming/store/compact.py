"""How a fingerprint is kept: what many have in common once, and only its numbers in each row.

A node reports a fingerprint a minute. Its facts, the surrogates' descriptions and the names of
the passive signals are the same each time; they are *parts*, found by a hash of their content.
A row of the first two revisions holds the whole JSON form instead, and is read as such.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
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


def pack(fingerprint: Fingerprint) -> tuple[dict[str, Any], Parts]:
    """A row's document, and the parts that it names.

    Raises:
        InputError: a number that cannot be true.
    """
    kinds, values = [], []
    for name, reading in fingerprint.surrogates.items():
        kinds.append([name, reading.family, reading.op, reading.size_bytes, reading.direct])
        values.append(_values(name, reading))
    _check_finite("elapsed_s", fingerprint.elapsed_s)
    for name, value in fingerprint.passive.items():
        _check_finite(f"passive.{name}", value)
    facts_id, facts_part = facts(fingerprint.node)
    kinds_id, kinds_part = part({"suite": fingerprint.suite, "surrogates": kinds})
    names_id, names_part = part(list(fingerprint.passive))
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
    costs = (reading.seconds_per_op, reading.median, reading.p90)
    for key, value in zip(_NUMBERS, costs, strict=False):
        if value is None or not 0.0 < value < math.inf:
            raise InputError(
                "cannot be true.",
                field=f"surrogates.{name}.{key}",
                found=value,
                allowed="a finite time above 0 s",
            )
    _check_finite(f"surrogates.{name}.elapsed_s", reading.elapsed_s)
    values = [*costs, reading.n, reading.ops, reading.elapsed_s]
    return [*values, True] if reading.partial else values


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
