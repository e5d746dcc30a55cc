"""Cache of rankings of all nodes, one for each requested application.

A request is only a lookup. The server needs tens of microseconds per node, so thousands of nodes
are ranked in chunks that do not block it for long, with pauses between chunks in the background.
Nodes whose assignments changed are ranked again before the next lookup.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kongming.records.answers import Basis
from kongming.records.errors import KongmingError, UnknownNameError
from kongming.records.questions import Question, RankQuestion, StalePolicy
from kongming.rpc import calls
from kongming_scheduling.async_client import AsyncClient, ResidentSlowdown

log = logging.getLogger(__name__)

_MAX_NODES_PER_LOOKUP = 256
"""Maximum number of nodes in one question about their residents."""


class RankingSettings(Protocol):
    """Freshness and weights of rankings; see the settings of the extender."""

    @property
    def fresh_s(self) -> float: ...

    @property
    def oldest_s(self) -> float: ...

    @property
    def fleet_s(self) -> float: ...

    @property
    def chunk_nodes(self) -> int: ...

    @property
    def share(self) -> float: ...

    @property
    def resident_weight(self) -> float: ...

    @property
    def apps(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RankingKey:
    """The key of a ranking."""

    app: str
    placement: str | None = None
    stale: StalePolicy = "widen"


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A node in a ranking. ``score`` is the server's: the newcomer's log slowdown plus the increase
    of its residents'; lower is better. ``worst_resident`` is the highest median slowdown of a
    resident. Either slowdown may be that or more (``at_least``, ``worst_at_least``)."""

    node_id: str
    score: float
    slowdown: float
    worst_resident: float = 1.0
    domain: int = 0
    extrapolating: bool = False
    at_least: bool = False
    worst_at_least: bool = False


@dataclass(slots=True)
class NodeScores:
    """``by_name`` are the scores by node name. ``basis`` is whether they are based on a model of
    the application. ``impacts`` are slowdowns of residents by assignment id, of the nodes that were
    looked up; ``unanswered`` are those for which the server had an error instead. ``changed`` are
    names of nodes whose assignments changed since."""

    by_name: dict[str, NodeScore]
    basis: Basis
    asked_at: float
    impacts: dict[str, Mapping[str, ResidentSlowdown]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)


