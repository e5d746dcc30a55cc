from __future__ import annotations

from pathlib import Path

import pytest

from kongming.files.atomic_file import replacing


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "table"
    file.write_text("old")

    def write() -> None:
        with replacing(file) as stream:
            stream.write(b"new")
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        write()
    assert file.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["table"]


def test_the_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("")
    with replacing(tmp_path / "table") as stream:
        stream.write(b"new")
    assert (tmp_path / "table").read_bytes() == b"new"
    assert (tmp_path / "table").stat().st_mode == other.stat().st_mode
