"""What an observation has measured so far, as JSON lines beside its output: FILE.parquet.part.

The first line says what the recording is, every other one is a step. A line is in the kernel's
hands as soon as its step has ended, so kill -9 loses the step under way alone; ``sync`` puts all
on the disk, which is done once in a round since it is I/O. Nothing but the standard library is
imported: what measures must not disturb.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kongming.audit.steps import Step
from kongming.errors import IncompatibleError, InputError, StoreError

FORMAT = 1
"""Version of the lines."""

_BEGIN = b'{"observation":'


@dataclass(frozen=True, slots=True)
class Header:
    """What the recording is: ``key`` has to be the same for it to go on, ``document`` is the
    session as an observation file describes it."""

    session: str
    seed: int
    key: Mapping[str, Any]
    document: Mapping[str, Any]

    def differences(self, key: Mapping[str, Any]) -> list[str]:
        """The names of what is not the same in another key."""
        names = sorted({*self.key, *key})
        return [name for name in names if self.key.get(name) != key.get(name)]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a recording is: what the next step goes on from."""

    position: int = 0
    round: int = 0
    elapsed_s: float = 0.0


class Journal:
    """The open journal of one recording, locked: two commands never write to one.

    Raises:
        InputError: another command writes to it, or it is no file.
        StoreError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is no file.", hint="Give another --out.")
        try:
            self._file: IO[bytes] = path.open("ab+", buffering=0)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}.") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise InputError(
                f"Another command observes into {path} at this moment.",
                hint="Let it end, or give another --out.",
            ) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give it up; one that was never begun is removed."""
        with contextlib.suppress(OSError):
            if not self._file.closed and os.fstat(self._file.fileno()).st_size == 0:
                self.path.unlink(missing_ok=True)
        self._file.close()

    def begin(self, header: Header) -> None:
        """Write the first line. Raises StoreError, and leaves no journal then."""
        line = {
            "observation": FORMAT,
            "session": header.session,
            "seed": header.seed,
            "key": dict(header.key),
            "document": dict(header.document),
        }
        try:
            self._write(line)
            self.sync()
        except StoreError:
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise

    def add(self, step: Step) -> None:
        """Append one step. Raises StoreError when it could not be kept; those before it are."""
        self._write(step.to_dict())

    def sync(self) -> None:
        """Put all on the disk. Raises StoreError."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritten(self.path, error) from error

    def resume(self) -> tuple[Header, Progress] | None:
        """What the journal holds, ready to be added to; None where it is empty.

        A line that was cut off is removed.

        Raises:
            InputError: it is no journal, or damaged before its end.
            IncompatibleError: a newer KONGMING wrote it.
        """
        self._refuse_stranger()
        self._cut_torn_line()
        progress = Progress()
        for step in steps_of(self.path):
            progress = Progress(step.position + 1, step.round + 1, step.elapsed_s)
        header = header_of(self.path)
        return None if header is None else (header, progress)

    def _refuse_stranger(self) -> None:
        """Before anything is cut off: it may be somebody's file."""
        self._file.seek(0)
        begin = self._file.read(len(_BEGIN)) or b""
        if not _BEGIN.startswith(begin):
            raise _no_journal(self.path)

    def _cut_torn_line(self) -> None:
        size = self._file.seek(0, os.SEEK_END)
        keep = size
        while keep > 0:
            start = max(0, keep - 65536)
            self._file.seek(start)
            at = (self._file.read(keep - start) or b"").rfind(b"\n")
            if at >= 0:
                keep = start + at + 1
                break
            keep = start
        if keep < size:
            self._file.truncate(keep)

    def _write(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        begin = self._file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(begin)
            raise _unwritten(self.path, error) from error


def header_of(path: Path) -> Header | None:
    """The first line of a journal; None where there is none yet.

    Raises:
        InputError: it is not one.
        IncompatibleError: a newer KONGMING wrote it.
    """
    with path.open("rb") as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
        version = found["observation"]
        if isinstance(version, int) and version > FORMAT:
            raise IncompatibleError(
                f"{path} has format {version}; this KONGMING reads up to {FORMAT}.",
                hint="Upgrade kongming to go on with it.",
            )
        return Header(found["session"], int(found["seed"]), found["key"], found["document"])
    except (ValueError, KeyError, TypeError) as error:
        raise _no_journal(path) from error


def steps_of(path: Path) -> Iterator[Step]:
    """The steps of a journal, one after the other; a last line that was cut off is passed over.

    Raises:
        InputError: a line before the last is damaged (named by number).
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 or not line.endswith(b"\n"):
                continue
            try:
                yield Step.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{path}, line {number}: this is not a step of an observation.",
                    hint="Remove the line to keep the others.",
                ) from error


def _no_journal(path: Path) -> InputError:
    return InputError(
        f"{path} is no journal of 'kongming observe'.",
        hint="Move it away, or give another --out.",
    )


def _unwritten(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path} cannot be written: {error.strerror or error}.",
        hint="Free some space; the same command then goes on.",
    )
