"""Readings as arrays: one series for each name and machine, in order of time.

The table of an observation is converted once, here; the analyses read arrays only.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as compute
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.audit.readings import Observations, Session, machine_of
from kongming.records import moments
from kongming.records.errors import IncompatibleError

Ints = NDArray[np.int64]
Row = dict[str, Any]
"""A row of a table of the audit."""

_ORDER = {"program": 0, "surrogate": 1, "passive": 2}


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a reading: that of a program with the name of a surrogate or signal says so.
    ``lower_is_better`` is False for a program whose metric is a rate."""

    kind: str
    name: str
    unit: str
    lower_is_better: bool = True

    @property
    def timed(self) -> bool:
        """Return whether it is a surrogate or a program, rather than a signal of the system."""
        return self.kind != "passive"


@dataclass(frozen=True, slots=True)
class Failure:
    """``count`` missing readings of a name on a machine, with their reason."""

    machine: str
    kind: str
    name: str
    reason: str
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Steps:
    """The step of each reading of a ``Series``.

    ``session`` is an index, ``position`` the step of the session, ``round`` the block, ``place``
    the step within its block among those of its kind, ``predecessor`` the index of the name of the
    program that ran before (-1 for none).
    """

    session: Ints
    position: Ints
    round: Ints
    place: Ints
    predecessor: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """All successful readings, sorted by name, machine and time.

    ``value`` and ``seconds`` since the epoch are (n,); those of a name and a machine are at
    ``slices[name, machine]``. ``machine_type`` (machines,) is an index into ``types``. ``readings``
    is the number of all readings, failed ones included.
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

    def type_columns(self, name: int, machine_type: int) -> Row:
        """The first columns of a row on all machines of a type."""
        return {
            "type": self.types[machine_type],
            "machine": None,
            "kind": self.names[name].kind,
            "name": self.names[name].name,
        }

    def machine_columns(self, name: int, machine: int) -> Row:
        """The first columns of a row on one machine."""
        columns = self.type_columns(name, int(self.machine_type[machine]))
        return {**columns, "machine": self.machines[machine]}


def iso(seconds: float) -> str:
    """Format seconds since the epoch as UTC to the second."""
    return moments.format(seconds, "seconds")


def machine_type(session: Session) -> str:
    """The cloud's name of the machine type; else the tag ``type``; else the CPU model."""
    tags: Mapping[str, Any] = session.get("tags") or {}
    facts = machine_of(session)
    return str(facts["type"] or tags.get("type") or facts["cpu_model"] or "(unknown type)")


def series_of(observations: Observations) -> Series:
    """Convert the table of an observation to arrays.

    Raises:
        IncompatibleError: a program or surrogate has readings in several units.
    """
    table = observations.table
    session, sessions = _codes(table["session"])
    kind, kinds = _codes(table["kind"])
    label, labels = _codes(table["name"])
    unit, units = _codes(table["unit"])
    owners = [str(observations.sessions[key]["machine"]) for key in sessions]
    machines = tuple(sorted(set(owners)))
    machine_of_session = np.array([machines.index(owner) for owner in owners], dtype=np.int64)
    machine = machine_of_session[session] if len(sessions) else session
    name, names = _names(observations, (kind, kinds), (label, labels), (unit, units))
    value = _floats(table["value"])
    valid = table["ok"].to_numpy() & np.isfinite(value)
    position, block = _ints(table["position"]), _ints(table["round"])
    program = np.array([entry.kind == "program" for entry in names], dtype=bool)[name]
    before = _predecessors(session, position, name, program)
    place = _places(session, kind, block, position)
    at = _ints(table["at"].cast(pyarrow.int64()))
    rows = np.flatnonzero(valid)
    # The table is sorted by time, and lexsort is stable: time needs no key.
    rows = rows[np.lexsort((machine[rows], name[rows]))]
    types, type_of_machine = _types(observations, machines)
    return Series(
        names=names,
        machines=machines,
        types=types,
        machine_type=type_of_machine,
        sessions=tuple(sessions),
        value=value[rows],
        seconds=at[rows] / 1e6,
        name=name[rows],
        machine=machine[rows],
        steps=Steps(
            session=session[rows],
            position=position[rows],
            round=block[rows],
            place=place[rows],
            predecessor=before[rows],
        ),
        slices=_slices(name[rows], machine[rows]),
        failures=_failures(table, np.flatnonzero(~valid), machines, machine, names, name),
        readings=len(table),
    )


