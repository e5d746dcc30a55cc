"""Replace a file as a whole: a reader sees the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kongming.files.missing_file import unwritable

_DEVICES = ("/", "dev"), ("/", "proc")
"""Folders whose files are of processes and devices: to replace one would be to lose what is written
to it afterwards."""

_MEMORY = ("/", "dev", "shm")


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a stream whose content is at ``path``, and on disk where ``durable``, once the block
    has ended.

    Until then it is a hidden file in the same folder, with the permissions that the umask gives to
    new files. If the block raises, that file is removed and the old one stays. What is below /dev
    or /proc is written to, and stays what it is.

    Raises:
        OSError: the file cannot be written.
    """
    if _is_device(path):
        with path.open("wb") as stream:
            yield stream
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            umask = os.umask(0o077)
            os.umask(umask)
            # Those of mkstemp are private.
            os.fchmod(handle, 0o666 & ~umask)
            yield stream
            stream.flush()
            if durable:
                os.fsync(handle)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if not durable:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def replace_text(path: Path, text: str, *, field: str | None = None) -> None:
    """Put a text in the place of a file that a user named, as ``replace_bytes`` does."""
    replace_bytes(path, text.encode(), field=field)


def replace_bytes(path: Path, content: bytes, *, field: str | None = None) -> None:
    """Put content in the place of a file that a user named as a whole; ``field``: the option. A
    link is followed; what is no file of a disk, as a pipe or ``/dev/stdout``, is written to.

    Raises:
        InputError: the file cannot be written.
        StoreError: the disk is full.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        # What leads from a device to a file is a stream that others write to as well.
        with replacing(path if _is_device(path) else Path(os.path.realpath(path))) as stream:
            stream.write(content)
    except OSError as error:
        raise unwritable(path, error, field=field) from error


def _is_device(path: Path) -> bool:
    return path.parts[:2] in _DEVICES and path.parts[:3] != _MEMORY
