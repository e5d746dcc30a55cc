"""Lines of an event log from chunks of it: bounded, whatever the content is."""

from __future__ import annotations

import io
from collections.abc import Iterator

from kongming.spark.reading.codecs import DamagedStreamError

LONGEST = 1 << 26
"""Bytes of the longest line that is read: a query's plan may be long, no event needs more."""

_BUFFER = 1 << 16


class Lines(io.RawIOBase):
    """Iterates over lines, each with its end; the last may have none. ``damage`` then is why not
    all chunks could be had (None: all were), ``too_long`` of how many lines the rest was left out;
    ``any``: whether there was any byte.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        self._length = 0  # of the line so far
        self.too_long = 0
        self.any = False
        self.damage: DamagedStreamError | None = None

    def __iter__(self) -> Iterator[bytes]:
        return iter(io.BufferedReader(self, _BUFFER))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            try:
                chunk = next(self._chunks, None)
            except DamagedStreamError as error:
                self.damage, chunk = error, None
            if chunk is None:
                return 0
            self.any = self.any or bool(chunk)
            self._rest = memoryview(self._bounded(chunk))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _bounded(self, chunk: bytes) -> bytes:
        """The chunk without the rest of a line that is too long already."""
        end = chunk.rfind(b"\n")
        if end < 0:
            within, self._length = self._length <= LONGEST, self._length + len(chunk)
            if not within:
                return b""
            self.too_long += self._length > LONGEST
            return chunk
        begin = chunk.find(b"\n") if self._length > LONGEST else 0
        self._length = len(chunk) - end - 1
        return chunk[begin:] if begin else chunk