class RankingCache:
    """``now`` is a monotonic clock in seconds."""

    def __init__(
        self,
        client: AsyncClient,
        settings: RankingSettings,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._settings = settings
        self._now = now
        self._rankings: OrderedDict[RankingKey, NodeScores] = OrderedDict()
        self._updates: dict[RankingKey, asyncio.Task[NodeScores]] = {}
        self._changed_meanwhile: dict[RankingKey, set[str]] = {}
        self._rank_lock = asyncio.Lock()
        self._ids_by_name: dict[str, str] = {}
        self._listed_at: float | None = None

    def __len__(self) -> int:
        return len(self._rankings)

    @property
    def node_count(self) -> int:
        return len(self._ids_by_name)

    @property
    def nodes_listed(self) -> bool:
        """Return whether the server's nodes were ever listed."""
        return self._listed_at is not None

    def node_id(self, name: str) -> str | None:
        """Return a node's id by its name; None if the server does not know it."""
        return self._ids_by_name.get(name)

    def age_s(self, scores: NodeScores) -> float:
        return self._now() - scores.asked_at

    def invalidate(self, names: Iterable[str]) -> None:
        """Mark nodes whose assignments have changed."""
        for name in names:
            for changed in self._changed_meanwhile.values():
                changed.add(name)
            for scores in self._rankings.values():
                scores.changed.add(name)
                scores.impacts.pop(name, None)
                scores.unanswered.discard(name)

    async def scores(self, key: RankingKey) -> NodeScores:
        """Return the freshest available ranking.

        Raises:
            KongmingError, TimeoutError: there is no fresh enough ranking and no answer.
        """
        scores = self._rankings.get(key)
        age_s = float("inf") if scores is None else self.age_s(scores)
        if scores is None or age_s > self._settings.oldest_s:
            if self._client.paused and key not in self._updates:
                raise KongmingError("The server did not answer recently.")
            scores = await asyncio.shield(self._update(key, urgent=True))
        elif age_s > self._settings.fresh_s and not self._client.paused:
            if self.node_count <= self._settings.chunk_nodes:
                scores = await self._updated_or_old(key, scores)
            else:
                self._update(key, urgent=False)
        if scores.changed and not self._client.paused:
            await self._rank_changed_nodes(key, scores)
            newest = self._rankings.get(key, scores)
            # A newer one may have come meanwhile.
            scores = max(scores, newest, key=lambda each: each.asked_at)
        self._rankings[key] = scores
        self._rankings.move_to_end(key)
        while len(self._rankings) > self._settings.apps:
            self._rankings.popitem(last=False)
        return scores

    def latest(self, key: RankingKey) -> NodeScores | None:
        """Return the last ranking as it is; None if there is none, or it is too old."""
        scores = self._rankings.get(key)
        if scores is None or self.age_s(scores) > self._settings.oldest_s:
            return None
        return scores

    async def look_up_impacts(self, key: RankingKey, scores: NodeScores, names: list[str]) -> None:
        """Fill ``scores.impacts`` of these nodes in their order, as far as there are answers.

        Raises:
            KongmingError: there are no more answers. Those before it are kept.
        """
        missing = [
            name for name in names if name not in scores.impacts and name not in scores.unanswered
        ]
        for start in range(0, len(missing), _MAX_NODES_PER_LOOKUP):
            if self._client.paused:
                return
            # Nodes may have changed while the answer before was awaited.
            nodes = {
                name: node
                for name in missing[start:][:_MAX_NODES_PER_LOOKUP]
                if (node := scores.by_name.get(name)) is not None
            }
            impacts = await self._client.resident_slowdowns(
                [
                    Question(
                        app=key.app,
                        node=node.node_id,
                        placement=key.placement,
                        stale_policy=key.stale,
                        domain=node.domain,
                    )
                    for node in nodes.values()
                ]
            )
            for name, slowdowns in zip(nodes, impacts, strict=True):
                if slowdowns is not None:
                    scores.impacts[name] = slowdowns
                else:
                    # Another question for the same ranking would have the same answer.
                    scores.unanswered.add(name)

    async def list_nodes(self) -> None:
        """List the server's nodes, unless they were listed recently."""
        if self._listed_at is not None and self._now() - self._listed_at < self._settings.fleet_s:
            return
        ids_by_name: dict[str, str] = {}
        ambiguous: set[str] = set()
        for node_id, name in await self._client.ready_nodes(self._settings.chunk_nodes):
            if name in ids_by_name:
                ambiguous.add(name)
            ids_by_name[name] = node_id
        if ambiguous:
            log.warning("Several nodes have the name %s: none of them is ranked.", min(ambiguous))
        self._ids_by_name = {
            name: node_id for name, node_id in ids_by_name.items() if name not in ambiguous
        }
        self._listed_at = self._now()

    async def all_nodes(self) -> list[tuple[str, str]]:
        """List the id and the name of every node that the server knows, also of those that are not
        ranked."""
        return await self._client.all_nodes(self._settings.chunk_nodes)

    async def close(self) -> None:
        tasks = list(self._updates.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _updated_or_old(self, key: RankingKey, old: NodeScores) -> NodeScores:
        try:
            return await asyncio.shield(self._update(key, urgent=True))
        except (KongmingError, TimeoutError):
            return old

    def _update(self, key: RankingKey, *, urgent: bool) -> asyncio.Task[NodeScores]:
        """Return the task that all requests for the same ranking share."""
        task = self._updates.get(key)
        if task is None:
            task = asyncio.create_task(
                self._rank_all_nodes(key, urgent=urgent), name=f"ranking {key.app}"
            )
            self._updates[key] = task
            task.add_done_callback(lambda done: self._finish_update(key, done))
        return task

    def _finish_update(self, key: RankingKey, done: asyncio.Task[NodeScores]) -> None:
        del self._updates[key]
        self._changed_meanwhile.pop(key, None)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._rankings[key] = done.result()
        else:
            log.debug("No ranking of %s: %s", key.app, error)

    async def _rank_all_nodes(self, key: RankingKey, *, urgent: bool) -> NodeScores:
        async with asyncio.timeout(self._settings.oldest_s):
            try:
                return await self._rank_listed_nodes(key, urgent=urgent)
            except UnknownNameError:
                # A node has left since the last listing.
                self._listed_at = None
                return await self._rank_listed_nodes(key, urgent=urgent)

    async def _rank_listed_nodes(self, key: RankingKey, *, urgent: bool) -> NodeScores:
        # The answers contain all changes before now, but perhaps not later ones, also where such a
        # node was ranked by itself meanwhile.
        changed: set[str] = set()
        self._changed_meanwhile[key] = changed
        await self.list_nodes()
        scores = NodeScores({}, "node-only", self._now(), changed=changed)
        ids, size = list(self._ids_by_name.values()), self._settings.chunk_nodes
        for start in range(0, len(ids), size):
            took_s = await self._rank(key, ids[start:][:size], scores)
            if not urgent:
                await asyncio.sleep(took_s * (1.0 / self._settings.share - 1.0))
        return scores

    async def _rank_changed_nodes(self, key: RankingKey, scores: NodeScores) -> None:
        """Rank the changed nodes, as many as fit into one question."""
        changed = [name for name in scores.changed if name in self._ids_by_name]
        chunk = changed[: self._settings.chunk_nodes]
        scores.changed = set(changed[self._settings.chunk_nodes :])
        if not chunk:
            return
        try:
            fresh = NodeScores({}, scores.basis, self._now())
            await self._rank(key, [self._ids_by_name[name] for name in chunk], fresh)
        except (KongmingError, TimeoutError) as error:
            scores.changed.update(chunk)
            log.debug("Changed nodes could not be ranked again: %s", error)
            return
        except asyncio.CancelledError:
            scores.changed.update(chunk)
            raise
        for name in chunk:
            scores.by_name.pop(name, None)
            scores.impacts.pop(name, None)
            scores.unanswered.discard(name)
        scores.by_name.update(fresh.by_name)

    async def _rank(self, key: RankingKey, ids: list[str], scores: NodeScores) -> float:
        """Rank these nodes into ``scores``; return the seconds that it took."""
        question = RankQuestion(
            app=key.app,
            nodes=tuple(ids),
            limit=len(ids),
            placement=key.placement,
            stale_policy=key.stale,
            resident_weight=self._settings.resident_weight,
            seed=0,
        )
        async with self._rank_lock:
            begun = time.perf_counter()
            ranking = await self._client.send(calls.rank_nodes(question))
            took_s = time.perf_counter() - begun
        scores.basis = ranking.basis
        scores.by_name.update(
            {
                node.name: NodeScore(
                    node_id=node.node_id,
                    score=node.score,
                    slowdown=node.slowdown.median,
                    worst_resident=node.worst_resident_slowdown,
                    domain=node.domain,
                    extrapolating=node.extrapolating,
                    at_least=node.slowdown.at_least,
                    worst_at_least=node.worst_resident_at_least,
                )
                for node in ranking.nodes
            }
        )
        return took_s
