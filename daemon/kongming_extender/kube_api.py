"""The part of the Kubernetes API that is needed: list pods, page by page, and watch them.

Client libraries were measured and are not used. Watching 10,000 changes takes this module 0.2 s of
CPU, lightkube 0.36 s and kubernetes_asyncio 1.2 s (10 s with its typed objects) and 28 MB more
memory. Neither ends a watch whose connection is dead, and lightkube asks for no bookmarks, so that
most of the code below would have to stay.
"""

from __future__ import annotations

import asyncio
import math
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from kongming.records.errors import AccessError, InputError, UnavailableError
from kongming.rpc.channel import read_token
from kongming_extender.extender_config import ACCOUNT
from kongming_extender.extender_config import Pods as Settings

_CONNECT_S = 10.0
_LIST_S = 60.0
_QUIET_S = 15.0
"""A watch without a word for so long beyond its own end is dead."""
_MAX_LINE_BYTES = 32 << 20
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class GoneError(UnavailableError):
    """The API server does not remember that resource version any more (410)."""


class InterruptedWatchError(UnavailableError):
    """The connection ended in the middle of a response: the events before it still count."""


@dataclass(frozen=True, slots=True)
class Page:
    """Pods as the API server describes them; changes follow from resource version ``version``."""

    pods: list[dict[str, Any]]
    version: str


@dataclass(frozen=True, slots=True)
class Event:
    """``kind`` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    object: dict[str, Any]

    @property
    def version(self) -> str:
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


class PodApi:
    """``async with PodApi(settings) as api``. The token is read for each request: Kubernetes
    renews it.

    Where an API server is named, token and authority are needed only where their files are named as
    well or are where Kubernetes puts them: outside of a cluster there are none, and ``kubectl
    proxy`` takes none.

    Raises:
        InputError: no API server is named and this runs in no cluster, or its authority cannot
            be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = settings.api.rstrip("/") or _url_in_cluster()
        self._tls = _tls("" if self._is_absent(settings.ca) else settings.ca, self._url)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> PodApi:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=4)
        # Proxies of the environment are not for what is inside the cluster.
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def pages(self) -> AsyncIterator[Page]:
        """Every pod as it is now, a page at a time.

        Raises:
            GoneError: the list changed too much between its pages.
            AccessError: the service account may not.
            UnavailableError: no answer, or none that can be used.
        """
        timeout = aiohttp.ClientTimeout(total=_LIST_S, connect=_CONNECT_S)
        query = {"limit": str(self._settings.page)}
        while True:
            async with self._get(query, timeout) as response:
                document = _parse(await response.read())
            metadata = document.get("metadata") or {}
            yield Page(document.get("items") or [], str(metadata.get("resourceVersion", "")))
            query["continue"] = str(metadata.get("continue") or "")
            if not query["continue"]:
                return
            # Thousands of pods take a while: other tasks have their turn.
            await asyncio.sleep(0)

    async def watch(
        self, version: str, longest_s: float, begun: Callable[[], None]
    ) -> AsyncIterator[Event]:
        """Changes since ``version``, until the API server ends the watch, after ``longest_s`` at
        the latest. ``begun`` is called once the API server has agreed to it.

        Raises:
            InterruptedWatchError: the connection broke off.
            Otherwise as ``pages``.
        """
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, math.ceil(longest_s))),
        }
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_CONNECT_S, sock_read=longest_s + _QUIET_S
        )
        async with self._get(query, timeout) as response:
            begun()
            async for line in _lines(response):
                event = _parse(line)
                kind, changed = str(event.get("type")), event.get("object")
                if not isinstance(changed, dict):
                    raise UnavailableError("The API server sent a change without an object.")
                if kind == "ERROR":
                    raise _status_error(int(changed.get("code", 500)), str(changed.get("message")))
                yield Event(kind, changed)

    def _is_absent(self, file: str) -> bool:
        """Return whether it is one that Kubernetes puts into each Pod, and this runs in none."""
        return bool(self._settings.api) and file.startswith(ACCOUNT) and not Path(file).exists()

    @asynccontextmanager
    async def _get(
        self, query: dict[str, str], timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response with status 200; any other is raised."""
        assert self._session is not None
        if self._settings.label_selector:
            query = query | {"labelSelector": self._settings.label_selector}
        headers = {"Accept": "application/json"}
        token_file = self._settings.token_file
        if token_file and not self._is_absent(token_file):
            headers["Authorization"] = f"Bearer {read_token(Path(token_file))}"
        try:
            response = await self._session.get(
                f"{self._url}/api/v1/pods",
                params=query,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            )
        except _NETWORK_ERRORS as error:
            raise UnavailableError(f"The API server does not answer: {_reason(error)}.") from error
        try:
            async with response:
                if response.status != 200:
                    text = (await response.content.read(2000)).decode("utf-8", "replace")
                    raise _status_error(response.status, text)
                yield response
        except _NETWORK_ERRORS as error:
            raise InterruptedWatchError(f"The response broke off: {_reason(error)}.") from error


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own are bounded below the size of a pod."""
    rest = b""
    async for part in response.content.iter_any():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > _MAX_LINE_BYTES:
            raise UnavailableError("The API server sent a change that is too long.")


def _parse(text: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UnavailableError(f"The API server's answer is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise UnavailableError("The API server's answer is no object.")
    return document


def _status_error(code: int, text: str) -> UnavailableError | AccessError:
    if code == 410:
        return GoneError("The resource version is too old.")
    if code in (401, 403):
        return AccessError(
            f"The API server refuses ({code}): {text[:300]}",
            reason="unauthenticated" if code == 401 else "forbidden",
            hint="The account whose token is in pods.token_file needs the verbs list and watch on "
            "pods.",
        )
    return UnavailableError(f"The API server answers {code}: {text[:300]}")


def _url_in_cluster() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if not host:
        raise InputError(
            "is not known: this runs in no cluster.",
            field="pods.api",
            hint="Set it to the URL of the API server, or set pods.watch to false.",
        )
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _tls(ca: str, url: str) -> ssl.SSLContext | bool:
    if not url.startswith("https:"):
        return True
    context = ssl.create_default_context()
    if ca:
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"{ca} cannot be used: {error}.", field="pods.ca") from error
    return context


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
