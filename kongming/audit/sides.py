"""Which readings are compared with which: two files as they are, or like with like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kongming.audit.comparing import Side
from kongming.audit.grouping import label
from kongming.audit.readings import Observations
from kongming.audit.series import Name, Series, in_order
from kongming.dataset import Floats
from kongming.errors import CannotAnswerError

__all__ = ["Pairing", "Sides", "pair"]

Sides = Mapping[tuple[str, ...], tuple[Side, Side]]


@dataclass(frozen=True, eq=False, slots=True)
class Pairing:
    """``sides`` by group, kind and name; ``names`` by kind and name; ``unmatched`` groups that only
    one of both has; ``only`` names that only one of both has."""

    sides: Sides
    names: Mapping[tuple[str, str], Name]
    unmatched: tuple[str, ...]
    only: tuple[str, ...]


def pair(a: Observations, b: Observations, by: str | None) -> Pairing:
    """Without ``by``, A with B. With it, each group that both have with itself; where they share
    none and have one each, these two.

    Raises:
        CannotAnswerError: they have no group, or no name, in common.
    """
    groups_a, groups_b = _groups(a, by), _groups(b, by)
    shared = [name for name in groups_a if name in groups_b]
    unmatched = [name for name in (*groups_a, *groups_b) if name not in shared]
    couples = [(name, groups_a[name], groups_b[name]) for name in shared]
    if not shared and len(groups_a) == 1 and len(groups_b) == 1:
        (label_a, of_a), (label_b, of_b) = *groups_a.items(), *groups_b.items()
        couples, unmatched = [(f"{label_a} and {label_b}", of_a, of_b)], []
    if not couples:
        raise CannotAnswerError(
            f"The two have no {by} in common: {', '.join(groups_a)}; and {', '.join(groups_b)}.",
            hint="Leave --by out to compare them as they are.",
        )
    left_series, right_series = in_order(a), in_order(b)
    left, right = _names(left_series), _names(right_series)
    common = [key for key in left if key in right]
    if not common:
        raise CannotAnswerError("The two have no program and no surrogate in common.")
    sides: dict[tuple[str, ...], tuple[Side, Side]] = {
        (group, *key): (
            _side(left_series, left[key], own_a),
            _side(right_series, right[key], own_b),
        )
        for group, own_a, own_b in couples
        for key in common
    }
    sides = {key: both for key, both in sides.items() if both[0].n and both[1].n}
    if not sides:
        raise CannotAnswerError("There is nothing that both have good readings of.")
    return Pairing(
        sides,
        {key: left_series.names[left[key]] for key in common},
        tuple(unmatched),
        tuple(sorted(name for _, name in set(left) ^ set(right))),
    )


def _groups(observations: Observations, by: str | None) -> dict[str, set[str]]:
    """Recordings by group; one group of all without ``by``."""
    made: dict[str, set[str]] = {}
    for session, facts in sorted(observations.sessions.items()):
        made.setdefault("" if by is None else label(facts, by), set()).add(session)
    return made


def _names(series: Series) -> dict[tuple[str, str], int]:
    return {(one.kind, one.name): k for k, one in enumerate(series.names) if one.timed}


def _side(series: Series, name: int, sessions: set[str]) -> Side:
    recordings: list[Floats] = []
    machines: list[str] = []
    wanted = np.array([one in sessions for one in series.sessions], dtype=bool)
    for m, machine in enumerate(series.machines):
        where = series.slices.get((name, m))
        if where is None:
            continue
        session, value = series.steps.session[where], series.value[where]
        for one in np.unique(session[wanted[session]]).tolist():
            own = value[session == one]
            if (own > 0.0).any():
                recordings.append(own[own > 0.0])
                machines.append(machine)
    return Side(recordings, machines)
