"""The closed loop over a real store: what is compared, what is flagged, when it trains again."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kongming_server.configuration.settings import ClosedLoop as Settings
from kongming_server.monitoring.metrics import Metrics
from kongming_server.operations.operation import Operation
from kongming_server.quality.closed_loop import ClosedLoop
from kongming_server.quality.model_tests import ModelTests

from kongming.learning.training import train_application
from kongming.records.answers import Forecast
from kongming.records.prediction import Interval
from kongming.records.resident import LONGEST_BIND_DELAY_S, Resident
from kongming.records.run import Run
from kongming.store import Reported as StoredReport
from kongming.store import Store
from kongming.store.service_entries import StoredRealised
from tests import builders
from tests.server.profiles.profiled import campaign, iso, keep
from tests.variants import variants

KEY = ("prog", "cross-core")


class Reported(NamedTuple):
    run: Run
    assignment_id: str


class Trainer:
    """Remembers what was requested of it."""

    def __init__(self) -> None:
        self.changed: Callable[[str], Mapping[str, float]] = lambda app: {}
        self.trained: Callable[[Any], None] = lambda outcome: None
        self.requested: list[tuple[str, str | None]] = []

    async def submit(
        self,
        apps: Sequence[str] = (),
        *,
        placement: str | None = None,
        cause: str = "",
        by_operator: bool = True,
    ) -> Operation:
        # Nobody but the loop asks here, and it is no operator.
        assert not by_operator
        self.requested += [(app, placement) for app in apps]
        return Operation("op-1", "here/1/a", 0.0, 0.0)


class Agents:
    """Remember what they were asked to profile; ``able`` is the node of one that may."""

    def __init__(self) -> None:
        self.able: str | None = None
        self.requested: list[tuple[str, str]] = []

    async def ask(self, app: str, node_id: str) -> str | None:
        if self.able is not None:
            self.requested.append((app, node_id))
        return self.able


class World:
    """One trained program whose runs are reported to a loop; ``now`` only moves with its runs."""

    def __init__(self, store: Store, **settings: Any) -> None:
        self.store = store
        self.now = time.time() + 10.0
        self.trainer = Trainer()
        self.agents = Agents()
        self.metrics = Metrics()
        self.loop = ClosedLoop(
            store,
            None,
            Settings(**settings),
            self.trainer,
            self.agents,
            metrics=self.metrics,
            now=lambda: self.now,
        )
        self.count = 0

    def forecast(self, **changes: Any) -> Forecast:
        values: dict[str, Any] = {
            "app": "prog",
            "node_id": "node-1",
            "domain": 0,
            "placement": "cross-core",
            "basis": "model",
            "slowdown": Interval(1.0, 0.95, 1.05),
            "model": "LM",
            "model_version": 1,
            "solo_s": 3.0,
            "runtime_s": Interval(3.0, 2.85, 3.15),
        }
        return Forecast(**(values | changes))

    async def finish(
        self, seconds: float, *, forecast: Forecast | None = None, node_id: str = "node-1"
    ) -> bool:
        self.count += 1
        self.now += 10.0
        job = Resident(f"job-{self.count}", "prog", node_id)
        await self.loop.placed(job, forecast or self.forecast(node_id=node_id))
        began = iso(self.now - seconds)
        # The drift test breaks ties by a run's id, and most runs here are equally long.
        run = builders.run(
            "prog",
            seconds,
            kind="environment",
            started_at=began,
            id=f"run-{self.count}",
            node_id=node_id,
        )
        first = await self.loop.run_finished(Reported(run, job.assignment_id))
        assert not await self.loop.run_finished(Reported(run, job.assignment_id))
        return first


@pytest.fixture(scope="module")
def trained(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the program's runs and a model of them, to be copied."""
    path = tmp_path_factory.mktemp("trained") / "store.db"
    shutil.copy(empty_store, path)
    runs = campaign("prog")
    document = train_application(runs, models=("LM", "CART"))
    with Store.open(f"sqlite:///{path}") as store:
        keep(store, runs)
        store.put_model("prog", document["identity"], "node-1", "cross-core", document)
    return path


