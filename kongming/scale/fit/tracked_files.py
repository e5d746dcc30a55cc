"""Files that a model depends on, such as the program's binary and its input, tracked by hash.

Ernest (NSDI 2016), section 5.1: changed code needs a new model; hashes detect the change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.records.errors import InputError


@dataclass(frozen=True, slots=True)
class TrackedFile:
    """State of a file when the model was fitted."""

    path: str
    sha256: str
    size_bytes: int
    mtime_ns: int

    def document(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "sha256": self.sha256,
            "size_bytes": self.size_bytes,
            "mtime_ns": self.mtime_ns,
        }


def track(paths: Sequence[str | Path]) -> tuple[TrackedFile, ...]:
    """Hash files. Raises InputError when one cannot be read."""
    return tuple(_tracked(Path(path).absolute()) for path in paths)


def changes(files: Sequence[TrackedFile]) -> tuple[bool, tuple[str, ...]]:
    """Return whether any file's content has changed, and a sentence for each changed or missing
    file.

    A missing file does not make a model stale: the model may be used on another machine.
    """
    stale = False
    messages = []
    for file in files:
        path = Path(file.path)
        try:
            status = path.stat()
            # Hashing a large input takes minutes; same size and modification time: unchanged.
            if (status.st_size, status.st_mtime_ns) == (file.size_bytes, file.mtime_ns):
                continue
            changed = status.st_size != file.size_bytes or _hash(path) != file.sha256
        except OSError as error:
            what = "is not here"
            if not isinstance(error, FileNotFoundError):
                what = f"cannot be read ({error.strerror})"
            messages.append(f"{file.path} {what}: whether it has changed is unknown.")
            continue
        if changed:
            stale = True
            messages.append(f"{file.path} has changed since the model was fitted: fit it again.")
    return stale, tuple(messages)


def _tracked(path: Path) -> TrackedFile:
    try:
        status = path.stat()
        digest = _hash(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}.", field="--track", allowed="a file"
        ) from error
    return TrackedFile(str(path), digest, status.st_size, status.st_mtime_ns)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