def _codes(column: Any) -> tuple[Ints, list[str]]:
    """The code of each row, and the text of each code."""
    array = column.combine_chunks()
    if not pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    if isinstance(array, pyarrow.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks()
    return _ints(array.indices), [str(text) for text in array.dictionary.to_pylist()]


def _ints(column: Any) -> Ints:
    values: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _floats(column: Any) -> Floats:
    values: Floats = column.to_numpy().astype(np.float64, copy=False)
    return values


def _names(
    observations: Observations,
    kind: tuple[Ints, list[str]],
    label: tuple[Ints, list[str]],
    unit: tuple[Ints, list[str]],
) -> tuple[Ints, tuple[Name, ...]]:
    """Programs first, then surrogates, then signals, each by name."""
    units = max(1, len(unit[1]))
    key = (kind[0] * len(label[1]) + label[0]) * units + unit[0]
    keys, codes = np.unique(key, return_inverse=True)
    rates = {
        name
        for session in observations.sessions.values()
        for name, facts in (session.get("programs") or {}).items()
        if isinstance(facts, dict) and facts.get("better") == "higher"
    }
    parts = []
    for combined in keys.tolist():
        rest, unit_code = divmod(combined, units)
        kind_code, label_code = divmod(rest, len(label[1]))
        parts.append((kind[1][kind_code], label[1][label_code], unit[1][unit_code]))
    taken = {text for kind_text, text, _ in parts if kind_text != "program"}
    names = []
    for kind_text, text, unit_text in parts:
        is_program = kind_text == "program"
        # Tables and figures go by name alone.
        shown = f"{text} (program)" if is_program and text in taken else text
        names.append(Name(kind_text, shown, unit_text, not (is_program and text in rates)))
    _refuse_several_units(names)
    order = sorted(range(len(names)), key=lambda k: (_ORDER[names[k].kind], names[k].name))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[codes] if len(names) else codes, tuple(names[k] for k in order)


def _refuse_several_units(names: Sequence[Name]) -> None:
    units: dict[tuple[str, str], list[str]] = {}
    for name in names:
        if name.timed:
            units.setdefault((name.kind, name.name), []).append(name.unit)
    for (_, text), own in sorted(units.items()):
        if len(own) > 1:
            raise IncompatibleError(
                f"The readings of {text} differ in unit ({', '.join(sorted(own))}) and are not "
                "mixed.",
                hint="Give files of one unit only.",
            )


def _types(observations: Observations, machines: tuple[str, ...]) -> tuple[tuple[str, ...], Ints]:
    labels: dict[str, str] = {}
    for session in observations.sessions.values():
        labels.setdefault(str(session["machine"]), machine_type(session))
    types = tuple(sorted({labels[machine] for machine in machines}))
    return types, np.array([types.index(labels[machine]) for machine in machines], dtype=np.int64)


def _predecessors(session: Ints, position: Ints, name: Ints, program: NDArray[np.bool_]) -> Ints:
    """Return, by row, the name of the last program that ran in its session before its step."""
    names = np.full(len(session), -1, dtype=np.int64)
    if not program.any():
        return names
    key = session * (int(position.max()) + 2) + position
    runs = np.flatnonzero(program)
    runs = runs[np.argsort(key[runs], kind="stable")]
    before = np.searchsorted(key[runs], key, side="left") - 1
    known = before >= 0
    known[known] = session[runs[before[known]]] == session[known]
    names[known] = name[runs[before[known]]]
    return names


def _places(session: Ints, kind: Ints, block: Ints, position: Ints) -> Ints:
    """Count, by row, the steps of its kind that came before it in its block."""
    order = np.lexsort((position, block, kind, session))
    s, k, b, p = session[order], kind[order], block[order], position[order]
    new_block = np.ones(len(order), dtype=bool)
    new_block[1:] = (s[1:] != s[:-1]) | (k[1:] != k[:-1]) | (b[1:] != b[:-1])
    new_step = new_block.copy()
    new_step[1:] |= p[1:] != p[:-1]
    steps = np.cumsum(new_step)
    first = np.maximum.accumulate(np.where(new_block, steps, 0))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = steps - first
    return places


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
    failed: Ints,
    machines: tuple[str, ...],
    machine: Ints,
    names: tuple[Name, ...],
    name: Ints,
) -> tuple[Failure, ...]:
    if not len(failed):
        return ()
    reasons = compute.take(table["reason"], pyarrow.array(failed)).to_pylist()
    counts = Counter(
        zip(
            machine[failed].tolist(), name[failed].tolist(), (r or "" for r in reasons), strict=True
        )
    )
    return tuple(
        Failure(machines[m], names[k].kind, names[k].name, reason, count)
        for (m, k, reason), count in sorted(counts.items())
    )
