"""The server is told of placements, one task; what it cannot be told now is told later."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from kongming.errors import AccessError, KongmingError, UnknownNameError
from kongming.run import Run
from kongming_extender.book import Book, Due, Seen
from kongming_extender.config import Placements as Settings
from kongming_extender.link import AWAY, Link
from kongming_extender.metrics import Metrics
from kongming_extender.once import Once
from kongming_extender.pods import Pod
from kongming_extender.rankings import Rankings

log = logging.getLogger(__name__)

_AT_ONCE = 16
_LONGEST_WAIT_S = 5.0
_YOUNG_S = 60.0
"""A placement that began less than this before the pods were listed may be of a pod that came
after them: clocks differ."""
_MOST_RUNS = 1000
"""Finished runs that wait for the server, at the most: the oldest make room."""


class Teller:
    """Keeps the book with what is seen, and the server with what is in the book."""

    def __init__(
        self, book: Book, link: Link, rankings: Rankings, settings: Settings, metrics: Metrics
    ) -> None:
        self._book = book
        self._link = link
        self._rankings = rankings
        self._settings = settings
        self._metrics = metrics
        self._once = Once(log)
        self._work = asyncio.Event()
        self._guessing: set[asyncio.Task[None]] = set()
        self._runs: list[Pod] = []
        self._identities: dict[str, str] = {}
        self._nodes: set[str] = set()
        self._listed_at: float | None = None
        self._young = False

    # -- what is seen --------------------------------------------------------------------------

    def listed(self, pods: Iterable[Pod], at: float) -> None:
        """All pods that there were at a moment (unix seconds)."""
        found = list(pods)
        self._nodes |= {pod.node for pod in found if pod.node}
        self._saw(self._book.listed(found, at))
        # Some may have ended while nobody watched.
        self._listed_at = at

    def again(self) -> bool:
        """Whether all pods should be listed once more: of some placements it could not be said
        whether they had ended, or had just been made by another extender."""
        young, self._young = self._young, False
        return young

    def changed(self, pod: Pod) -> None:
        if pod.node:
            self._nodes.add(pod.node)
        self._saw([self._book.put(pod)])

    def gone(self, pod: Pod) -> None:
        self._saw([self._book.put(pod), self._book.gone(pod.uid, time.time())])

    def guess(self, pod: Pod, node: str) -> None:
        """``node`` will most likely be chosen: hold it until that is known."""
        ttl_s = self._settings.guess_ttl_s
        guess = self._book.guess(pod, node, time.monotonic() + ttl_s) if ttl_s else None
        if guess is None:
            return
        task = asyncio.create_task(self._hold(guess.placement_id, guess.pod, ttl_s))
        self._guessing.add(task)
        task.add_done_callback(self._guessing.discard)

    async def take_back(self, uid: str) -> None:
        """A pod is asked about again: what is held for it must not count as its neighbour."""
        guess = self._book.take_back(uid)
        if guess is not None:
            await self.settled(1.0)
            await self._step(Due("release", guess.placement_id, guess.pod))

    async def settled(self, most_s: float) -> None:
        """Wait for guesses that are on their way, but not for long."""
        if self._guessing:
            await asyncio.wait(list(self._guessing), timeout=most_s)

    def _saw(self, all_seen: Iterable[Seen]) -> None:
        for seen in all_seen:
            self._rankings.touched(seen.nodes)
            self._metrics.guesses.labels("right").inc(seen.right)
            self._metrics.guesses.labels("wrong").inc(seen.wrong)
            if self._settings.runs:
                self._runs += [pod for pod in seen.finished if self._worth(pod)]
        del self._runs[:-_MOST_RUNS]
        self._metrics.pods.set(len(self._book))
        self._work.set()

    def _worth(self, pod: Pod) -> bool:
        why = ""
        if pod.phase != "Succeeded" or pod.exit_status or pod.restarts:
            why = "failed"
        elif pod.started_at is None or pod.finished_at is None:
            why = "unknown"
        elif pod.finished_at - pod.started_at < self._settings.least_run_s:
            why = "short"
        if why:
            self._metrics.runs.labels(why).inc()
        return not why

    # -- telling -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled."""
        wait_s = 0.2
        while True:
            try:
                self._expire()
                await self._tell()
                wait_s = 0.2
                self._once.over("server", "The server is told of placements again.")
            except (*AWAY, AccessError) as error:
                self._once.warn("server", f"The server cannot be told of placements: {error}")
                await asyncio.sleep(random.uniform(0.5, 1.0) * wait_s)
                wait_s = min(2.0 * wait_s, _LONGEST_WAIT_S)
                continue
            except Exception:
                log.exception("An error that was not foreseen, in telling of placements.")
                await asyncio.sleep(_LONGEST_WAIT_S)
                continue
            try:
                # Guesses have to be looked after even where nothing is seen.
                await asyncio.wait_for(self._work.wait(), timeout=1.0)
            except TimeoutError:
                continue
            self._work.clear()

    async def close(self) -> None:
        for task in list(self._guessing):
            task.cancel()
        await asyncio.gather(*self._guessing, return_exceptions=True)

    async def _tell(self) -> None:
        if self._listed_at is not None:
            await self._release_orphans(self._listed_at)
            self._listed_at = None
        while due := self._book.due():
            self._metrics.waiting.set(len(due))
            for start in range(0, len(due), _AT_ONCE):
                told = await asyncio.gather(
                    *(self._step(one) for one in due[start:][:_AT_ONCE]), return_exceptions=True
                )
                failed = [one for one in told if isinstance(one, BaseException)]
                if failed:
                    raise failed[0]
        self._metrics.waiting.set(0)
        while self._runs:
            await self._report(self._runs[0])
            self._runs.pop(0)

    async def _step(self, due: Due) -> None:
        pod = due.pod
        try:
            match due.step:
                case "reserve":
                    ttl_s = self._settings.start_ttl_s
                    await self._link.reserve(
                        pod.uid, pod.demand.app, pod.node, pod.demand.placement, ttl_s
                    )
                case "bind":
                    await self._link.bind(pod.uid, pod.demand.app, pod.node, pod.started_at)
                case "release":
                    await self._link.release(due.placement_id, pod.finished_at)
        except (*AWAY, AccessError):
            raise
        except KongmingError as error:
            # Another attempt would be refused as well: most often KONGMING does not know the node.
            self._metrics.told.labels(due.step, "refused").inc()
            log.debug("%s of %s was refused: %s", due.step, pod.title, error)
        else:
            self._metrics.told.labels(due.step, "done").inc()
        self._book.told(due)
        self._rankings.touched((pod.node,))

    async def _hold(self, placement_id: str, pod: Pod, ttl_s: float) -> None:
        try:
            await self._link.reserve(
                placement_id, pod.demand.app, pod.node, pod.demand.placement, ttl_s
            )
        except (KongmingError, TimeoutError) as error:
            self._metrics.told.labels("guess", "refused").inc()
            log.debug("%s could not be held for %s: %s", pod.node, pod.title, error)
            return
        self._metrics.told.labels("guess", "done").inc()
        self._rankings.touched((pod.node,))

    def _expire(self) -> None:
        for guess in self._book.expired(time.monotonic()):
            self._metrics.guesses.labels("expired").inc()
            self._rankings.touched((guess.pod.node,))

    async def _release_orphans(self, listed_at: float) -> None:
        await self._rankings.names()
        names = {self._rankings.id_of(name): name for name in self._nodes}
        held = {
            one.placement_id: (names[one.node_id], one.bound_at or one.reserved_at or 0.0)
            for one in await self._link.placements()
            if one.node_id in names
        }
        orphans = self._book.orphans([(one, node) for one, (node, _) in held.items()], self._nodes)
        for placement_id in orphans:
            if held[placement_id][1] > listed_at - _YOUNG_S:
                self._young = True
                continue
            try:
                await self._link.release(placement_id)
            except UnknownNameError:
                continue
            self._metrics.told.labels("release", "done").inc()

    async def _report(self, pod: Pod) -> None:
        """A pod's run: what was predicted when it started is held against it."""
        assert pod.started_at is not None
        assert pod.finished_at is not None
        app, node_id = pod.demand.app, self._rankings.id_of(pod.node)
        try:
            if app not in self._identities:
                known = await self._link.application(app)
                # How long it ran is no figure of an application with a metric of its own.
                timed = known.document.get("metric") is None
                self._identities[app] = known.identity if timed else ""
            if not self._identities[app]:
                self._metrics.runs.labels("unknown").inc()
                return
            if node_id is None:
                raise UnknownNameError("node", pod.node, ())
            took_s = pod.finished_at - pod.started_at
            run = Run(
                app=app,
                identity=self._identities[app],
                node_id=node_id,
                placement=pod.demand.placement or "cross-core",
                kind="environment",
                started_at=_iso(pod.started_at),
                wall_s=took_s,
                metric=took_s,
                warnings=("Kubernetes told its times to the second.",),
                config={"environment": "kubernetes", "pod": pod.title},
                # The same pod is the same run, whoever reports it and however often.
                id=pod.uid.replace("-", ""),
            )
            refused = await self._link.report_run(run, pod.uid)
        except (*AWAY, AccessError):
            raise
        except KongmingError as error:
            refused = str(error)
        if refused:
            log.debug("The run of %s was refused: %s", pod.title, refused)
        self._metrics.runs.labels("refused" if refused else "reported").inc()


def _iso(moment: float) -> str:
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
