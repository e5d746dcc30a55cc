"""Responses to requests of the scheduler. Where nothing is known, or anything fails, all
nodes pass with equal scores, and Kubernetes schedules as without an extender; but not a pod that
takes no unknown nodes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kongming_scheduling.async_client import ResidentSlowdown
from kongming_scheduling.log_throttle import LogThrottle
from kongming_scheduling.ranking_cache import NodeScore, NodeScores, RankingCache, RankingKey

from kongming.quantities import per_cent
from kongming.records.errors import CannotAnswerError, KongmingError
from kongming_extender import policy
from kongming_extender.answers import Answer, LastAnswers
from kongming_extender.coverage import Coverage
from kongming_extender.extender_config import Config
from kongming_extender.metrics import Metrics
from kongming_extender.pod_state import PodState
from kongming_extender.pods import SHOWN_CHARACTERS, Demand, Pod, demand_of, pod_of
from kongming_extender.protocol import ExtenderArgs, filter_result, priority_list
from kongming_extender.sync import AssignmentSync

log = logging.getLogger(__name__)

UNNAMED_APP = "kongming.dev/unnamed"
"""Stands for the application of a pod that names none: it was never profiled, so that its
ranking is that of the nodes' general slowdown."""

_GUESSES_S = 0.02
"""The longest that a request waits for the guesses of the pods before it."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Reason why no candidate is known, for the metric and the log; ``reason`` is empty where one
    is."""

    reason: str = ""
    text: str = ""


