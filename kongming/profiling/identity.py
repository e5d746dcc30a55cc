"""What makes two runs runs of the same application: a hash over all that decides its work."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
import shutil
from pathlib import Path

from kongming.application import SCRATCH, Application

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def identity(app: Application, search_path: str | None = None) -> str:
    """16 hexadecimal digits; runs of different identities are never mixed.

    Hashes the commands (command, load, set-up, prepare), the environment, kind, CPUs, cache and
    metric, and the content of the executable that the command names, looked up in
    ``search_path`` (default: PATH, the application's own if it sets one). Names, time limits,
    checks and the folder do not count: they change no measured value.
    """
    executable = find_executable(app, search_path)
    document = {
        "command": _plain(app.command),
        "kind": app.kind,
        "load": _plain(app.load),
        "load_cpu": app.load_cpu,
        "setup": _plain(app.setup),
        "prepare": _plain(app.prepare),
        "env": dict(app.env),
        "cpus": app.cpus,
        "cache": app.cache,
        "metric": None
        if app.metric is None
        else [app.metric.pattern, app.metric.unit, app.metric.better],
        "executable": None if executable is None else file_hash(executable),
    }
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_executable(app: Application, search_path: str | None = None) -> Path | None:
    """The file that argv[0], or the first word of the shell line, names.

    None for a builtin of the shell and for what set-up makes in the scratch folder (set-up is
    part of the identity).
    """
    name = _first_word(app)
    if not name or SCRATCH in name:
        return None
    if "/" in name:
        folder = Path.cwd() if app.workdir is None else Path(app.workdir)
        path = folder / name
        return path if path.is_file() else None
    own = app.env.get("PATH")
    found = shutil.which(name, path=search_path if search_path is not None else own)
    return None if found is None else Path(found)


def file_hash(path: Path) -> str | None:
    """SHA-256 of a file, None when it cannot be read; hashed again only when it has changed."""
    try:
        status = path.stat()
        return _hash(str(path.resolve()), status.st_mtime_ns, status.st_size)
    except OSError:
        return None


@functools.lru_cache(maxsize=256)
def _hash(path: str, mtime_ns: int, size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_word(app: Application) -> str:
    if not isinstance(app.command, str):
        return app.command[0]
    try:
        words = shlex.split(app.command, comments=True)
    except ValueError:  # an unbalanced quote: the shell will say so
        words = app.command.split()
    # A line may begin with assignments for the command: LC_ALL=C sort ...
    rest = [word for word in words if not _ASSIGNMENT.match(word)]
    if rest[:1] in (["exec"], ["env"], ["command"]) and len(rest) > 1:
        rest = [word for word in rest[1:] if not word.startswith("-")]
    return os.fspath(rest[0]) if rest else ""


def _plain(command: str | tuple[str, ...] | None) -> str | list[str] | None:
    return list(command) if isinstance(command, tuple) else command
