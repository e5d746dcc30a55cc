"""The tables of an audit as CSV, one file a table."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kongming.records.errors import InputError


def write_tables(document: Mapping[str, Any], folder: Path) -> tuple[Path, ...]:
    """Write FOLDER/TABLE.csv for every table that has rows, and remove that of one that has none,
    which an earlier audit left. Lists become text with spaces.

    Raises:
        InputError: the folder cannot be created or written to.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in document.items():
            path = folder / f"{name}.csv"
            if rows == []:
                path.unlink(missing_ok=True)
            if not (isinstance(rows, list) and rows and isinstance(rows[0], dict)):
                continue
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows({key: _flat(value) for key, value in row.items()} for row in rows)
            written.append(path)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}.", field="--csv") from error
    return tuple(written)


def _flat(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    # A spreadsheet would interpret text that begins like this as a formula.
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t"):
        return "'" + value
    return value
