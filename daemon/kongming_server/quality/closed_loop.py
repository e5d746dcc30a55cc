"""The closed loop: finished runs compared with their predictions, drift, and training again.

What is predicted when an application starts somewhere is kept; when its run is reported, the two
are compared and the comparison is kept. A moment later the errors of the model in service are
tested against its validation. A model that drifts is flagged, and once the application was profiled
again, which an agent that may is asked to do, it is trained on the runs since the change.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kongming.records.answers import Forecast, Realised
from kongming.records.errors import KongmingError, StoreError
from kongming.records.moments import unix
from kongming.records.resident import LONGEST_BIND_DELAY_S, Resident
from kongming.records.run import Run
from kongming.store import Store
from kongming.store.service_entries import StoredForecast, StoredRealised
from kongming_server.configuration.settings import ClosedLoop as Settings
from kongming_server.operations.operation import Operation
from kongming_server.operations.tasks import Outcome
from kongming_server.quality import backtest as scores
from kongming_server.quality.model_tests import Key, ModelTests, State
from kongming_server.running.supervision import Working, unwatched

if TYPE_CHECKING:
    from kongming_server.monitoring.metrics import Metrics

log = logging.getLogger(__name__)

SWEEP_S = 30.0
"""How often every application is looked at, for runs that were reported to other servers."""

DUTY = 0.1
"""The greatest share of the time that tests take: after each, as much longer is waited."""


class Finished(Protocol):
    """A run as it was reported, and the assignment whose end it is; empty for none."""

    @property
    def run(self) -> Run: ...

    @property
    def assignment_id(self) -> str: ...


class Trains(Protocol):
    """Methods of ``Training`` that the loop needs."""

    changed: Callable[[str], Mapping[str, float]]
    trained: Callable[[Outcome], None]

    async def submit(
        self,
        apps: Sequence[str] = (),
        *,
        placement: str | None = None,
        cause: str = "",
        by_operator: bool = True,
    ) -> Operation: ...


class Profiles(Protocol):
    """Methods that a closed loop needs of those that can have an application profiled."""

    async def ask(self, app: str, node_id: str) -> str | None: ...


class ClosedLoop:
    """All of a server's closed loop. Every method is for the event loop's thread.

    ``on_drift`` is called with application, placement and reason when a model begins to drift.
    """

    def __init__(
        self,
        store: Store,
        engine: object,
        settings: Settings | None = None,
        training: Trains | None = None,
        profiles: Profiles | None = None,
        *,
        metrics: Metrics | None = None,
        now: Callable[[], float] = time.time,
        working: Working = unwatched,
    ) -> None:
        self._working = working
        self._settings = settings or Settings()
        self._training = training
        self._profiles = profiles
        self._metrics = metrics
        self._now = now
        self._tests = ModelTests(store, self._settings)
        self._store = store
        self._dirty: set[Key] = set()
        self._failing: set[Key] = set()
        self._states: dict[Key, State] = {}
        self._tried_at: dict[Key, float] = {}
        self._tried_with: dict[Key, int] = {}
        self._requested_at: dict[Key, float] = {}
        self._checking: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self.on_drift: Callable[[str, str, str], None] = lambda app, placement, reason: None
        if training is not None:
            training.changed = self.changed
            training.trained = self._was_trained

    async def start(self) -> None:
        """Look at what has finished so far, and go on looking."""
        await self._guarded(sweep=True)
        self._checking = asyncio.create_task(self._go_on())

    async def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    # -- what it is told -----------------------------------------------------------------------

    async def placed(self, resident: Resident, forecast: Forecast) -> None:
        """Keep what was predicted for an assignment; on disk when this returns.

        Nothing is kept of an application that has no model.
        """
        if forecast.runtime_s is None or not forecast.model_version:
            return
        row = StoredForecast(
            assignment_id=resident.assignment_id,
            app=forecast.app,
            node_id=forecast.node_id,
            placement=forecast.placement,
            model_version=forecast.model_version,
            made_at=self._now(),
            document={
                "runtime": forecast.runtime_s.to_dict(),
                "metric_unit": forecast.metric_unit,
                "model": forecast.model,
                "stale": forecast.stale,
                "extrapolating": forecast.extrapolating,
            },
        )
        await asyncio.to_thread(self._store.add_forecast, row)

    async def run_finished(self, reported: Finished) -> bool:
        """Compare a finished run with what was predicted for it; whether there was anything new.

        A run that is known already changes nothing, nor does one that failed, nor a further one of
        the same assignment: what was predicted was predicted for one start.
        """
        self.runs_imported(reported.run.app)
        if not reported.assignment_id or not reported.run.ok:
            return False
        row = await asyncio.to_thread(self._compare, reported.run, reported.assignment_id)
        if row is None:
            return False
        self._dirty.add((row.app, row.placement))
        return True

    def runs_imported(self, app: str) -> None:
        """Runs of an application came in: if it drifts, there may be enough to train it again."""
        self._dirty.update(
            key for key, state in self._states.items() if key[0] == app and state.verdict.drifted
        )

    # -- what it says --------------------------------------------------------------------------

    async def realised(self, app: str) -> Realised | None:
        """Read it from the store as it is now, whichever server the runs were reported to."""
        placements = await asyncio.to_thread(self._tests.placements, app)
        # Also those whose model may be gone by now.
        await self._look_at(placements | {key for key in self._states if key[0] == app})
        return self.realised_lately(app)

    def realised_lately(self, app: str) -> Realised | None:
        """Return it as it was at the last look, in which another server's runs may be missing."""
        states = [state for (name, _), state in self._states.items() if name == app]
        current = [run for s in states for run in s.runs if run.model_version == s.version]
        # Right after a new version came into service, what the one before it did still says more
        # than nothing.
        runs = current or [run for state in states for run in state.runs]
        return scores.realised(runs, [s.reason for s in states if s.verdict.drifted])

    def changed(self, app: str) -> dict[str, float]:
        """Return when (unix seconds) an application began to drift, by placement."""
        return {
            placement: state.changed_at
            for (name, placement), state in self._states.items()
            if name == app and state.changed_at is not None
        }

    # -- looking -------------------------------------------------------------------------------

    async def check(self) -> None:
        """Look at everything that runs have come in of."""
        keys, self._dirty = self._dirty, set()
        await self._look_at(keys)

    async def _go_on(self) -> None:
        swept_at = self._now()
        while True:
            began = time.monotonic()
            sweep = abs(self._now() - swept_at) > SWEEP_S
            if sweep:
                swept_at = self._now()
            await self._guarded(sweep=sweep)
            took = time.monotonic() - began
            await asyncio.sleep(max(self._settings.check_period_s, took / DUTY))

    async def _guarded(self, *, sweep: bool) -> None:
        """Look, whatever is wrong with what is looked at: the server answers all the same."""
        try:
            if sweep:
                await self._sweep()
            await self.check()
        except KongmingError as error:
            log.warning("Finished runs could not be looked at: %s", error)
        except Exception:
            log.exception("Finished runs could not be looked at.")

    async def _sweep(self) -> None:
        self._dirty |= await asyncio.to_thread(self._tests.changed, dict(self._states))
        # There may be an agent now that can be asked.
        self._dirty |= {key for key, state in self._states.items() if self._may_ask(key, state)}

    async def _look_at(self, keys: set[Key]) -> None:
        """What cannot be looked at keeps nothing else from being: it is looked at again when all
        is, and said once."""
        async with self._lock:
            for key in sorted(keys):
                try:
                    await self._look_at_one(key)
                except StoreError:
                    self._dirty |= keys
                    raise
                except Exception as error:
                    if key not in self._failing:
                        self._failing.add(key)
                        log.warning(
                            "Finished runs of %s at %s could not be looked at: %s",
                            *key,
                            error,
                            exc_info=not isinstance(error, KongmingError),
                        )
                else:
                    self._failing.discard(key)

    async def _look_at_one(self, key: Key) -> None:
        with self._working("Looking at finished runs"):
            state = await asyncio.to_thread(self._tests.state, key)
        if state is None:
            self._forget(key)
            return
        before = self._states.get(key)
        self._states[key] = state
        if before is None or before.version != state.version or not state.verdict.drifted:
            # Runs are counted from the change on: the next one begins at none.
            self._tried_with.pop(key, None)
        self._export(key[0])
        if not state.verdict.drifted:
            return
        if before is None or not before.verdict.drifted or before.version != state.version:
            log.warning("%s", state.reason)
            self.on_drift(*key, state.reason)
        await self._profile_again(key, state)
        await self._train_again(key, state)

    def _forget(self, key: Key) -> None:
        """Say nothing more of a model that is gone, or whose finished runs are."""
        for known in (self._tried_at, self._tried_with, self._requested_at):
            known.pop(key, None)
        if self._states.pop(key, None) is not None:
            self._export(key[0])

    def _may_ask(self, key: Key, state: State) -> bool:
        settings = self._settings
        if self._profiles is None or not settings.profile or state.changed_at is None:
            return False
        requested_at = self._requested_at.get(key, float("-inf"))
        return self._now() - requested_at >= settings.profile_pause_s

    async def _profile_again(self, key: Key, state: State) -> None:
        """Request a new profile, unless one began lately, here or by another server."""
        if not self._may_ask(key, state) or state.changed_at is None:
            return
        assert self._profiles is not None
        begun = await asyncio.to_thread(self._tests.profiled, key, state.changed_at)
        if begun and self._now() - max(begun) < self._settings.profile_pause_s:
            # As another server asked for, or an operator; what it brings may be enough.
            self._requested_at[key] = max(begun)
            return
        app, placement = key
        try:
            node_id = await asyncio.to_thread(self._tests.node_of, key, state.version)
            name = await self._profiles.ask(app, node_id)
        except KongmingError as error:
            log.warning("No agent could be asked to profile %s: %s", app, error)
            return
        if name is None:
            log.info("%s at %s drifts, and no agent that answers may profile it", app, placement)
            return
        self._requested_at[key] = self._now()
        log.info("%s was asked to profile %s again", name, app)

    async def _train_again(self, key: Key, state: State) -> None:
        """Train it if there are enough runs of the program as it is now, and not over and over."""
        if self._training is None or not self._settings.retrain or state.changed_at is None:
            return
        tried_at = self._tried_at.get(key, float("-inf"))
        pause_s = tried_at + self._settings.retrain_pause_s - self._now()
        if pause_s > 0.0:
            asyncio.get_running_loop().call_later(pause_s, self._dirty.add, key)
            return
        since = state.changed_at
        count = len(await asyncio.to_thread(self._tests.profiled, key, since))
        if count < self._settings.retrain_runs or count <= self._tried_with.get(key, 0):
            return
        self._tried_at[key], self._tried_with[key] = self._now(), count
        app, placement = key
        try:
            operation = await self._training.submit(
                [app], placement=placement, cause=state.reason, by_operator=False
            )
        except KongmingError as error:
            log.warning("%s at %s cannot be trained again now: %s", app, placement, error)
        else:
            log.info("Training %s at %s again: operation %s", app, placement, operation.id)

    def _was_trained(self, outcome: Outcome) -> None:
        if not outcome.error:
            self._dirty.add((outcome.app, outcome.placement))

    def _compare(self, run: Run, assignment_id: str) -> StoredRealised | None:
        forecast = self._store.forecast(assignment_id)
        if forecast is None or forecast.app != run.app or run.metric is None:
            return None
        assignment = self._store.assignment(assignment_id)
        nodes = {run.node_id, forecast.node_id}
        if assignment is not None:
            nodes.add(assignment.node_id)
        if len(nodes) > 1:
            # A node says nothing of what was predicted for another one.
            return None
        predicted: Mapping[str, Any] = forecast.document
        if predicted["metric_unit"] != run.metric_unit:
            return None
        runtime = predicted["runtime"]
        lower, upper = float(runtime["lower"]), float(runtime["upper"])
        if runtime.get("at_least"):
            lower, upper = (lower, math.inf) if run.better == "lower" else (0.0, upper)
        row = StoredRealised(
            run_id=run.id,
            assignment_id=assignment_id,
            app=run.app,
            placement=forecast.placement,
            node_id=forecast.node_id,
            model_version=forecast.model_version,
            ended_at=self._ended_at(run, forecast),
            predicted=float(runtime["median"]),
            lower=lower,
            upper=upper,
            level=float(runtime["level"]),
            measured=run.metric,
            metric_unit=run.metric_unit,
        )
        return row if self._store.realise(row) else None

    def _ended_at(self, run: Run, forecast: StoredForecast) -> float:
        """Unix seconds. A node whose clock is ahead must not put its runs after all others, and
        those of one whose clock is behind must not be deleted as old ones: what ended longer before
        its prediction than a start is reported late has ended now."""
        # When it was bound is no bound: an agent reports that by the same clock as the run.
        now, ended = self._now(), unix(run.started_at) + run.wall_s
        return ended if forecast.made_at - LONGEST_BIND_DELAY_S <= ended <= now else now

    def _export(self, app: str) -> None:
        if self._metrics is None:
            return
        metrics, realised = self._metrics, self.realised_lately(app)
        gauges = (
            metrics.realised_runs,
            metrics.realised_error,
            metrics.realised_coverage,
            metrics.drifted,
        )
        if realised is None:
            for gauge in gauges:
                gauge.remove(app)
            return
        values = (
            realised.runs,
            realised.median_error_pct / 100.0,
            realised.coverage,
            realised.drifted,
        )
        for gauge, value in zip(gauges, values, strict=True):
            gauge.labels(app).set(float(value))
