"""Eviction of an application's files from the page cache, as far as permitted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

DROP_CACHES = Path("/proc/sys/vm/drop_caches")

WHOLE_NODE = "cold cache: the page cache of the node was dropped"
FILES_ONLY = (
    "cold cache: only the files of the scratch folder and those that the commands name were evicted"
)


def evict(
    folder: Path,
    named: Iterable[Path] = (),
    *,
    whole_node: bool = True,
    drop_caches: Path = DROP_CACHES,
) -> str:
    """Write back and evict the files below ``folder`` and those ``named``; with ``whole_node`` all,
    if permitted.

    Returns:
        Description of what was evicted.
    """
    for path in (*_files(folder), *map(os.path.realpath, named)):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                os.fdatasync(fd)  # a dirty page is not evicted
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
    if whole_node:
        with contextlib.suppress(OSError):
            drop_caches.write_text("1\n", encoding="ascii")
            return WHOLE_NODE
    return FILES_ONLY


def _files(folder: Path) -> Iterator[str]:
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)  # noqa: PTH118  many files: no object for each
            if os.path.isfile(path):  # noqa: PTH113
                yield path
