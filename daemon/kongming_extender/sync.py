"""Assignments and finished runs are sent to the server by a task, which retries failures."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from kongming_scheduling.async_client import TRANSIENT, AsyncClient
from kongming_scheduling.log_throttle import LogThrottle
from kongming_scheduling.ranking_cache import RankingCache

from kongming.records import moments
from kongming.records.answers import ApplicationReport, Assignment
from kongming.records.errors import AccessError, KongmingError, UnknownNameError
from kongming.records.questions import placement_or_default
from kongming.records.run import Run
from kongming.rpc import calls
from kongming_extender.extender_config import Assignments as Settings
from kongming_extender.metrics import Metrics
from kongming_extender.pod_state import Changes, PodState, Update, is_guess
from kongming_extender.pods import Pod

log = logging.getLogger(__name__)

_CONCURRENT_CALLS = 16
_LONGEST_WAIT_S = 5.0
_YOUNG_S = 60.0
"""An assignment that began less than this before the pods were listed may be of a pod that came
after them: clocks differ."""
_APPLICATION_S = 60.0
"""How long an application is taken to be as it was defined."""
_MAX_RUNS = 1000
"""Finished runs that wait for the server, at the most: the oldest are dropped."""
_MANY_NODES = 50_000
"""Names of nodes, ten times as many as a cluster has, from which on those are forgotten that the
server does not know: a user may give a pod any, and clusters that grow and shrink have new ones."""


class AssignmentSync:
    """Keeps the pod state up to date with pods, and the server with the pod state."""

    def __init__(
        self,
        pods: PodState,
        client: AsyncClient,
        rankings: RankingCache,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._pods = pods
        self._client = client
        self._rankings = rankings
        self._settings = settings
        self._metrics = metrics
        self._throttle = LogThrottle(log)
        self._changed = asyncio.Event()
        self._guesses: set[asyncio.Task[None]] = set()
        self._runs: list[Pod] = []
        self._applications: dict[str, tuple[float, ApplicationReport]] = {}
        self._nodes: set[str] = set()
        self._listed_at: float | None = None
        self._undecided_orphans = False

    # -- events of pods, as PodListener has them -----------------------------------------------

    def pods_listed(self, pods: list[Pod], at: float) -> None:
        self._add_nodes({pod.node for pod in pods if pod.node})
        self._take_in(self._pods.replace_all(pods, at))
        # Some may have ended while pods were not watched.
        self._listed_at = at

    def pod_changed(self, pod: Pod) -> None:
        if pod.node and pod.node not in self._nodes:
            self._add_nodes((pod.node,))
        self._take_in([self._pods.put(pod)])

    def pod_deleted(self, pod: Pod) -> None:
        self._take_in([self._pods.put(pod), self._pods.delete(pod.uid, time.time())])

    def nodes_named(self, names: Collection[str]) -> None:
        """Take in nodes of this cluster, which may have assignments and no pods: those ended while
        pods were not watched."""
        if not self._nodes.issuperset(names):
            self._add_nodes(names)
            self._undecided_orphans = True

    def _add_nodes(self, names: Collection[str]) -> None:
        self._nodes.update(names)
        # A list of pods is followed by a look at all nodes that the server knows.
        self._undecided_orphans |= len(self._nodes) > _MANY_NODES

    def relist_needed(self) -> bool:
        """Return whether some assignments may be orphans, or of another extender's latest pods."""
        undecided, self._undecided_orphans = self._undecided_orphans, False
        return undecided

    # -- guesses -------------------------------------------------------------------------------

    def guess(self, pod: Pod, node: str) -> None:
        """``node`` will most likely be chosen: hold it until that is known."""
        ttl_s = self._settings.guess_ttl_s
        guess = self._pods.guess(pod, node, time.monotonic() + ttl_s) if ttl_s else None
        if guess is None:
            return
        task = asyncio.create_task(self._reserve_guess(guess.assignment_id, guess.pod, ttl_s))
        self._guesses.add(task)
        task.add_done_callback(self._guesses.discard)

    async def withdraw_guess(self, uid: str) -> None:
        """A pod is asked about again: what is held for it must not count as its neighbour."""
        guess = self._pods.withdraw_guess(uid)
        if guess is None:
            return
        await self.wait_for_guesses(1.0)
        # Where the server is away it is released with all else that waits: the pod is judged by the
        # ranking that there is.
        if not self._client.paused:
            with suppress(*TRANSIENT, AccessError):
                await self._send(Update("release", guess.assignment_id, guess.pod))

    async def wait_for_guesses(self, longest_s: float) -> None:
        """Wait for guesses that are being sent, but not for long."""
        if self._guesses:
            await asyncio.wait(list(self._guesses), timeout=longest_s)

    async def _reserve_guess(self, assignment_id: str, pod: Pod, ttl_s: float) -> None:
        try:
            await self._client.send(_reserve(assignment_id, pod, ttl_s))
        except (KongmingError, TimeoutError) as error:
            self._metrics.assignments.labels("guess", "refused").inc()
            log.debug("%s could not be held for %s: %s", pod.node, pod.full_name, error)
            return
        self._metrics.assignments.labels("guess", "done").inc()
        self._rankings.invalidate((pod.node,))

    def _take_in(self, all_changes: Iterable[Changes]) -> None:
        for changes in all_changes:
            self._rankings.invalidate(changes.nodes)
            self._metrics.guesses.labels("right").inc(changes.right_guesses)
            self._metrics.guesses.labels("wrong").inc(changes.wrong_guesses)
            if self._settings.runs:
                self._runs += [pod for pod in changes.finished if self._is_reportable(pod)]
        del self._runs[:-_MAX_RUNS]
        self._metrics.pods.set(len(self._pods))
        self._changed.set()

    def _is_reportable(self, pod: Pod) -> bool:
        outcome = ""
        if pod.phase != "Succeeded" or pod.exit_status or pod.restarts:
            outcome = "failed"
        elif pod.started_at is None or pod.finished_at is None:
            outcome = "unknown"
        elif pod.finished_at - pod.started_at < self._settings.least_run_s:
            outcome = "short"
        if outcome:
            self._metrics.runs.labels(outcome).inc()
        return not outcome

    # -- updates of the server -----------------------------------------------------------------

    async def run(self) -> None:
        """Send updates until it is cancelled."""
        wait_s = 0.2
        while True:
            try:
                self._expire_guesses()
                await self._send_pending()
                wait_s = 0.2
                self._throttle.clear("server", "Assignments are sent to the server again.")
            except (*TRANSIENT, AccessError) as error:
                self._throttle.warn("server", f"Assignments cannot be sent to the server: {error}")
                await asyncio.sleep(random.uniform(0.5, 1.0) * wait_s)
                wait_s = min(2.0 * wait_s, _LONGEST_WAIT_S)
                continue
            except Exception:
                log.exception("Unexpected error in sending assignments.")
                await asyncio.sleep(_LONGEST_WAIT_S)
                continue
            try:
                # Guesses expire even where no pod changes.
                # Not `wait_for`: Python 3.11's forgets that it was cancelled just after a change.
                async with asyncio.timeout(1.0):
                    await self._changed.wait()
            except TimeoutError:
                continue
            self._changed.clear()

    async def close(self) -> None:
        for task in list(self._guesses):
            task.cancel()
        await asyncio.gather(*self._guesses, return_exceptions=True)

    async def _send_pending(self) -> None:
        if self._listed_at is not None:
            await self._release_orphans(self._listed_at)
            self._listed_at = None
        while updates := self._pods.pending():
            self._metrics.waiting.set(len(updates))
            for start in range(0, len(updates), _CONCURRENT_CALLS):
                results = await asyncio.gather(
                    *(self._send(update) for update in updates[start:][:_CONCURRENT_CALLS]),
                    return_exceptions=True,
                )
                failures = [result for result in results if isinstance(result, BaseException)]
                if failures:
                    raise failures[0]
        self._metrics.waiting.set(0)
        while self._runs:
            await self._report_run(pod := self._runs[0])
            # The oldest may have been dropped meanwhile.
            with suppress(ValueError):
                self._runs.remove(pod)

    async def _send(self, update: Update) -> None:
        pod = update.pod
        self._pods.note_sent(update)
        try:
            match update.action:
                case "reserve":
                    await self._client.send(_reserve(pod.uid, pod, self._settings.start_ttl_s))
                case "bind":
                    await self._client.send(
                        calls.bind(
                            pod.uid, app=pod.demand.app, node=pod.node, started_at=pod.started_at
                        )
                    )
                case "release":
                    await self._client.send(
                        calls.release(update.assignment_id, ended_at=pod.finished_at)
                    )
        except (*TRANSIENT, AccessError):
            raise
        except KongmingError as error:
            # Another attempt would be refused as well: most often KONGMING does not know the node.
            self._metrics.assignments.labels(update.action, "refused").inc()
            log.debug("%s of %s was refused: %s", update.action, pod.full_name, error)
        else:
            self._metrics.assignments.labels(update.action, "done").inc()
        self._pods.acknowledge(update)
        self._rankings.invalidate((pod.node,))

    def _expire_guesses(self) -> None:
        for guess in self._pods.expire_guesses(time.monotonic()):
            self._metrics.guesses.labels("expired").inc()
            self._rankings.invalidate((guess.pod.node,))

    async def _release_orphans(self, listed_at: float) -> None:
        await self._rankings.list_nodes()
        if len(self._nodes) > _MANY_NODES:
            # What the server does not know has no assignments.
            self._nodes &= {name for _, name in await self._rankings.all_nodes()}
        names = {self._rankings.node_id(name): name for name in self._nodes}
        assignments = await self._client.send(calls.list_assignments())
        others = [(each.assignment_id, each.node_id) for each in assignments]
        others = [(id_, node_id) for id_, node_id in others if node_id not in names]
        if self._pods.orphans(others, {node_id for _, node_id in others}):
            # A node that is silent or in quarantine may lose its pods, too.
            listed = await self._rankings.all_nodes()
            names |= {node_id: name for node_id, name in listed if name in self._nodes}
        held = {each.assignment_id: each for each in assignments if each.node_id in names}
        by_node = [(id_, names[assignment.node_id]) for id_, assignment in held.items()]
        for assignment_id in self._pods.orphans(by_node, self._nodes):
            assignment = held[assignment_id]
            begun_at = assignment.bound_at or assignment.reserved_at or 0.0
            if begun_at > listed_at - _YOUNG_S:
                # Guesses end by themselves, and of several extenders one always has some.
                self._undecided_orphans |= not is_guess(assignment_id)
                continue
            try:
                await self._client.send(calls.release(assignment_id))
            except UnknownNameError:
                continue
            self._metrics.assignments.labels("release", "done").inc()

    async def _report_run(self, pod: Pod) -> None:
        """Report a pod's run: it is compared with what was predicted when it started."""
        assert pod.started_at is not None
        assert pod.finished_at is not None
        app, node_id = pod.demand.app, self._rankings.node_id(pod.node)
        try:
            application = await self._application(app)
            if application.document.get("metric") is not None:
                # It is not judged by its wall time.
                self._metrics.runs.labels("unknown").inc()
                return
            if node_id is None:
                raise UnknownNameError("node", pod.node, ())
            took_s = pod.finished_at - pod.started_at
            run = Run(
                app=app,
                identity=application.identity,
                node_id=node_id,
                placement=placement_or_default(pod.demand.placement, application.trained),
                kind="environment",
                started_at=moments.format(pod.started_at),
                wall_s=took_s,
                metric=took_s,
                warnings=("Kubernetes gives its times to the second.",),
                config={"environment": "kubernetes", "pod": pod.full_name},
                # The same pod is the same run, whoever reports it and however often.
                id=pod.uid.replace("-", ""),
            )
            refused = await self._client.send(calls.report_run(run, pod.uid))
        except (*TRANSIENT, AccessError):
            raise
        except KongmingError as error:
            refused = str(error)
        if refused:
            log.debug("The run of %s was refused: %s", pod.full_name, refused)
        self._metrics.runs.labels("refused" if refused else "reported").inc()

    async def _application(self, app: str) -> ApplicationReport:
        """The application as it was defined a moment ago."""
        asked_at, application = self._applications.get(app, (-math.inf, None))
        if application is None or time.monotonic() - asked_at > _APPLICATION_S:
            application = await self._client.send(calls.get_application(app))
            self._applications[app] = time.monotonic(), application
        return application


def _reserve(assignment_id: str, pod: Pod, ttl_s: float) -> calls.Call[Assignment]:
    return calls.reserve(
        assignment_id, pod.demand.app, pod.node, placement=pod.demand.placement, ttl_s=ttl_s
    )
