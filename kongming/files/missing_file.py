"""The way out where a file is not there: the files next to it whose names are like its own."""

from __future__ import annotations

import difflib
import errno
import itertools
import shlex
from contextlib import suppress
from pathlib import Path

from kongming.records.errors import InputError, KongmingError, StoreError, nearest_names

_COMPARED = 1000
"""Entries of a folder that are looked at: a folder may be huge, and slow."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def did_you_mean(path: Path) -> str | None:
    """Return a sentence with the files next to ``path`` of the same ending, or nearly so, and
    nearest in name; None where there are none."""
    there: list[Path] = []
    with suppress(OSError):
        entries = itertools.islice(path.parent.iterdir(), _COMPARED)
        # A folder, or a link to nothing, is not the file that was meant: it may be the path itself.
        there = [
            entry for entry in entries if _alike(entry.suffix, path.suffix) and entry.is_file()
        ]
    # Without their endings, which are alike already: 'none.json' has little of 'job.json'.
    stems = nearest_names(path.stem, {entry.stem for entry in there})
    near = [entry for entry in there if entry.stem in stems]
    near.sort(key=lambda entry: (stems.index(entry.stem), entry.suffix != path.suffix, entry.name))
    return f"Did you mean {' or '.join(str(entry) for entry in near[:3])}?" if near else None


def _alike(ending: str, wanted: str) -> bool:
    """Return whether an ending may be meant: .tml for .toml, but not .csv for .json."""
    return ending == wanted or difflib.SequenceMatcher(None, ending, wanted).ratio() > 0.6


def unreadable(
    path: Path, error: OSError, hint: str = "", *, field: str | None = None
) -> InputError:
    """Return what to raise where a file cannot be opened; ``hint``: the way out where it is missing
    and none is like it; ``field``: the option that named it."""
    if isinstance(error, FileNotFoundError):
        suggestion = did_you_mean(path) or hint or None
        return InputError(f"There is no file {path}.", field=field, hint=suggestion)
    return InputError(f"{path} cannot be read: {error.strerror}.", field=field)


def unwritable(path: Path, error: OSError, *, field: str | None = None) -> KongmingError:
    """Return what to raise where a file cannot be written; ``field``: the option that named it. An
    InputError, but where the disk is full a StoreError: nothing that was given is wrong then."""
    message = f"{path} cannot be written: {error.strerror or error}."
    if error.errno in _FULL:
        return StoreError(message, hint="Free some space, and try again.")
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        return InputError(
            f"{path} cannot be written: there is no folder {path.parent}.",
            field=field,
            hint=f"Make it first: mkdir -p {shlex.quote(str(path.parent))}",
        )
    return InputError(message, field=field)
