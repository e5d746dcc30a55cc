"""``kongming explain --pod``: what the Kubernetes extender answered the scheduler about a pod."""

from __future__ import annotations

import json
import ssl
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from kongming.cli import output
from kongming.cli.fleet.serving import Server
from kongming.quantities import format_slowdown
from kongming.records.errors import InputError, KongmingError, UnavailableError


def last_answer(pod: str, url: str, server: Server) -> dict[str, Any]:
    """The extender's last answer to filter for a pod, as its ``/explain`` has it. Of ``server``
    the files of TLS and the time limit count.

    Raises:
        InputError: the URL or a file of TLS cannot be used.
        UnavailableError: no answer, or none that can be used.
        KongmingError: the extender refuses, or remembers no answer for the pod.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(
            "is no URL.",
            field="--extender",
            value=url,
            allowed="http://HOST:PORT or https://HOST:PORT",
        )
    if not all(pod.partition("/")):
        raise InputError(
            "is not the name of a pod.", field="--pod", value=pod, allowed="NAMESPACE/NAME"
        )
    # It is of the inside of a cluster: proxies of the environment are not for it.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=_tls(server)))
    request = Request(f"{url.rstrip('/')}/explain?pod={quote(pod)}")
    try:
        with opener.open(request, timeout=server.timeout_s) as response:
            document = json.load(response)
    except HTTPError as error:
        with error:
            raise _refusal(error) from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        # Without its number, which Python puts before the words.
        reason = getattr(reason, "strerror", None) or reason
        raise UnavailableError(f"The extender at {url} does not answer: {reason}.") from error
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise UnavailableError(f"What answers at {url} is no extender of this version.")
    return document


def _tls(server: Server) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=server.ca)
        if server.cert is not None:
            context.load_cert_chain(server.cert, server.key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be used: {error}.", field="--ca, --cert or --key") from error
    return context


def _refusal(error: HTTPError) -> KongmingError:
    try:
        document = json.load(error)
        text = str(document.get("error") or document.get("Error") or "")
    except (ValueError, AttributeError, OSError):
        text = ""
    hint = None
    if error.code == 404:
        hint = (
            "Name it as NAMESPACE/NAME. Each extender remembers what it answered itself: ask the "
            "other replicas too."
        )
    return KongmingError(text or f"The extender answers {error.code}.", hint=hint)


def show(document: dict[str, Any], limit: int) -> None:
    """Print the answer as a table, the fastest of ``limit`` nodes first."""
    console = output.console()
    nodes = document["nodes"]
    refused = sum(row["refused"] is not None for row in nodes)
    bound = "" if document["limit"] is None else f", limit {document['limit']:g}"
    title = (
        f"{document['pod']} ({document['app']}{bound}): {refused} of {len(nodes)} nodes refused, "
        f"{document['answered_at']}"
    )
    console.print(
        output.table(
            ("node", "slowdown", "score", "refused for", "pod there"),
            [
                (row["node"], _slowdown(row), _score(row), row["refused"] or "", _resident(row))
                for row in nodes[:limit]
            ],
            title=title,
            right=("slowdown", "score"),
        )
    )
    if len(nodes) > limit:
        console.print(f"{len(nodes) - limit} more are slower or unknown; --limit or --json.")
    if any(row["extrapolating"] for row in nodes):
        console.print("~: a guess outside of what the application was profiled under.")
    if document["failure"]:
        console.print(f"! {document['failure']}.", markup=False)
    elif not document["judged"]:
        console.print(
            f"! {document['app']} has no model: no node is too slow for it.", markup=False
        )


def _slowdown(row: dict[str, Any]) -> str:
    if row["slowdown"] is None:
        return "unknown"
    # An extender of an earlier version does not say whether it is a lower bound.
    slowdown = format_slowdown(row["slowdown"], row.get("at_least", False))
    return f"{'~' if row['extrapolating'] else ''}{slowdown}"


def _score(row: dict[str, Any]) -> str:
    return "" if row["score"] is None else str(row["score"])


def _resident(row: dict[str, Any]) -> str:
    resident = row.get("resident")
    if resident is None:
        return ""
    slowdown = format_slowdown(resident["slowdown"], resident.get("at_least", False))
    return f"{resident['pod']}: {slowdown}, limit {resident['limit']:g}"
