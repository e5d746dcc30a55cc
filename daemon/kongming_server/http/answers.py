"""Answers: JSON, and errors as JSON with the status that HTTP has for them."""

from __future__ import annotations

import ipaddress
import json
import logging
from typing import Any

import grpc
from aiohttp import web
from google.protobuf import json_format

from kongming.records.errors import AccessError, KongmingError
from kongming.rpc.errors import failure_message, to_status
from kongming_server.security.admission import current_call

__all__ = ["error_answer", "json_answer", "json_bytes", "not_served", "refuse_foreign_host"]

_log = logging.getLogger(__name__)
_Code = grpc.StatusCode

_STATUSES = {
    _Code.INVALID_ARGUMENT: 400,
    _Code.OUT_OF_RANGE: 400,
    _Code.FAILED_PRECONDITION: 422,
    _Code.UNAUTHENTICATED: 401,
    _Code.PERMISSION_DENIED: 403,
    _Code.NOT_FOUND: 404,
    _Code.ALREADY_EXISTS: 409,
    _Code.ABORTED: 409,
    _Code.RESOURCE_EXHAUSTED: 429,
    _Code.UNIMPLEMENTED: 501,
    _Code.UNAVAILABLE: 503,
    _Code.DEADLINE_EXCEEDED: 504,
}
"""Of everything else it is 500."""


def json_bytes(document: Any) -> bytes:
    # A number that JSON has no word for is a text by now: protobuf's JSON says "NaN".
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def json_answer(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=json_bytes(document), status=status, content_type="application/json")


def error_answer(error: Exception) -> tuple[web.Response, str]:
    """Return what the caller gets to read of ``error``, and the name of its code for the
    metrics."""
    if isinstance(error, web.HTTPException):
        code = {404: "NOT_FOUND", 405: "UNIMPLEMENTED", 413: "RESOURCE_EXHAUSTED"}.get(
            error.status, "INVALID_ARGUMENT"
        )
        hint = "GET /docs tells what is served." if error.status in (404, 405) else ""
        refused = {"code": code, "message": error.reason, "field": "", "hint": hint, "reason": ""}
        answer = json_answer({"error": refused | _id()}, status=error.status)
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer, code
    if not isinstance(error, KongmingError | TimeoutError):
        _log.error("Unexpected error in request %s", _id()["request_id"], exc_info=error)
    code_of = to_status(error).code
    failure = json_format.MessageToDict(
        failure_message(error),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    answer = json_answer({"error": failure | _id()}, status=_STATUSES.get(code_of, 500))
    if code_of is _Code.UNAUTHENTICATED:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="kongming"'
    elif code_of in (_Code.RESOURCE_EXHAUSTED, _Code.UNAVAILABLE):
        answer.headers["Retry-After"] = "1"
    return answer, code_of.name


def not_served(request: web.Request) -> web.HTTPException:
    """404, or 405 where the path is served under another method."""
    exception = request.match_info.http_exception
    return exception if exception is not None else web.HTTPNotFound()


def refuse_foreign_host(host: str) -> None:
    """Refuse foreign hosts: where callers are not authenticated, only names of loopback are
    answered to: a web page whose name was made to point at this machine could read the answers
    otherwise.

    Raises:
        AccessError: the Host header names another one.
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower().rstrip(".") == "localhost":
        return
    try:
        if ipaddress.ip_address(name).is_loopback:
            return
    except ValueError:
        pass
    raise AccessError(
        "The Host of the request is not this machine's loopback.",
        hint="Ask for localhost or 127.0.0.1.",
    )


def _id() -> dict[str, str]:
    call = current_call.get()
    return {"request_id": "" if call is None else call.request_id}
