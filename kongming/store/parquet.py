"""Export and import: what was measured as one Parquet file, to move it between machines.

A row is a record: its kind, its id, its whole JSON document, and beside that a few columns for
people and their tools. The file's metadata carries the format's version.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from kongming.errors import IncompatibleError, InputError, MissingExtraError, StoreError
from kongming.store import Store, rows

FORMAT = 1
"""Version of the file."""

_FORMAT_KEY = b"kongming.format"
_ROWS_PER_GROUP = 500


def export_runs(
    store: Store, path: str | Path, apps: Collection[str] | None = None
) -> dict[str, int]:
    """Write a store to ``path``, whole or not at all; returns how many records of each kind.

    ``apps`` restricts it to the runs and signatures of these applications, with the
    fingerprints, nodes and references that belong to them.

    Raises:
        UnknownNameError: an application without runs or signatures.
        StoreError: the file cannot be written.
        MissingExtraError: pyarrow is not installed.
    """
    arrow, parquet = _pyarrow("The export")
    target = Path(path)
    schema = arrow.schema(
        [(name, arrow.string()) for name in rows.TEXTS]
        + [(name, arrow.float64()) for name in rows.NUMBERS]
        + [("document", arrow.string())],
        metadata={_FORMAT_KEY: str(FORMAT).encode()},
    )
    found = list(rows.of_store(store, apps))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        temporary = Path(name)
        try:
            with (
                os.fdopen(handle, "wb") as file,
                parquet.ParquetWriter(file, schema, compression="zstd") as writer,
            ):
                for start in range(0, len(found), _ROWS_PER_GROUP):
                    batch = found[start : start + _ROWS_PER_GROUP]
                    writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
            # A temporary file is private; an export is as readable as other files.
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"The file {target} cannot be written: {error.strerror or error}."
        ) from error
    return dict(Counter(row["record"] for row in found))


def import_runs(store: Store, path: str | Path) -> dict[str, int]:
    """Read an export into a store, all of it or nothing; returns how many records were new.

    Raises:
        InputError: the file is no export, or a record in it is not valid (named by row).
        IncompatibleError: a newer KONGMING wrote it.
        MissingExtraError: pyarrow is not installed.
    """
    return store.add_all(**read_export(path))


def read_export(path: str | Path) -> dict[str, list[Any]]:
    """The records of an export by kind, named as ``Store.add_all`` takes them. Raises as
    ``import_runs``."""
    return rows.to_records(_read(Path(path)), str(path))


def _read(path: Path) -> list[rows.Row]:
    arrow, parquet = _pyarrow("The import")
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        table = parquet.read_table(path, partitioning=None)
    except (OSError, arrow.ArrowException) as error:
        raise InputError(
            f"{path} is not a Parquet file, or is damaged.",
            hint="Give a file that 'kongming export' wrote.",
        ) from error
    version = (table.schema.metadata or {}).get(_FORMAT_KEY, b"").decode(errors="replace")
    if not version.isdigit() or not {"record", "document", "kind"} <= set(table.column_names):
        raise InputError(
            f"{path} is no export of kongming.", hint="Give a file that 'kongming export' wrote."
        )
    if int(version) > FORMAT:
        raise IncompatibleError(
            f"{path} has format {version}; this KONGMING reads up to {FORMAT}.",
            hint="Upgrade kongming to read it.",
        )
    found: list[rows.Row] = table.select(["record", "document", "kind"]).to_pylist()
    return found


def _pyarrow(what: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError(what, "predict", "pyarrow") from error
    return pyarrow, pyarrow.parquet


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
