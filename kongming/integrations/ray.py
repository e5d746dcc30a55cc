"""Ray: node affinity to where a task or an actor is predicted to end first.

placer = RayPlacer("127.0.0.1:7400", app="sort", limit=1.3)
refs = [placer.remote(sort, part) for part in parts]  # for sort.remote(part)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock, Thread
from typing import Any

import ray
from ray.exceptions import RaySystemError
from ray.remote_function import RemoteFunction
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kongming.integrations.placer import Place, Placer
from kongming.integrations.placing import Member, Target, resource_name
from kongming.records.errors import InputError
from kongming.rpc.channel import Connection

LABEL = "kongming.dev/node"
"""A label of a Ray node that says which node of the server it is."""

_LISTED_S = 2.0
"""Seconds after which Ray's nodes are listed again. One that died meanwhile does no harm: the
affinity is soft."""

_POLL_S = 0.1


class RayPlacer(Placer):
    """``Placer`` for Ray; ``settings`` are that class's.

    A Ray node is the node of its label ``kongming.dev/node``, else of its custom resource
    ``kongming:NAME``, else of its host name. A task takes ``cpus`` of its CPUs. Ray is initialised
    where it is not yet.
    """

    framework = "ray"

    def __init__(
        self,
        server: str | Connection | None = None,
        *,
        app: str,
        cpus: float = 1.0,
        **settings: Any,
    ) -> None:
        if not 0.0 < cpus < float("inf"):
            raise InputError("is out of range.", field="cpus", value=cpus, allowed="above 0")
        if not ray.is_initialized():
            # As the first task would, and before there is a connection: Ray may start processes by
            # forks, which threads of gRPC do not always survive.
            ray.init()
        self._cpus = cpus
        self._listed: tuple[Member, ...] = ()
        self._members_at = -float("inf")
        self._watch_lock = Lock()
        self._watched: dict[Any, Place] = {}
        self._watcher: Thread | None = None
        super().__init__(server, app=app, **settings)

    def remote(self, task: RemoteFunction, *args: Any, **kwargs: Any) -> Any:
        """Return what ``task.remote(*args, **kwargs)`` returns; its place is held until it ends,
        however it does.

        Raises:
            InputError: it is no remote function; an actor needs a ``place`` as long as it lives.
        """
        if not isinstance(task, RemoteFunction):
            raise InputError(
                "is no remote function.",
                field="task",
                value=task,
                allowed="a function under @ray.remote",
                hint="For an actor, or with options: with placer.place() as place: "
                "Actor.options(**place.options).remote()",
            )
        place = self.place()
        try:
            result = task.options(**place.options).remote(*args, **kwargs)
            self._watch(result, place)
        except BaseException:
            place.end()
            raise
        return result

    def close(self) -> None:
        with self._watch_lock:
            self._watched.clear()
            watcher = self._watcher
        if watcher is not None:
            # It must not be inside Ray when that ends.
            watcher.join(10 * _POLL_S)
        super().close()

    def _members(self) -> Iterable[Member]:
        # After ray.shutdown() the affinity is to nodes that are gone, and soft.
        if ray.is_initialized() and time.monotonic() - self._members_at > _LISTED_S:
            self._listed = tuple(self._member(node) for node in ray.nodes() if node["Alive"])
            self._members_at = time.monotonic()
        return self._listed

    def _member(self, node: dict[str, Any]) -> Member:
        resources = node["Resources"]
        name = node.get("Labels", {}).get(LABEL) or resource_name(resources)
        names = (node["NodeManagerHostname"],) if name is None else (name,)
        # 0.1 goes into 1 ten times, though not by floats.
        slots = math.floor(resources.get("CPU", 0.0) / self._cpus + 1e-9)
        return Member(node["NodeID"], names, slots)

    def _options(self, target: Target, placed: int) -> dict[str, Any]:
        # Each of them for as many tasks as it has slots, round after round.
        ids = [member.id for member in target.members for _ in range(member.slots)]
        affinity = NodeAffinitySchedulingStrategy(ids[placed % len(ids)], soft=True)
        return {"scheduling_strategy": affinity}

    def _watch(self, result: Any, place: Place) -> None:
        """Hold the place until the first of the task's objects is there, or its error."""
        if place.node_id is None:
            return
        if isinstance(result, list):
            result = result[0]
        if isinstance(result, ray.ObjectRefGenerator):
            result = result.completed()
        if result is None:
            # Without an object nobody learns of its end.
            place.end()
            return
        with self._watch_lock:
            self._watched[result] = place
            if self._watcher is None:
                self._watcher = Thread(target=self._end_places, name="kongming ends", daemon=True)
                self._watcher.start()

    def _end_places(self) -> None:
        while True:
            with self._watch_lock:
                refs = list(self._watched)
                if not refs:
                    self._watcher = None
                    return
            ended = refs
            # Without Ray its tasks have ended too; and to wait would start another one.
            if ray.is_initialized():
                with suppress(RaySystemError):
                    # Not fetched: the results may be large, and are the program's.
                    ended, _ = ray.wait(
                        refs, num_returns=len(refs), timeout=_POLL_S, fetch_local=False
                    )
            with self._watch_lock:
                places = [self._watched.pop(ref, None) for ref in ended]
            for place in places:
                if place is not None:
                    place.end()
