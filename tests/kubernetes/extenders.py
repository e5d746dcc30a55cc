"""An extender in the test's own loop, queried over HTTP as by the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import aiohttp
import orjson
from kongming_extender.app import App
from kongming_extender.extender_config import Config

from tests.kubernetes import clusters


def config(address: str, /, **sections: Any) -> Config:
    """Settings by section: ``config(address, ranking={"fresh_s": 0.0})``."""
    values: dict[str, Any] = {
        "extender": {"listen": "127.0.0.1:0", "grace_s": 0.1},
        "server": {"address": address, "deadline_s": 5.0, "pause_s": 0.1},
        "ranking": {"fresh_s": 0.0, "fleet_s": 0.2},
        "pods": {"watch": False},
    }
    for name, changes in sections.items():
        values[name] = values.get(name, {}) | changes
    default = Config()
    return Config(
        **{name: replace(getattr(default, name), **changes) for name, changes in values.items()}
    )


class Extender:
    """``async with Extender(config) as extender``."""

    def __init__(self, config: Config, **options: Any) -> None:
        self.app = App(config, **options)
        self.scheme = "https" if config.security.tls else "http"
        self.address = ""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self.address = await self.app.start()
        self._session = aiohttp.ClientSession()
        await self.until(lambda: self.app._ready)
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._session is not None
        await self._session.close()
        await self.app.stop()

    def sample(self, name: str, **labels: str) -> float:
        registry = self.app.metrics.registry
        return registry.get_sample_value(f"kongming_extender_{name}", labels) or 0.0

    async def post(self, path: str, body: bytes, **options: Any) -> tuple[int, Any]:
        assert self._session is not None
        url = f"{self.scheme}://{self.address}{path}"
        headers = {"Content-Type": "application/json"}
        async with self._session.post(url, data=body, headers=headers, **options) as answer:
            return answer.status, orjson.loads(await answer.read())

    async def get(self, path: str, **options: Any) -> tuple[int, str]:
        assert self._session is not None
        url = f"{self.scheme}://{self.address}{path}"
        async with self._session.get(url, **options) as answer:
            return answer.status, await answer.text()

    async def filter(
        self, pod: Any, names: Sequence[str], *, complete: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        """Names of the nodes that pass, and the reasons why others do not."""
        status, answer = await self.post("/filter", clusters.args(pod, names, complete=complete))
        assert (status, answer["Error"]) == (200, "")
        assert answer["FailedAndUnresolvableNodes"] == {}
        if complete:
            assert answer["NodeNames"] is None
            passing = [item["metadata"]["name"] for item in answer["Nodes"]["items"]]
        else:
            assert answer["Nodes"] is None
            passing = answer["NodeNames"]
        assert sorted([*passing, *answer["FailedNodes"]]) == sorted(names)
        return passing, answer["FailedNodes"]

    async def priorities(
        self, pod: Any, names: Sequence[str], *, complete: bool = False
    ) -> dict[str, int]:
        status, answer = await self.post(
            "/prioritize", clusters.args(pod, names, complete=complete)
        )
        assert status == 200
        assert [entry["Host"] for entry in answer] == list(names)
        return {entry["Host"]: entry["Score"] for entry in answer}

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)

    async def eventually(self, condition: Callable[[], Awaitable[Any]]) -> None:
        async with asyncio.timeout(30):
            while not await condition():
                await asyncio.sleep(0.02)
