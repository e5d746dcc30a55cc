"""Stores that earlier versions wrote are upgraded when they are opened, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from kongming import Fingerprint, NodeFacts, Run, Signature
from kongming.records.errors import StoreError
from kongming.records.resident import Resident
from kongming.store import Reference, Reported, Store
from kongming.store.migrations import config
from kongming.store.schema import HEAD, VERSION_TABLE, metadata
from tests import builders

FIXTURES = Path(__file__).parent / "fixtures"
REVISIONS = sorted(path.stem for path in FIXTURES.glob("*.db"))


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["sqlite", "postgresql"])
def old_url(request: pytest.FixtureRequest, revision: str, tmp_path: Path) -> str:
    """The URL of a store of an old revision."""
    path = tmp_path / "old.db"
    shutil.copyfile(FIXTURES / f"{revision}.db", path)
    if request.param == "sqlite":
        return f"sqlite:///{path}"
    url: str = request.getfixturevalue("postgres_url")
    _carry(f"sqlite:///{path}", url.replace("postgresql:", "postgresql+psycopg:"), revision)
    return url


def _carry(source: str, target: str, revision: str) -> None:
    """Make the tables of this revision, and copy every row into them."""
    old, new = sa.create_engine(source), sa.create_engine(target)
    with old.connect() as reading, new.begin() as writing:
        command.upgrade(config(writing), revision)
        tables = sa.MetaData()
        tables.reflect(writing)
        for table in tables.sorted_tables:
            if table.name == VERSION_TABLE:
                continue
            writing.execute(table.delete())  # what the migrations themselves put there
            names = ", ".join(f'"{column.name}"' for column in table.c)
            rows = reading.exec_driver_sql(f'SELECT {names} FROM "{table.name}"').mappings()
            for row in rows:
                writing.execute(table.insert().values(_typed(table, dict(row))))
    old.dispose()
    new.dispose()


def _typed(table: sa.Table, row: dict[str, Any]) -> dict[str, Any]:
    """SQLite has neither booleans nor JSON."""
    for name, value in row.items():
        if isinstance(table.c[name].type, sa.JSON):
            row[name] = json.loads(value)
        elif isinstance(table.c[name].type, sa.Boolean):
            row[name] = bool(value)
    return row


def test_without_upgrade_an_old_store_stays_as_it_is(old_url: str, revision: str) -> None:
    if revision == HEAD:
        Store.open(old_url, create=False, upgrade=False).close()
        return
    for _ in range(2):
        with pytest.raises(StoreError, match="made by an earlier version") as refused:
            Store.open(old_url, create=False, upgrade=False)
        assert "be read" not in refused.value.message
    with Store.open(old_url) as store:
        assert store.runs()


def test_everything_is_still_there(old_url: str, revision: str) -> None:
    held = json.loads((FIXTURES / f"{revision}.json").read_text())
    with Store.open(old_url) as store:
        assert store.nodes() == [NodeFacts.from_dict(d) for d in held["nodes"]]
        assert store.runs() == [Run.from_dict(d) for d in held["runs"]]
        assert store.fingerprints() == [Fingerprint.from_dict(d) for d in held["fingerprints"]]
        assert store.signatures() == [Signature.from_dict(d) for d in held["signatures"]]
        assert store.references() == [Reference.from_dict(d) for d in held["references"]]
        assert store.model("sort", "cross-core") == held["model"]
        assert store.in_service("sort", "cross-core") == 1
        campaigns = store.campaigns()
        assert [[c.id, c.key] for c in campaigns] == held["campaigns"]
        assert sorted(store.campaign_steps_done(campaigns[0].id)) == held["steps_done"]
        assert store.latest_fingerprints() == []
        assert [(token.id, token.nodes) for token in store.tokens()] == [
            (token, ()) for token in held.get("tokens", ())
        ]
        assert [finished.run_id for finished in store.realised()] == held.get("realised", [])
        # What was learnt from goes on to be.
        assert store.runs(requested=True) == store.runs()
        assert store.signatures(requested=True) == store.signatures()
        jobs = [Resident(**d) for d in held.get("assignments", ())]
        assert sorted(store.assignments(), key=lambda job: job.assignment_id) == jobs
        for job in jobs[:1]:
            forecast = store.forecast(job.assignment_id)
            assert forecast is not None
            assert forecast.app == job.app
            assert {change.kind for change in store.news_since(0)[0]} == {"assignment"}


def test_the_tables_are_as_if_they_were_new(old_url: str) -> None:
    with Store.open(old_url) as store, store._reading() as connection:
        version = connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))
        assert version == HEAD
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": VERSION_TABLE}
        )
        assert compare_metadata(context, metadata) == []


def test_it_goes_on_beside_what_is_old(old_url: str) -> None:
    with Store.open(old_url) as store:
        [node] = [node for node in store.nodes() if node.id == "node-1"]
        before = store.fingerprints()
        live = builders.fingerprint({"stream.triad": 1e-9}, node=node)
        store.add_reported([Reported("node-1", 1, live)])
        assert store.latest_fingerprints() == [live]
        assert {p.id for p in store.fingerprints()} == {live.id} | {p.id for p in before}
    with Store.open(old_url) as store:
        assert store.latest_fingerprints() == [live]


def test_what_it_holds_is_known_when_it_comes_again(old_url: str) -> None:
    with Store.open(old_url) as store:
        runs, signatures = store.runs(), store.signatures()
        records = [Reported(record.node_id, 1, record) for record in (*runs, *signatures)]
        accepted = store.add_reported(records)
        assert accepted.new == ()
        assert set(accepted.duplicates) == {record.id for record in (*runs, *signatures)}
        assert (store.runs(), store.signatures()) == (runs, signatures)


def test_the_revision_before_the_newest_has_a_fixture() -> None:
    assert [f"{number:04d}" for number in range(1, int(HEAD))] == REVISIONS
