"""A made-up API server: pods in memory, listed in pages and watched, in the test's own loop.

It checks the service account's token, forgets old versions when told to (410), and breaks off
watches. What was asked is in ``asked``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

from aiohttp import web
from kongming_extender.config import Pods as Settings

from tests.kubernetes.clusters import compact


class ApiServer:
    def __init__(self, folder: Path) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.oldest = 0
        self.asked: list[dict[str, str]] = []
        self.token = "secret-1"
        self.file = folder / "token"
        self.file.write_text(self.token)
        self.refuse: int | None = None
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
        return [words for words in self.asked if "watch" not in words]

    @property
    def watches(self) -> list[dict[str, str]]:
        return [words for words in self.asked if "watch" in words]

    async def put(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        await self._tell("MODIFIED" if uid in self.pods else "ADDED", pod)
        self.pods[uid] = pod

    async def delete(self, pod: dict[str, Any]) -> None:
        self.pods.pop(pod["metadata"]["uid"], None)
        await self._tell("DELETED", pod)

    async def bookmark(self) -> None:
        await self._tell("BOOKMARK", {"metadata": {}})

    async def forget(self) -> None:
        """Everything before now, for those who watch as well."""
        self.oldest = self.version
        status = {"code": 410, "reason": "Expired", "message": "too old resource version"}
        await self._tell("ERROR", status)

    async def cut(self) -> None:
        """Break all watches off in the middle."""
        async with self._changed:
            self._cut += 1
            self._changed.notify_all()

    async def _tell(self, kind: str, object_: dict[str, Any]) -> None:
        async with self._changed:
            self.version += 1
            if kind != "ERROR":
                object_.setdefault("metadata", {})["resourceVersion"] = str(self.version)
            self._events.append((self.version, compact({"type": kind, "object": object_}) + b"\n"))
            self._changed.notify_all()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        words = dict(request.query)
        self.asked.append(words)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"code": 401, "message": "Unauthorized"}, status=401)
        if self.failing > 0:
            self.failing -= 1
            return web.json_response({"code": 503, "message": "busy"}, status=503)
        if self.refuse is not None:
            return web.json_response({"code": self.refuse, "message": "no"}, status=self.refuse)
        return await self._watch(request, words) if "watch" in words else self._list(words)

    def _list(self, words: dict[str, str]) -> web.Response:
        start, size = int(words.get("continue", 0)), int(words["limit"])
        pods = list(self.pods.values())
        metadata = {"resourceVersion": str(self.version)}
        if start + size < len(pods):
            metadata["continue"] = str(start + size)
        return web.json_response({"metadata": metadata, "items": pods[start : start + size]})

    async def _watch(self, request: web.Request, words: dict[str, str]) -> web.StreamResponse:
        since = int(words["resourceVersion"])
        if since < self.oldest:
            return web.json_response({"code": 410, "message": "too old"}, status=410)
        answer = web.StreamResponse()
        await answer.prepare(request)
        cut = self._cut
        while True:
            async with self._changed:
                told = [line for version, line in self._events if version > since]
                if not told and self._cut == cut:
                    await self._changed.wait()
                    continue
            if self._cut != cut:
                # A line that is cut in the middle, and no end of the chunks.
                if request.transport is not None and not request.transport.is_closing():
                    await answer.write(b'{"type":"MODI')
                    request.transport.abort()
                return answer
            since = self._events[-1][0]
            for line in told:
                # Parts do not end where lines do.
                await answer.write(line[:11])
                await answer.write(line[11:])
                if b'"type":"ERROR"' in line:
                    return answer
