"""Lookup of the disk that holds a folder, which I/O limits refer to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kongming.probes.cgroups import read_text, unescape_mount
from kongming.records.errors import MeasurementError

_LAYERS = 4
"""Maximum depth of nested overlays."""


@dataclass(frozen=True, slots=True)
class _Mount:
    point: str
    number: str
    kind: str
    source: str
    options: str


def block_device(folder: Path, root: Path = Path("/")) -> str:
    """Return ``major:minor`` of the disk that holds the files in ``folder``.

    Limits are per disk: a partition resolves to its disk, an overlay to the disk of its upper
    folder. Device-mapper, RAID and loop devices count as disks.

    Raises:
        MeasurementError: there is no such disk; says why.
    """
    mounts = _mounts(root)
    path = folder.absolute() if root != Path("/") else folder.resolve()
    for _ in range(_LAYERS):
        mount = _mount_of(path, mounts)
        if mount is None:
            raise MeasurementError(f"The file system of {folder} is unknown.")
        if mount.kind == "overlay":
            upper = _option(mount, "upperdir")
            upper_mount = None if upper is None else _mount_of(Path(upper), mounts)
            # In a container the path is the host's; looked up here, it is the overlay itself.
            if upper is None or upper_mount is None or upper_mount.kind == "overlay":
                raise MeasurementError(
                    f"{folder} is on an overlay whose upper folder is not visible here.",
                    hint="Name a folder on a volume of its own.",
                )
            path = Path(upper)
            continue
        number = _number(mount, root)
        if number is None:
            raise MeasurementError(f"There is no disk behind {folder}: it is {_describe(mount)}.")
        return _whole_disk(number, root)
    raise MeasurementError(f"{folder} is on too many overlays to find its disk.")


def _describe(mount: _Mount) -> str:
    if mount.kind in ("tmpfs", "ramfs"):
        return f"kept in memory ({mount.kind})"
    return f"{mount.kind} from {mount.source}"


def _number(mount: _Mount, root: Path) -> str | None:
    if not mount.number.startswith("0:"):
        return mount.number
    # File systems over several disks (btrfs) have their own number; the source names one disk.
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
    mounts = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if separator and len(fields) >= 5 and len(tail) >= 3:
            mounts.append(
                _Mount(
                    unescape_mount(fields[4]), fields[2], tail[0], unescape_mount(tail[1]), tail[2]
                )
            )
    return mounts


def _mount_of(path: Path, mounts: list[_Mount]) -> _Mount | None:
    best: _Mount | None = None
    for mount in mounts:
        # Of several mounts at one mount point the last one is visible.
        if path.is_relative_to(mount.point) and (
            best is None or len(Path(mount.point).parts) >= len(Path(best.point).parts)
        ):
            best = mount
    return best


def _option(mount: _Mount, name: str) -> str | None:
    for option in mount.options.split(","):
        key, _, value = option.partition("=")
        if key == name:
            return unescape_mount(value)
    return None
