"""A disk in memory for the nodes of a test, so that limits of it slow nothing else down."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/dev/shm")
SIZE = 16 << 30
"""As much room as surrogates want; what is not written takes no memory."""
_PREFIX = "disk-of-"


@contextlib.contextmanager
def own_disk(folder: Path) -> Iterator[Path]:
    """A file system below ``folder`` on a block device of its own, in memory.

    Reads and writes of a node whose disk is throttled hold up those of all others on its device,
    of other tests as well: for a minute where these are busy. Where no such device can be made, as
    in most containers, it is ``folder`` itself.
    """
    _sweep()
    place = folder / f"{_PREFIX}{os.getpid()}"
    place.mkdir()
    if not _mounted(place):
        place.rmdir()
        yield folder
        return
    try:
        yield place
    finally:
        # Lazily: a process that is ending may hold a file for a moment yet.
        _run("umount", "--lazy", str(place))


def _mounted(place: Path) -> bool:
    """Try to mount a new file system there; nothing remains of it once it is unmounted."""
    try:
        with tempfile.NamedTemporaryFile(dir=MEMORY) as image:
            image.truncate(SIZE)
            device = _run("losetup", "--find", "--show", image.name).strip()
    except (OSError, subprocess.CalledProcessError):
        return False
    try:
        # Without a journal nobody waits for the commit of another.
        _run("mkfs.ext4", "-q", "-O", "^has_journal", device)
        _run("mount", device, str(place))
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        # Mounted, it is there for as long as it is.
        _run("losetup", "--detach", device)
    return True


def _sweep() -> None:
    """Unmount what tests that were killed have left."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = Path(line.split(" ")[1])
        pid = place.name.removeprefix(_PREFIX)
        if place.name != pid and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("umount", "--lazy", str(place))


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
