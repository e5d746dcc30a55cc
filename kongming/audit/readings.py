"""Observation files: readings of surrogates, programs and the system's own signals over time.

One Parquet file holds one recording (a session) or several. A row is a reading:

| column | |
|---|---|
| session, machine | ids; the session's facts are in the file's metadata |
| at | start of the reading, UTC |
| position | step of the session, from 0. All rows of one fingerprint have one position, with |
| | the signals of its time; a run is the next step, with the signals of its time |
| round | number of the block: each block runs every program once, in a random order |
| kind, name | ``surrogate``, ``program`` or ``passive``, and its name |
| value, unit | mean seconds of one operation; a run's metric; a signal's value. Null if not ok |
| median, p90, count | seconds of one operation over ``count`` timed batches, of surrogates only |
| ok, reason | whether the reading succeeded; if not, why |
| cpu | CPU of the measurement |

**A run's fingerprint** is that of the step before it, in the same session and round. Where that one
failed the run has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from kongming.files.atomic_file import replacing
from kongming.files.missing_file import did_you_mean
from kongming.files.parquet_sizes import check_footer, check_pages, is_text, text_bytes
from kongming.files.unpacked import check_rows, check_text
from kongming.records.errors import MALFORMED, IncompatibleError, InputError, StoreError

FORMAT = 1
"""Version of the file."""

METADATA_KEY = b"kongming.observation"

KINDS = ("surrogate", "program", "passive")

_NAMES = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())

SCHEMA = pyarrow.schema(
    [
        pyarrow.field("session", pyarrow.string(), nullable=False),
        pyarrow.field("machine", pyarrow.string(), nullable=False),
        pyarrow.field("at", pyarrow.timestamp("us", tz="UTC"), nullable=False),
        pyarrow.field("position", pyarrow.int32(), nullable=False),
        pyarrow.field("round", pyarrow.int32(), nullable=False),
        pyarrow.field("kind", _NAMES, nullable=False),
        pyarrow.field("name", _NAMES, nullable=False),
        pyarrow.field("value", pyarrow.float64()),
        pyarrow.field("median", pyarrow.float64()),
        pyarrow.field("p90", pyarrow.float64()),
        pyarrow.field("count", pyarrow.int64()),
        pyarrow.field("unit", _NAMES, nullable=False),
        pyarrow.field("ok", pyarrow.bool_(), nullable=False),
        pyarrow.field("reason", pyarrow.string()),
        pyarrow.field("cpu", pyarrow.int16()),
    ]
)
"""Columns of a file and of ``Observations.table``."""

_TEXTS = ["session", "machine", "kind", "name", "unit", "reason"]

_HINT = "Give files that 'kongming observe' wrote."

Session = Mapping[str, Any]
"""The facts of a recording: machine, started_at, suite, suite_version, kongming_version, command,
facts (``NodeFacts.to_dict()``, with ``hardware.microcode``), instance (provider, type, id, zone;
or None), tags, surrogates (by name: family, op,
sizes: bytes of ``data`` and ``file``), programs (by name: identity, unit, better;
command unless anonymised)."""


@dataclass(frozen=True, eq=False, slots=True)
class Observations:
    """Readings in order of time, and their sessions by id. ``hashed`` are the ids of machines in
    each file that is anonymised."""

    table: pyarrow.Table
    sessions: Mapping[str, Session]
    anonymised: bool = False
    hashed: Sequence[frozenset[str]] = ()

    @property
    def machines(self) -> tuple[str, ...]:
        """Ids of the machines, sorted."""
        return tuple(sorted({str(session["machine"]) for session in self.sessions.values()}))

    def select(self, kind: str, *, failed: bool = False) -> pyarrow.Table:
        """The rows of one kind: those with a finite value that are ok, or all with ``failed``."""
        selected = compute.equal(self.table["kind"].cast(pyarrow.string()), kind)
        if not failed:
            good = compute.and_(self.table["ok"], compute.is_finite(self.table["value"]))
            selected = compute.and_(selected, good)
        return self.table.filter(selected)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Convert rows to a table of ``SCHEMA``; a missing value is null.

    Raises:
        InputError: a required value is null, or a value has the wrong type.
    """
    return table_of_columns({name: [row.get(name) for row in rows] for name in SCHEMA.names})


