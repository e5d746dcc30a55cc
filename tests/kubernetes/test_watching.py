"""Pods through an API server that forgets, breaks off and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kongming_extender.config import Pods as Settings
from kongming_extender.metrics import Metrics
from kongming_extender.pods import Pod
from kongming_extender.watching import PodWatch

from kongming.errors import InputError
from tests.kubernetes import clusters
from tests.kubernetes.apiserver import ApiServer

Scenario = Callable[["Seen", ApiServer], Awaitable[None]]


class Seen:
    """What was told: ``pods`` by name as they are now."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.pods: dict[str, Pod] = {}
        self.lists = 0

    def watch(self, settings: Settings) -> PodWatch:
        def listed(pods: list[Pod], at: float) -> None:
            self.lists += 1
            self.pods = {pod.name: pod for pod in pods}

        def gone(pod: Pod) -> None:
            self.pods.pop(pod.name, None)

        return PodWatch(
            settings,
            self.metrics,
            listed=listed,
            changed=lambda pod: self.pods.__setitem__(pod.name, pod),
            gone=gone,
        )

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"kongming_extender_{name}", labels) or 0.0

    async def until(self, what: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not what():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watching(seen: Seen, settings: Settings) -> AsyncIterator[None]:
    task = asyncio.create_task(seen.watch(settings).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def play(tmp_path: Path, scenario: Scenario, **settings: Any) -> None:
    async def run() -> None:
        async with ApiServer(tmp_path) as api:
            seen = Seen()
            for name in ("one", "two", "three"):
                await api.put(clusters.pod(name, app="etl"))
            async with watching(seen, api.settings(**settings)):
                await seen.until(lambda: len(seen.pods) == 3)
                await seen.until(lambda: api.watches)
                await scenario(seen, api)

    asyncio.run(run())


def test_pods_are_listed_in_pages_and_then_watched(tmp_path: Path) -> None:
    async def scenario(seen: Seen, api: ApiServer) -> None:
        assert [words.get("continue") for words in api.lists] == [None, "2"]
        assert all(words["labelSelector"] == "tier=batch" for words in api.asked)
        (watch,) = api.watches
        assert watch["resourceVersion"] == str(api.version)
        assert watch["allowWatchBookmarks"] == "true"
        # A change of three megabytes, in parts that do not end where it does.
        await api.put(clusters.pod("four", app="etl", node="n", managedFields="x" * (3 << 20)))
        await api.delete(next(pod for pod in api.pods.values() if pod["metadata"]["name"] == "one"))
        await seen.until(lambda: set(seen.pods) == {"two", "three", "four"})
        assert seen.pods["four"].node == "n"
        assert seen.sample("watch_connected") == 1
        assert seen.sample("watch_events_total", type="DELETED") == 1

    play(tmp_path, scenario, page=2, label_selector="tier=batch")


def test_a_watch_that_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    async def scenario(seen: Seen, api: ApiServer) -> None:
        await api.bookmark()
        await seen.until(lambda: seen.sample("watch_events_total", type="BOOKMARK") == 1)
        version = api.version
        await api.cut()
        await api.put(clusters.pod("four"))
        await seen.until(lambda: "four" in seen.pods)
        assert seen.lists == 1
        # From the bookmark, or from the change where it came before the cut was seen.
        assert api.watches[-1]["resourceVersion"] in (str(version), str(version + 1))

    play(tmp_path, scenario)


@pytest.mark.parametrize("while_watching", [True, False])
def test_what_the_api_server_has_forgotten_is_listed_anew(
    tmp_path: Path, while_watching: bool
) -> None:
    async def scenario(seen: Seen, api: ApiServer) -> None:
        gone = next(iter(api.pods))
        if not while_watching:
            # 410 as the status of the next watch: the version that it would begin from is gone.
            api.oldest = api.version + 2
        del api.pods[gone]
        if while_watching:
            await api.forget()
        else:
            await api.cut()
            await seen.until(lambda: len(api.watches) > 1)
            api.oldest = 0
        await seen.until(lambda: seen.lists == 2)
        assert len(seen.pods) == 2
        assert seen.sample("watch_lists_total", cause="gone") == 1
        await api.put(clusters.pod("after"))
        await seen.until(lambda: "after" in seen.pods)

    play(tmp_path, scenario)


def test_an_api_server_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    async def scenario(seen: Seen, api: ApiServer) -> None:
        api.failing = 2
        await api.cut()
        await api.put(clusters.pod("four"))
        await seen.until(lambda: "four" in seen.pods)
        assert seen.lists == 1

    play(tmp_path, scenario)


def test_a_renewed_token_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(seen: Seen, api: ApiServer) -> None:
        api.token = "secret-2"
        await api.cut()
        await seen.until(lambda: "list and watch on pods" in caplog.text)
        api.file.write_text("secret-2\n")
        await api.put(clusters.pod("four"))
        await seen.until(lambda: "four" in seen.pods)
        assert caplog.text.count("cannot be watched") == 1
        assert "secret" not in caplog.text

    play(tmp_path, scenario)


def test_outside_of_a_cluster_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InputError, match=r"pods\.api"):
        Seen().watch(Settings(ca=""))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(InputError, match=r"pods\.ca"):
        Seen().watch(Settings(ca="/nowhere/ca.crt"))
