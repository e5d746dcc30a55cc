"""Lines of an event log from chunks of it: bounded, whatever the content is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LONGEST = 1 << 26
"""Bytes of the longest line that is read: a query's plan may be long, no event needs more."""


@dataclass
class Lines:
    """Iterates over batches of lines, without their ends. Once done, ``tail`` is what stood after
    the last line end, and ``too_long`` the number of lines left out since they were too long."""

    chunks: Iterable[bytes]
    tail: bytes = b""
    too_long: int = 0

    def __iter__(self) -> Iterator[list[bytes]]:
        pending: list[bytes] = []
        size, dropping = 0, False
        try:
            for chunk in self.chunks:
                cut = chunk.rfind(b"\n")
                begin = 0
                if dropping and cut >= 0:
                    dropping = False
                    begin = chunk.find(b"\n") + 1
                if cut < 0:
                    if not dropping:
                        pending.append(chunk)
                        size += len(chunk)
                else:
                    if begin <= cut:
                        pending.append(chunk[begin:cut])
                        yield b"".join(pending).split(b"\n")
                    pending = [chunk[cut + 1 :]]
                    size = len(pending[0])
                if size > LONGEST:
                    pending, size, dropping = [], 0, True
                    self.too_long += 1
        finally:
            self.tail = b"".join(pending)
