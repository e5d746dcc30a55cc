"""SQLite files that say they are a store, and hold something else."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kongming.records.errors import InputError, StoreError
from kongming.store import Store
from kongming.store.schema import VERSION_TABLE

FIXTURES = Path(__file__).parent / "fixtures"

ENDLESS = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
    "SELECT 'n' || x AS id, '2026-01-01' AS seen_at, NULL AS facts, '{}' AS document FROM n"
)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM run; END;", "a trigger 't'"),
        (f"ALTER TABLE node RENAME TO n; CREATE VIEW node AS {ENDLESS};", "a view 'node'"),
        ("DROP TABLE part; CREATE VIRTUAL TABLE part USING fts4(id, document);", "virtual table"),
        ("ALTER TABLE run ADD COLUMN x TEXT;", "other columns than 'run'"),
        ("ALTER TABLE run ADD COLUMN x AS (hex(zeroblob(100000000)));", "computes the column 'x'"),
        (
            "ALTER TABLE run DROP COLUMN step; ALTER TABLE run ADD COLUMN step AS (1);",
            "the column 'step' of 'run'",
        ),
        ("DROP TABLE signature;", "lacks the table 'signature'"),
        ("DELETE FROM feed;", "lost count"),
        ("UPDATE feed SET last = 9223372036854775807;", "lost count"),
        ("UPDATE feed SET last = 'many';", "lost count"),
    ],
)
def test_what_is_not_as_it_was_made_is_refused(
    empty_store: Path, tmp_path: Path, script: str, message: str
) -> None:
    path = Path(shutil.copy(empty_store, tmp_path / "store.db"))
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript("DROP INDEX IF EXISTS ix_run_campaign_step;" + script)
    with pytest.raises(StoreError, match=message):
        Store.open(f"sqlite:///{path}")


@pytest.mark.parametrize(
    "constraint",
    [
        "UNIQUE (seen_at) ON/**/conflict REPLACE",
        "CHECK (length(hex(zeroblob(400000000))))",
        "FOREIGN KEY (facts) REFERENCES part (id) ON DELETE CASCADE",
        "FOREIGN KEY (facts) REFERENCES part (id) ON DELETE SET NULL",
    ],
)
def test_a_constraint_that_acts_is_refused(
    empty_store: Path, tmp_path: Path, constraint: str
) -> None:
    """As a trigger is: with the first of these each node would take the place of another one."""
    path = Path(shutil.copy(empty_store, tmp_path / "store.db"))
    with closing(sqlite3.connect(path)) as database, database:
        (statement,) = database.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'node'"
        ).fetchone()
        database.execute("DROP TABLE node")
        database.execute(f"{statement.rstrip().removesuffix(')')}, {constraint})")
    with pytest.raises(StoreError, match="a constraint on 'node'"):
        Store.open(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("ALTER TABLE run ADD COLUMN x AS (hex(zeroblob(100000000)));", "computes the column 'x'"),
        ("ALTER TABLE run ADD COLUMN x TEXT;", "other columns than 'run'"),
        ("DELETE FROM feed;", "lost count"),
    ],
)
def test_of_an_older_store_that_is_refused_nothing_is_upgraded(
    tmp_path: Path, script: str, message: str
) -> None:
    path = Path(shutil.copy(FIXTURES / "0004.db", tmp_path / "store.db"))
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(script)
    for _ in range(2):
        with pytest.raises(StoreError, match=message):
            Store.open(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [
            ("0004",)
        ]


def test_tables_of_a_module_that_is_not_here_may_stay(empty_store: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(empty_store, tmp_path / "store.db"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "INSERT INTO sqlite_master VALUES"
            " ('table', 'places', 'places', 0, 'CREATE VIRTUAL TABLE places USING elsewhere(x)')"
        )
    Store.open(f"sqlite:///{path}").close()


def test_views_by_other_names_may_stay(empty_store: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(empty_store, tmp_path / "store.db"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE VIEW report AS SELECT app FROM run")
    with Store.open(f"sqlite:///{path}") as store, store._reading() as connection:
        assert connection.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0


def test_an_invalid_address_is_reported_without_its_password() -> None:
    with pytest.raises(InputError, match="is not a database URL") as raised:
        Store.open("postgresql://user:secret@[::1/name")
    assert "secret" not in str(raised.value)
