"""Parser of applications files: TOML with one ``[apps.NAME]`` table per application."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kongming.files.missing_file import did_you_mean
from kongming.profiling._appkeys import Table
from kongming.records.application import Application
from kongming.records.errors import ApplicationFileError, InputError, UnknownNameError

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_POSITION = re.compile(r"\(at line (\d+), column (\d+)\)")

SERVICE_KEYS = ("ready", "warmup_s", "load", "load_cpu")
KEYS = (
    "command",
    "kind",
    "setup",
    "prepare",
    "cleanup",
    "workdir",
    "env",
    "cpus",
    "cache",
    "timeout_s",
    "check",
    "metric",
    *SERVICE_KEYS,
)


def _instead(file: Path) -> str:
    """Return the way out where there is no applications file of this name."""
    if near := did_you_mean(file):
        return near
    if file.suffix:
        return f"'kongming init {file}' writes an example."
    return (
        f"'kongming init {file}.toml' writes an example; one application of a file is chosen by "
        f"--app {file.name}."
    )


def load(path: str | Path) -> dict[str, Application]:
    """Load the applications of a file by name, in its order. ``workdir`` is relative to its folder.

    Raises:
        ApplicationFileError: it cannot be read, is not TOML (with line and column), or has an
            invalid key (with the key, its value and the allowed values).
    """
    file = Path(path)
    try:
        # Some editors begin a file with a byte order mark.
        text = file.read_bytes().decode("utf-8-sig")
        document = tomllib.loads(text)
    except FileNotFoundError as error:
        raise ApplicationFileError(f"There is no file {file}.", hint=_instead(file)) from error
    except OSError as error:
        raise ApplicationFileError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ApplicationFileError(
            f"{file} is not UTF-8 text (at byte {error.start}), which TOML requires."
        ) from error
    except tomllib.TOMLDecodeError as error:
        line, column = _position(str(error), text)
        cause = _POSITION.sub("", str(error)).replace("(at end of document)", "").strip()
        raise ApplicationFileError(
            f"{file}, line {line}, column {column}: this is not valid TOML: {cause}."
        ) from error
    return parse(document, folder=file.absolute().parent, name=str(file))


def parse(
    document: Mapping[str, Any], *, folder: Path | None = None, name: str = "The file"
) -> dict[str, Application]:
    """Parse the applications of a TOML document. Pure.

    ``folder`` is the base of a relative ``workdir``, and its default; None leaves ``workdir``
    unchanged (and applications run in the current directory). ``name`` is the document's in errors.

    Raises:
        ApplicationFileError: as for ``load``.
    """
    top = Table("", document)
    top.refuse_unknown(("apps",))
    tables = document.get("apps")
    if tables is None:
        raise ApplicationFileError(
            f"{name} names no applications.", hint="Begin one with a line such as [apps.sort]."
        )
    if not isinstance(tables, Mapping):
        raise ApplicationFileError(
            "is not a table.", field="apps", value=tables, allowed="tables [apps.NAME]"
        )
    if not tables:
        raise ApplicationFileError("names no applications.", field="apps", allowed="[apps.NAME]")
    return {app: _application(app, table, folder) for app, table in tables.items()}


def select(apps: Mapping[str, Application], names: Iterable[str]) -> dict[str, Application]:
    """Select applications by name, in the order given; all of them without names.

    Raises:
        UnknownNameError: there is no application of a name; suggests the nearest.
    """
    selected = list(dict.fromkeys(names)) or list(apps)
    for name in selected:
        if name not in apps:
            raise UnknownNameError("application", name, apps)
    return {name: apps[name] for name in selected}


def select_one(apps: Mapping[str, Application], name: str | None) -> Application:
    """Select an application by name; without one, the only one that there is.

    Raises:
        UnknownNameError: there is no application of the name; suggests the nearest.
        InputError: there are several, and no name is given.
    """
    if name is None and len(apps) > 1:
        raise InputError("is missing.", field="--app", allowed=f"one of {', '.join(apps)}")
    (app,) = select(apps, () if name is None else (name,)).values()
    return app


def _application(name: str, values: Any, folder: Path | None) -> Application:
    where = f"apps.{name}"
    if not _NAME.fullmatch(name):
        raise ApplicationFileError(
            "is not a valid name.", field="apps", value=name, allowed="A-Z a-z 0-9 _ . -"
        )
    if not isinstance(values, Mapping):
        raise ApplicationFileError(
            "is not a table.", field=where, value=values, allowed=f"a table [{where}]"
        )
    table = Table(where, values)
    table.refuse_unknown(KEYS)
    if "command" not in values:
        raise ApplicationFileError("is missing.", field=f"{where}.command", allowed=Table.COMMAND)
    kind = table.choice("kind", ("batch", "service"), "batch")
    if kind == "service":
        for key in ("ready", "load"):
            if key not in values:
                raise ApplicationFileError(
                    "is missing: a service has one.",
                    field=f"{where}.{key}",
                    allowed=Table.COMMAND,
                )
    else:
        for key in SERVICE_KEYS:
            if key in values:
                raise ApplicationFileError(
                    "is for services only.",
                    field=f"{where}.{key}",
                    value=values[key],
                    allowed='only with kind = "service"',
                )
    return Application(
        name=name,
        command=table.command("command") or "",
        kind="service" if kind == "service" else "batch",
        setup=table.command("setup"),
        prepare=table.command("prepare"),
        cleanup=table.command("cleanup"),
        workdir=_workdir(table.string("workdir"), folder),
        env=table.strings("env"),
        cpus=table.integer("cpus", 1, least=1) or 1,
        cache="cold" if table.choice("cache", ("warm", "cold"), "warm") == "cold" else "warm",
        timeout_s=table.number("timeout_s", 600.0, above_zero=True),
        check=table.regex("check"),
        metric=table.metric("metric"),
        ready=table.command("ready"),
        warmup_s=table.number("warmup_s", 0.0, above_zero=False),
        load=table.command("load"),
        load_cpu=table.integer("load_cpu", None, least=0),
    )


def _workdir(workdir: str | None, folder: Path | None) -> str | None:
    if folder is None:
        return workdir
    if workdir is None:
        return str(folder)
    # The scratch folder is absolute; do not prefix a path that begins with it.
    return workdir if workdir.startswith("{dir}") else str(folder / Path(workdir).expanduser())


def _position(message: str, text: str) -> tuple[int, int]:
    match = _POSITION.search(message)
    if match is not None:
        return int(match[1]), int(match[2])
    lines = text.split("\n")
    return len(lines), len(lines[-1]) + 1
