"""A journal becomes an observation file, and an observation file a journal that goes on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
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
from kongming.errors import InputError

_STEPS_AT_ONCE = 500


def assemble(journal: Path, out: Path, *, salt: Salt | None = None) -> int:
    """Write what a journal holds to ``out``; returns how many readings that are.

    With ``salt`` the file is anonymised by it. 0 where the journal has no step: no file then.

    Raises:
        InputError: it is no journal, or damaged before its end.
        StoreError: the file cannot be written.
    """
    header = header_of(journal)
    if header is None:
        return 0
    machine = str(header.document["machine"])
    steps = steps_of(journal)
    tables = []
    observed_s = 0.0
    # Rows are many and Python's objects are large: they become columns a few at a time.
    while some := list(itertools.islice(steps, _STEPS_AT_ONCE)):
        tables.append(table_of_columns(_columns(some, header.session, machine)))
        observed_s = some[-1].elapsed_s
    if not tables:
        return 0
    table = pyarrow.concat_tables(tables).unify_dictionaries()
    document = {**header.document, "seed": header.seed, "key": dict(header.key)}
    found = Observations(table, {header.session: {**document, "observed_s": observed_s}})
    if salt is not None:
        found = anonymised(found, salt)
    write_observations(out, found.table, found.sessions, anonymised=found.anonymised)
    return int(found.table.num_rows)


def reopen(path: Path, journal: Journal) -> None:
    """Fill an empty journal with what an observation file holds, so that it can go on.

    Raises:
        InputError: it holds several sessions, or is anonymised.
        StoreError: the journal cannot be written.
    """
    found = read_observations([path])
    if len(found.sessions) != 1 or found.anonymised:
        raise InputError(
            f"{path} {'is anonymised' if found.anonymised else 'holds several sessions'}, "
            "and cannot be gone on with.",
            hint="Give another --out for a session of its own.",
        )
    (session, document), *_ = found.sessions.items()
    if not {"seed", "key", "observed_s"} <= set(document):
        raise InputError(
            f"{path} was not written by 'kongming observe' alone, and cannot be gone on with.",
            hint="Give another --out for a session of its own.",
        )
    journal.begin(Header(session, int(document["seed"]), document["key"], document))
    for step in _steps(found.table, float(document["observed_s"])):
        journal.add(step)
    journal.sync()


def _columns(steps: Sequence[Step], session: str, machine: str) -> dict[str, list[Any]]:
    """The steps' readings by column."""
    readings = [reading for step in steps for reading in step.readings]
    lengths = [len(step.readings) for step in steps]

    def repeated(values: Iterable[Any]) -> list[Any]:
        return [v for v, n in zip(values, lengths, strict=True) for v in itertools.repeat(v, n)]

    return {
        "session": [session] * len(readings),
        "machine": [machine] * len(readings),
        "at": repeated(datetime.fromisoformat(step.at) for step in steps),
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
    at = first["at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
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
