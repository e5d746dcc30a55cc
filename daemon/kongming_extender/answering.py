"""From a request of the scheduler to its answer, whatever happens: where nothing can be said, all
nodes pass with equal scores, and Kubernetes schedules as if nobody had been asked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from kongming.errors import CannotAnswerError, KongmingError
from kongming_extender import deciding
from kongming_extender.book import Book
from kongming_extender.config import Config
from kongming_extender.metrics import Metrics
from kongming_extender.once import Once
from kongming_extender.pods import Demand, demand_of, pod_of
from kongming_extender.protocol import Args, filter_result, priority_list
from kongming_extender.rankings import UNNAMED, Key, Rankings, Table
from kongming_extender.telling import Teller

log = logging.getLogger(__name__)

_SETTLE_S = 0.02
"""The longest that an answer waits for guesses of the pods before it."""


class Answerer:
    def __init__(
        self, rankings: Rankings, book: Book, teller: Teller, config: Config, metrics: Metrics
    ) -> None:
        self._rankings = rankings
        self._book = book
        self._teller = teller
        self._config = config
        self._metrics = metrics
        self._once = Once(log)

    async def filter(self, args: Args) -> bytes:
        """ExtenderFilterResult. Pods that name no application are refused nowhere."""
        demand = self._demand(args)
        if not demand.app or args.nothing or not args.names:
            self._metrics.requests.labels("filter", "ranked").inc()
            return filter_result(args, {})
        failed: Mapping[str, str] = {}
        deadline = time.monotonic() + self._config.server.deadline_s
        table = await self._table("filter", args, demand, deadline)
        # Without a model of the application nothing says that it would be slower than it may.
        if table is not None and table.basis == "model":
            failed = await self._refused(args.names, demand, table, deadline)
        return filter_result(args, failed)

    async def prioritize(self, args: Args) -> bytes:
        """HostPriorityList."""
        demand = self._demand(args)
        if args.nothing or not args.names:
            self._metrics.requests.labels("prioritize", "ranked").inc()
            return priority_list((), ())
        deadline = time.monotonic() + self._config.server.deadline_s
        table = await self._table("prioritize", args, demand, deadline)
        if table is None:
            return priority_list(args.names, [0] * len(args.names))
        points = deciding.points(args.names, table.rows, self._config.ranking.steep)
        self._hold(args, demand, points)
        return priority_list(args.names, points)

    def _demand(self, args: Args) -> Demand:
        demand = demand_of(args.pod)
        if demand.wrong:
            self._metrics.annotations.inc()
            self._once.warn(f"wrong {demand.wrong}", f"Not understood: {'; '.join(demand.wrong)}.")
        return demand

    async def _table(self, verb: str, args: Args, demand: Demand, deadline: float) -> Table | None:
        """None where nothing is known of any candidate: counted, and said once."""
        key = Key(demand.app or UNNAMED, demand.placement if demand.app else None, demand.stale)
        why, text = "", ""
        table: Table | None = None
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                if verb == "filter":
                    await self._teller.take_back(_uid(args))
                await self._teller.settled(_SETTLE_S)
                table = await self._rankings.table(key)
        except TimeoutError:
            why, text = "late", "The server did not rank in time"
        except CannotAnswerError as error:
            why, text = "untrained", f"{key.app} cannot be ranked: {error}"
        except KongmingError as error:
            why, text = "server", f"The server cannot be asked: {error}"
        except Exception as error:
            why, text = "fault", "An error that was not foreseen"
            log.error("An error that was not foreseen.", exc_info=error)
        if table is not None and not any(name in table.rows for name in args.names):
            table, why = None, "unknown"
            text = f"KONGMING knows none of {len(args.names)} nodes, as {args.names[0]}"
        if table is None:
            self._metrics.opened.labels(why).inc()
            self._metrics.requests.labels(verb, "open").inc()
            self._once.warn(why, f"{text}: all nodes pass, with equal scores.")
            return None
        self._metrics.requests.labels(verb, "ranked").inc()
        if why == "":
            for reason in ("late", "server", "unknown", "fault"):
                self._once.over(reason, "Nodes are ranked again.")
        return table

    async def _refused(
        self, names: Sequence[str], demand: Demand, table: Table, deadline: float
    ) -> dict[str, str]:
        failed = deciding.over_limit(names, table.rows, demand.app, demand.limit)
        self._metrics.refused.labels("limit").inc(len(failed))
        limited = self._book.limited
        if not limited:
            return failed
        left = [name for name in names if name in limited and name not in failed]
        doubtful = deciding.in_doubt(left, table.rows, limited)
        if not doubtful:
            return failed
        key = Key(demand.app, demand.placement, demand.stale)
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                await self._rankings.impacts(key, table, doubtful)
        except (KongmingError, TimeoutError) as error:
            log.debug("Residents could not be looked at: %s", error)
        for name in doubtful:
            reason = deciding.harmed(table.impacts.get(name, {}), limited[name], demand.app)
            if reason is not None:
                failed[name] = reason
                self._metrics.refused.labels("resident").inc()
        return failed

    def _hold(self, args: Args, demand: Demand, points: Sequence[int]) -> None:
        """Hold the best node until the pod is seen somewhere, so that the next pods are not sent
        there as well. Where several are the best the scheduler draws one, and nobody herds."""
        best = deciding.outstanding(args.names, points)
        pod = pod_of(args.pod)
        if demand.app and best is not None and len(args.names) > 1 and pod is not None:
            self._teller.guess(pod, best)


def _uid(args: Args) -> str:
    metadata = args.pod.get("metadata")
    return str(metadata.get("uid", "")) if isinstance(metadata, Mapping) else ""


def _loop_time(deadline: float) -> float:
    """A monotonic time as the event loop counts it."""
    return asyncio.get_running_loop().time() + deadline - time.monotonic()