@pytest.fixture
def store(trained: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(trained, tmp_path / "store.db")
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def run(world: World, body: Callable[[World], Awaitable[None]]) -> None:
    asyncio.run(body(world))  # type: ignore[arg-type]


def test_runs_as_predicted_are_no_drift(store: Store) -> None:
    async def body(world: World) -> None:
        assert await world.loop.realised("prog") is None
        for number in range(30):
            assert await world.finish(3.0 + 0.003 * (number % 5 - 2))
        realised = await world.loop.realised("prog")
        assert realised is not None
        assert (realised.runs, realised.coverage, realised.drifted) == (30, 1.0, False)
        assert realised.median_error_pct < 1.0
        assert world.trainer.requested == []

    run(World(store), body)


def test_what_is_slower_than_at_least_is_no_drift_and_what_is_faster_is(store: Store) -> None:
    async def body(world: World) -> None:
        predicted = Interval(15.0, 12.0, 18.0, at_least=True)
        for number in range(30):
            # Some are about as slow as is known, others far slower.
            seconds = 45.0 if number % 3 else 14.0 + 0.01 * number
            await world.finish(seconds, forecast=world.forecast(runtime_s=predicted))
        slower = await world.loop.realised("prog")
        assert slower is not None
        assert (slower.runs, slower.coverage, slower.drifted) == (30, 1.0, False)
        assert slower.median_error_pct == 0.0
        for _ in range(20):
            await world.finish(6.0, forecast=world.forecast(runtime_s=predicted))
        faster = await world.loop.realised("prog")
        assert faster is not None
        assert faster.drifted
        assert "faster than predicted" in faster.reason

    run(World(store), body)


@pytest.mark.parametrize(
    "holders", variants([("token a", "token a"), ("token a", "token b"), ("", "")])
)
def test_one_of_several_reporters_alone_shows_no_drift(
    store: Store, holders: tuple[str, str]
) -> None:
    for node_id, holder in zip(("node-1", "thief"), holders, strict=True):
        store.put_agent(node_id, {"bound_to": holder})

    async def body(world: World) -> None:
        for _ in range(5):
            await world.finish(3.0)
        for _ in range(20):
            await world.finish(12.0, node_id="thief")
            await world.finish(3.0)
            await world.loop.check()
        realised = await world.loop.realised("prog")
        assert realised is not None
        assert not realised.drifted
        assert (world.agents.requested, world.trainer.requested) == ([], [])
        # Another reporter sees it too.
        for _ in range(10):
            await world.finish(12.0)
        realised = await world.loop.realised("prog")
        assert realised is not None
        assert realised.drifted

    run(World(store), body)


HONEST = ("node-1", "node-2", "node-3")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(3.0, id="as predicted"),
        *(
            pytest.param(seconds, id=name, marks=pytest.mark.thorough)
            for name, seconds in (("slow", 30.0), ("fast", 0.3))
        ),
    ],
)
def test_whoever_reports_most_hides_no_drift_that_others_see(store: Store, seconds: float) -> None:
    for node_id in (*HONEST, "thief"):
        store.put_agent(node_id, {"bound_to": f"token of {node_id}"})

    async def body(world: World) -> None:
        await flood(world, seconds, 50)
        for number in range(12 * len(HONEST)):
            await flood(world, seconds)
            await world.finish(3.0 if number < 12 else 4.5, node_id=HONEST[number % 3])
            await world.loop.check()
        realised = await world.loop.realised("prog")
        assert realised is not None
        assert realised.drifted

    run(World(store, window=50), body)


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(30.0, id="slow"),
        pytest.param(0.3, id="fast", marks=pytest.mark.thorough),
    ],
)
def test_whoever_reports_most_makes_no_drift(store: Store, seconds: float) -> None:
    for node_id in (*HONEST, "thief"):
        store.put_agent(node_id, {"bound_to": f"token of {node_id}"})

    async def body(world: World) -> None:
        await flood(world, seconds, 50)
        for number in range(8 * len(HONEST)):
            await flood(world, seconds)
            # The first run of each honest node is far off, as any run may be.
            off = number < len(HONEST)
            length = seconds if off else 3.0 + 0.003 * (number % 5 - 2)
            await world.finish(length, node_id=HONEST[number % 3])
            await world.loop.check()
        realised = await world.loop.realised("prog")
        assert realised is not None
        assert not realised.drifted
        # Nor do its runs displace those of the others in the realised error.
        assert realised.coverage > 0.3

    run(World(store, window=50), body)


