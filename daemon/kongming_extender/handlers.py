"""From a request of the scheduler to its response. Where nothing is known, or anything fails, all
nodes pass with equal scores, and Kubernetes schedules as without an extender."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from kongming_scheduling.log_throttle import LogThrottle
from kongming_scheduling.ranking_cache import NodeScores, RankingCache, RankingKey

from kongming.records.errors import CannotAnswerError, KongmingError
from kongming_extender import policy
from kongming_extender.config import Config
from kongming_extender.metrics import Metrics
from kongming_extender.pod_state import PodState
from kongming_extender.pods import SHOWN_CHARACTERS, Demand, demand_of, pod_of
from kongming_extender.protocol import ExtenderArgs, filter_result, priority_list
from kongming_extender.sync import AssignmentSync

log = logging.getLogger(__name__)

UNNAMED_APP = "kongming.dev/unnamed"
"""Stands for the application of a pod that names none: it was never profiled, so that its
ranking is that of the nodes' general slowdown."""

_GUESSES_S = 0.02
"""The longest that a request waits for the guesses of the pods before it."""


class Handlers:
    def __init__(
        self,
        rankings: RankingCache,
        pods: PodState,
        sync: AssignmentSync,
        config: Config,
        metrics: Metrics,
    ) -> None:
        self._rankings = rankings
        self._pods = pods
        self._sync = sync
        self._config = config
        self._metrics = metrics
        self._throttle = LogThrottle(log)

    async def filter(self, args: ExtenderArgs) -> bytes:
        """ExtenderFilterResult. A pod that names no application is refused nowhere."""
        demand = self._demand(args)
        if not demand.app or args.no_candidates or not args.names:
            self._metrics.requests.labels("filter", "ranked").inc()
            return filter_result(args, {})
        failed: Mapping[str, str] = {}
        deadline = asyncio.get_running_loop().time() + self._config.server.deadline_s
        scores = await self._scores("filter", args, demand, deadline)
        # Without a model of the application its own slowdown is not known.
        if scores is not None and scores.basis == "model":
            failed = await self._refused(args.names, demand, scores, deadline)
        return filter_result(args, failed)

    async def prioritize(self, args: ExtenderArgs) -> bytes:
        """HostPriorityList."""
        demand = self._demand(args)
        if args.no_candidates or not args.names:
            self._metrics.requests.labels("prioritize", "ranked").inc()
            return priority_list((), ())
        deadline = asyncio.get_running_loop().time() + self._config.server.deadline_s
        scores = await self._scores("prioritize", args, demand, deadline)
        if scores is None:
            return priority_list(args.names, [0] * len(args.names))
        priorities = policy.priorities(args.names, scores.by_name, self._config.ranking.steep)
        self._guess(args, demand, priorities)
        return priority_list(args.names, priorities)

    def _demand(self, args: ExtenderArgs) -> Demand:
        demand = demand_of(args.pod)
        if demand.problems:
            self._metrics.annotations.inc()
            names = [problem.partition(" ")[0] for problem in demand.problems]
            text = f"Annotations are ignored: {'; '.join(demand.problems)}."
            # By annotation and not by text, of which users can write any number.
            self._throttle.warn(f"annotations {' '.join(names)}", text)
        return demand

    async def _scores(
        self, verb: str, args: ExtenderArgs, demand: Demand, deadline: float
    ) -> NodeScores | None:
        """None where nothing is known of any candidate, which is counted and logged."""
        key = RankingKey(
            demand.app or UNNAMED_APP, demand.placement if demand.app else None, demand.stale
        )
        reason, text = "", ""
        scores: NodeScores | None = None
        try:
            async with asyncio.timeout_at(deadline):
                if verb == "filter":
                    await self._sync.withdraw_guess(_uid(args))
                await self._sync.wait_for_guesses(_GUESSES_S)
                scores = await self._rankings.scores(key)
            self._metrics.ranking_age.set(self._rankings.age_s(scores))
        except TimeoutError:
            reason, text = "late", "The server did not rank in time"
        except CannotAnswerError as error:
            reason, text = "untrained", f"{key.app[:SHOWN_CHARACTERS]} cannot be ranked: {error}"
        except KongmingError as error:
            reason, text = "server", f"The server has no ranking: {error}"
        except Exception as error:
            reason, text = "fault", "Unexpected error"
            log.error("Unexpected error.", exc_info=error)
        if scores is not None and not any(name in scores.by_name for name in args.names):
            scores, reason = None, "unknown"
            text = f"KONGMING knows none of {len(args.names)} nodes, such as {args.names[0]}"
        if scores is None:
            self._metrics.failed_open.labels(reason).inc()
            self._metrics.requests.labels(verb, "open").inc()
            self._throttle.warn(reason, f"{text}: all nodes pass, with equal scores.")
            return None
        self._metrics.requests.labels(verb, "ranked").inc()
        for problem in ("late", "server", "unknown", "fault"):
            self._throttle.clear(problem, "Nodes are ranked again.")
        return scores

    async def _refused(
        self, names: Sequence[str], demand: Demand, scores: NodeScores, deadline: float
    ) -> dict[str, str]:
        failed = policy.over_limit(names, scores.by_name, demand.app, demand.limit)
        self._metrics.refused.labels("limit").inc(len(failed))
        residents = self._pods.residents_with_limits
        if not residents:
            return failed
        passing = [name for name in names if name in residents and name not in failed]
        to_check = policy.nodes_to_check(passing, scores.by_name, residents)
        if not to_check:
            return failed
        key = RankingKey(demand.app, demand.placement, demand.stale)
        try:
            async with asyncio.timeout_at(deadline):
                await self._rankings.look_up_impacts(key, scores, to_check)
        except (KongmingError, TimeoutError) as error:
            log.debug("Impacts on residents could not be looked up: %s", error)
        for name in to_check:
            impacts = scores.impacts.get(name, {})
            reason = policy.resident_over_limit(impacts, residents[name], demand.app)
            if reason is not None:
                failed[name] = reason
                self._metrics.refused.labels("resident").inc()
        return failed

    def _guess(self, args: ExtenderArgs, demand: Demand, priorities: Sequence[int]) -> None:
        """Hold the best node until the pod is seen bound, so that the next pods are not sent there
        as well. Where several are the best the scheduler draws among them, which spreads pods."""
        best = policy.single_best(args.names, priorities)
        pod = pod_of(args.pod)
        if demand.app and best is not None and len(args.names) > 1 and pod is not None:
            self._sync.guess(pod, best)


def _uid(args: ExtenderArgs) -> str:
    metadata = args.pod.get("metadata")
    return str(metadata.get("uid", "")) if isinstance(metadata, Mapping) else ""
