"""Compact encoding of fingerprints: shared parts are stored once, rows hold only numbers.

A node reports one fingerprint per minute. Its facts, the surrogates' descriptions and the names
of the passive signals rarely change; they are *parts*, stored once and addressed by a hash of
their content. Rows of the first two schema revisions hold the complete JSON document instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from kongming.records.errors import InputError
from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading

Parts = dict[str, Any]
"""Parts by their id."""

_COUNTERS = ("nr_periods", "nr_throttled", "throttled_us")
"""Counters of the control group. They change constantly, so they are stored in the row."""

_NUMBERS = ("seconds_per_op", "median", "p90", "n", "ops", "elapsed_s")


def part(document: object) -> tuple[str, object]:
    """Return a part's id and its document. Raises InputError for NaN, which is not JSON."""
    try:
        text = json.dumps(document, allow_nan=False, separators=(",", ":"), sort_keys=True)
    except ValueError as error:
        raise InputError(f"A record cannot be kept: {error}.") from error
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest(), document


def facts(node: NodeFacts) -> tuple[str, object]:
    """Return the part of a node's facts, with the counters of its control group set to 0."""
    document = node.to_dict()
    document["cgroup"] = {k: 0 if k in _COUNTERS else v for k, v in node.cgroup.items()}
    return part(document)


class FactsCache:
    """Cached ``facts``, for packing fingerprints of the same nodes repeatedly."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[NodeFacts, tuple[str, object]]] = {}

    def __call__(self, node: NodeFacts) -> tuple[str, object]:
        cached = self._entries.get(node.id)
        # Identity, not equality: comparing costs as much as encoding.
        if cached is not None and cached[0] is node:
            return cached[1]
        if len(self._entries) >= _MAX_CACHED_NODES:
            self._entries.clear()
        encoded = facts(node)
        self._entries[node.id] = (node, encoded)
        return encoded


_MAX_CACHED_NODES = 20_000


@lru_cache(maxsize=128)
def _kinds_part(suite: str, kinds: tuple[tuple[Any, ...], ...]) -> tuple[str, object]:
    return part({"suite": suite, "surrogates": [list(kind) for kind in kinds]})


@lru_cache(maxsize=128)
def _names_part(names: tuple[str, ...]) -> tuple[str, object]:
    return part(list(names))


def pack(
    fingerprint: Fingerprint, facts_of: Callable[[NodeFacts], tuple[str, object]] = facts
) -> tuple[dict[str, Any], Parts]:
    """A row's document, and the parts that it names."""
    kinds, values = [], []
    for name, reading in fingerprint.surrogates.items():
        kinds.append((name, reading.family, reading.op, reading.size_bytes, reading.direct))
        values.append(_values(reading))
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
    if counted:
        document["cgroup"] = counted
    if fingerprint.warnings:
        document["warnings"] = list(fingerprint.warnings)
    return document, {facts_id: facts_part, kinds_id: kinds_part, names_id: names_part}


def _values(reading: Reading) -> list[Any] | str:
    if not reading.ok:
        return reading.error or "no timed work"
    values = [getattr(reading, name) for name in _NUMBERS]
    return [*values, True] if reading.partial else values


def part_ids(document: Mapping[str, Any]) -> Iterator[str]:
    """Ids of the parts that a row's document refers to."""
    if "schema" not in document:
        yield from (document["facts"], document["kinds"], document["names"])


def unpack(
    fingerprint_id: str,
    cpu: int,
    suite_version: str,
    document: Mapping[str, Any],
    parts: Mapping[str, Any],
) -> Fingerprint:
    """Decode the fingerprint of a row of any revision; ``parts`` holds those it refers to."""
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
    description: dict[str, Any] = {"name": name, "family": family, "op": op}
    description |= {"size_bytes": size_bytes, "direct": direct}
    if isinstance(values, str):
        return Reading(**description, error=values)
    numbers: dict[str, Any] = dict(zip(_NUMBERS, values, strict=False))
    return Reading(**description, **numbers, partial=len(values) > len(_NUMBERS))