async def flood(world: World, seconds: float, count: int = 8) -> None:
    """Runs of the thief, straight into the store: eight for one of the honest."""
    for _ in range(count):
        world.count += 1
        world.now += 0.01
        row = StoredRealised(
            run_id=f"thief-{world.count}",
            assignment_id=f"thief-{world.count}",
            app="prog",
            placement="cross-core",
            node_id="thief",
            model_version=1,
            ended_at=world.now,
            predicted=3.0,
            lower=2.85,
            upper=3.15,
            level=0.9,
            measured=seconds,
            metric_unit="s",
        )
        assert world.store.add_realised(row)


def test_a_run_says_nothing_of_what_was_predicted_for_another_node(store: Store) -> None:
    async def body(world: World) -> None:
        elsewhere = world.forecast(node_id="node-2")
        assert not await world.finish(3.0, forecast=elsewhere)
        store.put_assignment(
            Resident("job-2", "prog", "node-2", 0, "cross-core", "bound", bound_at=1.0)
        )
        assert not await world.finish(3.0)
        assert await world.finish(3.0)

    run(World(store), body)


def test_what_nobody_asked_for_trains_nothing(store: Store) -> None:
    async def body(world: World) -> None:
        for _ in range(10):
            await world.finish(3.0)
        for _ in range(20):
            await world.finish(4.5)
        await world.loop.check()
        made_up = campaign("prog", began_at=world.now + 1.0, seed=5)
        store.add_reported(
            [StoredReport("node-1", 1, profile_run, requested=False) for profile_run in made_up]
        )
        world.loop.runs_imported("prog")
        await world.loop.check()
        assert world.trainer.requested == []
        requested = campaign("prog", began_at=world.now + 1.0, seed=6)
        store.add_reported([StoredReport("node-1", 1, profile_run) for profile_run in requested])
        world.loop.runs_imported("prog")
        await world.loop.check()
        assert world.trainer.requested == [KEY]

    run(World(store), body)


def test_an_assignment_is_compared_with_its_first_run_alone(store: Store) -> None:
    async def body(world: World) -> None:
        assert await world.finish(3.0)
        for number in range(3):
            again = builders.run("prog", 9.0, id=f"again-{number}", started_at=iso(world.now))
            assert not await world.loop.run_finished(Reported(again, "job-1"))
        realised = await world.loop.realised("prog")
        assert realised is not None
        assert (realised.runs, realised.coverage) == (1, 1.0)

    run(World(store), body)


@pytest.mark.parametrize(
    ("clock_off_s", "ended_ago_s"),
    [
        pytest.param(0.0, 50.0, id="right"),
        pytest.param(1e6, 0.0, id="ahead"),
        pytest.param(-1.7e9, 0.0, id="behind"),
        # It had ended before its start was reported.
        pytest.param(-30.0, 80.0, id="bound late"),
        pytest.param(-LONGEST_BIND_DELAY_S, LONGEST_BIND_DELAY_S + 50.0, id="bound very late"),
        pytest.param(-LONGEST_BIND_DELAY_S - 20.0, 0.0, id="too late"),
    ],
)
def test_a_clock_that_is_wrong_leaves_a_comparison_its_time(
    store: Store, clock_off_s: float, ended_ago_s: float
) -> None:
    async def body(world: World) -> None:
        # An agent reports by its node's clock when a job began, of the job and of its run alike.
        began_at = world.now - 53.0 + clock_off_s
        job = Resident("job", "prog", "node-1", 0, "cross-core", "bound", bound_at=began_at)
        store.put_assignment(job)
        world.now -= 60.0
        await world.loop.placed(job, world.forecast())
        world.now += 60.0
        ended = builders.run("prog", 3.0, started_at=iso(began_at))
        assert await world.loop.run_finished(Reported(ended, "job"))
        (row,) = store.realised("prog")
        assert row.ended_at == pytest.approx(world.now - ended_ago_s, abs=1.0)

    run(World(store), body)