def table_of_columns(values: Mapping[str, Sequence[Any]]) -> pyarrow.Table:
    """Convert columns to a table of ``SCHEMA``. Raises InputError as ``table_of`` does."""
    try:
        columns = [
            pyarrow.array(values[field.name], type=_without_dictionary(field.type))
            for field in SCHEMA
        ]
    except (pyarrow.ArrowException, OverflowError, TypeError) as error:
        raise InputError(f"The readings are not valid: {error}") from error
    return _conforming(pyarrow.table(columns, names=SCHEMA.names), "the readings")


def read_observations(paths: Iterable[str | Path]) -> Observations:
    """Read any number of files into one table, sorted by time.

    Raises:
        InputError: a file is missing, damaged, not an observation, or lacks a column (named);
            two files have the same session, or a row has an unknown one.
        IncompatibleError: a newer KONGMING wrote one of them.
    """
    tables: list[pyarrow.Table] = []
    sessions: dict[str, Session] = {}
    origin: dict[str, Path] = {}
    anonymised: list[bool] = []
    hashed: list[frozenset[str]] = []
    for path in map(Path, paths):
        document, table = _read(path)
        for session, facts in document["sessions"].items():
            if session in origin:
                raise InputError(
                    f"{path} holds the session {session}, which is also in {origin[session]}.",
                    hint="Give each recording once.",
                )
            origin[session] = path
            sessions[session] = facts
        unknown = set(compute.unique(table["session"]).to_pylist()) - set(document["sessions"])
        if unknown:
            raise InputError(
                f"{path} has readings of a session that it does not describe.",
                field="session",
                value=min(unknown),
            )
        anonymised.append(bool(document.get("anonymised", False)))
        if anonymised[-1]:
            hashed.append(frozenset(str(s["machine"]) for s in document["sessions"].values()))
        tables.append(table)
    if not tables:
        raise InputError("There is no file to read.", hint=_HINT)
    table = pyarrow.concat_tables(tables).unify_dictionaries()
    return Observations(_sorted(table), sessions, all(anonymised), hashed)


def write_observations(
    path: str | Path,
    table: pyarrow.Table,
    sessions: Mapping[str, Session],
    *,
    anonymised: bool = False,
) -> None:
    """Write one file, sorted by time, atomically.

    Raises:
        InputError: the table lacks a column of ``SCHEMA``, or a row has an unknown session.
        StoreError: the file cannot be written.
    """
    target = Path(path)
    table = _sorted(_conforming(table, "the readings"))
    if set(compute.unique(table["session"]).to_pylist()) - set(sessions):
        raise InputError("A reading has a session that is not described.", field="session")
    document = {"format": FORMAT, "sessions": dict(sessions), "anonymised": anonymised}
    text = json.dumps(document, sort_keys=True, allow_nan=False)
    table = table.replace_schema_metadata({METADATA_KEY: text.encode()})
    try:
        with replacing(target) as file:
            parquet.write_table(table, file, compression="zstd", compression_level=9)
    except OSError as error:
        raise StoreError(
            f"The file {target} cannot be written: {error.strerror or error}."
        ) from error


def machine_of(session: Session) -> dict[str, Any]:
    """The facts that identify a machine and its type: cpu_model, microcode, llc_bytes, kernel,
    hypervisor, memory_bytes, provider and type; None or 0 where unknown."""
    facts = session.get("facts") or {}
    hardware = facts.get("hardware") or {}
    instance = session.get("instance") or {}
    return {
        "cpu_model": hardware.get("cpu_model"),
        "microcode": hardware.get("microcode"),
        "llc_bytes": hardware.get("llc_bytes", 0),
        "memory_bytes": hardware.get("memory_bytes", 0),
        "kernel": facts.get("kernel"),
        "hypervisor": facts.get("hypervisor"),
        "provider": instance.get("provider"),
        "type": instance.get("type"),
    }


def _read(path: Path) -> tuple[dict[str, Any], pyarrow.Table]:
    if not path.is_file():
        raise InputError(f"There is no file {path}.", hint=did_you_mean(path))
    try:
        # The file is opened here: pyarrow would treat a name as a data set with partitions.
        with path.open("rb") as file:
            check_footer(file, path)
            footer = parquet.read_metadata(file)
            schema = footer.schema.to_arrow_schema()
            document = _document(path, (schema.metadata or {}).get(METADATA_KEY))
            _check_columns(path, schema)
            check_rows(footer.num_rows, path)
            check_pages(file, footer, SCHEMA.names, path)
            # Texts stay as they were packed until their lengths are known.
            opened = parquet.ParquetFile(file, metadata=footer, read_dictionary=_TEXTS)
            table = opened.read(columns=SCHEMA.names)
            check_text(text_bytes([table[name] for name in _TEXTS]), path)
            # Text is not looked at as it is read: a broken byte would show up anywhere later.
            table.validate(full=True)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} is not a Parquet file, or is damaged.", hint=_HINT) from error
    return document, _conforming(table, str(path))


