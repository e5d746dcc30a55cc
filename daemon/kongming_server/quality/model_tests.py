"""The drift tests of all models in service, kept up from the store."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kongming.learning import model_file as persist
from kongming.quantities import per_cent
from kongming.records.errors import InputError
from kongming.records.moments import unix
from kongming.store import Store
from kongming.store.service_entries import StoredRealised
from kongming_server.configuration.settings import ClosedLoop as Settings
from kongming_server.quality import backtest as scores
from kongming_server.quality.drift import DriftTest, Verdict
from kongming_server.quality.split_test import SplitTest, groups_of

Key = tuple[str, str]
"""Application and placement."""


@dataclass(frozen=True, slots=True)
class State:
    """One application at one placement: its finished runs, oldest first, and the verdict on the
    model in service. ``changed_at`` (unix seconds) is since when it drifts."""

    version: int
    runs: tuple[StoredRealised, ...]
    verdict: Verdict
    reason: str = ""
    changed_at: float | None = None


@dataclass(slots=True)
class _Tested:
    """A drift test, the runs in the window that it has counted, and what the model's document
    says."""

    version: int
    test: SplitTest
    better: str
    trained_at: float
    seen: set[str] = field(default_factory=set)


class ModelTests:
    """The tests of all models in service, from the store. Its methods block, and are called one
    at a time."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._tested: dict[Key, _Tested] = {}

    def changed(self, states: Mapping[Key, State]) -> set[Key]:
        """Return the keys with other runs or another version than when they were last looked at, or
        with none of them any more."""
        in_service = self._store.models_in_service()
        keys = set(states.keys() - in_service.keys())
        for key, version in in_service.items():
            newest = self._store.realised(*key, limit=1)
            state = states.get(key)
            if state is None:
                changed = bool(newest)
            else:
                changed = state.version != version or [row.run_id for row in newest] != [
                    state.runs[-1].run_id
                ]
            if changed:
                keys.add(key)
        return keys

    def placements(self, app: str) -> set[Key]:
        return set(self._store.models_in_service(app=app))

    def state(self, key: Key) -> State | None:
        """None where nothing has finished, or the model is gone."""
        rows = self._window(key)
        version = self._store.in_service(*key)
        if not rows or version is None:
            self._tested.pop(key, None)
            return None
        of_version = [row for row in rows if row.model_version == version]
        reporters = self._reporters()
        tested = self._tests_of(key, version, of_version, len(set(reporters.values())))
        if tested is None:
            return State(version, tuple(rows), Verdict(0, 1.0, False))
        for row in of_version:
            if row.run_id not in tested.seen:
                reporter = reporters.get(row.node_id, row.node_id)
                tested.test.add(row, scores.score(row, tested.better), reporter)
        tested.seen = {row.run_id for row in of_version}
        verdict = tested.test.verdict
        if not verdict.drifted:
            return State(version, tuple(rows), verdict)
        # The program changed after the last run that was as promised had begun at the latest.
        before, since = tested.test.runs_around_change()
        changed_at = max(tested.trained_at, before.ended_at) if before else tested.trained_at
        reason = _reason(key, version, verdict, since, tested.better)
        return State(version, tuple(rows), verdict, reason, changed_at)

    def _window(self, key: Key) -> list[StoredRealised]:
        """The newest finished runs, oldest first. Where most are of one node, each node has its
        share: who reports many does not push out those of others."""
        most = self._settings.window
        rows = self._store.realised(*key, limit=most)
        nodes = Counter(row.node_id for row in rows)
        if len(rows) == most and nodes.most_common(1)[0][1] > most // 2:
            rows = self._store.realised_by_node(*key, limit=most)
        return rows[::-1]

    def _reporters(self) -> dict[str, str]:
        """Return whose word each node's is: its agent's credentials; where all have the same ones,
        or none, each node speaks for itself."""
        agents = self._store.agents()
        holders = {a.node_id: str(a.document.get("bound_to") or a.node_id) for a in agents}
        if len(set(holders.values())) > 1:
            return holders
        return {node_id: node_id for node_id in holders}

    def node_of(self, key: Key, version: int) -> str:
        """The node whose runs a version was trained on; empty where it is gone."""
        entries = self._store.models(app=key[0], placement=key[1])
        return next((entry.node_id for entry in entries if entry.version == version), "")

    def profiled(self, key: Key, since: float) -> list[float]:
        """Return the moments (unix seconds) at which runs began that could be learnt from, at that
        time or later."""
        app, placement = key
        runs = self._store.runs(
            app=app, placement=placement, ok=True, requested=True, fingerprints=False
        )
        begun = [unix(run.started_at) for run in runs if run.kind in ("solo", "induced")]
        return [moment for moment in begun if moment >= since]

    def _tests_of(
        self, key: Key, version: int, rows: Sequence[StoredRealised], reporters: int
    ) -> _Tested | None:
        """The test as far as it got; a new one where it is of other runs or reporters; None for a
        model that is gone or damaged."""
        tested = self._tested.get(key)
        if (
            tested is not None
            and tested.version == version
            and tested.test.groups == groups_of(reporters)
        ):
            new = [row.run_id not in tested.seen for row in rows]
            # What came late, before runs that have been counted, is counted in its place; what has
            # left the window stays counted, as long as the window has not moved on altogether.
            if new == sorted(new) and (not tested.seen or not all(new)):
                return tested
        document = self._store.model(*key, version=version)
        if document is None:
            return None
        try:
            file = persist.read(document)
            trained_at = unix(str(document["trained_at"]), "trained_at")
        except InputError:
            return None
        level = statistics.median(row.level for row in rows) if rows else 0.9
        promised, settings = scores.promised(file, level=level), self._settings
        test = SplitTest(
            lambda: DriftTest(promised, false_alarm=settings.false_alarm),
            false_alarm=settings.false_alarm,
            reporters=reporters,
            window=settings.window,
        )
        tested = self._tested[key] = _Tested(version, test, file.better, trained_at)
        return tested


def _reason(
    key: Key, version: int, verdict: Verdict, recent: Sequence[StoredRealised], better: str
) -> str:
    app, placement = key
    off = statistics.median(scores.error(row, better) for row in recent)
    if verdict.side == "either":
        how = "farther off than promised, on both sides"
    else:
        side = "slower" if off > 0.0 else "faster"
        how = f"{per_cent(100.0 * abs(math.expm1(off)), '.0f')} {side} than predicted in the median"
    return (
        f"{app} at {placement}, model version {version}: the last {len(recent)} of {verdict.runs} "
        f"finished runs are {how}; such errors were not in its validation."
    )
