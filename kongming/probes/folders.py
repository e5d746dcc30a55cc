"""Where this node keeps what it measured about itself, and where its I/O surrogates work."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kongming.errors import InputError


def state_folder() -> Path:
    """``$XDG_STATE_HOME/kongming`` or ``~/.local/state/kongming``. It may not exist yet."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def io_folder(directory: str | Path | None = None) -> Path:
    """The folder whose file system the I/O surrogates measure, as an absolute path.

    ``directory`` if it is given, else KONGMING_DIR, else ``$XDG_CACHE_HOME/kongming`` or
    ``~/.cache/kongming``. Only the last is made when it does not exist; where it cannot be, the
    I/O surrogates say so and the others go on.

    Raises:
        InputError: a folder that was named does not exist or is not a folder.
    """
    field, named = "dir", directory
    if named is None and os.environ.get("KONGMING_DIR"):
        field, named = "KONGMING_DIR", os.environ["KONGMING_DIR"]
    if named is not None:
        path = Path(named).expanduser().absolute()
        if not path.is_dir():
            raise InputError(
                "is not a folder." if path.exists() else "does not exist.",
                field=field,
                found=str(named),
                allowed="an existing folder on the file system to measure",
            )
        return path
    path = _xdg("XDG_CACHE_HOME", ".cache")
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _xdg(variable: str, fallback: str) -> Path:
    # A relative path in these variables is to be ignored, says the XDG specification.
    base = os.environ.get(variable, "")
    if not base.startswith("/"):
        return Path.home() / fallback / "kongming"
    return Path(base) / "kongming"
