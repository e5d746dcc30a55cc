"""The way out where a file is not there: the files next to it whose names are like its own."""

from __future__ import annotations

import difflib
import itertools
from contextlib import suppress
from pathlib import Path

_COMPARED = 1000
"""Entries of a folder that are looked at: a folder may be huge, and slow."""


def did_you_mean(path: Path) -> str | None:
    """Return a sentence with the files next to ``path`` of the same ending and nearest in name;
    None where there are none."""
    there: list[str] = []
    with suppress(OSError):
        entries = itertools.islice(path.parent.iterdir(), _COMPARED)
        there = sorted(entry.name for entry in entries if entry.suffix == path.suffix)
    near = difflib.get_close_matches(path.name, there, n=3, cutoff=0.5)
    return (
        f"Did you mean {' or '.join(str(path.with_name(name)) for name in near)}?" if near else None
    )
