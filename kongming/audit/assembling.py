"""Conversion of a journal to an observation file, and back to resume it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow

from kongming.audit.anonymising import Salt, anonymised
from kongming.audit.journal import Header, Journal, header_of, steps_of
from kongming.audit.readings import (
    SCHEMA,
    Observations,
    read_observations,
    table_of_columns,
    write_observations,
)
from kongming.audit.steps import Reading, Step
from kongming.records import moments
from kongming.records.errors import InputError

_BATCH_STEPS = 500


def assemble(journal: Path, out: Path, *, salt: Salt | None = None) -> int:
    """Convert a journal to the observation file ``out``; returns the number of readings.

    With ``salt`` the file is anonymised. For a journal without steps there is no file, and 0 is
    returned.

    Raises:
        InputError: it is not a journal, or damaged before its end.
        StoreError: the file cannot be written.
    """
    header = header_of(journal)
    if header is None:
        return 0
    machine = str(header.document["machine"])
    steps = steps_of(journal)
    tables = []
    observed_s = 0.0
    # In batches, since rows are many and Python's objects are large.
    while batch := list(itertools.islice(steps, _BATCH_STEPS)):
        tables.append(table_of_columns(_columns(batch, header.session, machine)))
        observed_s = batch[-1].elapsed_s
    if not tables:
        return 0
    table = pyarrow.concat_tables(tables).unify_dictionaries()
    document = {**header.document, "seed": header.seed, "key": dict(header.key)}
    sessions = {header.session: {**document, "observed_s": observed_s}}
    observations = Observations(table, sessions)
    if salt is not None:
        observations = anonymised(observations, salt)
    write_observations(
        out, observations.table, observations.sessions, anonymised=observations.anonymised
    )
    return int(observations.table.num_rows)


def steps_in(path: Path, header: Header) -> int:
    """Return the steps of a recording that an observation file has; 0 where it is of another, or
    cannot be read."""
    try:
        observations = read_observations([path])
    except InputError:
        return 0
    if list(observations.sessions) != [header.session]:
        return 0
    return 1 + max(observations.table["position"].to_pylist(), default=-1)


def reopen(path: Path, journal: Journal) -> None:
    """Fill an empty journal from an observation file, to resume it.

    Raises:
        InputError: the file has several sessions, or is anonymised.
        StoreError: the journal cannot be written.
    """
    observations = read_observations([path])
    if len(observations.sessions) != 1 or observations.anonymised:
        raise InputError(
            f"{path} {'is anonymised' if observations.anonymised else 'has several sessions'}, "
            "and cannot be resumed.",
            hint="Give another --out for a new session.",
        )
    (session, document), *_ = observations.sessions.items()
    if not {"seed", "key", "observed_s"} <= set(document):
        raise InputError(
            f"{path} was not written by 'kongming observe' alone, and cannot be resumed.",
            hint="Give another --out for a new session.",
        )
    try:
        journal.begin(Header(session, int(document["seed"]), document["key"], document))
        for step in _steps(observations.table, float(document["observed_s"])):
            journal.add(step)
        journal.sync()
    except BaseException:
        # A part of it would pass for all that was recorded, and take the file's place.
        journal.clear()
        raise


def _columns(steps: Sequence[Step], session: str, machine: str) -> dict[str, list[Any]]:
    """The readings of the steps by column."""
    readings = [reading for step in steps for reading in step.readings]
    lengths = [len(step.readings) for step in steps]

    def repeated(values: Iterable[Any]) -> list[Any]:
        return [v for v, n in zip(values, lengths, strict=True) for v in itertools.repeat(v, n)]

    return {
        "session": [session] * len(readings),
        "machine": [machine] * len(readings),
        "at": repeated(moments.parse(step.at, "at") for step in steps),
        "position": repeated(step.position for step in steps),
        "round": repeated(step.round for step in steps),
        "kind": [reading.kind for reading in readings],
        "name": [reading.name for reading in readings],
        "value": [reading.value for reading in readings],
        "median": [reading.median for reading in readings],
        "p90": [reading.p90 for reading in readings],
        "count": [reading.batches for reading in readings],
        "unit": [reading.unit for reading in readings],
        "ok": [reading.ok for reading in readings],
        "reason": [reading.reason for reading in readings],
        "cpu": repeated(step.cpu for step in steps),
    }


def _steps(table: pyarrow.Table, elapsed_s: float) -> Iterable[Step]:
    ordered = table.sort_by("position").select(SCHEMA.names)
    for _, rows in itertools.groupby(
        (row for batch in ordered.to_batches(5000) for row in batch.to_pylist()),
        key=lambda row: row["position"],
    ):
        yield _step(list(rows), elapsed_s)


def _step(rows: list[Mapping[str, Any]], elapsed_s: float) -> Step:
    first = rows[0]
    at = moments.format(first["at"])
    readings = tuple(
        Reading(
            row["kind"],
            row["name"],
            row["value"],
            row["unit"],
            row["median"],
            row["p90"],
            row["count"],
            row["reason"],
        )
        for row in rows
    )
    return Step(at, first["position"], first["round"], first["cpu"], elapsed_s, readings)
