"""Likeness of recordings: surrogates of one size, and programs of one identity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow
import pyarrow.compute as compute

from kongming.audit.analysis.series import Name, Row, machine_type
from kongming.audit.readings import Observations, Session
from kongming.audit.sizes import unlike
from kongming.records.errors import IncompatibleError


@dataclass(frozen=True, eq=False, slots=True)
class Likeness:
    """Observations without the surrogates that differ between the recordings of one machine.

    ``unlike`` are rows of type, name and reason, of all types where the type is None: those
    differ between the recordings of a type, or between types only. Each machine's own readings of
    them are still in the observations. ``identities`` are rows of programs of which one type has
    several.
    """

    observations: Observations
    unlike: Sequence[Row]
    identities: Sequence[Row]

    def comparable(self, label: str, name: Name) -> bool:
        """Return whether the machines of the type ``label`` can be compared by ``name``."""
        unlike_here = any(row["type"] == label and row["name"] == name.name for row in self.unlike)
        return name.kind != "surrogate" or not unlike_here


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
    """Find, type by type, the surrogates that measure another thing on some of its machines:
    differences between these are no differences between machines. Leave out, machine by machine,
    those that do so in some of its recordings: such a change is none in time."""
    by_type = _grouped(observations.sessions, machine_type)
    by_machine = _grouped(observations.sessions, lambda session: str(session["machine"]))
    kinds = observations.table["kind"].cast(pyarrow.string())
    labels = observations.table["name"].cast(pyarrow.string())
    owners = observations.table["session"].cast(pyarrow.string())
    surrogate = compute.equal(kinds, "surrogate")
    measured = _measured(owners.filter(surrogate), labels.filter(surrogate))
    rows: list[Row] = []
    identities: list[Row] = []
    for label, sessions in sorted(by_type.items()):
        reasons = unlike_surrogates(sessions.values(), _names_of(measured, sessions))
        rows += [{"type": label, "name": name, "reason": why} for name, why in reasons.items()]
        identities += [
            {"type": label, "name": name, "identities": count}
            for name, count in identities_of(sessions.values()).items()
        ]
    if len(by_type) > 1:
        types_of = Counter(n for own in by_type.values() for n in _names_of(measured, own))
        shared = sorted(name for name, count in types_of.items() if count > 1)
        reasons = unlike_surrogates(observations.sessions.values(), shared)
        rows += [{"type": None, "name": name, "reason": why} for name, why in reasons.items()]
    keep = np.ones(len(observations.table), dtype=bool)
    for sessions in by_machine.values():
        reasons = unlike_surrogates(sessions.values(), _names_of(measured, sessions))
        if reasons:
            out = compute.and_(
                compute.is_in(owners, pyarrow.array(list(sessions))),
                compute.is_in(labels, pyarrow.array(list(reasons))),
            )
            keep &= ~compute.and_(out, surrogate).to_numpy()
    if not keep.all():
        observations = replace(observations, table=observations.table.filter(pyarrow.array(keep)))
    return Likeness(observations, rows, identities)


def _grouped(
    sessions: Mapping[str, Session], by: Callable[[Session], str]
) -> dict[str, dict[str, Session]]:
    groups: dict[str, dict[str, Session]] = {}
    for key, session in sessions.items():
        groups.setdefault(by(session), {})[key] = session
    return groups


def _measured(
    owners: pyarrow.ChunkedArray, labels: pyarrow.ChunkedArray
) -> Mapping[str, frozenset[str]]:
    """Return the sessions that have readings of each name."""
    pairs = pyarrow.table({"session": owners, "name": labels}).group_by(["session", "name"])
    sessions: dict[str, set[str]] = {}
    for row in pairs.aggregate([]).to_pylist():
        sessions.setdefault(row["name"], set()).add(row["session"])
    return {name: frozenset(own) for name, own in sorted(sessions.items())}


def _names_of(measured: Mapping[str, frozenset[str]], sessions: Iterable[str]) -> list[str]:
    keys = frozenset(sessions)
    return [name for name, own in measured.items() if own & keys]


def unlike_between_types(rows: Sequence[Mapping[str, object]]) -> frozenset[str]:
    """Return the surrogates that cannot be compared between types, of ``Likeness.unlike``."""
    return frozenset(str(row["name"]) for row in rows if row["type"] is None)
