"""Logs that a path holds: a file, a rolling folder, a zip, a folder of applications.

A rolling log is files ``events_N_ID``, where N counts, and one that was compacted replaces those up
to it. Databricks writes ``eventlog`` and, hour by hour, ``eventlog-TIME.gz``. Whatever else begins
as an event log is one of its own.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from kongming.files.missing_file import did_you_mean
from kongming.records.errors import InputError
from kongming.spark.reading import events, findings
from kongming.spark.reading.codecs import DamagedStreamError, decompressed
from kongming.spark.reading.lines import Lines

_ROLLED = re.compile(r"events_(\d{1,9})_(.+)")
_HOURLY = re.compile(r"eventlog(?:-(\d{4}-\d\d-\d\d--\d\d-\d\d))?(?:\.gz)?")
_ENDINGS = re.compile(r"(?:\.(?:inprogress|compact|gz|gzip|zst|zstd|lz4|snappy|lzf|zip))+$")
_ID = re.compile(r"(application_\d+_\d+|[^_]+?)_(\d+)$")

_MOST_FILES = 100_000
_HEAD_LINES = 2000
"""The application's start is among the first events: after the executors that were there already
and the settings."""

_OTHER_LINES = 20
"""Lines that may be empty or broken before the first event; what has more is no event log."""

_LOOKS = b'{"Event":'

Opener = Callable[[], AbstractContextManager[BinaryIO]]


@dataclass(frozen=True)
class Part:
    """One file of a log."""

    name: str
    open: Opener


@dataclass(frozen=True)
class LoggedApplication:
    """One attempt of an application that a path holds the log of, not read yet."""

    id: str
    attempt: str | None
    name: str
    source: str
    parts: tuple[Part, ...]
    counts: dict[str, int]
    details: dict[str, str]


def read_applications(path: str | os.PathLike[str]) -> list[LoggedApplication]:
    """Return the applications whose logs a path holds, by id and attempt; each is opened for its
    first events.

    Raises:
        InputError: there is no such file, or no event log in it.
    """
    path = Path(path)
    try:
        parts = list(_parts(path))
    except FileNotFoundError as error:
        raise InputError(
            f"There is no file or folder {path}.",
            field="LOG",
            hint=did_you_mean(path)
            or "Give an event log of Spark; 'kongming spark conf' prints the settings that write "
            "one.",
        ) from error
    except (OSError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is a damaged zip"
        raise InputError(f"{path} cannot be read: {reason}.", field="LOG") from error
    alone = path.is_file() and len(parts) == 1
    logs = [log for group in _groups(parts, alone) if (log := _log(path, group, alone)) is not None]
    logs = _without_copies(logs)
    if not logs:
        rolled = [part.name for part in parts if _ROLLED.fullmatch(PurePosixPath(part.name).name)]
        raise InputError(
            f"{path} holds no event log of Spark."
            + (f" There is no event in {_listed(rolled)}." if rolled else ""),
            field="LOG",
            allowed="a log file, a rolling folder, a zip of the history server, or a folder of "
            "them, plain or compressed",
            hint="'kongming spark conf' prints the settings that write one.",
        )
    return sorted(logs, key=lambda log: (log.id, _natural(log.attempt or "")))


def _parts(path: Path) -> Iterator[Part]:
    """All files below a path that may belong to a log."""
    if path.is_dir():
        count = 0
        for folder, subfolders, names in os.walk(path):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if _may_be_log(name) and file.is_file():
                    count += 1
                    if count > _MOST_FILES:
                        raise InputError(
                            f"{path} holds more than {_MOST_FILES} files.",
                            field="LOG",
                            hint="Give the folder of one application.",
                        )
                    yield Part(str(file.relative_to(path)), _opener(file))
        return
    with path.open("rb") as opened:
        start = opened.read(4)
    if start.startswith((b"PK\3\4", b"PK\5\6")):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.is_dir() and _may_be_log(PurePosixPath(member.filename).name):
                    yield Part(member.filename, _zip_opener(path, member.filename))
        return
    yield Part(path.name, _opener(path))


def _may_be_log(name: str) -> bool:
    # Checksums of Hadoop's local file system lie next to it, and a marker of a rolling log's state.
    return not (name.startswith((".", "appstatus_")) or name.endswith(".crc"))


def _opener(path: Path) -> Opener:
    return lambda: path.open("rb")


def _zip_opener(path: Path, member: str) -> Opener:
    @contextmanager
    def opened() -> Iterator[BinaryIO]:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            yield file  # type: ignore[misc]

    return opened


def chunks(part: Part) -> Iterator[bytes]:
    """Yield the content of a file, decompressed.

    Raises:
        DamagedStreamError: after all that could be decompressed.
    """
    try:
        with part.open() as file:
            yield from decompressed(file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # A zip that is damaged, encrypted, or compressed in a way that Python knows nothing of.
        raise DamagedStreamError(str(error) or "ends too early") from error


# -- which files are one log


@dataclass
class _Group:
    parts: list[Part]
    id: str = ""  # by the names of its files
    counts: dict[str, int] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)


def _groups(parts: Sequence[Part], alone: bool) -> list[_Group]:
    rolled: dict[tuple[str, str], list[tuple[int, Part]]] = defaultdict(list)
    hourly: dict[str, list[tuple[str, Part]]] = defaultdict(list)
    groups = []
    for part in parts:
        place = PurePosixPath(part.name)
        if match := _ROLLED.fullmatch(place.name):
            id = _ENDINGS.sub("", match[2])
            rolled[str(place.parent), id].append((int(match[1]), part))
        elif match := _HOURLY.fullmatch(place.name):
            # The one that is still written has no time, and comes last.
            hourly[str(place.parent)].append((match[1] or "~", part))
        else:
            groups.append(_Group([part], _ENDINGS.sub("", place.name)))
    groups += [_rolling(id, files, alone) for (_, id), files in rolled.items()]
    for folder, times in hourly.items():
        ordered = [part for _, part in sorted(times, key=lambda each: each[0])]
        groups.append(_Group(ordered, PurePosixPath(folder).name))
    return groups


def _rolling(id: str, files: list[tuple[int, Part]], alone: bool) -> _Group:
    compacted = [(number, part) for number, part in files if part.name.endswith(".compact")]
    begin = max((number for number, _ in compacted), default=0)
    used = {number: part for number, part in files if number > begin}
    used |= {number: part for number, part in compacted if number == begin}
    ordered = sorted(used)
    group = _Group([used[number] for number in ordered], id)
    if compacted:
        group.counts[findings.COMPACTED] = 1
    absent = [number for number in range(max(1, begin), ordered[-1]) if number not in used]
    if alone and absent:
        group.counts[findings.PART_OF_LOG] = 1
    elif absent:
        group.counts[findings.MISSING_FILES] = len(absent)
        group.details[findings.MISSING_FILES] = _listed([f"events_{number}" for number in absent])
    return group


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


# -- whose log it is


def _log(path: Path, group: _Group, alone: bool) -> LoggedApplication | None:
    """None where the files are no event log; one that was named is always taken for one."""
    start, is_log = _head(group.parts)
    if not (is_log or alone):
        return None
    match = _ID.fullmatch(group.id)
    id, attempt = (match[1], match[2]) if match else (group.id, None)
    name = ""
    if start is not None:
        # What stands in it counts: files may have been renamed.
        id, attempt, name = start.app_id or id, start.app_attempt_id, start.app_name
    source = str(path) if alone or path.is_file() else str(path / group.parts[0].name)
    return LoggedApplication(
        id, attempt, name, source, tuple(group.parts), group.counts, group.details
    )


def _head(parts: Sequence[Part]) -> tuple[events.ApplicationStart | None, bool]:
    """The application's start, and whether this is an event log at all."""
    is_log = False
    for part in parts:
        seen = False
        for place, line in enumerate(islice(Lines(chunks(part)), _HEAD_LINES)):
            seen = seen or line.startswith(_LOOKS)
            if not seen and place >= _OTHER_LINES:
                break
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                event = events.event_of(line) if seen else None
                if isinstance(event, events.ApplicationStart):
                    return event, True
        is_log = is_log or seen
        if seen and place + 1 >= _HEAD_LINES:
            break
    return None, is_log


def _without_copies(logs: list[LoggedApplication]) -> list[LoggedApplication]:
    """Leave out each log in progress whose finished one is there too."""
    names = {part.name for log in logs for part in log.parts}
    return [
        log
        for log in logs
        if not all(
            part.name.endswith(".inprogress") and part.name.removesuffix(".inprogress") in names
            for part in log.parts
        )
    ]


def _natural(attempt: str) -> tuple[int, str]:
    return (int(attempt) if attempt.isdecimal() and len(attempt) < 10 else 0, attempt)
