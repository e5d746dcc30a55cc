"""Readings as arrays: one series for each name and machine, in order of time.

The table of an observation becomes numbers once, here; what follows never sees a row.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as compute
from numpy.typing import NDArray

from kongming.audit.grouping import type_of
from kongming.audit.readings import Observations
from kongming.dataset import Floats

__all__ = ["Failure", "Name", "Series", "Steps", "in_order"]

Ints = NDArray[np.int64]

_ORDER = {"program": 0, "surrogate": 1, "passive": 2}


@dataclass(frozen=True, slots=True)
class Name:
    """What was read. ``lower_is_better`` is False for a program whose metric is a rate."""

    kind: str
    name: str
    unit: str
    lower_is_better: bool = True

    @property
    def timed(self) -> bool:
        """A surrogate or a program, rather than a signal of the system."""
        return self.kind != "passive"


@dataclass(frozen=True, slots=True)
class Failure:
    """So many readings of a name on a machine that are missing, and why."""

    machine: str
    kind: str
    name: str
    reason: str
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Steps:
    """The order of things, by reading as ``Series`` has them. ``session`` is an index,
    ``position`` the step of the session, ``round`` the block, ``place`` the step within its block
    among those of its kind, ``predecessor`` the index of the name of the program that ran before
    (-1 for none)."""

    session: Ints
    position: Ints
    round: Ints
    place: Ints
    predecessor: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """All good readings, sorted by name, machine and time.

    ``value`` (n,) and ``seconds`` (n,) since the epoch belong to one another; the stretch of a
    name and a machine is ``slices[name, machine]``. ``machine_type`` (machines,) is an index into
    ``types``.
    """

    names: tuple[Name, ...]
    machines: tuple[str, ...]
    types: tuple[str, ...]
    machine_type: Ints
    sessions: tuple[str, ...]
    value: Floats
    seconds: Floats
    name: Ints
    machine: Ints
    steps: Steps
    slices: dict[tuple[int, int], slice]
    failures: tuple[Failure, ...]
    readings: int

    def of(self, name: int, machine: int) -> Floats:
        """Values in order of time; empty where there are none."""
        return self.value[self.slices.get((name, machine), slice(0, 0))]

    def members(self, machine_type: int) -> Ints:
        """Indices of the machines of a type."""
        return np.flatnonzero(self.machine_type == machine_type)

    def timed(self) -> Iterator[int]:
        """Indices of programs and surrogates."""
        return (k for k, name in enumerate(self.names) if name.timed)


def in_order(observations: Observations) -> Series:
    """The arrays of an observation."""
    table = observations.table
    session, sessions = _codes(table["session"])
    kind, kinds = _codes(table["kind"])
    plain, plains = _codes(table["name"])
    unit, units = _codes(table["unit"])
    machines = tuple(sorted({str(observations.sessions[one]["machine"]) for one in sessions}))
    of_session = np.array(
        [machines.index(str(observations.sessions[one]["machine"])) for one in sessions],
        dtype=np.int64,
    )
    machine = of_session[session] if len(sessions) else session
    name, names = _names(observations, (kind, kinds), (plain, plains), (unit, units))
    value = _floats(table["value"])
    good = table["ok"].to_numpy() & np.isfinite(value)
    position, block = _ints(table["position"]), _ints(table["round"])
    program = np.array([one.kind == "program" for one in names], dtype=bool)[name]
    before = _predecessors(session, position, name, program)
    place = _places(session, kind, block, position)
    at = _ints(table["at"].cast(pyarrow.int64()))
    kept = np.flatnonzero(good)
    # The table is sorted by time, and lexsort is stable: time needs no key.
    kept = kept[np.lexsort((machine[kept], name[kept]))]
    own_name, own_machine = name[kept], machine[kept]
    types, machine_type = _types(observations, machines)
    return Series(
        names=names,
        machines=machines,
        types=types,
        machine_type=machine_type,
        sessions=tuple(sessions),
        value=value[kept],
        seconds=at[kept] / 1e6,
        name=own_name,
        machine=own_machine,
        steps=Steps(
            session=session[kept],
            position=position[kept],
            round=block[kept],
            place=place[kept],
            predecessor=before[kept],
        ),
        slices=_slices(own_name, own_machine),
        failures=_failures(table, np.flatnonzero(~good), machines, machine, names, name),
        readings=len(table),
    )


def _codes(column: Any) -> tuple[Ints, list[str]]:
    """Code of each row, and what the codes stand for."""
    whole = column.combine_chunks()
    if not pyarrow.types.is_dictionary(whole.type):
        whole = whole.dictionary_encode()
    if isinstance(whole, pyarrow.ChunkedArray):
        whole = whole.unify_dictionaries().combine_chunks()
    return _ints(whole.indices), [str(one) for one in whole.dictionary.to_pylist()]


def _ints(column: Any) -> Ints:
    made: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return made


def _floats(column: Any) -> Floats:
    made: Floats = column.to_numpy().astype(np.float64, copy=False)
    return made


def _names(
    observations: Observations,
    kind: tuple[Ints, list[str]],
    plain: tuple[Ints, list[str]],
    unit: tuple[Ints, list[str]],
) -> tuple[Ints, tuple[Name, ...]]:
    """Programs first, then surrogates, then signals, each by name."""
    key = (kind[0] * len(plain[1]) + plain[0]) * max(1, len(unit[1])) + unit[0]
    found, codes = np.unique(key, return_inverse=True)
    rates = {
        name
        for session in observations.sessions.values()
        for name, facts in (session.get("programs") or {}).items()
        if isinstance(facts, dict) and facts.get("better") == "higher"
    }
    names = []
    for one in found.tolist():
        rest, of_unit = divmod(one, max(1, len(unit[1])))
        of_kind, of_plain = divmod(rest, len(plain[1]))
        text = plain[1][of_plain]
        program = kind[1][of_kind] == "program"
        names.append(
            Name(kind[1][of_kind], text, unit[1][of_unit], not (program and text in rates))
        )
    order = sorted(range(len(names)), key=lambda k: (_ORDER[names[k].kind], names[k].name))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[codes] if len(names) else codes, tuple(names[k] for k in order)


def _types(observations: Observations, machines: tuple[str, ...]) -> tuple[tuple[str, ...], Ints]:
    of_machine: dict[str, str] = {}
    for session in observations.sessions.values():
        of_machine.setdefault(str(session["machine"]), type_of(session))
    labels = [of_machine[machine] for machine in machines]
    types = tuple(sorted(set(labels)))
    return types, np.array([types.index(one) for one in labels], dtype=np.int64)


def _predecessors(session: Ints, position: Ints, name: Ints, program: NDArray[np.bool_]) -> Ints:
    """By row, the name of the last program that ran in its session before its step."""
    made = np.full(len(session), -1, dtype=np.int64)
    if not program.any():
        return made
    wide = int(position.max()) + 2
    key = session * wide + position
    runs = np.flatnonzero(program)
    runs = runs[np.argsort(key[runs], kind="stable")]
    before = np.searchsorted(key[runs], key, side="left") - 1
    known = before >= 0
    known[known] = session[runs[before[known]]] == session[known]
    made[known] = name[runs[before[known]]]
    return made


def _places(session: Ints, kind: Ints, block: Ints, position: Ints) -> Ints:
    """By row, how many steps of its kind came before it in its block."""
    order = np.lexsort((position, block, kind, session))
    s, k, b, p = session[order], kind[order], block[order], position[order]
    new_block = np.ones(len(order), dtype=bool)
    new_block[1:] = (s[1:] != s[:-1]) | (k[1:] != k[:-1]) | (b[1:] != b[:-1])
    new_step = new_block.copy()
    new_step[1:] |= p[1:] != p[:-1]
    steps = np.cumsum(new_step)
    first = np.maximum.accumulate(np.where(new_block, steps, 0))
    made = np.empty(len(order), dtype=np.int64)
    made[order] = steps - first
    return made


def _slices(name: Ints, machine: Ints) -> dict[tuple[int, int], slice]:
    if not len(name):
        return {}
    new = np.flatnonzero((np.diff(name) != 0) | (np.diff(machine) != 0)) + 1
    edges = [0, *new.tolist(), len(name)]
    return {
        (int(name[begin]), int(machine[begin])): slice(begin, end)
        for begin, end in itertools.pairwise(edges)
    }


def _failures(
    table: pyarrow.Table,
    bad: Ints,
    machines: tuple[str, ...],
    machine: Ints,
    names: tuple[Name, ...],
    name: Ints,
) -> tuple[Failure, ...]:
    if not len(bad):
        return ()
    reasons = compute.take(table["reason"], pyarrow.array(bad)).to_pylist()
    counts = Counter(
        zip(machine[bad].tolist(), name[bad].tolist(), (r or "" for r in reasons), strict=True)
    )
    return tuple(
        Failure(machines[m], names[k].kind, names[k].name, reason, count)
        for (m, k, reason), count in sorted(counts.items())
    )
