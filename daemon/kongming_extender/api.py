"""The part of the Kubernetes API that is needed: list pods, page by page, and watch them."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from kongming.errors import AccessError, InputError, UnavailableError
from kongming.rpc.channel import read_token
from kongming_extender.config import Pods as Settings

log = logging.getLogger(__name__)

_CONNECT_S = 10.0
_QUIET_S = 15.0
"""A watch that says nothing for so long beyond its own end is dead."""
_LONGEST_LINE = 32 << 20


class GoneError(UnavailableError):
    """The API server does not remember that resource version any more (410)."""


class BrokenOffError(UnavailableError):
    """The connection ended in the middle: what was told so far still counts."""


@dataclass(frozen=True, slots=True)
class Listed:
    """All pods, and the resource version from which changes follow."""

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


class PodsApi:
    """``async with PodsApi(settings) as api``. The token is read for each request: Kubernetes
    renews it.

    Raises:
        InputError: no API server is named and this runs in no cluster, or its authority cannot
            be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = settings.api.rstrip("/") or _in_cluster()
        self._tls = _tls(settings.ca, self._url)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> PodsApi:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=4)
        # Proxies of the environment are not for what is inside the cluster.
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def list(self) -> Listed:
        """Every pod as it is now.

        Raises:
            GoneError: the list changed too much between its pages.
            AccessError: the service account may not.
            UnavailableError: no answer, or none that can be used.
        """
        pods: list[dict[str, Any]] = []
        going_on = ""
        while True:
            words = {"limit": str(self._settings.page)} | self._selected()
            if going_on:
                words["continue"] = going_on
            async with self._get(words, aiohttp.ClientTimeout(total=60, connect=_CONNECT_S)) as got:
                document = _document(await got.read())
            pods += document.get("items") or ()
            metadata = document.get("metadata") or {}
            going_on = str(metadata.get("continue") or "")
            if not going_on:
                return Listed(pods, str(metadata.get("resourceVersion", "")))
            # Thousands of pods take a while: others have their turn.
            await asyncio.sleep(0)

    async def watch(self, version: str) -> AsyncIterator[Event]:
        """Changes since ``version``, until the API server ends the watch. Raises as ``list``."""
        words = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(self._settings.renew_s))),
        } | self._selected()
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_CONNECT_S, sock_read=self._settings.renew_s + _QUIET_S
        )
        async with self._get(words, timeout) as answer:
            try:
                async for line in _lines(answer):
                    event = _document(line)
                    kind, told = str(event.get("type")), event.get("object")
                    if not isinstance(told, dict):
                        raise UnavailableError("A change without an object was told.")
                    if kind == "ERROR":
                        raise _status_error(int(told.get("code", 500)), str(told.get("message")))
                    yield Event(kind, told)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise BrokenOffError(f"The watch broke off: {_said(error)}.") from error

    def _selected(self) -> dict[str, str]:
        selector = self._settings.label_selector
        return {"labelSelector": selector} if selector else {}

    def _get(self, words: dict[str, str], timeout: aiohttp.ClientTimeout) -> _Answer:
        assert self._session is not None
        headers = {"Accept": "application/json"}
        if self._settings.token_file:
            headers["Authorization"] = f"Bearer {read_token(Path(self._settings.token_file))}"
        return _Answer(
            self._session.get(
                f"{self._url}/api/v1/pods",
                params=words,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            )
        )


class _Answer:
    """An answer with status 200; all else is raised."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            answer: aiohttp.ClientResponse = await self._context.__aenter__()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"The API server does not answer: {_said(error)}.") from error
        if answer.status == 200:
            return answer
        text = (await answer.content.read(2000)).decode("utf-8", "replace")
        await self._context.__aexit__(None, None, None)
        raise _status_error(answer.status, text)

    async def __aexit__(self, *exception: Any) -> None:
        try:
            await self._context.__aexit__(*exception)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise BrokenOffError(f"The answer broke off: {_said(error)}.") from error


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own are bounded below the size of a pod."""
    rest = b""
    async for part in answer.content.iter_any():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > _LONGEST_LINE:
            raise UnavailableError("A change that is too long was told.")


def _document(text: bytes) -> dict[str, Any]:
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
            hint="The service account needs the verbs list and watch on pods.",
        )
    return UnavailableError(f"The API server answers {code}: {text[:300]}")


def _in_cluster() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if not host:
        raise InputError(
            "is not known: this runs in no cluster.",
            field="pods.api",
            hint="Say where the API server is, or set pods.watch to false.",
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


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
