"""Memory need of a program under a memory limit, and refilling of the page cache after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_S = 0.005
"""Polling interval. Shorter peaks may be missed; the limit's margin has to cover them."""

RAISE = 1.5
"""Growth factor of a need that was too small."""

_REFILL_BYTES = 1 << 20


@dataclass(slots=True)
class Peak:
    """Largest value read while the context was open, in bytes."""

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
    """Compute a memory environment's limit for a program's need, in whole pages."""
    size_bytes = int(need_bytes * max(1.0, parameters["of_need"])) + int(parameters["plus_bytes"])
    return -(-size_bytes // 4096) * 4096


def refill(folder: Path) -> None:
    """Read the files below ``folder`` back into the page cache."""
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if not path.is_file() or path.is_symlink():
                continue
            with path.open("rb", buffering=0) as file:
                while file.read(_REFILL_BYTES):
                    pass
