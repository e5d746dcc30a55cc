"""Opening a folder that belongs to somebody less trusted than the caller, and only that one.

Root leaves files in a folder of an agent. Whoever took that agent over could put a link in the
folder's place, or in the place of one above it, and have root write elsewhere. The path is walked
one name at a time: once it has entered a folder of somebody who is not trusted it never leaves
what that one owns, and links are followed only where no other user could have put them.

Only the standard library is imported here: a scheduler's prolog loads it before each job.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_LINKS = 40
"""As many links of one path are followed, as the kernel does."""

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(path: Path) -> int:
    """A descriptor of the folder at ``path``, which the caller closes.

    Raises:
        OSError: it is not there, is no folder, or the way there leads through a link of, or out of
            a folder of, a user other than root and the caller.
    """
    names = list(reversed(Path(os.path.abspath(path)).parts[1:]))  # noqa: PTH100 (no links)
    here = os.open("/", _FLAGS)
    try:
        trusted = {0, os.geteuid(), os.fstat(here).st_uid}
        links = 0
        while names:
            name = names.pop()
            if name == "/":
                here = _replaced(here, os.open("/", _FLAGS))
                continue
            about = os.fstat(here)
            if stat.S_ISLNK(os.lstat(name, dir_fd=here).st_mode):
                links += 1
                open_to_others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                if about.st_uid not in trusted or open_to_others or links > _LINKS:
                    raise _refused(path, f"{name} is a link that others could have put there")
                target = Path(os.readlink(name, dir_fd=here))
                names += reversed(target.parts)
                continue
            there = os.open(name, _FLAGS, dir_fd=here)
            owner = os.fstat(there).st_uid
            here = _replaced(here, there)
            if about.st_uid not in trusted and owner != about.st_uid:
                raise _refused(path, f"{name} is not of the user whose folder it is in")
    except BaseException:
        os.close(here)
        raise
    return here


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _refused(path: Path, reason: str) -> OSError:
    return OSError(errno.EPERM, f"{reason}: nothing is left there", str(path))
