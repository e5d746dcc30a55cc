"""A SQLite store whose file is deleted, moved or replaced while it is open."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kongming.records.errors import InputError, StoreError
from kongming.store import Store
from kongming.store.integrity import serve_alone
from tests import builders


@pytest.fixture
def path(empty_store: Path, tmp_path: Path) -> Path:
    """A store of its own, without a record."""
    return Path(shutil.copy(empty_store, tmp_path / "store.db"))


def _delete(path: Path) -> None:
    path.unlink()


def _move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def _replace(path: Path) -> None:
    other = path.with_name("other.db")
    shutil.copy(path, other)
    other.replace(path)


@pytest.mark.parametrize("away", [_delete, _move, _replace])
def test_nothing_is_written_to_a_file_that_nobody_can_read(
    path: Path, away: Callable[[Path], None]
) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        store.put_node(builders.node(id="before"))
        away(path)
        with pytest.raises(StoreError, match=r"while it is in use") as raised:
            store.put_node(builders.node(id="after"))
    assert raised.value.away
    assert path.exists() == (away is _replace), "no empty file in its place"


def test_a_commit_to_a_file_that_was_just_moved_is_no_success(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        with pytest.raises(StoreError, match="deleted or moved"), store._writing():
            _move(path)
        path.with_name("moved.db").rename(path)
        # By itself, and on connections that were opened before.
        store.put_node(builders.node(id="after"))
        assert [node.id for node in store.nodes()] == ["after"]


@pytest.mark.parametrize("mode", ["", "?mode=ro"])
def test_who_names_a_file_by_its_folder_may_leave_that(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.chdir(path.parent)
    with Store.open(f"sqlite:///{path.name}{mode}", create=False) as store:
        monkeypatch.chdir("/")
        if not mode:
            store.put_node(builders.node(id="after"))
        # Of a connection that is open, and of a new one.
        with store._reading():
            assert len(store.nodes()) == (0 if mode else 1)


def test_a_deleted_log_is_told_and_loses_nothing(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        store.put_node(builders.node(id="before"))
        path.with_name("store.db-wal").unlink()
        with pytest.raises(StoreError, match="write-ahead log"):
            store.put_node(builders.node(id="after"))
        # What a kill would leave: the file alone.
        shutil.copy(path, path.with_name("left.db"))
        with closing(sqlite3.connect(path.with_name("left.db"))) as left:
            rows = left.execute("SELECT id FROM node ORDER BY id").fetchall()
    assert rows == [("after",), ("before",)]


def test_one_file_by_two_names_has_one_server(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with Store.open(f"sqlite:///{path}") as first, Store.open(f"sqlite:///{link}") as second:
        serve_alone(first)
        with pytest.raises(StoreError, match="Another kongming-server serves"):
            serve_alone(second)
    os.link(path, path.with_name("twin.db"))
    with Store.open(f"sqlite:///{path}") as first, pytest.raises(StoreError, match="hard link"):
        serve_alone(first)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_has_locked_once_its_owner_can_lock(path: Path) -> None:
    os.chown(path, 65534, 65534)
    with Store.open(f"sqlite:///{path}") as store:
        serve_alone(store)
    lock = path.with_name(f"{path.name}-server").stat()
    assert (lock.st_uid, lock.st_gid) == (65534, 65534)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.db")
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    (tmp_path / "null.db").symlink_to("/dev/null")
    for name in ("pipe.db", "loop.db", "null.db", "long" * 100 + ".db"):
        with pytest.raises(InputError, match="store: "):
            Store.open(f"sqlite:///{tmp_path / name}")
    # A link to a file that is to be made there is none of these.
    (tmp_path / "new.db").symlink_to(tmp_path / "there.db")
    Store.open(f"sqlite:///{tmp_path / 'new.db'}").close()
    assert (tmp_path / "there.db").is_file()


def test_a_home_that_is_no_folder_has_an_empty_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users of services have HOME=/dev/null: what only reads the store that nobody named works."""
    monkeypatch.delenv("KONGMING_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/dev/null")
    with Store.open(create=False) as store:
        assert store.runs() == []
    with pytest.raises(StoreError, match="cannot be created"):
        Store.open()
    with pytest.raises(InputError, match="folder that does not exist"):
        Store.open("sqlite:////dev/null/x/store.db")
