"""Pods as they come and go: list once, watch from there, list again where changes were missed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from kongming.errors import KongmingError
from kongming_extender.api import BrokenOffError, GoneError, PodsApi
from kongming_extender.config import Pods as Settings
from kongming_extender.metrics import Metrics
from kongming_extender.once import Once
from kongming_extender.pods import Pod, pod_of

log = logging.getLogger(__name__)

_FIRST_RETRY_S = 0.2
_BRIEF_S = 1.0
"""A watch that ended sooner than this did not do well: the next attempt waits."""


class PodWatch:
    """``listed`` is called with all pods and when that was (unix seconds), ``changed`` with each
    that is new or differs, ``gone`` with the last state of one that was deleted; all in one task.
    ``again`` says, where a watch has ended, that all are to be listed anew. Raises as ``PodsApi``.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        *,
        listed: Callable[[list[Pod], float], None],
        changed: Callable[[Pod], None],
        gone: Callable[[Pod], None],
        again: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._api = PodsApi(settings)
        self._metrics = metrics
        self._on_listed = listed
        self._on_changed = changed
        self._on_gone = gone
        self._again = again
        self._once = Once(log)
        self.tried = asyncio.Event()
        """Set once pods were listed, or could not be."""

    async def run(self) -> None:
        """Until it is cancelled."""
        version, cause, wait_s = "", "start", _FIRST_RETRY_S
        async with self._api as api:
            while True:
                begun = time.monotonic()
                try:
                    if not version:
                        self._metrics.relists.labels(cause).inc()
                        version = await self._list(api)
                        self._once.over("pods", "Pods are watched again.")
                        wait_s = _FIRST_RETRY_S
                    version = await self._watch(api, version)
                    if self._again():
                        version, cause = "", "doubt"
                    if time.monotonic() - begun > _BRIEF_S:
                        wait_s = _FIRST_RETRY_S
                        continue
                except GoneError:
                    version, cause = "", "gone"
                    log.info("Changes of pods were missed: listing all again.")
                except KongmingError as error:
                    self._once.warn("pods", f"Pods cannot be watched: {error}")
                    self.tried.set()
                    if version and time.monotonic() - begun > _BRIEF_S:
                        wait_s = _FIRST_RETRY_S
                    if not version:
                        cause = "error"
                except Exception:
                    log.exception("An error that was not foreseen: listing all pods again.")
                    version, cause = "", "error"
                    self.tried.set()
                finally:
                    self._metrics.watching.set(0)
                # Many extenders must not come back at the same moment.
                await asyncio.sleep(random.uniform(0.5, 1.0) * wait_s)
                wait_s = min(2.0 * wait_s, self._settings.longest_retry_s)

    async def _list(self, api: PodsApi) -> str:
        begun = time.time()
        found = await api.list()
        pods = [pod for pod in map(pod_of, found.pods) if pod is not None]
        self._on_listed(pods, begun)
        self.tried.set()
        return found.version

    async def _watch(self, api: PodsApi, version: str) -> str:
        """Returns the version to go on from. One that breaks off has lost nothing: what was told
        so far was taken in, and the next watch begins before it."""
        self._metrics.watching.set(1)
        try:
            async for event in api.watch(version):
                self._metrics.events.labels(event.kind).inc()
                version = event.version or version
                self._once.over("pods", "Pods are watched again.")
                if event.kind == "BOOKMARK":
                    continue
                pod = pod_of(event.object)
                if pod is None:
                    continue
                if event.kind == "DELETED":
                    self._on_gone(pod)
                else:
                    self._on_changed(pod)
        except BrokenOffError as error:
            log.debug("The watch ended: %s", error)
        return version
