"""Load the store into memory at the start, and follow the changes of other servers.

Sizes here are of a fleet: a change is applied by asking the store for what it names, many changes
of one kind in one question.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kongming.engine.load.models import widenings
from kongming.engine.load.stored_nodes import (
    current_assignments,
    newest_references,
    recent_fingerprints,
)
from kongming.engine.settings import Purpose
from kongming.learning import model_file as persist
from kongming.learning.intervals import Widening
from kongming.learning.model_file import ModelFile
from kongming.records.errors import StoreError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.scale.fit import model_file as scale_persist
from kongming.scale.fit.scale_file import ScaleFile
from kongming.store import Change, Reference
from kongming.store.connection import NOT_READABLE
from kongming.store.models import SCALE, SCALE_PREFIX
from kongming_server.state import SharedState

log = logging.getLogger(__name__)

ModelKey = tuple[str, str]
"""Application and placement."""

_WIDENING_SHARE = 0.1
"""Share of the time in which it is learned what intervals are widened by, at the most."""

READ_AGAIN = ("model", "calibration")
"""Kinds of changes that are read though this server made them: what intervals are widened by
depends on all models, and on who was run beside whom."""


class _Loaded(NamedTuple):
    """A version that is in memory, and when it was trained."""

    trained_at: str
    file: ModelFile


class Restore:
    """Brings the shared state to what its store holds."""

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self._loaded: dict[ModelKey, dict[int, _Loaded]] = defaultdict(dict)
        self._serving: dict[ModelKey, int] = {}
        self._widenings: dict[ModelKey, Widening] = {}
        self._widen_again = False
        self._widening_lock = asyncio.Lock()
        self._closing = asyncio.Event()
        self._widening: asyncio.Task[None] | None = None

    @property
    def models_in_service(self) -> int:
        return len(self._serving)

    async def everything(self) -> int:
        """Read all of the store; returns the change to go on from. A row that cannot be read is
        left out, now and afterwards."""
        state = self._state
        state.store.damage = lambda what, why: log.error(
            "The store has %s that cannot be read, and is left out: %s", what, why
        )
        # Asked first: what changes while the rest is read is read again, which does no harm.
        since = await state.stored(state.store.last_change)
        await self.nodes(None)
        # Before what agents have reported: the surrogates of models always have a place.
        await self.models(None)
        await self.scale_models(None)
        await self.references(None)
        await self.fingerprints(None)
        await self.signatures(None)
        for resident in await state.stored(lambda: current_assignments(state.store, state.now())):
            with _tolerated(f"The assignment {resident.assignment_id}"):
                state.placed(resident)
        return since

    def is_own(self, change: Change) -> bool:
        """Return whether what this server did brought it into memory already."""
        return change.origin == self._state.store.origin and change.kind not in READ_AGAIN

    async def changes(self, changes: Sequence[Change]) -> None:
        """Take over what others have changed."""
        state = self._state
        if any(change.kind == "reset" for change in changes):
            log.warning("Changes of other servers were missed: reading the whole store again.")
            await self.everything()
            state.watchers.all_changed()
            return
        owners: dict[str, set[str]] = defaultdict(set)
        for change in changes:
            if not self.is_own(change):
                owners[change.kind].add(change.owner)
        if owners["node"]:
            await self.nodes(owners["node"])
        if owners["reference"]:
            await self.references(owners["reference"])
        if owners["fingerprint"]:
            await self.fingerprints(owners["fingerprint"])
        scales = {owner for owner in owners["model"] if owner.startswith(SCALE_PREFIX)}
        if owners["model"] - scales:
            await self.models(owners["model"] - scales)
        if scales:
            await self.scale_models(scales)
        if owners["signature"]:
            await self.signatures(owners["signature"])
        for change in changes:
            if change.kind == "assignment" and not self.is_own(change):
                held = await state.stored(lambda key=change.key: state.store.assignment(key))  # type: ignore[misc]
                if held is not None:
                    state.placed(held)
        state.watchers.changed(*owners["node"], *owners["reference"], *owners["fingerprint"])
        if owners["calibration"]:
            self._widen_again = True
            if self._widening is None or self._widening.done():
                self._widening = asyncio.create_task(self._widen_in_turns())

    async def nodes(self, node_ids: Collection[str] | None) -> None:
        state = self._state
        nodes = await state.stored(lambda: state.store.nodes(node_ids=node_ids))
        # Both are read before either is used: no call sees a node without its agent meanwhile.
        rows = await state.stored(lambda: state.store.agents(node_ids=node_ids))
        for facts in nodes:
            with _tolerated(f"The node {facts.id}"):
                state.put_node(facts)
        for row in rows:
            agent = state.agents.get(row.node_id)
            if agent is None:
                continue
            with _tolerated(f"What the store knows of the agent of {row.node_id}"):
                agent.restore(row.document)
                if agent.suspect is None:
                    state.engine.clear_suspect(row.node_id)
                else:
                    state.engine.mark_suspect(row.node_id, agent.suspect)
                state.seen(agent, row.seen_at)

    async def references(self, node_ids: Collection[str] | None) -> None:
        state = self._state
        store = state.store
        stored: Iterable[Reference]
        if node_ids is None or len(node_ids) > _FEW:
            stored = await state.stored(store.references)
        else:
            stored = [
                reference
                for node_id in node_ids
                for reference in await state.stored(lambda n=node_id: store.references(node_id=n))  # type: ignore[misc]
            ]
        by_node: dict[str, list[Reference]] = defaultdict(list)
        for reference in stored:
            by_node[reference.node_id].append(reference)
        for node_id, references in by_node.items():
            agent = state.agents.get(node_id)
            if agent is None:
                continue
            for domain, reference in newest_references(state.store, agent.facts, references):
                with _tolerated(f"The reference of {node_id}"):
                    state.engine.put_reference(
                        node_id, domain, reference.times, reference.suite_version, by=agent.bound_to
                    )

    async def fingerprints(self, node_ids: Collection[str] | None) -> None:
        state = self._state
        latest = await state.stored(lambda: state.store.latest_fingerprints(node_ids))
        for number, fingerprint in enumerate(latest):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            agent = state.agents.get(fingerprint.node.id)
            domain = None if agent is None else agent.domain_of(fingerprint.cpu)
            if agent is not None and domain is not None:
                with _tolerated(f"The fingerprint {fingerprint.id}"):
                    state.use_fingerprint(agent, domain, fingerprint, Purpose.LIVE)

    async def history(self) -> None:
        """Older fingerprints, from which it is learnt how much each node changes over a time.

        Takes a while with many nodes, and goes on where the store was away: call it when the server
        answers already.
        """
        state = self._state
        for agent in list(state.agents):
            for domain, fingerprint in await self._recent(agent.facts):
                with _tolerated(f"The fingerprint {fingerprint.id}"):
                    state.use_fingerprint(agent, domain, fingerprint, Purpose.LIVE)
            await asyncio.sleep(0)

    async def _recent(self, facts: NodeFacts) -> list[tuple[int, Fingerprint]]:
        state, size = self._state, self._state.engine_settings.history
        while True:
            try:
                return await state.stored(lambda: recent_fingerprints(state.store, facts, size))
            except StoreError as error:
                log.debug("Older fingerprints could not be read: %s", error)
            await asyncio.sleep(_AGAIN_S)

    async def models(self, apps: Collection[str] | None) -> None:
        """Load what is new, put into service what is, and forget what was deleted."""
        state = self._state
        in_service = await state.stored(state.store.models_in_service)
        versions: dict[ModelKey, dict[int, str]] = defaultdict(dict)
        identities: dict[ModelKey, dict[int, str]] = defaultdict(dict)
        applications = await state.stored(state.store.applications)
        state.engine.put_applications(application.name for application in applications)
        for entry in await state.stored(state.store.models):
            if apps is None or entry.app in apps:
                versions[entry.app, entry.placement][entry.version] = entry.trained_at
                identities[entry.app, entry.placement][entry.version] = entry.identity
        for key, loaded in self._loaded.items():
            if apps is None or key[0] in apps:
                known = versions.get(key, {})
                for version in loaded.keys() - known.keys():
                    state.engine.drop_model(*key, version)
                    del loaded[version]
                if self._serving.get(key) not in loaded:
                    self._serving.pop(key, None)
        for key, known in versions.items():
            serving = in_service.get(key)
            newest = sorted(known, reverse=True)[:_VERSIONS]
            for version in {*newest, *(() if serving is None else (serving,))}:
                await self._model(key, version, known[version], serving=version == serving)
            if serving is not None and serving not in self._loaded[key]:
                self._stand_in(key, serving, identities[key])
        await self._widen()

    def _stand_in(self, key: ModelKey, serving: int, identities: Mapping[int, str]) -> None:
        """The newest other version of the same program answers where the one in service is
        damaged."""
        program = identities.get(serving)
        others = [version for version in self._loaded[key] if identities.get(version) == program]
        if not others or self._serving.get(key) == max(others):
            return
        self._state.engine.promote(*key, max(others))
        self._serving[key] = max(others)
        log.warning(
            "Version %d of the model of %s at %s answers in the place of version %d.",
            *(max(others), *key, serving),
        )

    async def _model(self, key: ModelKey, version: int, trained_at: str, *, serving: bool) -> None:
        state = self._state
        app, placement = key
        loaded = self._loaded[key].get(version)
        # The number of a version that was deleted may have been given again, if it never served.
        if loaded is not None and loaded.trained_at == trained_at:
            if serving and self._serving.get(key) != version:
                state.engine.promote(app, placement, version)
                self._serving[key] = version
            return

        def read() -> ModelFile | None:
            document = state.store.model(app, placement, version=version)
            return None if document is None else persist.read(document)

        with _tolerated(f"Version {version} of the model of {app} at {placement}"):
            file = await state.stored(read)
            if file is not None:
                state.engine.put_model(file, version, serving)
                self._loaded[key][version] = _Loaded(trained_at, file)
                if serving:
                    self._serving[key] = version

    async def scale_models(self, apps: Collection[str] | None) -> None:
        """The newest of each name, and forget those that are gone; ``apps`` are names as the store
        has them."""
        state = self._state
        entries = await state.stored(lambda: state.store.models(placement=SCALE))
        there = {entry.app for entry in entries}
        known = {SCALE_PREFIX + name for name in state.engine.scale_models()}
        for app in known - there:
            state.engine.drop_scale_model(app.removeprefix(SCALE_PREFIX))
        for app in there if apps is None else there & set(apps):

            def read(app: str = app) -> ScaleFile | None:
                document = state.store.model(app, SCALE)
                return None if document is None else scale_persist.read(document)

            name = app.removeprefix(SCALE_PREFIX)
            with _tolerated(f"The scale model {name}"):
                file = await state.stored(read)
                if file is not None:
                    state.engine.put_scale_model(name, file)

    async def _widen(self) -> None:
        """Widen intervals by the co-runs of other applications."""
        state = self._state
        # One at a time: what is learned of earlier models must not come last.
        async with self._widening_lock:
            files = [self._loaded[key][version].file for key, version in self._serving.items()]
            learned = await state.stored(lambda: widenings(state.store, files))
            for key, widening in learned.items():
                if self._widenings.get(key) != widening:
                    self._widenings[key] = widening
                    state.engine.put_widening(*key, widening)

    async def _widen_in_turns(self) -> None:
        """Learn it beside all else, once for however many runs have come meanwhile, and for a share
        of the time: it takes as long as there are runs."""
        while self._widen_again:
            self._widen_again, least_pause_s, began = False, 0.0, time.monotonic()
            try:
                await self._widen()
            except StoreError as error:
                self._widen_again, least_pause_s = True, _AGAIN_S
                log.warning("What intervals are widened by could not be read: %s", error)
            except Exception:
                log.exception("What intervals are widened by could not be learned.")
            pause_s = max(least_pause_s, (time.monotonic() - began) / _WIDENING_SHARE)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._closing.wait()
                    return

    async def widened(self) -> None:
        """Wait until what has come so far is learned."""
        if self._widening is not None:
            await self._widening

    async def close(self) -> None:
        """Wait for what is being learned: the store is closed after it."""
        self._closing.set()
        if self._widening is not None:
            await asyncio.gather(self._widening, return_exceptions=True)

    async def signatures(self, apps: Collection[str] | None) -> None:
        state = self._state
        stored = []
        if apps is None:
            stored = await state.stored(lambda: state.store.signatures(requested=True))
        else:
            for app in apps:
                stored += await state.stored(
                    functools.partial(state.store.signatures, app=app, requested=True)
                )
        state.engine.put_signatures(stored)


@contextmanager
def _tolerated(what: str) -> Iterator[None]:
    """One record that cannot be used must not keep the others from being used."""
    try:
        yield
    except StoreError:
        raise
    except NOT_READABLE as error:
        log.error("%s is left out: %s", what, error)


_VERSIONS = 3
"""Newest versions of each model that stay in memory in addition to the one in service."""

_AGAIN_S = 1.0
"""Seconds until a store that was away is asked again."""

_AT_ONCE = 16
"""Records that are taken over before other calls have their turn."""

_FEW = 50
"""Nodes up to which one question each is cheaper than one for all."""
