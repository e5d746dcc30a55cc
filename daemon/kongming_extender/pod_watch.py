"""Pods as they come and go: list once, watch from there, list again where changes were missed."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Literal, Protocol

from kongming_scheduling.log_throttle import LogThrottle

from kongming.backoff import Backoff
from kongming.records.errors import KongmingError
from kongming_extender.extender_config import Pods as Settings
from kongming_extender.kube_api import GoneError, InterruptedWatchError, PodApi
from kongming_extender.metrics import Metrics
from kongming_extender.pods import Pod, pod_of

log = logging.getLogger(__name__)

_FIRST_RETRY_S = 0.2
_RECHECK_S = 75.0
"""So long after a list a watch ends, that the listener may ask for another one: assignments that
began shortly before a list are left alone until then."""
_BRIEF_S = 1.0
"""After a watch that ended sooner than this the next attempt waits."""


class PodListener(Protocol):
    """Methods that PodWatch calls, all in the same task."""

    def pods_listed(self, pods: list[Pod], at: float) -> None:
        """All pods that there were at a moment (unix seconds)."""

    def pod_changed(self, pod: Pod) -> None:
        """A pod is new, or differs."""

    def pod_deleted(self, pod: Pod) -> None:
        """A pod was deleted; this is its last state."""

    def relist_needed(self) -> bool:
        """Return whether all pods are to be listed again; asked when a watch has ended."""


class PodWatch:
    """Raises as ``PodApi``."""

    def __init__(self, settings: Settings, metrics: Metrics, listener: PodListener) -> None:
        self._settings = settings
        self._api = PodApi(settings)
        self._metrics = metrics
        self._listener = listener
        self._throttle = LogThrottle(log)
        self.attempted = asyncio.Event()
        """Set once pods were listed, or could not be."""
        self._connected = False
        self._recheck_at = 0.0

    @property
    def state(self) -> Literal["connected", "away"]:
        """Return whether pods are watched at this moment."""
        return "connected" if self._connected else "away"

    async def run(self) -> None:
        """Watch until it is cancelled."""
        version, cause = "", "start"
        backoff = Backoff(_FIRST_RETRY_S, self._settings.longest_retry_s)
        async with self._api as api:
            while True:
                begun = time.monotonic()
                try:
                    if not version:
                        self._metrics.relists.labels(cause).inc()
                        version = await self._list(api)
                        self._throttle.clear("pods", "Pods are watched again.")
                        backoff.after_success()
                    version = await self._watch(api, version)
                    if self._listener.relist_needed():
                        version, cause = "", "recheck"
                    if time.monotonic() - begun > _BRIEF_S:
                        backoff.after_success()
                        continue
                except GoneError:
                    version, cause = "", "gone"
                    log.info("Changes of pods were missed: listing all again.")
                except KongmingError as error:
                    self._throttle.warn("pods", f"Pods cannot be watched: {error}")
                    self.attempted.set()
                    if version and time.monotonic() - begun > _BRIEF_S:
                        backoff.after_success()
                    if not version:
                        cause = "error"
                except Exception:
                    log.exception("Unexpected error: listing all pods again.")
                    version, cause = "", "error"
                    self.attempted.set()
                finally:
                    self._note_connected(False)
                await asyncio.sleep(backoff.after_failure())

    def _note_connected(self, connected: bool) -> None:
        self._connected = connected
        self._metrics.watching.set(connected)

    async def _list(self, api: PodApi) -> str:
        begun = time.time()
        version = ""
        pods: list[Pod] = []
        async for page in api.pages():
            version = page.version
            pods += [pod for pod in map(pod_of, page.pods) if pod is not None]
        self._listener.pods_listed(pods, begun)
        self._recheck_at = time.monotonic() + _RECHECK_S
        self.attempted.set()
        return version

    async def _watch(self, api: PodApi, version: str) -> str:
        """The resource version to resume from. A watch that is interrupted has lost nothing: the
        events before that are taken in, and the next watch begins after them."""
        longest_s, left_s = self._settings.renew_s, self._recheck_at - time.monotonic()
        if left_s > 0:
            longest_s = min(longest_s, left_s)
        try:
            async for event in api.watch(version, longest_s, lambda: self._note_connected(True)):
                self._metrics.events.labels(event.kind).inc()
                version = event.version or version
                self._throttle.clear("pods", "Pods are watched again.")
                if event.kind == "BOOKMARK":
                    continue
                pod = pod_of(event.object)
                if pod is None:
                    continue
                if event.kind == "DELETED":
                    self._listener.pod_deleted(pod)
                else:
                    self._listener.pod_changed(pod)
        except InterruptedWatchError as error:
            log.debug("The watch ended: %s", error)
        return version
