"""Reports that a scheduler's prolog and epilog leave for the agent of their node: one small file a
report.

A folder rather than a socket: a job is never held up by an agent that is busy, and a report is not
lost while the agent is away. Only the standard library is imported here, so that a prolog is quick.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kongming.rpc.trusted_folder import open_folder

FORMAT = 3
"""Version 1 called the assignment a placement, version 2 the kind of report that begins one."""

MOST_REPORTS = 10000
"""As many may lie there: beyond it new ones are dropped, as they are not read."""

_MOST_BYTES = 4096
_LONGEST_ERROR = 500
_SUFFIX = ".report"
_NAME = re.compile(r"[A-Za-z0-9_.:+@-]{1,200}")


@dataclass(frozen=True, slots=True)
class Report:
    """An application has started here (``assignment``), or has run (``run``).

    ``at`` is when it started, in unix seconds; ``wall_s``, ``exit_status`` (negative for a signal)
    and ``scheduler`` are of a run. ``assignment_id`` is the scheduler's own. ``error`` is why
    ``wall_s`` is not how long the application takes, whatever its exit status: empty where it is,
    and in the files of earlier versions.
    """

    kind: Literal["assignment", "run"]
    assignment_id: str
    app: str
    at: float
    wall_s: float = 0.0
    exit_status: int = 0
    scheduler: str = ""
    error: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("assignment", "run"):
            raise ValueError(f"unknown kind {self.kind!r}")
        for name, text in (("assignment_id", self.assignment_id), ("app", self.app)):
            if _NAME.fullmatch(text) is None:
                raise ValueError(f"{name} {text[:40]!r} cannot be a name")
        if self.scheduler and _NAME.fullmatch(self.scheduler) is None:
            raise ValueError(f"scheduler {self.scheduler[:40]!r} cannot be a name")
        if len(self.error) > _LONGEST_ERROR:
            raise ValueError("its error is too long")
        for name, value in (("at", self.at), ("wall_s", self.wall_s)):
            if not 0.0 <= value < math.inf:
                raise ValueError(f"{name} is {value}")
        if self.kind == "run" and not self.wall_s > 0.0:
            raise ValueError("a run takes time")


def leave(folder: Path, report: Report) -> None:
    """Put a report into the folder, whole or not at all.

    Raises:
        OSError: the folder is not there, is full, cannot be written, or somebody has put a link
            in the place of it.
    """
    document = {"format": FORMAT, **asdict(report)}
    # Names sort by the moment at which the reports were left.
    name = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    at = open_folder(folder)
    try:
        if sum(1 for _ in os.scandir(at)) >= MOST_REPORTS:
            raise OSError(f"{folder} is full: no agent reads it")
        handle = os.open(f".{name}", flags, 0o600, dir_fd=at)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                # A prolog is root's; the agent is whoever the folder belongs to.
                owner = os.fstat(at)
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
                os.fsync(file.fileno())
            os.rename(f".{name}", name + _SUFFIX, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(f".{name}", dir_fd=at)
            raise
    finally:
        os.close(at)


def make(folder: Path) -> None:
    """The folder, for the agent alone and root. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def waiting(folder: Path) -> Iterator[tuple[Path, Report | str]]:
    """Return what lies there, oldest first: each file's report, or why it is none.

    Files stay until the caller removes them. Raises OSError where the folder cannot be read.
    """
    names = (entry.name for entry in os.scandir(folder))
    for name in sorted(name for name in names if name.endswith(_SUFFIX)):
        path = folder / name
        try:
            yield path, _read(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
            yield path, f"{error}"


def _read(path: Path) -> Report:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES:
            raise ValueError("it is no report")
        document: Any = json.loads(file.read(_MOST_BYTES))
    version = document.get("format") if isinstance(document, dict) else None
    if version not in (1, 2, FORMAT):
        raise ValueError(f"its format is {version}, and not up to {FORMAT}")
    if version == 1 and "placement_id" in document:
        document["assignment_id"] = document["placement_id"]
    if version != FORMAT and document["kind"] == "placement":
        document["kind"] = "assignment"
    return Report(
        kind=document["kind"],
        assignment_id=str(document["assignment_id"]),
        app=str(document["app"]),
        at=float(document["at"]),
        wall_s=float(document.get("wall_s", 0.0)),
        exit_status=int(document.get("exit_status", 0)),
        scheduler=str(document.get("scheduler", "")),
        error=str(document.get("error", "")),
    )
