"""What a server does with a store that is damaged, empty or new."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from kongming.records.errors import StoreError
from kongming.store import Store
from kongming.store.integrity import check_file
from tests import builders, warm_start
from tests.models import synthetic
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A store with two nodes, each with all kinds of rows that are read at a start."""
    path = tmp_path / "kept.db"
    with Store.open(f"sqlite:///{path}") as store:
        for name in ("good", "bad"):
            node = builders.node(id=name, name=name)
            store.put_node(node)
            store.put_agent(name, {"agent_version": "1"})
            store.put_reference(name, "1", 0, synthetic.IDLE, 3, "2026-01-01T00:00:00Z")
            live = builders.fingerprint(synthetic.IDLE, node=node)
            store.add_fingerprint(live, purpose="live")
            store.add_signature(
                builders.signature("sort", synthetic.IDLE, node_id=name, fingerprint=live)
            )
    return path


ROWS = {
    "agent": "node_id",
    "node": "id",
    "reference": "node_id",
    "fingerprint": "node_id",
    "signature": "node_id",
}


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Start a server that is expected to refuse."""
    where = ("--listen", "127.0.0.1:0", "--http", "")
    return warm_start.run("kongming_server.commands.server_command", *where, *arguments, timeout=60)


@pytest.mark.parametrize("document", ["[]", "{}", "null", "7", "no JSON", '{"schema": 1}'])
def test_a_bad_row_of_any_kind_keeps_no_server_from_starting(
    store_path: Path, document: str, start_server: StartServer
) -> None:
    with closing(sqlite3.connect(store_path)) as database, database:
        for table, column in ROWS.items():
            changed = database.execute(
                f"UPDATE {table} SET document = ? WHERE {column} = 'bad'",
                (document,),
            )
            assert changed.rowcount >= 1, table
    server = start_server(store_url=f"sqlite:///{store_path}")
    assert FakeAgent(server.channel(), "good").node().facts.id == "good"
    log = server.log.read_text()
    for named in (
        "a node 'bad'",
        "a reference of node 'bad'",
        "a fingerprint '3:bad:[^']+'",
        "a signature '3:bad:[^']+'",
    ):
        assert re.search(f"The store has {named} that cannot be read", log), named
    assert "Traceback" not in log


WRONG_TYPES = (
    "UPDATE node SET document = CAST(x'ff' AS TEXT) WHERE id = 'bad'",
    "UPDATE agent SET seen_at = 'never' WHERE node_id = 'bad'",
    "UPDATE reference SET taken_at = x'00' WHERE node_id = 'bad'",
    "UPDATE fingerprint SET cpu = 'x', started_at = 'yesterday' WHERE node_id = 'bad'",
    "INSERT INTO assignment VALUES"
    " ('a', 'x', 'good', 'domain', 'p', 'bound', 1, 'soon', NULL, NULL, 0)",
    "INSERT INTO model VALUES ('sort', 'cross-core', 1, 'i', 'good', 'long ago', '{}')",
    "INSERT INTO application VALUES (CAST(x'fffe' AS TEXT), 'i', 'then', '[]')",
    "INSERT INTO campaign VALUES ('c', 'k', 'then', NULL, '[]')",
)
"""SQLite stores any value in any column, and a flipped bit makes a text invalid."""


def test_values_of_wrong_types_keep_no_server_from_starting(
    store_path: Path, start_server: StartServer
) -> None:
    with closing(sqlite3.connect(store_path)) as database, database:
        for statement in WRONG_TYPES:
            assert database.execute(statement).rowcount >= 1, statement
    server = start_server(store_url=f"sqlite:///{store_path}")
    assert FakeAgent(server.channel(), "good").node().facts.id == "good"
    log = server.log.read_text()
    for named in ("a node 'bad'", "an assignment 'a'", "a model of 'sort'", "an application '"):
        assert f"The store has {named}" in log
    assert "Traceback" not in log


def test_a_token_that_cannot_be_read_is_not_left_out(store_path: Path) -> None:
    with closing(sqlite3.connect(store_path)) as database, database:
        database.execute(
            "INSERT INTO token VALUES ('t', 'operator', 'h', 1, 'soon', NULL, '', '[]')"
        )
    with (
        Store.open(f"sqlite:///{store_path}") as store,
        pytest.raises(StoreError, match="a token 't' whose times cannot be read"),
    ):
        store.tokens()


def test_a_file_of_no_bytes_is_not_taken_for_a_new_store(
    tmp_path: Path, start_server: StartServer
) -> None:
    path = tmp_path / "lost.db"
    path.touch()
    done = start("--store", f"sqlite:///{path}")
    assert done.returncode == 2
    assert "--new-store" in done.stderr
    assert path.stat().st_size == 0
    server = start_server(store_url=f"sqlite:///{path}", options=["--new-store"])
    assert f"The store sqlite:///{path} is new" in server.log.read_text()
    # Created and never filled: somebody may have named the wrong file.
    server.restart()
    assert "is empty: it knows no node" in server.log.read_text()


def test_damage_of_the_file_is_found_at_the_start(store_path: Path) -> None:
    with closing(sqlite3.connect(store_path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    content = bytearray(store_path.read_bytes())
    # The first page of a table that is not read to open a store.
    with closing(sqlite3.connect(store_path)) as database:
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'signature'"
        ).fetchone()
    content[4096 * (root - 1) : 4096 * (root - 1) + 8] = b"\xff" * 8
    store_path.write_bytes(content)
    done = start("--store", f"sqlite:///{store_path}")
    assert done.returncode == 1
    assert "is damaged" in done.stderr
    assert ".recover" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_check_ends_in_time(store_path: Path) -> None:
    with Store.open(f"sqlite:///{store_path}") as store:
        assert check_file(store, 60.0)
        with closing(sqlite3.connect(store_path)) as database, database:
            row = json.dumps({"x": "y" * 1000})
            database.executemany(
                "INSERT INTO part VALUES (?, ?)", ((f"part-{n}", row) for n in range(20000))
            )
        assert not check_file(store, 0.0)
        assert check_file(store, 60.0)


def test_other_programs_say_which_row_cannot_be_read(store_path: Path) -> None:
    with closing(sqlite3.connect(store_path)) as database, database:
        database.execute("UPDATE node SET document = '[' WHERE id = 'bad'")
    with Store.open(f"sqlite:///{store_path}") as store:
        why = r"has a node 'bad' that cannot be read: .*The node facts are not valid"
        with pytest.raises(StoreError, match=why):
            store.nodes()
        assert [node.id for node in store.nodes(node_ids=["good"])] == ["good"]


def test_the_stores_url_may_stand_in_a_file(
    store_path: Path, tmp_path: Path, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "store.url"
    file.write_text(f"sqlite:///{store_path}\n")
    add = ("token", "add", "--role", "monitor", "--store-file", str(file), "--json")
    assert json.loads(
        warm_start.run("kongming_server.commands.server_command", *add, timeout=60).stdout
    )["token"]
    monkeypatch.delenv("KONGMING_STORE", raising=False)
    monkeypatch.setenv("KONGMING_STORE_FILE", str(file))
    with Store.open() as store:
        assert [token.role for token in store.tokens()] == ["monitor"]
    for content in ("secret", "", "postgresql://user:secret@host/name and more"):
        file.write_text(content)
        done = start("--store-file", str(file))
        assert done.returncode == 2
        assert "store_file" in done.stderr
        assert "secret" not in done.stderr
