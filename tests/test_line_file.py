from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kongming.files.line_file import LineFile
from kongming.records.errors import StoreError


class FullDisk:
    """A file that takes ``room`` more bytes."""

    def __init__(self, file: object, room: int) -> None:
        self._file, self._room = file, room

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = data[: self._room]
        self._room -= len(written)
        return self._file.write(written)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("room", [0, 5])
def test_a_line_that_a_full_disk_cuts_short_leaves_nothing(tmp_path: Path, room: int) -> None:
    lines = LineFile(tmp_path / "lines")
    lines.append({"n": 1})
    real = lines.file
    lines.file = FullDisk(real, room)  # type: ignore[assignment]
    with pytest.raises(StoreError, match="No space left"):
        lines.append({"n": 2})
    lines.file = real
    lines.append({"n": 3})
    lines.close()
    assert lines.path.read_text() == '{"n":1}\n{"n":3}\n'


def test_an_incomplete_last_line_is_removed(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b'{"n":1}\n{"n":')
    lines = LineFile(tmp_path / "lines")
    lines.remove_incomplete_line()
    lines.append({"n": 2})
    with pytest.raises(BlockingIOError):
        LineFile(lines.path)
    lines.close()
    assert lines.path.read_text() == '{"n":1}\n{"n":2}\n'


def test_what_took_the_name_of_an_empty_file_stays(tmp_path: Path) -> None:
    lines = LineFile(tmp_path / "lines")
    lines.path.unlink()
    lines.path.write_text("another's\n")
    lines.close()
    assert lines.path.read_text() == "another's\n"


def test_an_empty_file_is_removed_at_the_end(tmp_path: Path) -> None:
    lines = LineFile(tmp_path / "lines")
    lines.close()
    assert not lines.path.exists()


def test_a_link_stays_and_so_does_a_pipe(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "lines")
    os.mkfifo(pipe)
    for path in (link, pipe):
        LineFile(path).close()
    assert link.is_symlink()
    assert pipe.is_fifo()
    assert not link.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(*_: object) -> None:
        raise OSError(code, "no locks")

    monkeypatch.setattr("fcntl.flock", refused)
    lines = LineFile(tmp_path / "lines")
    lines.append({"n": 1})
    lines.close()
    assert lines.path.read_text() == '{"n":1}\n'
