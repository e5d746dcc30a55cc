"""Pairing of the readings of two sets of files: as they are, or group by group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow

from kongming.arrays import Floats
from kongming.audit.analysis.comparison import Side
from kongming.audit.analysis.likeness import identities_of, unlike_surrogates
from kongming.audit.analysis.series import Name, Series, machine_type, series_of
from kongming.audit.readings import Observations, Session, machine_of
from kongming.records.errors import CannotAnswerError, InputError

KEYS = "type, machine, kernel or tag:KEY"

Sides = Mapping[tuple[str, ...], tuple[Side, Side]]


@dataclass(frozen=True, eq=False, slots=True)
class Pairing:
    """Readings of A and B to compare.

    ``sides`` is by group, kind and name; ``names`` by kind and name. ``unmatched`` are the groups
    that only one of the two has. ``unshared`` are, by group, kind and name, those that were
    measured and of which one of the two, or both, have no successful reading, or that they have in
    different units; the group is empty where that is so in all.
    ``unlike`` are the reasons of surrogates that are left out, by group and name; ``identities``
    the programs that are not the same in all recordings.
    """

    sides: Sides
    names: Mapping[tuple[str, str], Name]
    unmatched: tuple[str, ...]
    unshared: tuple[tuple[str, str, str], ...]
    unlike: Mapping[tuple[str, str], str]
    identities: tuple[str, ...]


def check_key(by: str) -> str:
    """Return ``by`` if it is a valid grouping key.

    Raises:
        InputError: it is none of ``KEYS``.
    """
    if by in ("type", "machine", "kernel") or (by.startswith("tag:") and len(by) > 4):
        return by
    raise InputError("is not a grouping key.", field="--by", value=by, allowed=KEYS)


def pair(a: Observations, b: Observations, by: str | None) -> Pairing:
    """Pair all of A with all of B, or with ``by`` each group of A with the same group of B.

    Where they share no group and have one each, these two are paired.

    Raises:
        CannotAnswerError: they have no group, or no name, in common.
        IncompatibleError: one of them has a name in several units.
    """
    groups_a, groups_b = _groups(a, by), _groups(b, by)
    shared = [name for name in groups_a if name in groups_b]
    unmatched = [name for name in (*groups_a, *groups_b) if name not in shared]
    pairs = [(name, groups_a[name], groups_b[name]) for name in shared]
    if not shared and len(groups_a) == 1 and len(groups_b) == 1:
        (label_a, sessions_a), (label_b, sessions_b) = *groups_a.items(), *groups_b.items()
        pairs, unmatched = [(f"{label_a} and {label_b}", sessions_a, sessions_b)], []
    if not pairs:
        raise CannotAnswerError(
            f"The two have no {by} in common: {', '.join(groups_a)}; and {', '.join(groups_b)}.",
            hint="Leave --by out to compare all readings of one with all of the other.",
        )
    series_a, series_b = series_of(a), series_of(b)
    names_a, names_b = _names(series_a), _names(series_b)
    common = [
        key
        for key, k in names_a.items()
        if key in names_b and series_a.names[k].unit == series_b.names[names_b[key]].unit
    ]
    if not common:
        raise CannotAnswerError(
            "The two have no program and no surrogate in common, in the same unit."
        )
    sides = {
        (group, *key): (
            _side(series_a, names_a[key], sessions_a),
            _side(series_b, names_b[key], sessions_b),
        )
        for group, sessions_a, sessions_b in pairs
        for key in common
    }
    sessions = {**a.sessions, **b.sessions}
    unlike = {
        (group, name): reason
        for group, *of_group in pairs
        for name, reason in unlike_surrogates(
            [sessions[key] for key in sorted(set().union(*of_group))],
            [
                name
                for kind, name in common
                if kind == "surrogate" and all(side.n for side in sides[group, kind, name])
            ],
        ).items()
    }
    paired: dict[tuple[str, ...], tuple[Side, Side]] = {
        (group, kind, name): both
        for (group, kind, name), both in sides.items()
        if both[0].n and both[1].n and not (kind == "surrogate" and (group, name) in unlike)
    }
    if not paired:
        reasons = "; ".join(f"{name} {reason}" for (_, name), reason in unlike.items())
        raise CannotAnswerError(
            "There is no name of which both have successful readings"
            f"{f' that can be compared: {reasons}' if reasons else ''}."
        )
    unshared = {("", *key) for key in {*names_a, *names_b} - set(common)}
    measured = _measured(a) | _measured(b)
    for group, *of_group in pairs:
        own = set().union(*of_group)
        unshared |= {
            (group, *key)
            for key in common
            if not all(side.n for side in sides[group, *key])
            and any((*key, session) in measured for session in own)
        }
    return Pairing(
        paired,
        {key: series_a.names[names_a[key]] for key in common},
        tuple(unmatched),
        tuple(sorted(unshared, key=lambda key: (key[2], key))),
        unlike,
        tuple(identities_of(sessions.values())),
    )


def _groups(observations: Observations, by: str | None) -> dict[str, set[str]]:
    """Sessions by group; one group of all without ``by``."""
    groups: dict[str, set[str]] = {}
    for session, facts in sorted(observations.sessions.items()):
        groups.setdefault("" if by is None else _group(facts, by), set()).add(session)
    return groups


def _group(session: Session, by: str) -> str:
    if by == "machine":
        return str(session["machine"])
    if by == "type":
        return machine_type(session)
    tags: Mapping[str, Any] = session.get("tags") or {}
    value = machine_of(session)["kernel"] if by == "kernel" else tags.get(by[4:])
    return str(value) if value else "(none)"


def _names(series: Series) -> dict[tuple[str, str], int]:
    return {(name.kind, name.name): k for k, name in enumerate(series.names) if name.timed}


def _measured(observations: Observations) -> set[tuple[str, str, str]]:
    """Kind, name and recording of all readings, those that failed included."""
    columns = ["kind", "name", "session"]
    texts = {name: observations.table[name].cast(pyarrow.string()) for name in columns}
    rows = pyarrow.table(texts).group_by(columns).aggregate([]).to_pylist()
    return {(row["kind"], row["name"], row["session"]) for row in rows}


def _side(series: Series, name: int, sessions: set[str]) -> Side:
    recordings: list[Floats] = []
    machines: list[str] = []
    wanted = np.array([session in sessions for session in series.sessions], dtype=bool)
    for m, machine in enumerate(series.machines):
        where = series.slices.get((name, m))
        if where is None:
            continue
        session, value = series.steps.session[where], series.value[where]
        for index in np.unique(session[wanted[session]]).tolist():
            own = value[session == index]
            if (own > 0.0).any():
                recordings.append(own[own > 0.0])
                machines.append(machine)
    return Side(recordings, machines)
