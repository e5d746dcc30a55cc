"""What a memory limit has to leave a program, and what is put back into the page cache after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_S = 0.005
"""A peak shorter than this may be missed: what a limit adds to the need has to cover it."""

RAISE = 1.5
"""What a need grows by that proved too small."""

_REFILL_BYTES = 1 << 20


@dataclass(slots=True)
class Peak:
    """The largest value that was read while the context was open, in bytes."""

    read: Callable[[], int]
    bytes: int = 0
    _ended: threading.Event | None = None
    _thread: threading.Thread | None = None

    def __enter__(self) -> Peak:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, args=(self._ended,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._ended is not None and self._thread is not None:
            self._ended.set()
            self._thread.join()

    def _poll(self, ended: threading.Event) -> None:
        while True:
            self.bytes = max(self.bytes, self.read())
            if ended.wait(POLL_S):
                return


def limit_bytes(need_bytes: int, parameters: Mapping[str, Any]) -> int:
    """The limit of a memory environment for a program that needs so much; in whole pages."""
    wanted = int(need_bytes * max(1.0, parameters["of_need"])) + int(parameters["plus_bytes"])
    return -(-wanted // 4096) * 4096


def refill(folder: Path) -> None:
    """Read the files below ``folder`` into the page cache again, from where they were evicted."""
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if not path.is_file() or path.is_symlink():
                continue
            with path.open("rb", buffering=0) as file:
                while file.read(_REFILL_BYTES):
                    pass
