"""What a server reads of its store at its start and when others change it."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from kongming_server.commands import server_config as config
from kongming_server.monitoring.metrics import Metrics
from kongming_server.restore import Restore
from kongming_server.running.clock import SteadyClock
from kongming_server.state import SharedState

from kongming.engine.engine import Engine
from kongming.engine.settings import Settings
from kongming.learning.training import train_application
from kongming.records.errors import StoreError
from kongming.records.questions import Question
from kongming.records.run import Run
from kongming.store import Change, Store
from tests import builders
from tests.models import synthetic
from tests.server.profiles.profiled import campaign
from tests.service_contract.test_numbers import put_models, put_node


class Counted(Store):
    """Counts how often each model was read."""

    read: Counter[tuple[str, int]]

    def model(self, app: str, placement: str, *args: Any, **which: Any) -> Any:
        self.read[app, which["version"]] += 1
        return super().model(app, placement, *args, **which)


@pytest.fixture
def store(store_url: str) -> Iterator[Counted]:
    with Counted.open(store_url) as opened:
        assert isinstance(opened, Counted)
        opened.read = Counter()
        yield opened


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    """The same program trained twice, on other runs."""
    return [train_application(campaign("prog", seed=n), models=("LM",)) for n in (1, 2)]


@contextmanager
def state_over(store: Store) -> Iterator[SharedState]:
    """What a server knows before it has read anything; to be used in a running event loop."""
    settings = Settings()
    with ThreadPoolExecutor(1) as executor:
        yield SharedState(
            config.load(), store, executor, Engine(settings), SteadyClock(), Metrics(), settings
        )


def test_where_the_version_in_service_is_damaged_an_intact_one_answers(
    store: Counted, documents: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    def put(document: dict[str, Any]) -> int:
        identity = document["identity"]
        return store.put_model("prog", identity, "node-1", "cross-core", document)

    async def body() -> None:
        with state_over(store) as state:
            store.put_node(builders.node())
            store.add_fingerprint(builders.fingerprint(synthetic.IDLE), purpose="live")
            intact = put(documents[0])
            # Its checksum is that of the unchanged document.
            damaged = put(documents[1] | {"solo": {"value": 1e6}})
            store.promote("prog", "cross-core", damaged)
            await Restore(state).everything()
            answer = state.engine.predict(Question("prog", "node-1"), state.now())
            assert (answer.basis, answer.model_version) == ("model", intact)
        (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert f"Version {damaged} of the model of prog" in line.getMessage()

    asyncio.run(body())


def test_older_fingerprints_are_read_once_the_store_is_back(
    store: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kongming_server.restore._AGAIN_S", 0.0)
    prints = [
        builders.fingerprint(
            {name: seconds * factor for name, seconds in synthetic.IDLE.items()},
            started_at=f"2026-03-01T05:0{minute}:00Z",
        )
        for minute, factor in enumerate((1.0, 1.5, 2.0))
    ]
    for fingerprint in prints:
        store.add_fingerprint(fingerprint, purpose="live")
    answers = store.fingerprints
    away = [StoreError("The store is away."), StoreError("The store is away.")]

    def fingerprints(**which: Any) -> Any:
        if away:
            raise away.pop()
        return answers(**which)

    taken: list[str] = []

    async def body() -> None:
        with state_over(store) as state:
            restore = Restore(state)
            await restore.everything()
            monkeypatch.setattr(store, "fingerprints", fingerprints)
            monkeypatch.setattr(state, "use_fingerprint", lambda *of: taken.append(of[2].id))
            await restore.history()

    asyncio.run(body())
    assert away == []
    assert set(taken) == {fingerprint.id for fingerprint in prints}


def test_a_model_that_is_loaded_is_not_read_again(
    store: Counted, documents: list[dict[str, Any]]
) -> None:
    def put(document: dict[str, Any]) -> int:
        identity = document["identity"]
        return store.put_model("prog", identity, "node-1", "cross-core", document)

    def version(state: SharedState) -> int:
        return state.engine.predict(Question("prog", "node-1"), state.now()).model_version

    changed = Change(1, "model", "prog", "cross-core", "another", 0.0)
    reset = Change(2, "reset", "", "", "another", 0.0)

    async def body() -> None:
        with state_over(store) as state:
            restore = Restore(state)
            store.put_node(builders.node())
            store.add_fingerprint(builders.fingerprint(synthetic.IDLE), purpose="live")
            put(documents[0])
            await restore.everything()
            assert store.read == {("prog", 1): 1}
            assert version(state) == 1

            await restore.changes([changed])
            await restore.changes([reset])
            assert store.read == {("prog", 1): 1}

            put(documents[1])
            store.promote("prog", "cross-core", 2)
            await restore.changes([changed])
            assert store.read == {("prog", 1): 1, ("prog", 2): 1}
            assert version(state) == 2

            # Back to one that is loaded.
            store.promote("prog", "cross-core", 1)
            await restore.changes([changed])
            assert version(state) == 1
            assert store.read.total() == 2

            # The number of a version that was in service is not used again.
            store.delete_model("prog", "cross-core", version=2)
            assert put(documents[1]) == 3
            store.promote("prog", "cross-core", 3)
            await restore.changes([changed])
            assert version(state) == 3
            assert store.read == {("prog", 1): 1, ("prog", 2): 1, ("prog", 3): 1}

            # That of another may be.
            assert put(documents[0]) == 4
            await restore.changes([changed])
            store.delete_model("prog", "cross-core", version=4)
            assert put(documents[0]) == 4
            await restore.changes([changed])
            assert store.read["prog", 4] == 2
            assert version(state) == 3
            assert restore.models_in_service == 1

    asyncio.run(body())


def test_who_was_run_beside_whom_widens_intervals_as_soon_as_it_is_known(store: Counted) -> None:
    def run(number: int, slowdown: float, kind: str, **changes: Any) -> Run:
        return builders.run(
            "disk",
            10.0 * slowdown,
            id=f"{kind}-later-{number}",
            kind=kind,
            node_id="trainer",
            neighbours=("memory",),
            campaign="later",
            **changes,
        )

    def reach(engine: Engine, now: float) -> float:
        slowdown = engine.predict(Question("quiet", "fresh"), now).slowdown
        return math.log(slowdown.upper / slowdown.median)

    async def body() -> None:
        with state_over(store) as state:
            now = state.now()
            for name in ("trainer", "fresh"):
                put_node(store, name, now)
            put_models(store, now)
            restore = Restore(state)
            since = await restore.everything()
            before = reach(state.engine, now)
            for number in range(6):
                store.add_run(run(number, 3.0, "corun"))
            changes, since = store.news_since(since)
            await restore.changes(changes)
            await restore.widened()
            wider = reach(state.engine, now)
            assert wider > 1.1 * before
            with state_over(store) as fresh:
                await Restore(fresh).everything()
                assert wider == pytest.approx(reach(fresh.engine, now))
            # What a model was trained beside says nothing.
            store.add_run(run(0, 3.0, "induced"))
            changes, since = store.news_since(since)
            await restore.changes(changes)
            await restore.widened()
            assert reach(state.engine, now) < before

    asyncio.run(body())
