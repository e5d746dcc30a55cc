"""Requests to the Kubernetes API for benchmarks, one after the other."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

__all__ = ["ApiError", "Client"]


class ApiError(Exception):
    """``code`` and ``text`` of an answer that is no success."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text[:500]}")
        self.code = code
        self.text = text


class Client:
    """Requests to the API server: JSON in, JSON out. Raises ApiError; 0 where it is away."""

    def __init__(self, url: str, ca: Path | None, token: str) -> None:
        self._url = url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._context = _context(ca)

    def get(self, path: str) -> Any:
        return self._request("GET", path, None)

    def post(self, path: str, document: Mapping[str, Any]) -> Any:
        return self._request("POST", path, document)

    def put(self, path: str, document: Mapping[str, Any]) -> Any:
        return self._request("PUT", path, document)

    def patch(self, path: str, document: Mapping[str, Any]) -> Any:
        """A merge patch."""
        return self._request("PATCH", path, document, "application/merge-patch+json")

    def delete(self, path: str) -> Any:
        return self._request("DELETE", path, {"gracePeriodSeconds": 0})

    def _request(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None,
        content_type: str = "application/json",
    ) -> Any:
        headers = self.headers | {"Content-Type": content_type}
        body = None if document is None else json.dumps(document).encode()
        request = Request(self._url + path, body, headers, method=method)
        try:
            with urlopen(request, timeout=60, context=self._context) as answer:
                text = answer.read()
                kind = answer.headers.get("Content-Type", "")
        except HTTPError as error:
            raise ApiError(error.code, error.read().decode("utf-8", "replace")) from error
        except (URLError, OSError) as error:
            raise ApiError(0, str(error)) from error
        return json.loads(text) if text and "json" in kind else text.decode()


def _context(ca: Path | None) -> ssl.SSLContext:
    if ca is not None:
        return ssl.create_default_context(cafile=str(ca))
    # The scheduler makes a certificate of its own at its start.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
