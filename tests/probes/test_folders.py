"""Which folders are in memory, from a table of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kongming.probes.folders import in_memory, work_folder
from kongming.probes.suite import io_bytes
from kongming.records.errors import InputError

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
tmpfs /mnt/with\\040space tmpfs rw 0 0
tmpfs /over tmpfs rw 0 0
/dev/vdb /over ext4 rw 0 0
/dev/vdc /dev/shm/disk xfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/", False),
        ("/home/user", False),
        ("/dev/shm", True),
        ("/dev/shm/deep/down", True),
        ("/dev/shmother", False),
        ("/dev/shm/disk", False),
        ("/mnt/with space", True),
        ("/over", False),
    ],
)
def test_the_innermost_mount_decides(tmp_path: Path, folder: str, expected: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert in_memory(Path(folder), mounts) is expected


def test_without_a_table_nothing_is_in_memory(tmp_path: Path) -> None:
    assert not in_memory(tmp_path, tmp_path / "absent")


def test_a_folder_to_work_in_can_be_written(tmp_path: Path) -> None:
    assert work_folder(tmp_path) == tmp_path
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="Allowed: a writable folder") as error:
        work_folder("/proc")
    assert "--dir" in str(error.value.hint)


def test_a_file_in_memory_takes_an_eighth_of_the_budget_at_most() -> None:
    shared = Path("/dev/shm")
    if not in_memory(shared):
        pytest.skip("/dev/shm is not in memory here")
    assert io_bytes(shared, 1 << 30) <= (1 << 30) // 8
