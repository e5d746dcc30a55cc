"""Pods of an API server that forgets, breaks off and refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kongming_extender import pod_watch
from kongming_extender.extender_config import Pods as Settings
from kongming_extender.kube_api import PodApi
from kongming_extender.metrics import Metrics
from kongming_extender.pod_watch import PodWatch
from kongming_extender.pods import Pod

from kongming.records.errors import InputError
from tests.kubernetes import clusters
from tests.kubernetes.apiserver import ApiServer
from tests.kubernetes.extenders import Extender, config

Scenario = Callable[["Listener", ApiServer], Awaitable[None]]


class Listener:
    """``pods`` are by name, as they are now; ``lists`` counts the lists of all."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.pods: dict[str, Pod] = {}
        self.lists = 0
        self.needs_relist = False

    def pods_listed(self, pods: list[Pod], at: float) -> None:
        self.lists += 1
        self.pods = {pod.name: pod for pod in pods}

    def pod_changed(self, pod: Pod) -> None:
        self.pods[pod.name] = pod

    def pod_deleted(self, pod: Pod) -> None:
        self.pods.pop(pod.name, None)

    def relist_needed(self) -> bool:
        needed, self.needs_relist = self.needs_relist, False
        return needed

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"kongming_extender_{name}", labels) or 0.0

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watching(listener: Listener, settings: Settings) -> AsyncIterator[None]:
    task = asyncio.create_task(PodWatch(settings, listener.metrics, listener).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def play(tmp_path: Path, scenario: Scenario, **settings: Any) -> None:
    async def run() -> None:
        async with ApiServer(tmp_path) as api:
            listener = Listener()
            for name in ("one", "two", "three"):
                await api.put(clusters.pod(name, app="etl"))
            async with watching(listener, api.settings(**settings)):
                await listener.until(lambda: len(listener.pods) == 3)
                await listener.until(lambda: api.watches)
                await scenario(listener, api)

    asyncio.run(run())


def test_pods_are_listed_in_pages_and_then_watched(tmp_path: Path) -> None:
    async def scenario(listener: Listener, api: ApiServer) -> None:
        assert [query.get("continue") for query in api.lists] == [None, "2"]
        assert all(query["labelSelector"] == "tier=batch" for query in api.queries)
        (watch,) = api.watches
        assert watch["resourceVersion"] == str(api.version)
        assert watch["allowWatchBookmarks"] == "true"
        # A change of three megabytes, in parts that do not end where it does.
        await api.put(clusters.pod("four", app="etl", node="n", managedFields="x" * (3 << 20)))
        await api.delete(next(pod for pod in api.pods.values() if pod["metadata"]["name"] == "one"))
        await listener.until(lambda: set(listener.pods) == {"two", "three", "four"})
        assert listener.pods["four"].node == "n"
        assert listener.sample("watch_connected") == 1
        assert listener.sample("watch_events_total", type="DELETED") == 1

    play(tmp_path, scenario, page=2, label_selector="tier=batch")


def test_a_watch_that_breaks_off_is_resumed(tmp_path: Path) -> None:
    async def scenario(listener: Listener, api: ApiServer) -> None:
        await api.bookmark()
        await listener.until(lambda: listener.sample("watch_events_total", type="BOOKMARK") == 1)
        version = api.version
        await api.cut()
        await api.put(clusters.pod("four"))
        await listener.until(lambda: "four" in listener.pods)
        assert listener.lists == 1
        # From the bookmark, or from the change where it came before the cut was noticed.
        assert api.watches[-1]["resourceVersion"] in (str(version), str(version + 1))

    play(tmp_path, scenario)


@pytest.mark.parametrize("while_watching", [True, False])
def test_what_the_api_server_has_forgotten_is_listed_again(
    tmp_path: Path, while_watching: bool
) -> None:
    async def scenario(listener: Listener, api: ApiServer) -> None:
        deleted = next(iter(api.pods))
        if not while_watching:
            # 410 as the status of the next watch: the version that it begins from is forgotten.
            api.oldest = api.version + 2
        del api.pods[deleted]
        if while_watching:
            await api.forget()
        else:
            await api.cut()
            await listener.until(lambda: len(api.watches) > 1)
            api.oldest = 0
        await listener.until(lambda: listener.lists == 2)
        assert len(listener.pods) == 2
        assert listener.sample("watch_lists_total", cause="gone") == 1
        await api.put(clusters.pod("after"))
        await listener.until(lambda: "after" in listener.pods)

    play(tmp_path, scenario)


def test_a_needed_list_is_made_soon_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only once a watch of minutes has ended."""
    monkeypatch.setattr(pod_watch, "_RECHECK_S", 0.9)

    async def scenario(listener: Listener, api: ApiServer) -> None:
        listener.needs_relist = True
        await listener.until(lambda: listener.lists == 2)
        assert listener.sample("watch_lists_total", cause="recheck") == 1
        # The first one after either list is short, then they are as configured.
        await listener.until(lambda: len(api.watches) == 3)
        assert [query["timeoutSeconds"] for query in api.watches] == ["1", "1", "240"]
        assert listener.lists == 2

    play(tmp_path, scenario)


def test_a_busy_api_server_is_asked_again(tmp_path: Path) -> None:
    async def scenario(listener: Listener, api: ApiServer) -> None:
        api.failing = 2
        await api.cut()
        await api.put(clusters.pod("four"))
        await listener.until(lambda: "four" in listener.pods)
        assert listener.lists == 1

    play(tmp_path, scenario)


def test_a_renewed_token_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(listener: Listener, api: ApiServer) -> None:
        api.token = "secret-2"
        await api.cut()
        await listener.until(lambda: "list and watch on pods" in caplog.text)
        api.file.write_text("secret-2\n")
        await api.put(clusters.pod("four"))
        await listener.until(lambda: "four" in listener.pods)
        assert caplog.text.count("cannot be watched") == 1
        assert "secret" not in caplog.text

    play(tmp_path, scenario)


def test_an_api_server_that_is_named_outside_of_a_cluster_may_need_no_token(
    tmp_path: Path,
) -> None:
    """As documented with ``--api``: behind ``kubectl proxy``, without a service account."""

    async def run() -> None:
        async with ApiServer(tmp_path) as api:
            api.token = None
            await api.put(clusters.pod("one", app="etl"))
            watch = {"watch": True, "api": api.url}
            async with Extender(config("127.0.0.1:1", pods=watch)) as extender:
                await extender.until(lambda: extender.sample("watch_connected"))
                await extender.until(lambda: api.watches)
                status, text = await extender.get("/readyz")
                assert (status, json.loads(text)["watch"]) == (200, "connected")
                # A watch that is asked for and not answered is none.
                api.mute = True
                begun = len(api.watches)
                await api.cut()
                await extender.until(lambda: len(api.watches) > begun)
                status, text = await extender.get("/readyz")
                assert (status, json.loads(text)["watch"]) == (200, "away")
            api.mute = False
            async with Extender(config("127.0.0.1:1", pods=watch)) as extender:
                await extender.until(lambda: extender.sample("watch_connected"))
                # From now on it does not let pods be watched, which is reported and no more.
                api.refuse = 403
                await api.cut()
                await extender.until(lambda: not extender.sample("watch_connected"))
                status, text = await extender.get("/readyz")
                assert (status, json.loads(text)["watch"]) == (200, "away")
            named = Settings(api=api.url, token_file=str(tmp_path / "none"))
            async with PodApi(named) as pods:
                with pytest.raises(InputError, match="none"):
                    await anext(pods.pages())

    asyncio.run(run())


def test_outside_of_a_cluster_the_missing_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InputError, match=r"pods\.api"):
        PodWatch(Settings(ca=""), Metrics(), Listener())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(InputError, match=r"pods\.ca"):
        PodWatch(Settings(ca="/nowhere/ca.crt"), Metrics(), Listener())
