"""Export and import of measurements as one Parquet file, to move them between machines.

A row is a record: its kind, its id, its complete JSON document, and a few flat columns for
analysis tools. The file's metadata holds the format version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from kongming.files.atomic_file import replacing
from kongming.files.missing_file import did_you_mean
from kongming.files.parquet_sizes import check_footer, check_pages, is_text, text_bytes
from kongming.files.unpacked import check_rows, check_text
from kongming.records.errors import IncompatibleError, InputError, MissingExtraError, StoreError
from kongming.store import Store, rows

FORMAT = 1
"""Version of the file format."""

_FORMAT_KEY = b"kongming.format"
_VERSION = re.compile("[0-9]{1,9}")
_ROWS_PER_GROUP = 500
_ROWS_PER_BATCH = 100

_READ = ["record", "document", "kind"]
"""Columns that an import reads."""


def export_runs(
    store: Store, path: str | Path, apps: Collection[str] | None = None
) -> dict[str, int]:
    """Export a store to ``path`` atomically; return the number of records of each kind.

    ``apps`` restricts the export to the runs and signatures of these applications, with the
    fingerprints, nodes and references that they refer to.

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
    exported_rows = list(rows.of_store(store, apps))
    try:
        with (
            replacing(target) as file,
            parquet.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for start in range(0, len(exported_rows), _ROWS_PER_GROUP):
                batch = exported_rows[start : start + _ROWS_PER_GROUP]
                writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
    except OSError as error:
        raise StoreError(
            f"The file {target} cannot be written: {error.strerror or error}."
        ) from error
    return dict(Counter(row["record"] for row in exported_rows))


def read_export(path: str | Path) -> dict[str, list[Any]]:
    """Read the records of an export by kind, keyed as ``Store.add_all`` takes them.

    Raises:
        InputError: the file is not an export, or a record in it is not valid (named by row).
        IncompatibleError: a newer KONGMING wrote it.
        MissingExtraError: pyarrow is not installed.
    """
    return rows.to_records(_read(Path(path)), str(path))


def _read(path: Path) -> Iterator[rows.Row]:
    """Yield the rows of an export, a batch unpacked at a time."""
    arrow, parquet = _pyarrow("The import")
    if path.is_dir():
        raise InputError(
            f"{path} is a folder.", hint="Give the file in it that 'kongming export' wrote."
        )
    if not path.is_file():
        raise InputError(f"There is no file {path}.", hint=did_you_mean(path))
    read = 0
    try:
        # The file is opened here: pyarrow would treat a name as a data set with partitions.
        with path.open("rb") as file:
            check_footer(file, path)
            footer = parquet.read_metadata(file)
            _check_format(path, footer.schema.to_arrow_schema())
            check_rows(footer.num_rows, path)
            check_pages(file, footer, _READ, path)
            # Texts stay as they were packed until their lengths are known.
            opened = parquet.ParquetFile(file, metadata=footer, read_dictionary=_READ)
            for batch in opened.iter_batches(batch_size=_ROWS_PER_BATCH, columns=_READ):
                read += text_bytes(batch.columns)
                check_text(read, path)
                yield from batch.to_pylist()
    except (OSError, UnicodeDecodeError, arrow.ArrowException) as error:
        raise InputError(
            f"{path} is not a Parquet file, or is damaged.",
            hint="Give a file that 'kongming export' wrote.",
        ) from error


def _check_format(path: Path, schema: Any) -> None:
    version = (schema.metadata or {}).get(_FORMAT_KEY, b"").decode(errors="replace")
    # Text in any form that another tool may have written it in; a name that occurs twice is none.
    texts = {field.name for field in schema if is_text(field.type)}
    unique = all(schema.names.count(name) == 1 for name in _READ)
    if _VERSION.fullmatch(version) is None or not set(_READ) <= texts or not unique:
        raise InputError(
            f"{path} is not an export of kongming.",
            hint="Give a file that 'kongming export' wrote.",
        )
    if int(version) > FORMAT:
        raise IncompatibleError(
            f"{path} has format {version}; this KONGMING reads up to {FORMAT}.",
            hint="Upgrade kongming to read it.",
        )


def _pyarrow(feature: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError(feature, "predict", "pyarrow") from error
    return pyarrow, pyarrow.parquet
