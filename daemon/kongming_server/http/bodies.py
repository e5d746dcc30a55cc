"""Bodies as messages and messages as bodies: bounded, counted, and outside of the event loop where
they are large."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, TypeVar

from aiohttp import web
from google.protobuf import descriptor_pool, json_format
from google.protobuf.message import Message

from kongming.records.errors import InputError, UnknownNameError
from kongming.rpc import bounds
from kongming_server.http.answers import json_bytes

__all__ = ["message_answer", "message_of", "read_body"]

READ_TIMEOUT_S = 10.0
"""A request whose body takes longer to arrive is refused."""

INLINE_BYTES = 8 << 10
"""A larger body is parsed in a thread: the event loop is not held up by it."""

INLINE_ENTRIES = 50
"""An answer of more entries is written in a thread."""

_LONGEST_REASON = 200
_VALUES_PER_ENTRY = 16
"""Objects and lists in a document, for each question or candidate that it may have."""

M = TypeVar("M", bound=Message)


async def read_body(request: web.Request) -> bytes:
    """The body, as it came.

    Raises:
        web.HTTPException: it is too large, not said to be JSON, or encoded.
        InputError: it did not come as the headers said.
        TimeoutError: it took too long to arrive.
    """
    # A web page of another site can send a form unasked, but not JSON.
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(reason="Content-Type must be application/json.")
    encodings = request.headers.getall("Content-Encoding", [])
    if any(encoding.strip().lower() not in ("", "identity") for encoding in encodings):
        raise web.HTTPUnsupportedMediaType(reason="Content-Encoding must be identity.")
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await request.read()
    except web.RequestPayloadError as error:
        raise InputError("The body is not what its headers say.", field="body") from error


async def message_of(body: bytes, kind: type[M], batch: int) -> M:
    """The message that a body is in JSON. Raises InputError; ``batch`` entries are allowed."""
    if len(body) <= INLINE_BYTES:
        return _parsed(body, kind, batch)
    return await asyncio.to_thread(_parsed, body, kind, batch)


async def message_answer(message: Message) -> web.Response:
    """A message as an answer; numbers that JSON has no word for are texts in it."""
    entries = max(
        (len(value) for field, value in message.ListFields() if field.is_repeated), default=0
    )
    if entries <= INLINE_ENTRIES:
        body = _written(message)
    else:
        body = await asyncio.to_thread(_written, message)
    return web.Response(body=body, content_type="application/json")


def _written(message: Message) -> bytes:
    document = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return json_bytes(document)


def _parsed(body: bytes, kind: type[M], batch: int) -> M:
    message = kind()
    try:
        document = json.loads(body)
        if not isinstance(document, dict):
            raise json_format.ParseError("it is not an object")
        _count(document, kind, batch)
        if b"\\u" in body:
            # Half a surrogate pair makes the parser fail in ways of its own.
            json.dumps(document, ensure_ascii=False).encode("utf-8")
        json_format.ParseDict(document, message)
    except _NO_MESSAGE as error:
        raise InputError(
            f"is not a {kind.DESCRIPTOR.name}: {_reason(error)}.",
            field="body",
            hint="GET /openapi.json says what it looks like.",
        ) from error
    bounds.check(message)
    return message


def _reason(error: Exception) -> str:
    """Return what is wrong with a body, in words of JSON: neither Python's nor the parser's."""
    match error:
        case json.JSONDecodeError():
            return f"it is not JSON ({error.msg}: line {error.lineno}, column {error.colno})"
        case UnicodeError():
            return "it is not a text in UTF-8"
        case RecursionError():
            return "it is nested too deeply"
        case json_format.ParseError():
            text = _plain(str(error)).partition("\n")[0].rstrip(".")
        case _:
            return "a value in it is of the wrong kind"
    # The fields that it is in, outermost first; what follows may have words of the body.
    inside = re.match(r"(?:Failed to parse \S+ field: )*", text)
    rest = text if inside is None else text[inside.end() :]
    if unknown := re.match(r'Message type "(\S+)" has no field named "(.*?)" at "(\S*)"', rest):
        return _unknown_field(*unknown.groups())
    if inside is not None and inside[0]:
        path = ".".join(re.findall(r"Failed to parse (\S+) field", inside[0]))
        return f"the value of {path[:_LONGEST_REASON]} is of the wrong kind"
    return text[:_LONGEST_REASON]


def _unknown_field(message: str, name: str, place: str) -> str:
    """Return what is said of a ``name`` that the ``message`` at ``place``, as the parser has it,
    lacks."""
    fields = descriptor_pool.Default().FindMessageTypeByName(message).fields
    near = UnknownNameError("field", name, (field.name for field in fields))
    meant = f" (did you mean {' or '.join(near.suggestions[:2])}?)" if near.suggestions else ""
    inner = place.partition(".")[2]
    of = f"{inner[:_LONGEST_REASON]} has" if inner else "it has"
    return f"{of} no field named {name[:_LONGEST_REASON]!r}{meant}"


_NO_MESSAGE = (
    json_format.ParseError,
    ValueError,  # also texts that are no Unicode
    TypeError,
    OverflowError,  # an infinity where an integer stands
    RecursionError,
    SystemError,  # of the parser, for keys that are no text
)


def _count(document: dict[str, Any], kind: type[Message], batch: int) -> None:
    """Raises InputError for more lists and objects than any request of this batch has."""
    for field in kind.DESCRIPTOR.fields:
        for name in {field.name, field.json_name}:
            entries = document.get(name)
            if isinstance(entries, list) and len(entries) > batch:
                raise InputError(
                    "has too many entries.",
                    field=field.name,
                    value=len(entries),
                    allowed=f"up to {batch} in one request",
                )
    most = _VALUES_PER_ENTRY * (batch + 16)
    waiting: list[Any] = [document]
    seen = 0
    while waiting:
        value = waiting.pop()
        seen += 1
        if seen > most:
            raise InputError(
                "has too many parts.", field="body", allowed=f"up to {most} lists and objects"
            )
        inner = value.values() if isinstance(value, dict) else value
        waiting.extend(child for child in inner if isinstance(child, dict | list))


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
