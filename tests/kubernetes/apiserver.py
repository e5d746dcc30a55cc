"""A simulated API server: pods in memory, listed in pages and watched, in the test's own loop.

A watch ends after its timeoutSeconds, as those of a real one do.

It checks the service account's token (None: it needs none, as behind ``kubectl proxy``), forgets
old versions on demand (410), and breaks off watches. ``queries`` are those of all requests. Pods
are bound and get their condition as by the scheduler; a condition that stays as it was is no event.
``listeners`` are called with each pod that is new or differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from aiohttp import web
from kongming_extender.extender_config import Pods as Settings

from tests.kubernetes.clusters import compact


class ApiServer:
    def __init__(self, folder: Path) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.oldest = 0
        self.queries: list[dict[str, str]] = []
        self.token: str | None = "secret-1"
        self.file = folder / "token"
        self.file.write_text("secret-1")
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        self.refuse: int | None = None
        self.mute = False
        """Whether watches are taken and get no answer."""
        self.failing = 0
        self.url = ""
        self._events: list[tuple[int, bytes]] = []
        self._changed = asyncio.Condition()
        self._cut = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._get)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0][:2])
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.cut()
        assert self._runner is not None
        await self._runner.cleanup()

    def settings(self, **more: Any) -> Settings:
        values = {"api": self.url, "token_file": str(self.file), "ca": "", "longest_retry_s": 0.3}
        return Settings(**(values | more))  # type: ignore[arg-type]

    @property
    def lists(self) -> list[dict[str, str]]:
        return [query for query in self.queries if "watch" not in query]

    @property
    def watches(self) -> list[dict[str, str]]:
        return [query for query in self.queries if "watch" in query]

    async def put(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        await self._emit("MODIFIED" if uid in self.pods else "ADDED", pod)
        self.pods[uid] = pod
        for listener in self.listeners:
            listener(pod)

    async def bind(self, uid: str, node: str) -> None:
        self.pods[uid]["spec"]["nodeName"] = node
        await self.put(self.pods[uid])

    async def set_condition(self, uid: str, message: str) -> None:
        """Why the pod could not be scheduled."""
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        status = self.pods[uid]["status"]
        if status.get("conditions") != [condition]:
            status["conditions"] = [condition]
            await self.put(self.pods[uid])

    async def delete(self, pod: dict[str, Any]) -> None:
        self.pods.pop(pod["metadata"]["uid"], None)
        await self._emit("DELETED", pod)

    async def bookmark(self) -> None:
        await self._emit("BOOKMARK", {"metadata": {}})

    async def forget(self) -> None:
        """Forget everything before now, for watches under way as well."""
        self.oldest = self.version
        status = {"code": 410, "reason": "Expired", "message": "too old resource version"}
        await self._emit("ERROR", status)

    async def cut(self) -> None:
        """Break off all watches in the middle of a line."""
        async with self._changed:
            self._cut += 1
            self._changed.notify_all()

    async def _emit(self, kind: str, object_: dict[str, Any]) -> None:
        async with self._changed:
            self.version += 1
            if kind != "ERROR":
                object_.setdefault("metadata", {})["resourceVersion"] = str(self.version)
            self._events.append((self.version, compact({"type": kind, "object": object_}) + b"\n"))
            self._changed.notify_all()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.queries.append(query)
        shown = request.headers.get("Authorization")
        if self.token is not None and shown != f"Bearer {self.token}":
            return web.json_response({"code": 401, "message": "Unauthorized"}, status=401)
        if self.failing > 0:
            self.failing -= 1
            return web.json_response({"code": 503, "message": "busy"}, status=503)
        if self.refuse is not None:
            return web.json_response({"code": self.refuse, "message": "no"}, status=self.refuse)
        return await self._watch(request, query) if "watch" in query else self._list(query)

    def _list(self, query: dict[str, str]) -> web.Response:
        start, size = int(query.get("continue") or 0), int(query["limit"])
        pods = list(self.pods.values())
        metadata = {"resourceVersion": str(self.version)}
        if start + size < len(pods):
            metadata["continue"] = str(start + size)
        return web.json_response({"metadata": metadata, "items": pods[start : start + size]})

    async def _watch(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        since = int(query["resourceVersion"])
        if since < self.oldest:
            return web.json_response({"code": 410, "message": "too old"}, status=410)
        if self.mute:
            await asyncio.sleep(600)
        response = web.StreamResponse()
        await response.prepare(request)
        cut = self._cut
        ends_at = asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
        while True:
            async with self._changed:
                lines = [line for version, line in self._events if version > since]
                if not lines and self._cut == cut:
                    try:
                        async with asyncio.timeout_at(ends_at):
                            await self._changed.wait()
                    except TimeoutError:
                        return response
                    continue
            if self._cut != cut:
                # A line that is cut in the middle, and no end of the chunks.
                if request.transport is not None and not request.transport.is_closing():
                    await response.write(b'{"type":"MODI')
                    request.transport.abort()
                return response
            since = self._events[-1][0]
            for line in lines:
                # Parts do not end where lines do.
                await response.write(line[:11])
                await response.write(line[11:])
                if b'"type":"ERROR"' in line:
                    return response