class Handlers:
    """``answers`` are the last ones to filter."""

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
        self._coverage = Coverage()
        self._refusals = LogThrottle(log, level=logging.INFO, lines_a_minute=60)
        self.answers = LastAnswers()

    async def filter(self, args: ExtenderArgs) -> bytes:
        """ExtenderFilterResult. A pod that names no application is refused nowhere."""
        self._sync.nodes_named(args.names)
        demand = self._demand(args)
        if not demand.app or args.no_candidates or not args.names:
            self._metrics.requests.labels("filter", "ranked").inc()
            return filter_result(args, {})
        deadline = asyncio.get_running_loop().time() + self._config.server.deadline_s
        scores, failure = await self._scores("filter", args, demand, deadline)
        answer = await self._answer(args, demand, scores, failure, deadline)
        for refusal, count in Counter(answer.refused.values()).items():
            self._metrics.refused.labels(refusal).inc(count)
        if failure.reason and len(answer.refused) < len(args.names):
            self._note_open("filter", failure)
        elif answer.unchecked:
            self._note_unchecked(len(answer.unchecked))
        elif failure.reason:
            self._metrics.requests.labels("filter", "closed").inc()
        else:
            self._note_ranked("filter")
            self._throttle.clear("residents", "The residents of nodes are known again.")
        if answer.pod.uid:
            self.answers.put(answer)
        if answer.refused:
            self._refusals.warn(answer.pod.uid or answer.pod.full_name, answer.summary)
        reasons = {kind: policy.reason(kind, demand.app, demand.limit) for kind in policy.REFUSALS}
        return filter_result(args, {name: reasons[kind] for name, kind in answer.refused.items()})

    async def prioritize(self, args: ExtenderArgs) -> bytes:
        """HostPriorityList."""
        demand = self._demand(args)
        if args.no_candidates or not args.names:
            self._metrics.requests.labels("prioritize", "ranked").inc()
            return priority_list((), ())
        deadline = asyncio.get_running_loop().time() + self._config.server.deadline_s
        scores, failure = await self._scores("prioritize", args, demand, deadline)
        if scores is None or failure.reason:
            self._note_open("prioritize", failure)
            return priority_list(args.names, [0] * len(args.names))
        self._note_ranked("prioritize")
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
    ) -> tuple[NodeScores | None, _Failure]:
        """The ranking of all nodes, and why nothing is known of the candidates; the ranking is None
        where there is none at all."""
        key = RankingKey(
            demand.app or UNNAMED_APP, demand.placement if demand.app else None, demand.stale
        )
        try:
            async with asyncio.timeout_at(deadline):
                if verb == "filter":
                    await self._sync.withdraw_guess(_uid(args))
                await self._sync.wait_for_guesses(_GUESSES_S)
                scores = await self._rankings.scores(key)
        except TimeoutError:
            latest = self._rankings.latest(key)
            if latest is None:
                return None, _Failure("late", "The server did not rank in time")
            scores = latest
        except CannotAnswerError as error:
            text = f"{key.app[:SHOWN_CHARACTERS]} cannot be ranked: {_phrase(error)}"
            return None, _Failure("untrained", text)
        except KongmingError as error:
            return None, _Failure("server", f"The server has no ranking: {_phrase(error)}")
        except Exception as error:
            log.error("Unexpected error.", exc_info=error)
            return None, _Failure("fault", "Unexpected error")
        self._metrics.ranking_age.set(self._rankings.age_s(scores))
        known = sum(name in scores.by_name for name in args.names)
        if verb == "filter" and scores.by_name:
            self._note_coverage(known, len(scores.by_name))
        if known:
            return scores, _Failure()
        text = f"KONGMING knows none of {len(args.names)} nodes, such as {args.names[0]}"
        return scores, _Failure("unknown", text)

    def _note_open(self, verb: str, failure: _Failure) -> None:
        self._metrics.failed_open.labels(failure.reason).inc()
        self._metrics.requests.labels(verb, "open").inc()
        text = f"{failure.text}: all nodes pass, with equal scores."
        self._throttle.warn(failure.reason, text)

    def _note_unchecked(self, count: int) -> None:
        """Nodes pass whose residents might be slowed beyond their limits."""
        self._metrics.failed_open.labels("residents").inc()
        self._metrics.requests.labels("filter", "open").inc()
        self._throttle.warn(
            "residents",
            f"The server has not said how much pods on {count} nodes would be slowed. "
            "No other node passes: these nodes pass.",
        )

    def _note_ranked(self, verb: str) -> None:
        self._metrics.requests.labels(verb, "ranked").inc()
        for problem in ("late", "server", "unknown", "fault"):
            self._throttle.clear(problem, "Nodes are ranked again.")

    def _note_coverage(self, named: int, known: int) -> None:
        self._metrics.share.observe(self._coverage.add(named, known))
        if self._coverage.low:
            self._throttle.warn(
                "coverage",
                f"Of {known} known nodes the scheduler shows no more than "
                f"{per_cent(100.0 * self._coverage.greatest, '.0f')} for a pod, so that the best "
                "may not be "
                "among them. Set percentageOfNodesToScore: 100 in its configuration, unless no pod "
                "fits more nodes.",
            )
        else:
            self._throttle.clear("coverage", "The scheduler shows most of the known nodes again.")

    async def _answer(
        self,
        args: ExtenderArgs,
        demand: Demand,
        scores: NodeScores | None,
        failure: _Failure,
        deadline: float,
    ) -> Answer:
        """Return which nodes are refused, with the numbers."""
        by_name: Mapping[str, NodeScore] = {} if scores is None else scores.by_name
        candidates = {name: by_name.get(name) for name in args.names}
        # Without a model of the application its own slowdown is not known.
        judged = scores is not None and scores.basis == "model"
        refused: dict[str, policy.Refusal] = {}
        residents: dict[str, tuple[policy.Resident, ResidentSlowdown]] = {}
        unchecked: list[str] = []
        if scores is not None and judged and not failure.reason:
            refused = policy.over_limit(args.names, by_name, demand.limit)
            residents, unchecked = await self._residents_over_limit(
                args.names, refused, demand, scores, deadline
            )
            refused |= dict.fromkeys(residents, "resident")
            if demand.limit:
                best = min(node.slowdown for node in candidates.values() if node is not None)
                self._metrics.over_limit.observe(best / demand.limit)
        # A fault of the extender keeps no pod from being scheduled.
        if failure.reason != "fault":
            refused |= policy.unknown_nodes(args.names, by_name, demand, refused, judged=judged)
        others = {*args.names}.difference(unchecked) if unchecked else ()
        if any(name not in refused for name in others):
            refused |= dict.fromkeys(unchecked, "resident")
            unchecked = []
        return Answer(
            pod=pod_of(args.pod) or _nameless(demand),
            scores=candidates,
            refused=refused,
            residents=residents,
            unchecked=unchecked,
            judged=judged,
            failure=failure.text,
        )

    async def _residents_over_limit(
        self,
        names: Sequence[str],
        refused: Collection[str],
        demand: Demand,
        scores: NodeScores,
        deadline: float,
    ) -> tuple[dict[str, tuple[policy.Resident, ResidentSlowdown]], list[str]]:
        """Find, by node that is not refused yet, a resident that would exceed its limit, and its
        slowdown; and the nodes where some resident would, but there was no answer which."""
        residents = self._pods.residents_with_limits
        if not residents:
            return {}, []
        passing = [name for name in names if name in residents and name not in refused]
        to_check = policy.nodes_to_check(passing, scores.by_name, residents)
        if not to_check:
            return {}, []
        key = RankingKey(demand.app, demand.placement, demand.stale)
        try:
            async with asyncio.timeout_at(deadline):
                await self._rankings.look_up_impacts(key, scores, to_check)
        except (KongmingError, TimeoutError) as error:
            log.debug("Impacts on residents could not be looked up: %s", error)
        over_limits = {
            name: over_limit
            for name in to_check
            if (
                over_limit := policy.resident_over_limit(
                    scores.impacts.get(name, {}), residents.get(name, {})
                )
            )
        }
        return over_limits, [name for name in to_check if name not in scores.impacts]

    def _guess(self, args: ExtenderArgs, demand: Demand, priorities: Sequence[int]) -> None:
        """Hold the best node until the pod is seen bound, so that the next pods are not sent there
        as well. Where several are the best the scheduler draws among them, which spreads pods."""
        best = policy.single_best(args.names, priorities)
        pod = pod_of(args.pod)
        if demand.app and best is not None and len(args.names) > 1 and pod is not None:
            self._sync.guess(pod, best)


def _phrase(error: KongmingError) -> str:
    """Turn an error's message into a phrase within a sentence."""
    return str(error).rstrip(".")


def _uid(args: ExtenderArgs) -> str:
    metadata = args.pod.get("metadata")
    return str(metadata.get("uid", "")) if isinstance(metadata, Mapping) else ""


def _nameless(demand: Demand) -> Pod:
    """A pod without a UID, as somebody who tries requests by hand may write it."""
    return Pod(uid="", namespace="", name="", demand=demand)
