"""Likeness of recordings: surrogates of one size, and programs of one identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow
import pyarrow.compute as compute

from kongming.audit.analysis.series import Row, machine_type
from kongming.audit.readings import Observations, Session
from kongming.audit.sizes import unlike
from kongming.records.errors import IncompatibleError


@dataclass(frozen=True, eq=False, slots=True)
class Likeness:
    """Observations without the surrogates that differ within a machine type.

    ``unlike`` are rows of type, name and reason, of all types where the type is None: those
    differ between types only, and are still in the observations. ``identities`` are rows of
    programs of which one type has several.
    """

    observations: Observations
    unlike: Sequence[Row]
    identities: Sequence[Row]


def unlike_surrogates(sessions: Iterable[Session], names: Iterable[str]) -> dict[str, str]:
    """Return ``unlike``, and all names for sessions that do not say which surrogates they share."""
    sessions, names = list(sessions), list(names)
    try:
        return unlike(sessions, names)
    except IncompatibleError:
        versions = ", ".join(sorted({str(session.get("suite_version")) for session in sessions}))
        return dict.fromkeys(names, f"is of several suite versions ({versions})")


def identities_of(sessions: Iterable[Session]) -> dict[str, int]:
    """Count the identities of each program that has several."""
    known: dict[str, set[str]] = {}
    for session in sessions:
        for name, facts in (session.get("programs") or {}).items():
            if facts.get("identity"):
                known.setdefault(name, set()).add(str(facts["identity"]))
    return {name: len(own) for name, own in sorted(known.items()) if len(own) > 1}


def alike(observations: Observations) -> Likeness:
    """Leave out, type by type, the surrogates that measure another thing on some of its machines:
    differences between these are no differences between machines."""
    by_type: dict[str, dict[str, Session]] = {}
    for key, session in observations.sessions.items():
        by_type.setdefault(machine_type(session), {})[key] = session
    kinds = observations.table["kind"].cast(pyarrow.string())
    labels = observations.table["name"].cast(pyarrow.string())
    names = labels.filter(compute.equal(kinds, "surrogate")).unique().to_pylist()
    rows: list[Row] = []
    identities: list[Row] = []
    keep = np.ones(len(observations.table), dtype=bool)
    for label, sessions in sorted(by_type.items()):
        reasons = unlike_surrogates(sessions.values(), names)
        rows += [{"type": label, "name": name, "reason": why} for name, why in reasons.items()]
        identities += [
            {"type": label, "name": name, "identities": count}
            for name, count in identities_of(sessions.values()).items()
        ]
        if reasons:
            out = compute.and_(
                compute.is_in(observations.table["session"], pyarrow.array(list(sessions))),
                compute.is_in(labels, pyarrow.array(list(reasons))),
            )
            out = compute.and_(out, compute.equal(kinds, "surrogate"))
            keep &= ~out.to_numpy()
    if len(by_type) > 1:
        reasons = unlike_surrogates(observations.sessions.values(), names)
        rows += [{"type": None, "name": name, "reason": why} for name, why in reasons.items()]
    if not keep.all():
        observations = replace(observations, table=observations.table.filter(pyarrow.array(keep)))
    return Likeness(observations, rows, identities)


def unlike_between_types(rows: Sequence[Mapping[str, object]]) -> frozenset[str]:
    """Return the surrogates that cannot be compared between types, of ``Likeness.unlike``."""
    return frozenset(str(row["name"]) for row in rows if row["type"] is None)
