"""Folders for the node's persistent state and for the files of the I/O surrogates."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from kongming.records.errors import InputError


def state_folder() -> Path:
    """Return ``$XDG_STATE_HOME/kongming`` or ``~/.local/state/kongming``; it may not exist yet."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def io_folder(directory: str | Path | None = None) -> Path:
    """Return the absolute path of the folder whose file system the I/O surrogates measure.

    ``directory`` if given, else KONGMING_DIR, else ``$XDG_CACHE_HOME/kongming`` or
    ``~/.cache/kongming``. All but the first are created if missing; if that fails, the I/O
    surrogates report the error and the others still run.

    Raises:
        InputError: ``directory`` does not exist, or it or KONGMING_DIR is not a folder.
    """
    configured = os.environ.get("KONGMING_DIR")
    if directory is not None:
        path, field = Path(directory), "dir"
    elif configured:
        path, field = Path(configured), "KONGMING_DIR"
    else:
        path, field = _xdg("XDG_CACHE_HOME", ".cache"), "XDG_CACHE_HOME"
    path = path.expanduser().absolute()
    if directory is None:
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_dir():
        raise InputError("is not a folder.", field=field, value=str(path), allowed="a folder")
    if directory is not None and not path.exists():
        raise InputError(
            "does not exist.",
            field=field,
            value=str(path),
            allowed="an existing folder on the file system to measure",
        )
    return path


def work_folder(directory: str | Path | None = None) -> Path:
    """Return the folder of ``io_folder`` for programs to work in: files can be made there.

    Raises:
        InputError: as for ``io_folder``, or no file can be made there.
    """
    path = io_folder(directory)
    try:
        with tempfile.TemporaryDirectory(prefix=".kongming-", dir=path):
            return path
    except OSError as error:
        raise InputError(
            f"no file can be made there: {error.strerror}.",
            field="dir",
            value=str(path),
            allowed="a writable folder with free space",
            hint="Name one with --dir or KONGMING_DIR.",
        ) from error


def in_memory(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether files in ``folder`` are in memory (tmpfs, ramfs); False if unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        path = folder.resolve()
    except OSError:
        return False
    kind, depth = "", -1
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        # Spaces in mount points are written as octal escapes.
        point = Path(fields[1].replace("\\040", " "))
        # Of several mounts at one mount point the last one is visible.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            kind, depth = fields[2], len(point.parts)
    return kind in ("tmpfs", "ramfs")


def _xdg(variable: str, fallback: str) -> Path:
    # The XDG specification requires relative paths in these variables to be ignored.
    base = os.environ.get(variable, "")
    if not base.startswith("/"):
        return Path.home() / fallback / "kongming"
    return Path(base) / "kongming"
