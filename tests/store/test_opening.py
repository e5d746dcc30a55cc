"""Opening: new, old, newer, foreign and broken stores."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from kongming.records.errors import IncompatibleError, InputError, KongmingError, StoreError
from kongming.store import Store, default_url
from kongming.store.failures import NotAStoreError
from kongming.store.integrity import serve_alone
from kongming.store.migrations import config
from kongming.store.schema import HEAD, VERSION_TABLE, metadata
from kongming.store.urls import shown_url
from tests import builders
from tests.conftest import ROOT


def test_store_is_kept_between_openings(new_store_url: str) -> None:
    run = builders.run("sort", 1.0, {"stream.triad": 1e-9})
    with Store.open(new_store_url) as store:
        store.add_run(run)
    with Store.open(new_store_url) as store:
        assert store.runs() == [run]


def test_without_upgrade_no_tables_are_made(postgres_url: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreError, match="has no tables"):
            Store.open(postgres_url, create=False, upgrade=False)
    with Store.open(postgres_url) as store:
        assert store.is_new
    Store.open(postgres_url, create=False, upgrade=False).close()


def test_without_upgrade_a_store_of_the_user_that_is_not_there_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KONGMING_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Store.open(create=False, upgrade=False) as store:
        assert store.references() == []
    assert not (tmp_path / "data").exists()


def test_default_is_the_environment_then_the_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KONGMING_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_url() == f"sqlite:///{tmp_path}/data/kongming/kongming.db"
    Store.open().close()
    assert (tmp_path / "data" / "kongming" / "kongming.db").is_file()
    monkeypatch.setenv("KONGMING_STORE", "sqlite:///elsewhere.db")
    assert default_url() == "sqlite:///elsewhere.db"


def test_sqlite_is_durable_and_checks_references(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store, store._reading() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_migrations_make_the_tables_that_the_code_expects(new_store_url: str) -> None:
    assert ScriptDirectory.from_config(config()).get_current_head() == HEAD
    with Store.open(new_store_url) as store, store._reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": VERSION_TABLE}
        )
        assert compare_metadata(context, metadata) == []


def test_tables_can_be_made_in_postgresql() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in metadata.sorted_tables:
        assert str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert len(str(index.name)) <= 63
            assert str(CreateIndex(index).compile(dialect=dialect))


def test_opening_an_existing_store_loads_no_alembic(new_store_url: str) -> None:
    Store.open(new_store_url).close()
    code = (
        "import sys; from kongming.store import Store; Store.open(sys.argv[1]).close(); "
        "sys.exit('alembic' in sys.modules or 'pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, new_store_url], check=True, cwd=ROOT)


def test_newer_store_is_refused(new_store_url: str) -> None:
    with Store.open(new_store_url) as store, store._writing() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = 'future'"))
    with pytest.raises(IncompatibleError, match="Upgrade kongming"):
        Store.open(new_store_url)


def test_half_made_store_does_not_exist(
    new_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr("alembic.command.stamp", fail)
        patch.setattr("alembic.runtime.migration.HeadMaintainer.update_to_step", fail)
        with pytest.raises(RuntimeError):
            Store.open(new_store_url)
    with Store.open(new_store_url) as store:
        assert store.runs() == []


def test_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (id INTEGER)")
    connection.close()
    with pytest.raises(NotAStoreError, match="another program"):
        Store.open(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert tables == [("bookmarks",)]


def test_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader, " * 500)
    with pytest.raises(NotAStoreError, match="is not a database"):
        Store.open(f"sqlite:///{tmp_path / 'letter.txt'}")


def test_damaged_database_is_a_store_error(tmp_path: Path, sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.add_all(runs=[builders.run("sort", 1.0, {"os.switch": 1e-6}) for _ in range(50)])
    path = tmp_path / "store.db"
    content = bytearray(path.read_bytes())
    content[4096 * 2 :] = b"\xa5" * (len(content) - 4096 * 2)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"), Store.open(sqlite_url) as store:
        store.runs()


def test_a_row_of_a_newer_version_is_named(tmp_path: Path, sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        run = builders.run("sort", 1.0)
        store.add_run(run)
    with closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
        database.execute("UPDATE run SET document = json_set(document, '$.schema', 999)")
    with (
        Store.open(sqlite_url) as store,
        pytest.raises(
            IncompatibleError, match=f"has a run '.*{run.id}' that cannot be read: .*999"
        ),
    ):
        store.runs()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("store.db", "not a database URL"),
        ("sqlite://store.db", "too few slashes"),
        ("mongodb://host/x", "unknown kind"),
        ("mysql://host/x", "unknown kind"),
        ("sqlite:////proc/store.db", "cannot be opened"),
        ("sqlite:////nowhere/at/all.db", "does not exist"),
        ("sqlite:////tmp", "is a folder"),
        ("postgresql://me:secret@127.0.0.1:1/x", r"me:\*\*\*@127.0.0.1:1/x cannot be reached"),
    ],
)
def test_wrong_urls_are_reported_in_a_sentence(url: str, message: str) -> None:
    with pytest.raises((InputError, StoreError), match=message):
        Store.open(url)


def test_a_postgresql_that_is_starting_is_to_be_tried_again() -> None:
    """It answers, and psycopg distinguishes failed connections by their messages alone."""
    fields = b"SFATAL\0C57P03\0Mthe database system is starting up\0\0"

    def refuse(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            # Requests of encryption are eight bytes; what follows them is the start.
            while struct.unpack("!ii", connection.recv(8))[1] in (80877103, 80877104):
                connection.sendall(b"N")
            connection.sendall(b"E" + struct.pack("!i", 4 + len(fields)) + fields)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        answering = threading.Thread(target=refuse, args=(listening,), daemon=True)
        answering.start()
        port = listening.getsockname()[1]
        with pytest.raises(StoreError, match="is starting up") as refused:
            Store.open(f"postgresql://me@127.0.0.1:{port}/x")
        answering.join(timeout=60)
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("Try again in a moment, or check")
    assert refused.value.away


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://me:secret@host/x",
        "postgresql://me:pass/secret@host:port/x",
        "postgresql://127.0.0.1:1/x?user=me&password=secret",
        "postgresql://127.0.0.1:port/x?password=secret",
        "postgresql://127.0.0.1:1/x?sslpassword=secret",
        "sqlite://me:secret@host/x",
        "postgresql://me:pass@2secret@127.0.0.1:1/x",
        "postgresql://me:pass@secret@host:port/x",
        "postgresql://me:pass\nsecret@host:port/x",
    ],
)
def test_password_is_not_shown(url: str) -> None:
    with pytest.raises(KongmingError) as refused:
        Store.open(url)
    assert "secret" not in str(refused.value)
    assert "secret" not in shown_url(url)


def test_a_new_store_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Store.open(f"sqlite:///{tmp_path / 'new.db'}") as store:
            store.tokens()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes["new.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_the_mode_of_a_store_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    Store.open(f"sqlite:///{path}").close()
    path.chmod(0o640)
    Store.open(f"sqlite:///{path}").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_the_default_folder_is_its_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KONGMING_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Store.open(None).close()
    assert stat.S_IMODE((tmp_path / "data" / "kongming").stat().st_mode) == 0o700


def test_a_file_has_one_server(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as first, Store.open(sqlite_url) as second:
        serve_alone(first)
        with pytest.raises(StoreError, match="Another kongming-server serves"):
            serve_alone(second)
        # Commands on the same machine are no servers.
        second.put_node(builders.node())
    with Store.open(sqlite_url) as next_one:
        serve_alone(next_one)
