"""The tables of an audit as CSV, one file a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kongming.files.atomic_file import replace_text
from kongming.records.errors import InputError


def write_tables(document: Mapping[str, Any], folder: Path) -> tuple[Path, ...]:
    """Write FOLDER/audit-TABLE.csv for every table that has rows, and remove that of one that has
    none, which an earlier audit left. Lists become text with spaces.

    Raises:
        InputError: the folder cannot be created or written to.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in document.items():
            # A name that nobody else gives a file: what lies there may be replaced, or removed.
            path = folder / f"audit-{name}.csv"
            if rows == []:
                path.unlink(missing_ok=True)
            if not (isinstance(rows, list) and rows and isinstance(rows[0], dict)):
                continue
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, list(rows[0]))
            writer.writeheader()
            writer.writerows({key: _flat(value) for key, value in row.items()} for row in rows)
            replace_text(path, text.getvalue(), field="--csv")
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
