"""What an agent reports of its own accord is stored, and no campaign or study learns from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kongming.campaigns.stored_profiles import taught_runs
from kongming.records.errors import UntrainedError
from kongming.records.run import Run
from kongming.simulate.study_inputs import STORE, Source, pairs_of
from kongming.store import Reported, Store
from tests import builders


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store.open(sqlite_url) as opened:
        yield opened


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def pair(node: str, seconds: float) -> list[Run]:
    """Return two programs alone and next to each other."""
    runs = []
    for app, other in (("sort", "gzip"), ("gzip", "sort")):
        common: dict[str, Any] = {"node_id": node, "campaign": node}
        runs += [builders.run(app, 1.0, step=len(runs), **common)]
        runs += [
            builders.run(app, seconds, step=len(runs), kind="corun", neighbours=(other,), **common)
        ]
    return runs


def test_an_adaptive_plan(store: Store) -> None:
    settings: Any = type(
        "Settings", (), {"runs": 8, "apps": {}, "placement": "cross-core", "node": builders.node()}
    )
    runs = pair("node-2", 1.5)
    store.add_reported([Reported("node-2", 1, run, requested=False) for run in runs])
    assert taught_runs(store, settings) == []
    store.add_run(builders.run("sort", 1.0))
    assert [run.node_id for run in taught_runs(store, settings)] == ["node-1"]


def test_a_study(store: Store, sqlite_url: str) -> None:
    source = Source(STORE, None, None, "auto", None, False, sqlite_url, 0)
    ours, made_up = pair("node-1", 1.5), pair("node-2", 9.0)
    store.add_reported([Reported("node-2", 1, run, requested=False) for run in made_up])
    with pytest.raises(UntrainedError):
        pairs_of(source)
    store.add_all(runs=ours)
    assert pairs_of(source).source == "store, node node-1"
