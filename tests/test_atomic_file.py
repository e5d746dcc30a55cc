from __future__ import annotations

import os
from pathlib import Path

import pytest

from kongming.files.atomic_file import replace_text, replacing
from kongming.records.errors import InputError, StoreError


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


def test_a_link_is_followed(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    target.write_text("old")
    link.symlink_to(target.name)
    replace_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_text(pipe, "new")
        assert os.read(reader, 100) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_device_stays_one() -> None:
    with replacing(Path("/dev/null")) as stream:
        stream.write(b"nothing")
    replace_text(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()


def test_a_pipe_of_this_process_is_written_to() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as end, os.fdopen(writer, "wb"):
        replace_text(Path(f"/dev/fd/{writer}"), "new")
        assert end.read(3) == b"new"


def test_a_stream_that_leads_to_a_file_is_written_to(tmp_path: Path) -> None:
    """As ``/dev/stdout`` of ``command > file``: what is printed afterwards must not be lost."""
    with (tmp_path / "output").open("a") as stream:
        replace_text(Path(f"/dev/fd/{stream.fileno()}"), "document\n")
        stream.write("printed\n")
    assert (tmp_path / "output").read_text() == "document\nprinted\n"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--out: .*there is no folder"):
        replace_text(tmp_path / "none" / "page.html", "new", field="--out")


def test_a_full_disk_is_no_wrong_input() -> None:
    with pytest.raises(StoreError, match="/dev/full cannot be written: No space left") as error:
        replace_text(Path("/dev/full"), "new", field="--out")
    assert (error.value.exit_status, error.value.hint) == (1, "Free some space, and try again.")