def _check_columns(path: Path, schema: pyarrow.Schema) -> None:
    """Raises InputError where a column is missing, there twice, or not of its kind: what a list
    or a text of fixed length unpacks to is not known before."""
    for field in SCHEMA:
        count = schema.names.count(field.name)
        if count != 1:
            lacks = "lacks this column" if count == 0 else "has this column more than once"
            raise InputError(f"{path} {lacks}.", field=field.name, hint=_HINT)
        kind = schema.field(field.name).type
        plain = pyarrow.types.is_primitive(kind) or pyarrow.types.is_null(kind)
        if not (is_text(kind) if field.name in _TEXTS else plain):
            raise InputError(
                f"{path}: the column is {kind}, not {field.type}.", field=field.name, hint=_HINT
            )


def _document(path: Path, text: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(text or b"")
        version, sessions = document["format"], document["sessions"]
        if isinstance(version, int) and version > FORMAT:
            raise IncompatibleError(
                f"{path} has format {version}; this KONGMING reads up to {FORMAT}.",
                hint="Upgrade kongming to read it.",
            )
        valid = isinstance(version, int) and all(map(_is_session, sessions.values()))
    except MALFORMED:
        valid = False
    if not valid:
        raise InputError(f"{path} is not an observation of kongming.", hint=_HINT)
    result: dict[str, Any] = document
    return result


def _is_session(session: Any) -> bool:
    """Return whether the facts of a recording have the form that all who read them rely on."""
    facts = session.get("facts") or {}
    parts = [session.get(key) or {} for key in ("instance", "tags", "programs", "surrogates")]
    parts += [facts.get(key) or {} for key in ("hardware", "cgroup")]
    parts += [
        part for key in ("programs", "surrogates") for part in (session.get(key) or {}).values()
    ]
    sizes = [surrogate.get("sizes", {}) for surrogate in (session.get("surrogates") or {}).values()]
    return (
        isinstance(session["machine"], str)
        and all(isinstance(part, dict) for part in parts)
        and all(map(_are_sizes, sizes))
    )


def _are_sizes(sizes: Any) -> bool:
    """Return whether these are whole bytes by name."""
    return isinstance(sizes, dict) and all(
        type(size) is int and 0 < size < 1 << 63 for size in sizes.values()
    )


def _conforming(table: pyarrow.Table, where: str) -> pyarrow.Table:
    """The table with exactly the columns and types of ``SCHEMA``."""
    columns = []
    for field in SCHEMA:
        if field.name not in table.column_names:
            raise InputError(f"{where}: the column is missing.", field=field.name)
        column = table[field.name]
        if not field.nullable and column.null_count:
            raise InputError(f"{where}: a row has no value.", field=field.name)
        try:
            if pyarrow.types.is_dictionary(field.type):
                if not pyarrow.types.is_dictionary(column.type):
                    column = column.cast(pyarrow.string()).dictionary_encode()
                columns.append(column)
            else:
                columns.append(column.cast(field.type))
        except pyarrow.ArrowException as error:
            raise InputError(
                f"{where}: the column is {column.type}, not {field.type}.", field=field.name
            ) from error
    result = pyarrow.Table.from_arrays(columns, schema=_with_types(columns))
    kinds = set(compute.unique(result["kind"].cast(pyarrow.string())).to_pylist())
    if not kinds <= set(KINDS):
        raise InputError(
            f"{where}: an unknown kind.",
            field="kind",
            value=min(kinds - set(KINDS)),
            allowed=", ".join(KINDS),
        )
    return result.cast(SCHEMA)


def _with_types(columns: Sequence[Any]) -> pyarrow.Schema:
    return pyarrow.schema(
        [field.with_type(column.type) for field, column in zip(SCHEMA, columns, strict=True)]
    )


def _without_dictionary(kind: pyarrow.DataType) -> pyarrow.DataType:
    return pyarrow.string() if pyarrow.types.is_dictionary(kind) else kind


def _sorted(table: pyarrow.Table) -> pyarrow.Table:
    """Sort by time, session and position; the rows of one fingerprint stay in their order."""
    order = compute.sort_indices(
        table, sort_keys=[("at", "ascending"), ("session", "ascending"), ("position", "ascending")]
    )
    return table.take(order)
