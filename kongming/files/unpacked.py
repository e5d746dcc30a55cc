"""Limit of what a compressed file may unpack to: a few bytes can stand for gigabytes.

What KONGMING keeps in a file has times and ids of its own in each row, so it cannot be packed
further than this. A file that says otherwise is refused before it is unpacked.
"""

from __future__ import annotations

from pathlib import Path

from kongming.records.errors import InputError

RATIO = 100
"""Most bytes of text for a byte of the file. Documents of records are packed to a tenth."""

FREE = 16 * 2**20
"""Bytes of text that a file of any size may hold."""


def check_rows(rows: int, path: Path) -> None:
    """Refuse a file that says it has more rows than bytes.

    Raises:
        InputError: it does.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    if rows > size:
        raise InputError(
            f"{path} says that it has more rows than bytes, which no recording has.",
            field="rows",
            value=rows,
            allowed=f"{size} at the most",
        )


def check_text(read: int, path: Path) -> None:
    """Refuse a file of which ``read`` bytes of text were unpacked: too much for its size.

    Raises: as ``check_rows``.
    """
    most = FREE + RATIO * path.stat().st_size
    if read > most:
        raise InputError(
            f"{path} unpacks to more text than a file of its size can hold.",
            field="bytes",
            value=f"more than {read}",
            allowed=f"{most} at the most",
        )
