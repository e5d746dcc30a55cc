"""Plan of what is going to be evaluated, written down before it is measured.

A pre-registration is a JSON file: digests of the code (a folder of the package each, the
micro-benchmarks, the files that the applications' commands name), the names of
the models, and the list of applications with the settings of the measurement. One digest of all
that is what a table states. The list must stay as it was written; code may change, and the table
then says where.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kongming.files.missing_file import unreadable, unwritable
from kongming.profiling.plans.identity import file_hash
from kongming.records import moments
from kongming.records.errors import InputError

SCHEMA = 1

_OPTION = "--preregister"

MICROBENCH, PROGRAMS = "(micro-benchmarks)", "(files of the programs)"
"""Digests that are no folder of the package; files written before they existed have none."""


def code_digests(package: Path) -> dict[str, str]:
    """Return the SHA-256 of the Python files below each folder of ``package``, by name of the
    folder; files of the package itself are under "."."""
    digests: dict[str, Any] = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).parts
        digest = digests.setdefault(parts[0] if len(parts) > 1 else ".", hashlib.sha256())
        digest.update("/".join(parts).encode() + b"\0" + file.read_bytes() + b"\0")
    return {folder: digest.hexdigest() for folder, digest in sorted(digests.items())}


def files_digest(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of files, wherever they lie; one that cannot be
    read counts as absent."""
    lines = sorted({f"{file.name} {file_hash(file)}\0" for file in files})
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def preregister(
    path: Path, code: Mapping[str, str], models: Sequence[str], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the file, or check the one that is there; return what is registered.

    Raises:
        InputError: the file cannot be read or written, or registers other models or settings.
    """
    if path.exists():
        document = registered(path)
        for name, now in (("models", list(models)), ("settings", dict(settings))):
            if document[name] != now:
                raise InputError(
                    f"{path} registers other {name}.",
                    field=_OPTION,
                    value=now,
                    allowed=document[name],
                    hint="Repeat the command that wrote it, or give a file that is not there yet.",
                )
        return document
    document = {
        "schema": SCHEMA,
        "written_at": moments.now(),
        "code": dict(code),
        "models": list(models),
        "settings": dict(settings),
    }
    document["sha256"] = _digest(document)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error, field=_OPTION) from error
    return document


def registered(path: Path) -> dict[str, Any]:
    """Read a pre-registration. Raises InputError if it cannot be read or was edited."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise unreadable(path, error, field=_OPTION) from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}).", field=_OPTION) from error
    keys = {"schema", "written_at", "code", "models", "settings", "sha256"}
    if not isinstance(document, dict) or document.keys() != keys or document["schema"] != SCHEMA:
        raise InputError(
            f"{path} is not a pre-registration.", field=_OPTION, allowed="what this option writes"
        )
    if document["sha256"] != _digest(document):
        raise InputError(
            f"{path} was edited: its digest is not that of its content.",
            field=_OPTION,
            value=document["sha256"],
            allowed=_digest(document),
        )
    return document


def statement(
    document: Mapping[str, Any], code: Mapping[str, str], first_run: str | None
) -> dict[str, Any]:
    """Return what a table states: the digest, when it was written, whether the first run came
    later, and the folders of code that are not as they were registered."""
    before = document["code"]
    known = code.keys() - ({MICROBENCH, PROGRAMS} - before.keys())
    changed = sorted(k for k in {*before, *known} if before.get(k) != code.get(k))
    written = document["written_at"]
    in_time = first_run is None or moments.unix(written) <= moments.unix(first_run)
    return {
        "sha256": document["sha256"],
        "written_at": written,
        "before_first_run": in_time,
        "code_changed": changed,
    }


def _digest(document: Mapping[str, Any]) -> str:
    content = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
