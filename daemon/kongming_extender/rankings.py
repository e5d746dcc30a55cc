"""Rankings of all nodes, one for each application that is asked about, kept fresh.

Answering needs no more than a look into one. The server works a node of a ranking out in full in
tens of microseconds, so that thousands of nodes are asked for in parts, of which none holds it up
for long; in the background they are asked for with pauses. What pods came to or left is asked
about again before the next answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kongming.errors import KongmingError, UnknownNameError
from kongming.rpc.answers import Basis, RankedNode
from kongming.rpc.questions import Question, RankQuestion, StalePolicy
from kongming_extender.config import Ranking as Settings
from kongming_extender.deciding import Row
from kongming_extender.link import Link
from kongming_extender.metrics import Metrics

log = logging.getLogger(__name__)

UNNAMED = "kongming.dev/unnamed"
"""Stands for the application of a pod that names none: nobody has profiled it, so that its
ranking is that of the nodes' general slowdown."""

_MOST_IMPACTS = 256
"""Nodes of which residents are looked at one by one, for one answer."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a ranking is of."""

    app: str
    placement: str | None = None
    stale: StalePolicy = "widen"


@dataclass(slots=True)
class Table:
    """``rows`` are by node name. ``basis`` says whether a model of the application is behind
    them. ``impacts`` are slowdowns of residents by UID, of the nodes that were looked at.
    ``changed`` are names of nodes that pods came to or left since."""

    rows: dict[str, Row]
    basis: Basis
    made_at: float
    impacts: dict[str, Mapping[str, float]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


class Rankings:
    """``now`` is a monotonic clock in seconds."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        metrics: Metrics,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._tables: OrderedDict[Key, Table] = OrderedDict()
        self._building: dict[Key, asyncio.Task[Table]] = {}
        self._asking = asyncio.Lock()
        self._names: dict[str, str] = {}
        self._named_at: float | None = None

    @property
    def known(self) -> bool:
        """Whether the server's nodes were ever listed."""
        return self._named_at is not None

    def id_of(self, name: str) -> str | None:
        """A node's id by its name; None where the server does not know it."""
        return self._names.get(name)

    def touched(self, names: Iterable[str]) -> None:
        """Pods came to these nodes, or left them."""
        for name in names:
            for table in self._tables.values():
                table.changed.add(name)
                table.impacts.pop(name, None)

    async def table(self, key: Key) -> Table:
        """The ranking, as fresh as it can be had now.

        Raises:
            KongmingError, TimeoutError: there is none that is young enough, and no answer.
        """
        table = self._tables.get(key)
        age = float("inf") if table is None else self._now() - table.made_at
        if table is None or age > self._settings.oldest_s:
            if self._link.away and key not in self._building:
                raise KongmingError("The server did not answer a moment ago.")
            table = await asyncio.shield(self._build(key, hurry=True))
        elif age > self._settings.fresh_s and not self._link.away:
            if len(self._names) <= self._settings.chunk_nodes:
                table = await self._renewed(key, table)
            else:
                self._build(key, hurry=False)
        if table.changed and not self._link.away:
            await self._again(key, table)
        self._tables[key] = table
        self._tables.move_to_end(key)
        while len(self._tables) > self._settings.apps:
            self._tables.popitem(last=False)
        self._metrics.tables.set(len(self._tables))
        self._metrics.table_age.set(self._now() - table.made_at)
        return table

    async def impacts(self, key: Key, table: Table, names: list[str]) -> None:
        """Fill ``table.impacts`` of these nodes, as far as there is an answer."""
        wanted = [name for name in names if name not in table.impacts][:_MOST_IMPACTS]
        if not wanted or self._link.away:
            return
        found = await self._link.impacts(
            [
                Question(
                    app=key.app,
                    node=table.rows[name].node_id,
                    placement=key.placement,
                    stale_policy=key.stale,
                    domain=table.rows[name].domain,
                )
                for name in wanted
            ]
        )
        for name, impacts in zip(wanted, found, strict=True):
            if impacts is not None:
                table.impacts[name] = impacts

    async def names(self) -> None:
        """List the server's nodes, unless that was done a moment ago."""
        if self._named_at is not None and self._now() - self._named_at < self._settings.fleet_s:
            return
        found = await self._link.names(self._settings.chunk_nodes)
        names: dict[str, str] = {}
        twice: set[str] = set()
        for node_id, name in found:
            if name in names:
                twice.add(name)
            names[name] = node_id
        if twice:
            log.warning("Several nodes have the name %s: none of them is ranked.", min(twice))
        self._names = {name: one for name, one in names.items() if name not in twice}
        self._named_at = self._now()
        self._metrics.nodes.set(len(self._names))

    async def close(self) -> None:
        tasks = list(self._building.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renewed(self, key: Key, old: Table) -> Table:
        try:
            return await asyncio.shield(self._build(key, hurry=True))
        except (KongmingError, TimeoutError):
            return old

    def _build(self, key: Key, *, hurry: bool) -> asyncio.Task[Table]:
        """One task for all who wait for the same ranking."""
        task = self._building.get(key)
        if task is None:
            task = asyncio.create_task(self._made(key, hurry=hurry), name=f"ranking {key.app}")
            self._building[key] = task
            task.add_done_callback(lambda done: self._built(key, done))
        return task

    def _built(self, key: Key, done: asyncio.Task[Table]) -> None:
        del self._building[key]
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._tables[key] = done.result()
        else:
            log.debug("No ranking of %s: %s", key.app, error)

    async def _made(self, key: Key, *, hurry: bool) -> Table:
        async with asyncio.timeout(self._settings.oldest_s):
            try:
                return await self._whole(key, hurry=hurry)
            except UnknownNameError:
                # A node has gone since they were listed.
                self._named_at = None
                return await self._whole(key, hurry=hurry)

    async def _whole(self, key: Key, *, hurry: bool) -> Table:
        await self.names()
        table = Table({}, "node-only", self._now())
        ids, size = list(self._names.values()), self._settings.chunk_nodes
        old = self._tables.get(key)
        # What changed before now is in what is asked; what changes meanwhile may not be.
        before = set() if old is None else set(old.changed)
        for start in range(0, len(ids), size):
            took = await self._ask(key, ids[start:][:size], table)
            if not hurry:
                await asyncio.sleep(took * (1.0 / self._settings.share - 1.0))
        if old is not None:
            table.changed = old.changed - before
        return table

    async def _again(self, key: Key, table: Table) -> None:
        """Ask about the nodes that have changed, as many as go into one question."""
        changed = [name for name in table.changed if name in self._names]
        asked = changed[: self._settings.chunk_nodes]
        table.changed = set(changed[self._settings.chunk_nodes :])
        if not asked:
            return
        try:
            fresh = Table({}, table.basis, self._now())
            await self._ask(key, [self._names[name] for name in asked], fresh)
        except (KongmingError, TimeoutError) as error:
            table.changed.update(asked)
            log.debug("Nodes that have changed could not be ranked again: %s", error)
            return
        except asyncio.CancelledError:
            table.changed.update(asked)
            raise
        for name in asked:
            table.rows.pop(name, None)
            table.impacts.pop(name, None)
        table.rows.update(fresh.rows)

    async def _ask(self, key: Key, ids: list[str], table: Table) -> float:
        """Put these nodes into ``table``; returns the seconds that it took."""
        question = RankQuestion(
            app=key.app,
            nodes=tuple(ids),
            limit=len(ids),
            placement=key.placement,
            stale_policy=key.stale,
            resident_weight=self._settings.resident_weight,
            seed=0,
        )
        async with self._asking:
            begun = time.perf_counter()
            ranking = await self._link.rank(question)
            took = time.perf_counter() - begun
        table.basis = ranking.basis
        table.rows.update({node.name: _row(node) for node in ranking.nodes})
        return took


def _row(node: RankedNode) -> Row:
    return Row(
        node_id=node.node_id,
        badness=node.score,
        slowdown=node.slowdown.median,
        worst_resident=node.worst_resident_slowdown,
        domain=node.domain,
        extrapolating=node.extrapolating,
    )
