"""Dask: worker restrictions to where a task is predicted to end first.

placer = DaskPlacer("127.0.0.1:7400", app="sort", limit=1.3)
futures = [placer.submit(sort, part) for part in parts]  # for client.submit(sort, part)
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import distributed

from kongming.integrations.placer import Placer
from kongming.integrations.placing import Member, Target, resource_name
from kongming.records.errors import InputError
from kongming.rpc.channel import Connection

_LISTED_S = 2.0
"""Seconds after which the workers are listed again. One that died meanwhile does no harm where
other workers are allowed."""


class DaskPlacer(Placer):
    """``Placer`` for Dask; ``settings`` are that class's.

    ``client`` is a synchronous one, by default the last that was made. A worker is the node of its
    resource ``kongming:NAME``, else of its own name, else of its host name. With
    ``allow_other_workers`` a task goes elsewhere when its workers are gone, and idle workers may
    steal it; without it waits for them.
    """

    framework = "dask"

    def __init__(
        self,
        server: str | Connection | None = None,
        *,
        app: str,
        client: Any = None,
        allow_other_workers: bool = True,
        **settings: Any,
    ) -> None:
        default: Any = distributed.default_client
        self._client = default() if client is None else client
        if self._client.asynchronous:
            raise InputError(
                "is asynchronous.", field="client", allowed="Client(..., asynchronous=False)"
            )
        self._allow_other_workers = allow_other_workers
        self._host_names: dict[str, str] = {}
        self._listed: tuple[Member, ...] = ()
        self._members_at = -float("inf")
        super().__init__(server, app=app, **settings)

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``client.submit(function, *args, **kwargs)``; its place is held until it ends,
        fails or is cancelled."""
        place = self.place()
        try:
            future = self._client.submit(function, *args, **(place.options | kwargs))
            if place.node_id is not None:
                future.add_done_callback(lambda _: place.end())
        except BaseException:
            place.end()
            raise
        return future

    def _members(self) -> Iterable[Member]:
        if time.monotonic() - self._members_at > _LISTED_S:
            # All of them: some versions tell of five unless they are asked for more.
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
            self._find_host_names(workers)
            self._listed = tuple(
                Member(address, self._names(address, worker), worker["nthreads"])
                for address, worker in workers.items()
            )
            self._members_at = time.monotonic()
        return self._listed

    def _names(self, address: str, worker: dict[str, Any]) -> tuple[str, ...]:
        name = resource_name(worker.get("resources", {}))
        if name is not None:
            return (name,)
        host = self._host_names.get(address)
        return (str(worker["name"]), *(() if host is None else (host,)))

    def _find_host_names(self, addresses: Iterable[str]) -> None:
        """Ask new workers: the scheduler knows their addresses alone."""
        new = [address for address in addresses if address not in self._host_names]
        if new:
            self._host_names |= self._client.run(socket.gethostname, workers=new, on_error="ignore")

    def _options(self, target: Target, placed: int) -> dict[str, Any]:
        return {
            "workers": [member.id for member in target.members],
            "allow_other_workers": self._allow_other_workers,
        }
