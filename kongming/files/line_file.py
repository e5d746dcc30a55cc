"""A file of lines that one process appends to, and that survives kill -9 at any moment."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from kongming.files.missing_file import unwritable
from kongming.records.errors import InputError, StoreError


class LineFile:
    """The file at ``path``, created where it is missing, open and locked until ``close``. A line is
    with the kernel when ``append`` returns, and on disk after ``sync``. ``private``: a new file is
    its owner's alone, whatever the umask; the mode of one that is there is its owner's choice.

    Raises:
        InputError: its folder is not there, or it is a folder.
        StoreError: it cannot be created.
        BlockingIOError: another process has it.
    """

    def __init__(self, path: Path, *, private: bool = False) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            handle = os.open(path, flags, 0o600 if private else 0o666)
            self.file: IO[bytes] = os.fdopen(handle, "ab+", buffering=0)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise unwritable(path, error) from error
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}.") from error
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Some file systems of clusters know no locks: there nobody else can be refused.
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                self.file.close()
                raise

    def close(self) -> None:
        """Close and unlock; a file without content is removed."""
        with contextlib.suppress(OSError):
            if not self.file.closed:
                own = os.fstat(self.file.fileno())
                # Not a device, not a link to the file, and not what has taken its name meanwhile.
                if own.st_size == 0 and stat.S_ISREG(own.st_mode):
                    path = self.path.resolve()
                    if os.path.samestat(own, path.stat()):
                        path.unlink()
        self.file.close()

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a document as JSON. Raises StoreError as ``write``."""
        self.write(json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Append ``data``, which ends with a line's end. Raises StoreError where it cannot be
        written; then nothing of it is left."""
        begin = self.file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[self.file.write(data) or 0 :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self.file.truncate(begin)
            raise _write_error(self.path, error) from error

    def sync(self) -> None:
        """Flush to disk. Raises StoreError."""
        try:
            os.fsync(self.file.fileno())
        except OSError as error:
            raise _write_error(self.path, error) from error

    def remove_incomplete_line(self) -> None:
        """Remove what a process that was killed left of its last line."""
        size = self.file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - 65536)
            self.file.seek(start)
            at = (self.file.read(end - start) or b"").rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            self.file.truncate(end)


def of_one_command(path: Path) -> LineFile:
    """Open the table that the option --out names, for the rows of one command.

    Raises:
        InputError: another command has it; its folder is not there, or it is a folder.
        StoreError: it cannot be created.
    """
    try:
        return LineFile(path)
    except BlockingIOError as error:
        raise InputError(
            "Another command appends to this table now.",
            field="--out",
            value=str(path),
            hint="Wait until it has ended, or choose another file.",
        ) from error


def _write_error(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path} cannot be written: {error.strerror or error}.",
        hint="Free some space; the same command then resumes.",
    )
