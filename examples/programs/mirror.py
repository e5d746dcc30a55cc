"""Brings a mirror of a tree up to date and makes it durable. mirror.py DIR TIMES.

Copies DIR/tree to DIR/mirror, over what is there and in place: a copy that replaced its files
would free their blocks, which keeps some devices busy long after the program has ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def copy(source: Path, target: Path) -> int:
    """One file with its mode and times, in place; the number of bytes."""
    content = source.read_bytes()
    fd = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.truncate()
    status = source.stat()
    target.chmod(status.st_mode)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    return len(content)


def make_durable(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def main() -> None:
    folder, times = Path(sys.argv[1]), int(sys.argv[2])
    tree, mirror = folder / "tree", folder / "mirror"
    for _ in range(times):
        copied, total = [], 0
        for source in sorted(tree.rglob("*")):
            target = mirror / source.relative_to(tree)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                total += copy(source, target)
                copied.append(target)
        for target in copied:
            make_durable(target)
    print(f"mirrored {total} bytes")


main()
