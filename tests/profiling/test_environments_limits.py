"""Which control groups an environment makes, and which disk it slows: on made-up file systems."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kongming.profiling.environments.block_device import block_device
from kongming.profiling.environments.environment import LIMITED, Environment
from kongming.profiling.environments.limits import Limits, reasons, sweep_leftovers
from kongming.records.errors import MeasurementError
from tests.builders import node

FILES = {
    "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares", "cpu.stat"),
    "blkio": tuple(
        f"blkio.throttle.{name}_device"
        for name in ("read_bps", "write_bps", "read_iops", "write_iops")
    ),
    "cpuset": ("cpuset.cpus", "cpuset.mems"),
    "memory": ("memory.limit_in_bytes", "memory.stat", "memory.oom_control"),
    "2": ("cpu.max", "cpu.weight", "cpuset.cpus", "io.max", "memory.max", "memory.swap.max"),
}
DISK = "259:0"
QUOTA = Environment("half", "quota", {"cpu_quota": 0.5})
IO = Environment(
    "slow",
    "io",
    {"read_bytes_per_s": 1000, "write_bytes_per_s": 2000, "read_iops": 10, "write_iops": 20},
)
SHARED = Environment(
    "shared",
    "cpuset",
    {
        "cpu": 1,
        "seat": "same",
        "levels": [{"surrogate": "compute.float", "family": "compute", "intensity": 1.0}],
    },
)
MEMORY = Environment("tight", "memory", {"of_need": 1.25, "plus_bytes": 1 << 24})
MIX = Environment("mix", "mix", {"seat": "same", "programs": ["xz"]})


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """New groups get the kernel's files and go away with them, unless somebody is in them.

    Returns the names of the groups that were made.
    """
    created: list[str] = []
    mkdir, rmdir = Path.mkdir, Path.rmdir

    def make(self: Path, *args: object, **options: object) -> None:
        mkdir(self, *args, **options)  # type: ignore[arg-type]
        if self.name.startswith("kongming-"):
            created.append(self.name)
            version_2 = self.parent / "cgroup.controllers"
            kind = "2" if version_2.exists() else self.parent.name
            for name in (*FILES[kind], "cgroup.procs"):
                (self / name).touch()

    def remove(self: Path) -> None:
        procs = self / "cgroup.procs"
        others = [path for path in self.parent.rglob("cgroup.procs") if path != procs]
        for pid in procs.read_text().split() if procs.exists() else ():
            moved = any(pid in path.read_text().split() for path in others)
            if not moved and Path(f"/proc/{pid}").exists():
                raise OSError(errno.EBUSY, "busy", str(self))
        if procs.exists():
            shutil.rmtree(self)
        else:
            rmdir(self)

    monkeypatch.setattr(Path, "mkdir", make)
    monkeypatch.setattr(Path, "rmdir", remove)
    return created


def mountinfo(root: Path, *mounts: str) -> None:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    lines = [f"{40 + i} 1 {mount}" for i, mount in enumerate(mounts)]
    with (root / "proc/self/mountinfo").open("a") as file:
        file.write("\n".join(lines) + "\n")


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """Four trees, this process in the root of each; the I/O folder on the second partition."""
    root = tmp_path / "v1"
    names = ("cpu", "blkio", "cpuset", "memory")
    mountinfo(root, "259:2 / /data rw - ext4 /dev/nvme0n1p2 rw")
    mountinfo(
        root, *(f"0:3{i} / /sys/fs/cgroup/{n} rw - cgroup c rw,{n}" for i, n in enumerate(names))
    )
    (root / "proc/self/cgroup").write_text("".join(f"{i}:{n}:/\n" for i, n in enumerate(names)))
    for name in names:
        folder = root / "sys/fs/cgroup" / name
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").touch()
    (root / "sys/fs/cgroup/cpuset/cpuset.mems").write_text("0-1\n")
    disk(root)
    return root


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    """This process in /user; the group above it hands everything down."""
    root = tmp_path / "v2"
    mountinfo(
        root, "259:2 / /data rw - ext4 /dev/nvme0n1p2 rw", "0:30 / /sys/fs/cgroup rw - cgroup2 c rw"
    )
    (root / "proc/self/cgroup").write_text("0::/user\n")
    for folder, handed_down in ((".", "cpu cpuset io memory"), ("user", "")):
        group = root / "sys/fs/cgroup" / folder
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.controllers").write_text("cpu cpuset io memory\n")
        (group / "cgroup.subtree_control").write_text(f"{handed_down}\n")
        (group / "cgroup.procs").touch()
    disk(root)
    return root


def disk(root: Path) -> None:
    """An NVMe disk with a second partition, and a device-mapper volume, as /sys shows them."""
    device = root / "sys/devices/nvme0n1"
    part = device / "nvme0n1p2"
    mapped = root / "sys/devices/virtual/dm-0"
    for folder, number in ((device, DISK), (part, "259:2"), (mapped, "252:0")):
        folder.mkdir(parents=True)
        (folder / "dev").write_text(f"{number}\n")
        for kind, name in (("dev/block", number), ("class/block", folder.name)):
            entry = root / "sys" / kind / name
            entry.parent.mkdir(parents=True, exist_ok=True)
            entry.symlink_to(folder)
    (part / "partition").write_text("2\n")


def settings_of(procs: tuple[Path, ...]) -> dict[str, str]:
    """What was written to the files of the groups behind these cgroup.procs files, by name."""
    return {
        file.name: file.read_text().strip()
        for path in procs
        for file in path.parent.iterdir()
        if file.name != "cgroup.procs" and file.read_text()
    }


def leftovers(root: Path) -> list[Path]:
    return list((root / "sys/fs/cgroup").rglob("kongming-*"))


def test_version_1_has_a_group_in_the_tree_of_each_controller(
    version_1: Path, kernel: list[str]
) -> None:
    data = Path("/data/io")
    with Limits(QUOTA, data, root=version_1) as limits:
        assert settings_of(limits.app_procs) == {
            "cpu.cfs_period_us": "100000",
            "cpu.cfs_quota_us": "50000",
        }
        assert limits.probe_procs == limits.app_procs
        assert limits.load_procs == ()
    with Limits(IO, data, root=version_1) as limits:
        assert settings_of(limits.app_procs) == {
            "blkio.throttle.read_bps_device": f"{DISK} 1000",
            "blkio.throttle.write_bps_device": f"{DISK} 2000",
            "blkio.throttle.read_iops_device": f"{DISK} 10",
            "blkio.throttle.write_iops_device": f"{DISK} 20",
        }
    with Limits(SHARED, data, root=version_1) as limits:
        assert settings_of(limits.app_procs) == {"cpuset.cpus": "1", "cpuset.mems": "0-1"}
        assert {path.parent.parent.name for path in limits.load_procs} == {"cpu", "cpuset"}
        assert set(limits.app_procs).isdisjoint(limits.load_procs)
    with Limits(MEMORY, data, root=version_1) as limits:
        assert settings_of(limits.app_procs) == {}
        limits.limit_memory(1 << 25)
        assert settings_of(limits.app_procs) == {"memory.limit_in_bytes": str(1 << 25)}
        assert limits.probe_procs == ()
    assert len(kernel) == 1 + 1 + 4 + 1
    assert leftovers(version_1) == []


def test_version_2_has_one_group_where_the_controllers_are_handed_down(
    version_2: Path, kernel: list[str]
) -> None:
    data = Path("/data/io")
    with Limits(QUOTA, data, root=version_2) as limits:
        (procs,) = limits.app_procs
        assert procs.parent.parent == version_2 / "sys/fs/cgroup"
        assert settings_of(limits.app_procs) == {"cpu.max": "50000 100000"}
    with Limits(IO, data, root=version_2) as limits:
        assert settings_of(limits.app_procs) == {
            "io.max": f"{DISK} rbps=1000 wbps=2000 riops=10 wiops=20"
        }
    with Limits(SHARED, data, root=version_2) as limits:
        assert len(limits.app_procs) == len(limits.load_procs) == 1
        assert (
            settings_of(limits.app_procs) == settings_of(limits.load_procs) == {"cpuset.cpus": "1"}
        )
    with Limits(MEMORY, data, memory_bytes=1 << 24, root=version_2) as limits:
        assert settings_of(limits.app_procs) == {"memory.max": str(1 << 24), "memory.swap.max": "0"}
    assert len(kernel) == 1 + 1 + 2 + 1
    assert leftovers(version_2) == []


@pytest.mark.parametrize("fixture", ["version_1", "version_2"])
def test_nothing_is_left_and_nobody_is_lost_when_something_fails(
    fixture: str, request: pytest.FixtureRequest, kernel: list[str]
) -> None:
    root: Path = request.getfixturevalue(fixture)
    stays = subprocess.Popen(["sleep", "60"])

    def interrupted() -> None:
        with Limits(QUOTA, Path("/data"), root=root) as limits:
            limits.app_procs[0].write_text(f"{stays.pid}\n")
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert leftovers(root) == []
        procs = (root / "sys/fs/cgroup").rglob("cgroup.procs")
        assert [path for path in procs if str(stays.pid) in path.read_text()] != []
    finally:
        stays.kill()
        stays.wait()


def test_groups_of_a_killed_campaign_are_removed_at_the_next_start(
    version_1: Path, kernel: list[str]
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    blkio = version_1 / "sys/fs/cgroup/blkio"
    left, ours = blkio / f"kongming-{ended.pid}-3-app", blkio / f"kongming-{os.getpid()}-3-app"
    busy = blkio / f"kongming-{ended.pid}-4-app"
    for folder in (left, ours, busy):
        folder.mkdir()
    (busy / "cgroup.procs").write_text(f"{os.getpid()}\n")
    sweep_leftovers(version_1)
    assert set(leftovers(version_1)) == {ours, busy}


def test_the_reason_is_told_for_each_kind_that_cannot_be_made(
    version_1: Path, version_2: Path, tmp_path: Path, kernel: list[str]
) -> None:
    data = Path("/data")
    assert reasons(node(), data, version_1) == dict.fromkeys(LIMITED)
    assert reasons(node(), data, version_2) == dict.fromkeys(LIMITED)
    assert leftovers(version_1) == leftovers(version_2) == []

    nothing = reasons(node(), data, tmp_path / "empty")
    assert "cpuset controller" in str(nothing["cpuset"])
    assert "file system" in str(nothing["io"])

    # Handing a controller down would change how the whole subtree is scheduled.
    (version_2 / "sys/fs/cgroup/cgroup.subtree_control").write_text("cpu\n")
    some = reasons(node(), data, version_2)
    assert some["quota"] is None
    assert "no memory control group" in str(some["memory"])
    assert "no io control group" in str(some["io"])

    mountinfo(version_1, "0:44 / /data rw - tmpfs tmpfs rw")
    assert "kept in memory (tmpfs)" in str(reasons(node(), data, version_1)["io"])


def test_a_file_that_the_kernel_does_not_have_is_a_reason(
    version_1: Path, kernel: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, "cpu", ("cpu.shares",))  # built without bandwidth control
    with pytest.raises(MeasurementError, match=r"cpu: cpu.cfs_period_us cannot be used"):
        Limits(QUOTA, Path("/data"), root=version_1).__enter__()
    assert leftovers(version_1) == []


def test_a_mix_goes_on_without_equal_weights(tmp_path: Path) -> None:
    with Limits(MIX, Path("/data"), root=tmp_path) as limits:
        assert limits.app_procs == limits.load_procs == ()
        assert "equal weight" in limits.warnings[0]
    assert Limits(MIX, Path("/data"), root=tmp_path).warnings == ()


@pytest.mark.parametrize(
    ("mount", "number"),
    [
        ("259:2 / / rw - ext4 /dev/nvme0n1p2 rw", DISK),
        ("259:0 / / rw - ext4 /dev/nvme0n1 rw", DISK),
        ("252:0 / / rw - xfs /dev/mapper/vg-root rw", "252:0"),
        ("0:50 / / rw - btrfs /dev/nvme0n1p2 rw", DISK),
    ],
)
def test_the_whole_disk_behind_a_folder(tmp_path: Path, mount: str, number: str) -> None:
    disk(tmp_path)
    mountinfo(tmp_path, "0:9 / /proc rw - proc proc rw", mount)
    assert block_device(Path("/home/someone"), tmp_path) == number


def test_an_overlay_is_on_the_disk_of_its_upper_folder(tmp_path: Path) -> None:
    disk(tmp_path)
    overlay = "0:60 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/data/upper,workdir=/data/w"
    mountinfo(tmp_path, overlay)
    with pytest.raises(MeasurementError, match="not visible here"):
        block_device(Path("/home"), tmp_path)
    mountinfo(tmp_path, "259:2 / /data rw - ext4 /dev/nvme0n1p2 rw")
    assert block_device(Path("/home"), tmp_path) == DISK


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        ("0:70 / / rw - tmpfs tmpfs rw", "kept in memory"),
        ("0:70 / / rw - nfs4 server:/export rw", "nfs4 from server:/export"),
    ],
)
def test_no_disk_is_a_reason(tmp_path: Path, mount: str, reason: str) -> None:
    mountinfo(tmp_path, mount)
    with pytest.raises(MeasurementError, match=reason):
        block_device(Path("/home"), tmp_path)


def test_the_last_mount_at_a_place_counts_and_spaces_are_written_as_octals(tmp_path: Path) -> None:
    mountinfo(
        tmp_path,
        "8:1 / / rw - ext4 /dev/sda1 rw",
        r"8:2 / /my\040disk rw - ext4 /dev/sdb rw",
        r"8:3 / /my\040disk rw - ext4 /dev/sdc rw",
    )
    assert block_device(Path("/my disk/io"), tmp_path) == "8:3"
    assert block_device(Path("/my"), tmp_path) == "8:1"