def test_what_cannot_be_compared_is_left_out(store: Store) -> None:
    async def body(world: World) -> None:
        unknown = world.forecast(basis="node-only", runtime_s=None, solo_s=None, model_version=0)
        assert not await world.finish(3.0, forecast=unknown)
        assert not await world.finish(3.0, forecast=world.forecast(metric_unit="req/s"))
        failed = builders.run("prog", None)
        await world.loop.placed(Resident("job-x", "prog", "node-1"), world.forecast())
        assert not await world.loop.run_finished(Reported(failed, "job-x"))
        assert not await world.loop.run_finished(Reported(builders.run("prog", 3.0), ""))
        assert not await world.loop.run_finished(Reported(builders.run("prog", 3.0), "no-job"))
        other = builders.run("other", 3.0)
        assert not await world.loop.run_finished(Reported(other, "job-x"))
        assert await world.loop.realised("prog") is None

    run(World(store), body)


def test_what_cannot_be_looked_at_keeps_nothing_else_from_being(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked_at: list[tuple[str, str]] = []
    state = ModelTests.state

    def broken(self: ModelTests, key: tuple[str, str]) -> Any:
        looked_at.append(key)
        if key[0] == "a-broken-one":
            raise ValueError("math domain error")
        return state(self, key)

    monkeypatch.setattr(ModelTests, "state", broken)
    keys = {("a-broken-one", "cross-core"), ("prog", "cross-core")}

    async def body(world: World) -> None:
        await world.finish(3.0)
        monkeypatch.setattr(ModelTests, "changed", lambda self, states: keys)
        # It starts, and says what it can.
        await world.loop.start()
        try:
            assert looked_at == sorted(keys)
            realised = world.loop.realised_lately("prog")
            assert realised is not None
            assert realised.runs == 1
            # It is looked at again when all is, and said once.
            await world.loop._guarded(sweep=True)
            assert looked_at == 2 * sorted(keys)
        finally:
            await world.loop.close()

    run(World(store), body)
    text = "Finished runs of a-broken-one at cross-core could not be looked at: math domain error"
    assert [record.getMessage() for record in caplog.records].count(text) == 1


def test_drift_is_reported_once_and_trained_once_there_are_new_runs(store: Store) -> None:
    drifts: list[tuple[str, str, str]] = []

    async def body(world: World) -> None:
        world.loop.on_drift = lambda *what: drifts.append(what)
        for _ in range(10):
            await world.finish(3.0)
        changed = world.now
        for _ in range(25):
            await world.finish(4.5)
            await world.loop.check()
        assert [what[:2] for what in drifts] == [KEY]
        assert "slower" in drifts[0][2]
        assert world.loop.changed("prog")["cross-core"] == pytest.approx(changed, abs=25.0)
        assert world.trainer.changed("prog") == world.loop.changed("prog")
        assert world.trainer.requested == []

        keep(store, campaign("prog", began_at=world.now + 1.0, seed=5))
        world.loop.runs_imported("other")
        await world.loop.check()
        assert world.trainer.requested == []
        world.loop.runs_imported("prog")
        await world.loop.check()
        assert world.trainer.requested == [KEY]
        # Nothing is new, and not so soon again.
        world.now += 10_000.0
        world.loop.runs_imported("prog")
        await world.loop.check()
        assert world.trainer.requested == [KEY]

    run(World(store), body)


@pytest.mark.thorough
def test_the_next_change_is_trained_on_as_many_runs_as_the_one_before(store: Store) -> None:
    async def body(world: World) -> None:
        for number in range(35):
            await world.finish(3.0 if number < 10 else 4.5)
            await world.loop.check()
        keep(store, campaign("prog", began_at=world.now + 1.0, seed=5, solo_s=4.5))
        world.loop.runs_imported("prog")
        await world.loop.check()
        assert world.trainer.requested == [KEY]

        runs = campaign("prog", seed=5, solo_s=4.5)
        document = train_application(runs, models=("LM", "CART"))
        version = store.put_model("prog", document["identity"], "node-1", "cross-core", document)
        store.promote("prog", "cross-core", version, "trained")
        world.now += 10_000.0
        forecast = world.forecast(
            model_version=version, solo_s=4.5, runtime_s=Interval(4.5, 4.275, 4.725)
        )
        for number in range(35):
            await world.finish(4.5 if number < 10 else 6.75, forecast=forecast)
            await world.loop.check()
        assert world.loop.changed("prog")
        assert world.trainer.requested == [KEY]
        # As many runs as the first time, and no more.
        keep(store, campaign("prog", began_at=world.now + 1.0, seed=6, solo_s=6.75))
        world.loop.runs_imported("prog")
        await world.loop.check()
        assert world.trainer.requested == [KEY, KEY]

    run(World(store), body)


def exported(world: World, name: str) -> float | None:
    """A gauge of the program; None where it has none."""
    return world.metrics.registry.get_sample_value(f"kongming_server_{name}", {"app": "prog"})


@pytest.mark.parametrize("swept", [True, False], ids=["swept", "queried"])
def test_nothing_is_reported_of_a_model_that_was_deleted(store: Store, swept: bool) -> None:
    async def body(world: World) -> None:
        for number in range(30):
            await world.finish(3.0 if number < 10 else 4.5)
        await world.loop.check()
        assert exported(world, "model_drifted") == 1.0
        store.delete_model(*KEY)
        if swept:
            await world.loop._guarded(sweep=True)
            assert exported(world, "model_drifted") is None
            assert exported(world, "realised_runs") is None
        else:
            assert await world.loop.realised("prog") is None
        assert world.loop.changed("prog") == {}
        assert world.loop.realised_lately("prog") is None

    run(World(store), body)


def test_training_again_can_be_turned_off(store: Store) -> None:
    async def body(world: World) -> None:
        keep(store, campaign("prog", began_at=world.now + 1000.0, seed=5))
        for _ in range(30):
            await world.finish(4.5)
        realised = await world.loop.realised("prog")
        assert realised is not None
        assert realised.drifted
        assert world.trainer.requested == []

    run(World(store, retrain=False), body)


def test_another_server_says_the_same(store: Store) -> None:
    async def body(world: World) -> None:
        for number in range(45):
            await world.finish(3.0 if number < 15 else 2.0)
        first = await world.loop.realised("prog")
        other = World(store)
        await other.loop.start()
        try:
            assert other.loop.realised_lately("prog") == first
            assert first is not None
            assert "faster" in first.reason
        finally:
            await other.loop.close()

    run(World(store), body)


@pytest.mark.thorough
def test_what_leaves_the_window_stays_tested(store: Store) -> None:
    async def body(world: World) -> None:
        for number in range(90):
            await world.finish(3.0 if number < 70 else 4.5)
            if number % 7 == 0:
                await world.loop.check()
        realised = await world.loop.realised("prog")
        assert realised is not None
        assert realised.runs == 50
        assert realised.drifted
        assert world.loop.changed("prog")["cross-core"] == pytest.approx(
            world.now - 200.0, abs=25.0
        )

    run(World(store, window=50), body)


def test_an_agent_that_may_is_asked_to_profile_what_drifts_and_not_over_and_over(
    store: Store,
) -> None:
    async def body(world: World) -> None:
        for number in range(30):
            await world.finish(3.0 if number < 10 else 4.5)
        await world.loop.check()
        assert world.loop.changed("prog")
        # No agent may profile it yet, and later one may.
        assert world.agents.requested == []
        world.agents.able = "a node"
        await world.finish(4.5)
        await world.loop.check()
        assert world.agents.requested == [("prog", "node-1")]
        for _ in range(10):
            await world.finish(4.5)
            await world.loop.check()
        assert len(world.agents.requested) == 1
        world.now += 1000.0
        await world.finish(4.5)
        await world.loop.check()
        assert len(world.agents.requested) == 2

        # While runs of a new profile come in, nobody is asked, by no server.
        other = World(store, profile_pause_s=1000.0, retrain_runs=10_000)
        other.agents.able, other.now = "a node", world.now
        keep(store, campaign("prog", began_at=world.now, seed=5)[:5])
        await other.loop.start()
        assert other.loop.changed("prog")
        assert other.agents.requested == []
        await other.loop.close()

    run(World(store, profile_pause_s=1000.0, retrain_runs=10_000), body)


def test_no_agent_is_asked_where_that_is_turned_off(store: Store) -> None:
    async def body(world: World) -> None:
        world.agents.able = "a node"
        for number in range(30):
            await world.finish(3.0 if number < 10 else 4.5)
        await world.loop.check()
        assert world.loop.changed("prog")
        assert world.agents.requested == []

    run(World(store, profile=False), body)
