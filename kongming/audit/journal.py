"""The journal of an observation in progress, as JSON lines next to its output: FILE.parquet.part.

The first line is the header, every other line is a step. A line is written to the kernel as soon as
its step has ended, so kill -9 loses only the current step; ``sync`` flushes to disk, once a round
since that is I/O. Only the standard library is imported, so that measuring processes stay small.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.audit.steps import Step
from kongming.files.line_file import LineFile
from kongming.records.errors import MALFORMED, IncompatibleError, InputError, StoreError

FORMAT = 1
"""Version of the format."""

_BEGIN = b'{"observation":'


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a journal: ``key`` has to be the same to resume it, ``document`` is the session as
    in an observation file."""

    session: str
    seed: int
    key: Mapping[str, Any]
    document: Mapping[str, Any]

    def differences(self, key: Mapping[str, Any]) -> list[str]:
        """The names whose values differ in another key."""
        names = sorted({*self.key, *key})
        return [name for name in names if self.key.get(name) != key.get(name)]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a recording: where the next step continues."""

    position: int = 0
    round: int = 0
    elapsed_s: float = 0.0


class Journal:
    """The open journal of one recording, locked against other commands.

    Raises:
        InputError: another command writes to it, or it is not a file.
        StoreError: it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a file.", hint="Give another --out.")
        try:
            self._lines = LineFile(path)
        except OSError as error:
            raise InputError(
                f"Another command is writing to {path}.",
                hint="Wait for it to end, or give another --out.",
            ) from error
        self.close, self.sync = self._lines.close, self._lines.sync

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, header: Header) -> None:
        """Write the header. Raises StoreError, and then leaves no journal."""
        line = {
            "observation": FORMAT,
            "session": header.session,
            "seed": header.seed,
            "key": dict(header.key),
            "document": dict(header.document),
        }
        try:
            self._lines.append(line)
            self.sync()
        except StoreError:
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise

    def clear(self) -> None:
        """Remove all that it has."""
        with contextlib.suppress(OSError):
            self._lines.file.truncate(0)

    def add(self, step: Step) -> None:
        """Append one step. Raises StoreError if it cannot be written; earlier steps remain."""
        self._lines.append(step.to_dict())

    def resume(self) -> tuple[Header, Progress] | None:
        """Prepare to append, and return the header and the progress; None for an empty journal.

        An incomplete last line is removed.

        Raises:
            InputError: it is not a journal, or damaged before its end.
            IncompatibleError: a newer KONGMING wrote it.
        """
        self._check_format()
        self._lines.remove_incomplete_line()
        progress = Progress()
        for step in steps_of(self.path):
            progress = Progress(step.position + 1, step.round + 1, step.elapsed_s)
        header = header_of(self.path)
        return None if header is None else (header, progress)

    def _check_format(self) -> None:
        """Refuse another file before anything of it is removed."""
        self._lines.file.seek(0)
        begin = self._lines.file.read(len(_BEGIN)) or b""
        if not _BEGIN.startswith(begin):
            raise _not_a_journal(self.path)


def header_of(path: Path) -> Header | None:
    """Read the header of a journal; None if it has none yet.

    Raises:
        InputError: it is not a journal.
        IncompatibleError: a newer KONGMING wrote it.
    """
    with path.open("rb") as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        document = json.loads(line)
        version = document["observation"]
        if isinstance(version, int) and version > FORMAT:
            raise IncompatibleError(
                f"{path} has format {version}; this KONGMING reads up to {FORMAT}.",
                hint="Upgrade kongming to resume it.",
            )
        return Header(
            document["session"], int(document["seed"]), document["key"], document["document"]
        )
    except MALFORMED as error:
        raise _not_a_journal(path) from error


def steps_of(path: Path) -> Iterator[Step]:
    """Iterate over the steps of a journal; an incomplete last line is skipped.

    Raises:
        InputError: a line before the last is damaged (named by number).
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 or not line.endswith(b"\n"):
                continue
            try:
                yield Step.from_dict(json.loads(line))
            except MALFORMED as error:
                raise InputError(
                    f"{path}, line {number}: this is not a step of an observation.",
                    hint="Remove the line to keep the others.",
                ) from error


def _not_a_journal(path: Path) -> InputError:
    return InputError(
        f"{path} is not a journal of 'kongming observe'.",
        hint="Move it away, or give another --out.",
    )
