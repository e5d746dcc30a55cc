"""A SQLite file that may only be read: what reads works, what writes is refused, and nothing is
left next to it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from kongming.records.errors import IncompatibleError, InputError, StoreError
from kongming.store import Store, read_only
from kongming.store.schema import VERSION_TABLE
from tests import builders

_NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users can reach, which those of pytest are not."""
    path = Path(tempfile.mkdtemp(prefix="kongming-read-only-"))
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


@pytest.fixture
def path(folder: Path) -> Path:
    """A store with a run, closed in good order."""
    file = folder / "store.db"
    with Store.open(f"sqlite:///{file}") as store:
        store.add_run(builders.run("sort", 1.0))
    return file


@contextmanager
def reader(folder: Path, file_mode: int = 0o444) -> Iterator[None]:
    """Be a user who may read what is in the folder, and no more."""
    for file in folder.iterdir():
        file.chmod(file_mode)
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_one_who_may_only_read_reads_and_leaves_nothing(path: Path) -> None:
    with reader(path.parent), Store.open(f"sqlite:///{path}", create=False) as store:
        assert [run.app for run in store.runs()] == ["sort"]
        with pytest.raises(InputError, match="may only be read by this user") as refused:
            store.add_run(builders.run("sort", 2.0))
    assert (refused.value.field, refused.value.value) == ("store", str(path))
    assert "write the file and its folder" in str(refused.value.hint)
    assert names(path.parent) == ["store.db"]


def test_what_will_write_is_refused_before_it_measures(path: Path) -> None:
    url = f"sqlite:///{path}"
    with reader(path.parent):
        for options in ({}, {"create": False, "write": True}):
            with pytest.raises(InputError, match="may only be read"):
                Store.open(url, **options)
        Store.open(url, write=False).close()


def test_a_file_in_a_folder_that_may_not_be_written_is_only_read(path: Path) -> None:
    """SQLite would make its files there."""
    with reader(path.parent, file_mode=0o666):
        assert os.access(path, os.W_OK, effective_ids=True)
        assert not read_only.may_write(path)
        with Store.open(f"sqlite:///{path}", create=False) as store:
            assert len(store.runs()) == 1


def test_what_another_process_is_writing_is_read_too(path: Path) -> None:
    url = f"sqlite:///{path}"
    with Store.open(url) as writer:
        writer.add_run(builders.run("sort", 2.0))
        with reader(path.parent), Store.open(url, create=False) as store:
            assert len(store.runs()) == 2


def test_by_a_link_the_log_is_that_of_the_file_it_leads_to(path: Path, folder: Path) -> None:
    links = folder / "links"
    links.mkdir()
    link = links / "link.db"
    link.symlink_to(path)
    links.chmod(0o555)
    if os.geteuid() == 0:
        for owned in (folder, path):
            os.chown(owned, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        # Only the folder of the link may not be written.
        with Store.open(f"sqlite:///{link}") as writer:
            writer.add_run(builders.run("sort", 2.0))
            with Store.open(f"sqlite:///{link}?mode=ro", create=False) as store:
                assert len(store.runs()) == 2
    finally:
        if os.geteuid() != os.getuid():
            os.seteuid(os.getuid())
        links.chmod(0o755)


@pytest.mark.parametrize("form", ["sqlite:///{}?mode=ro", "sqlite:///file:{}?mode=ro&uri=true"])
def test_the_mode_of_the_url_counts_whoever_asks(path: Path, form: str) -> None:
    url = form.format(path)
    with Store.open(url, create=False) as store:
        assert len(store.runs()) == 1
        assert store.url == f"sqlite:///{path}"
    assert names(path.parent) == ["store.db"]
    with pytest.raises(InputError, match="mode=ro") as refused:
        Store.open(url)
    assert "Leave out mode=ro" in str(refused.value.hint)
    with pytest.raises(InputError, match="does not exist"):
        Store.open(form.format(path.with_name("none.db")))
    assert names(path.parent) == ["store.db"]


def test_what_is_damaged_takes_nothing_else_with_it(path: Path) -> None:
    """As where it may be written."""
    with Store.open(f"sqlite:///{path}") as store:
        store.put_node(builders.node(id="good"))
        store.put_node(builders.node(id="bad"))
        with store._writing() as connection:
            connection.exec_driver_sql(
                "UPDATE node SET document = CAST(x'ff' AS TEXT) WHERE id = 'bad'"
            )
    with Store.open(f"sqlite:///{path}?mode=ro", create=False) as store:
        store.damage = lambda what, reason: None
        assert "good" in [node.id for node in store.nodes()]
        with store._reading() as connection:
            assert connection.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0


def test_another_mode_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="not a mode of a store"):
        Store.open(f"sqlite:///{path}?mode=rwx")


def test_what_was_not_closed_says_how_to_read_it(path: Path) -> None:
    """A copy of the database and its log, without the index."""
    with Store.open(f"sqlite:///{path}") as store:
        store.add_run(builders.run("sort", 2.0))
        copy = path.parent / "copy.db"
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    with reader(path.parent), pytest.raises(StoreError, match="not closed in good order"):
        Store.open(f"sqlite:///{copy}", create=False)


def test_an_index_that_was_left_without_its_log_is_of_no_consequence(path: Path) -> None:
    path.with_name("store.db-shm").touch()
    with reader(path.parent), Store.open(f"sqlite:///{path}", create=False) as store:
        assert len(store.runs()) == 1


def test_tables_that_would_have_to_be_upgraded_are_refused(path: Path) -> None:
    url = f"sqlite:///{path}?mode=ro"
    for revision, error, words in (
        ("0001", StoreError, "has to be upgraded, but it may only be read"),
        ("future", IncompatibleError, "does not know"),
    ):
        with Store.open(f"sqlite:///{path}") as store, store._writing() as connection:
            connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
        with pytest.raises(error, match=words):
            Store.open(url, create=False)
        with sqlite3.connect(path) as raw:
            raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (_head(),))
        raw.close()


def _head() -> str:
    from kongming.store.schema import HEAD

    return HEAD
