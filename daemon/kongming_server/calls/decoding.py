"""Check the size of a request and the number of its parts before decoding it, then its bounds.

A message is far larger in memory than on the wire where it is made of many small parts, so the
parts are counted before any of them is allocated.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kongming.records.errors import InputError, OverloadedError
from kongming.rpc import bounds
from kongming_server.running.supervision import Working, unwatched
from kongming_server.running.turns import Turns

OFF_LOOP_BYTES = 64 << 10
"""A larger message is decoded and checked in a thread: the event loop is not held up by it."""

PARTS_PER_MIB = 64 << 10
"""Texts and messages within a message, for each MiB that it may have. A record on the wire has
some twenty bytes for each, an attack two."""

_MESSAGES = frozenset({FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP})

Fields = Mapping[int, Descriptor]


class Decoder:
    """The messages of one method. ``executor`` decodes what is large; one caller has one message
    there at a time, so that it takes the turns of no other.

    ``decode`` is the generated ``FromString``; it raises DecodeError for what is no message.
    """

    def __init__(
        self,
        decode: Callable[[bytes], Any] | None,
        most_bytes: int,
        executor: Executor,
        turns: Turns | None = None,
        working: Working = unwatched,
    ) -> None:
        self._decode: Callable[[bytes], Any] = bytes if decode is None else decode
        self._most_bytes = most_bytes
        self._executor = executor
        self._turns = Turns() if turns is None else turns
        self._working = working
        message = getattr(decode, "__self__", None)
        self._descriptor: Descriptor | None = getattr(message, "DESCRIPTOR", None)
        self._harmless_bytes = (
            sys.maxsize if self._descriptor is None else bounds.harmless_bytes(self._descriptor)
        )

    async def message(self, content: bytes, who: str = "") -> Any:
        """The message that ``content`` is, of the caller ``who``.

        Raises:
            OverloadedError: it is too large.
            InputError: it has too many parts, or a text, list or map that is too large.
            DecodeError: it is no such message.
        """
        if len(content) > self._most_bytes:
            raise self._too_large(content)
        if len(content) <= OFF_LOOP_BYTES:
            return self.at_once(content)
        loop = asyncio.get_running_loop()
        async with self._turns.of(who):
            with self._working("Decoding a message"):
                return await loop.run_in_executor(self._executor, self._counted, content)

    def at_once(self, content: bytes) -> Any:
        """``message`` for what is small, without waiting. Raises as ``message``."""
        if len(content) > self._most_bytes:
            raise self._too_large(content)
        message = self._decode(content)
        if len(content) > self._harmless_bytes:
            bounds.check(message)
        return message

    def _counted(self, content: bytes) -> Any:
        if self._descriptor is not None:
            most = max(PARTS_PER_MIB, self._most_bytes // (1 << 20) * PARTS_PER_MIB)
            if count_parts(content, self._descriptor, most) > most:
                raise InputError(
                    "has too many parts.", field="message", allowed=f"up to {most} in one message"
                )
        return self.at_once(content)

    def _too_large(self, content: bytes) -> OverloadedError:
        return OverloadedError(
            f"The message has {len(content)} bytes, and may have {self._most_bytes}.",
            hint="Send it in several calls.",
        )


def count_parts(content: bytes, descriptor: Descriptor, most: int) -> int:
    """Return how many texts, byte strings and messages are within a message, at every depth.

    It ends early above ``most``. A message within it is counted up to whatever is not of the wire
    format: the decoder refuses that, but only after it has made all that is before. Nothing is
    allocated for what is counted.
    """
    parts = 0
    waiting: list[tuple[int, int, Fields]] = [(0, len(content), _fields(descriptor))]
    while waiting:
        at, end, fields = waiting.pop()
        try:
            while at < end:
                tag, at = _varint(content, at)
                kind = tag & 7
                if kind == 2:
                    size, at = _varint(content, at)
                    parts += 1
                    if parts > most:
                        return parts
                    if size > end - at:
                        break
                    inner = fields.get(tag >> 3)
                    if inner is not None and size:
                        waiting.append((at, at + size, _fields(inner)))
                    at += size
                elif kind == 0:
                    _, at = _varint(content, at)
                elif kind == 1:
                    at += 8
                elif kind == 5:
                    at += 4
                elif kind not in _GROUP:
                    break
        except IndexError:
            continue
    return parts


_GROUP = (3, 4)
"""Kinds of the begin and the end of a group, which no message of ours has: the decoder passes over
it, and what is within it has the same form."""


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends. Raises IndexError where it does not end, within 64 bits."""
    byte = content[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = content[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7
        if shift > _VARINT_BITS:
            raise IndexError


_VARINT_BITS = 63


@lru_cache(maxsize=1024)
def _fields(descriptor: Descriptor) -> Fields:
    """Numbers of the fields that hold messages, with what is in them."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.type in _MESSAGES and field.message_type is not None
    }
