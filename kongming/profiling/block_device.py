"""Which disk is behind a folder: what an I/O limit has to name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kongming.errors import MeasurementError
from kongming.probes.cgroups import read_text

_LAYERS = 4
"""Overlays on overlays are followed this deep."""


@dataclass(frozen=True, slots=True)
class _Mount:
    point: str
    number: str
    kind: str
    source: str
    options: str


def block_device(folder: Path, root: Path = Path("/")) -> str:
    """``major:minor`` of the whole disk that the files in ``folder`` are on.

    Limits are per disk: of a partition it is the disk, of an overlay that of its upper folder.
    Device-mapper, RAID and loop devices are disks of their own.

    Raises:
        MeasurementError: there is no such disk; says why.
    """
    mounts = _mounts(root)
    path = folder.absolute() if root != Path("/") else folder.resolve()
    for _ in range(_LAYERS):
        mount = _mount_of(path, mounts)
        if mount is None:
            raise MeasurementError(f"It is not known which file system {folder} is on.")
        if mount.kind == "overlay":
            upper = _option(mount, "upperdir")
            below = None if upper is None else _mount_of(Path(upper), mounts)
            # In a container the path is the host's: found here, it would be the overlay itself.
            if upper is None or below is None or below.kind == "overlay":
                raise MeasurementError(
                    f"{folder} is on an overlay whose upper folder is not visible here.",
                    hint="Name a folder on a volume of its own.",
                )
            path = Path(upper)
            continue
        number = _number(mount, root)
        if number is None:
            raise MeasurementError(f"There is no disk behind {folder}: it is {_what(mount)}.")
        return _whole_disk(number, root)
    raise MeasurementError(f"{folder} is on too many overlays to find its disk.")


def _what(mount: _Mount) -> str:
    if mount.kind in ("tmpfs", "ramfs"):
        return f"kept in memory ({mount.kind})"
    return f"{mount.kind} from {mount.source}"


def _number(mount: _Mount, root: Path) -> str | None:
    if not mount.number.startswith("0:"):
        return mount.number
    # File systems over several disks (btrfs) have a number of their own; the source names one.
    if not mount.source.startswith("/dev/"):
        return None
    source = Path(mount.source)
    name = source.name if root != Path("/") else source.resolve().name
    return read_text(root / "sys/class/block" / name / "dev")


def _whole_disk(number: str, root: Path) -> str:
    entry = root / "sys/dev/block" / number
    if (entry / "partition").exists():
        return read_text(entry.resolve().parent / "dev") or number
    return number


def _mounts(root: Path) -> list[_Mount]:
    found = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if separator and len(fields) >= 5 and len(tail) >= 3:
            found.append(
                _Mount(_unescape(fields[4]), fields[2], tail[0], _unescape(tail[1]), tail[2])
            )
    return found


def _mount_of(path: Path, mounts: list[_Mount]) -> _Mount | None:
    best: _Mount | None = None
    for mount in mounts:
        # The last of several mounts at one place is the one that is seen.
        if path.is_relative_to(mount.point) and (
            best is None or len(Path(mount.point).parts) >= len(Path(best.point).parts)
        ):
            best = mount
    return best


def _option(mount: _Mount, name: str) -> str | None:
    for option in mount.options.split(","):
        key, _, value = option.partition("=")
        if key == name:
            return _unescape(value)
    return None


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
