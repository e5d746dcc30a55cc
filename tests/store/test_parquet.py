"""Export and import move what was measured from one store to another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kongming import Fingerprint
from kongming.records.errors import IncompatibleError, InputError, StoreError, UnknownNameError
from kongming.store import Reported, Store, schema
from tests import builders

pytest.importorskip("pyarrow")

import pyarrow
import pyarrow.parquet

from kongming.store.parquet import export_runs, read_export

TIMES = {"memory.random.1K": 1.2e-9, "stream.triad": 3e-9}


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store.open(store_url) as opened:
        shared = builders.fingerprint(TIMES)
        for app in ("sort", "gzip"):
            opened.put_application(app, builders.identity_of(app), {"command": app})
            opened.add_run(builders.run(app, 1.0, fingerprint=shared))
            opened.add_run(builders.run(app, 2.0, fingerprint=shared, levels=(builders.level(),)))
            opened.add_run(builders.run(app, None))
            opened.add_signature(builders.signature(app, TIMES))
        opened.add_run(builders.run("sort", 1.1, before=builders.fingerprint(TIMES)))
        opened.add_fingerprint(
            builders.fingerprint(TIMES, node=builders.node(id="node-2", name="other")), "idle"
        )
        opened.put_reference("node-1", "1-0123abcd", 0, TIMES, 10, "2026-01-01T00:00:00Z")
        yield opened


@pytest.fixture
def other(empty_store: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(empty_store, tmp_path / "other.db")
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as opened:
        yield opened


def content(store: Store) -> list[Any]:
    return [
        store.nodes(),
        store.runs(),
        store.signatures(),
        store.fingerprints(),
        store.fingerprint_purposes(),
        store.references(),
        store.applications(),
        sorted(a.name for a in store.stored_applications()),
    ]


def test_everything_arrives_and_a_second_time_changes_nothing(
    store: Store, other: Store, tmp_path: Path
) -> None:
    path = tmp_path / "all.parquet"
    written = export_runs(store, path)
    assert written["run"] == 7
    new = other.add_all(**read_export(path))
    assert new == written
    assert content(other) == content(store)
    assert set(other.add_all(**read_export(path)).values()) == {0}
    assert content(other) == content(store)


def test_records_of_two_nodes_with_one_id(store: Store, other: Store, tmp_path: Path) -> None:
    node = builders.node(id="node-2", name="other")
    for run in store.runs(app="sort"):
        twin = run.fingerprint and replace(run.fingerprint, node=node, elapsed_s=7.0)
        store.add_run(replace(run, node_id="node-2", fingerprint=twin, before=None))
    assert len(store.runs()) == 11
    export_runs(store, tmp_path / "all.parquet")
    other.add_all(**read_export(tmp_path / "all.parquet"))
    for node_id in ("node-1", "node-2"):
        assert other.runs(node_id=node_id) == store.runs(node_id=node_id)
    assert sorted(other.fingerprint_purposes()) == sorted(store.fingerprint_purposes())


def test_what_nobody_requested_stays_so(store: Store, other: Store, tmp_path: Path) -> None:
    run, signature = builders.run("made-up", 1.0, TIMES), builders.signature("sort", TIMES)
    for record in (run, signature):
        store.add_reported([Reported("node-1", 1, record, requested=False)])
    requested = store.runs(requested=True)
    export_runs(store, tmp_path / "all.parquet")
    other.add_all(**read_export(tmp_path / "all.parquet"))
    assert other.runs(requested=True) == requested
    assert other.runs(requested=False) == [run]
    assert other.signatures(requested=False) == [signature]
    assert content(other) == content(store)


def test_an_export_of_a_store_that_changes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprints = store.fingerprints
    stored = [p.id for p in fingerprints()]

    def amid_changes() -> list[Fingerprint]:
        added = builders.fingerprint(TIMES, node=builders.node(id="node-3"))
        store.add_fingerprint(added, "live")
        read = fingerprints()
        with store._writing() as connection:
            connection.execute(
                sa.delete(schema.fingerprint).where(schema.fingerprint.c.purpose == "idle")
            )
        return read

    monkeypatch.setattr(store, "fingerprints", amid_changes)
    assert export_runs(store, tmp_path / "all.parquet")["fingerprint"] == len(stored) + 1


def test_export_of_one_application(store: Store, other: Store, tmp_path: Path) -> None:
    export_runs(store, tmp_path / "one.parquet", apps=["sort"])
    other.add_all(**read_export(tmp_path / "one.parquet"))
    assert other.runs() == store.runs(app="sort")
    assert other.signatures() == store.signatures(app="sort")
    assert [node.id for node in other.nodes()] == ["node-1"]
    assert [entry.name for entry in other.applications()] == ["sort"]


def test_columns_for_people(store: Store, tmp_path: Path) -> None:
    export_runs(store, tmp_path / "all.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "all.parquet")
    rows = [row for row in table.to_pylist() if row["record"] == "run" and row["kind"] == "induced"]
    assert [(row["app"], row["metric"], row["levels"]) for row in rows] == [
        ("sort", 2.0, "memory.streaming.8M@1"),
        ("gzip", 2.0, "memory.streaming.8M@1"),
    ]


def test_empty_store(other: Store, tmp_path: Path) -> None:
    assert export_runs(other, tmp_path / "empty.parquet") == {}
    assert set(other.add_all(**read_export(tmp_path / "empty.parquet")).values()) == {0}


def test_unknown_application_and_unwritable_file(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="sort"):
        export_runs(store, tmp_path / "x.parquet", apps=["sord"])
    with pytest.raises(StoreError, match="cannot be written"):
        export_runs(store, tmp_path / "nowhere" / "x.parquet")
    assert not list(tmp_path.glob("*.parquet*"))


def rewrite(path: Path, *, format_version: bytes | None, **columns: list[Any]) -> None:
    table = pyarrow.parquet.read_table(path)
    for name, values in columns.items():
        index = table.column_names.index(name)
        table = table.set_column(index, name, pyarrow.array(values))
    metadata = {} if format_version is None else {b"kongming.format": format_version}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)


def test_files_that_are_refused(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    with pytest.raises(InputError, match="no file"):
        other.add_all(**read_export(path))
    path.write_text("not parquet at all")
    with pytest.raises(InputError, match="not a Parquet file"):
        other.add_all(**read_export(path))
    export_runs(store, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged"):
        other.add_all(**read_export(path))
    export_runs(store, path)
    rewrite(path, format_version=b"2")
    with pytest.raises(IncompatibleError, match="Upgrade"):
        other.add_all(**read_export(path))
    for version in (None, b"", b"9" * 5000, "\N{ARABIC-INDIC DIGIT ONE}".encode()):
        rewrite(path, format_version=version)
        with pytest.raises(InputError, match="not an export"):
            other.add_all(**read_export(path))


def test_columns_that_are_no_text_are_refused(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    for wrong in ([1], [{"a": 1}], [["node"]], [b"node"]):
        export_runs(store, path)
        count = pyarrow.parquet.read_metadata(path).num_rows
        rewrite(path, format_version=b"1", kind=wrong * count)
        with pytest.raises(InputError, match="not an export"):
            other.add_all(**read_export(path))
    alone = pyarrow.table({"record": ["node"]})
    pyarrow.parquet.write_table(alone.replace_schema_metadata({b"kongming.format": b"1"}), path)
    with pytest.raises(InputError, match="not an export"):
        other.add_all(**read_export(path))
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(InputError, match="not an export"):
        other.add_all(**read_export(path))
    twice = pyarrow.table([["node"]] * 4, names=["record", "kind", "document", "document"])
    pyarrow.parquet.write_table(twice.replace_schema_metadata({b"kongming.format": b"1"}), path)
    with pytest.raises(InputError, match="not an export"):
        other.add_all(**read_export(path))


def test_text_that_is_no_unicode_is_refused(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    export_runs(store, path)
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table, path, compression="none")
    packed = path.read_bytes()
    assert b"node-1" in packed
    path.write_bytes(packed.replace(b"node-1", b"node\xff1"))
    with pytest.raises(InputError, match="damaged"):
        other.add_all(**read_export(path))
    assert other.runs() == []


@pytest.mark.parametrize("text", [pyarrow.large_string(), pyarrow.dictionary("int32", "string")])
def test_text_as_other_tools_write_it(
    store: Store, other: Store, tmp_path: Path, text: pyarrow.DataType
) -> None:
    path = tmp_path / "all.parquet"
    export_runs(store, path)
    table = pyarrow.parquet.read_table(path)
    for number, field in enumerate(table.schema):
        if field.type == pyarrow.string():
            table = table.set_column(number, field.name, table[field.name].cast(text))
    pyarrow.parquet.write_table(table, path)
    other.add_all(**read_export(path))
    assert content(other) == content(store)


def test_a_few_bytes_that_claim_millions_of_rows(other: Store, tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    nothing = pyarrow.nulls(10_000_000, pyarrow.string())
    table = pyarrow.table({name: nothing for name in ("record", "document", "kind")})
    pyarrow.parquet.write_table(table.replace_schema_metadata({b"kongming.format": b"1"}), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="more rows than bytes"):
        other.add_all(**read_export(path))


def test_one_document_that_is_said_over_and_over(
    store: Store, other: Store, tmp_path: Path
) -> None:
    """A dictionary keeps a text once, however many rows have it."""
    path = tmp_path / "all.parquet"
    export_runs(store, path)
    first = pyarrow.parquet.read_table(path, columns=["record", "document", "kind"]).slice(0, 1)
    document = first["document"][0].as_py() + " " * 100_000
    table = pyarrow.table(
        {
            "record": ["node"] * 2_000,
            "document": pyarrow.DictionaryArray.from_arrays(
                pyarrow.array([0] * 2_000, pyarrow.int32()), pyarrow.array([document])
            ),
            "kind": pyarrow.nulls(2_000, pyarrow.string()),
        }
    )
    pyarrow.parquet.write_table(table.replace_schema_metadata({b"kongming.format": b"1"}), path)
    before = pyarrow.default_memory_pool().max_memory()
    with pytest.raises(InputError, match="more text than a file of its size"):
        other.add_all(**read_export(path))
    assert pyarrow.default_memory_pool().max_memory() - before < 100 * 2**20
    assert other.nodes() == []


@pytest.mark.parametrize("wrong", ["{}", "not json", "[]", '{"schema": 1}', "null"])
def test_one_wrong_row_and_nothing_is_read(
    store: Store, other: Store, tmp_path: Path, wrong: str
) -> None:
    path = tmp_path / "all.parquet"
    export_runs(store, path)
    documents = pyarrow.parquet.read_table(path)["document"].to_pylist()
    documents[-1] = wrong
    rewrite(path, format_version=b"1", document=documents)
    with pytest.raises(InputError, match=f"Row {len(documents) - 1} of"):
        other.add_all(**read_export(path))
    assert other.runs() == []
    assert other.nodes() == []


@pytest.mark.parametrize(
    ("record", "key"), [("node", "name"), ("node", "kernel"), ("reference", "memory.random.1K")]
)
def test_half_a_surrogate_pair_is_refused(
    store: Store, other: Store, tmp_path: Path, record: str, key: str
) -> None:
    """JSON can say it, and a list of nodes with it in any of them could not be sent."""
    path = tmp_path / "all.parquet"
    export_runs(store, path)
    rows = pyarrow.parquet.read_table(path).to_pylist()
    documents = [row["document"] for row in rows]
    place = next(n for n, row in enumerate(rows) if row["record"] == record)
    changed = json.loads(documents[place])
    if key in changed:
        changed[key] = "\ud800"
    else:
        changed["times"]["\ud800"] = changed["times"].pop(key)
    documents[place] = json.dumps(changed)
    rewrite(path, format_version=b"1", document=documents)
    with pytest.raises(InputError, match=f"Row {place} of"):
        other.add_all(**read_export(path))
    assert other.nodes() == []
    # Whole pairs are text as any other.
    documents[place] = json.dumps(
        json.loads(rows[place]["document"]) | {"hypervisor": "\U0001f600"}
    )
    rewrite(path, format_version=b"1", document=documents)
    other.add_all(**read_export(path))


def test_newer_record_is_refused(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    export_runs(store, path)
    documents = pyarrow.parquet.read_table(path)["document"].to_pylist()
    documents[-1] = documents[-1].replace('"schema": 1', '"schema": 2', 1)
    rewrite(path, format_version=b"1", document=documents)
    with pytest.raises(IncompatibleError):
        other.add_all(**read_export(path))
