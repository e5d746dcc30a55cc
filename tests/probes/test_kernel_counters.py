"""Block devices and pressure, as the kernel's files have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kongming.probes.kernel_counters import devices, is_layer, stalled_us


def line(name: str, read: int = 2, written: int = 4, busy: int = 5) -> str:
    return f" 254 0 {name} 1 0 {read} 0 1 0 {written} 0 0 {busy} 0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    names = ["vda", "vda1", "nvme0n1", "nvme0n1p2", "pmem0", "pmem0s1", "dm-0", "md127", "loop3"]
    names.append("xvda2")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/diskstats").write_text("\n".join(map(line, names)))
    # Its name does not tell that it is a partition; sysfs does.
    (tmp_path / "sys/class/block/pmem0s1").mkdir(parents=True)
    (tmp_path / "sys/class/block/pmem0s1/partition").write_text("1\n")
    # Its name is that of a partition, and sysfs tells that it is none.
    (tmp_path / "sys/class/block/xvda2").mkdir()
    return tmp_path


def test_partitions_and_what_is_no_disk_are_no_devices(root: Path) -> None:
    assert list(dict(devices(root))) == ["vda", "nvme0n1", "pmem0", "dm-0", "md127", "xvda2"]


def test_counters_are_in_bytes_and_milliseconds(root: Path) -> None:
    vda = dict(devices(root))["vda"]
    assert (vda.read_bytes, vda.written_bytes, vda.busy_ms) == (1024.0, 2048.0, 5.0)


def test_layers_are_told_from_disks(root: Path) -> None:
    assert [name for name, _ in devices(root) if is_layer(name)] == ["dm-0", "md127"]


def test_a_line_that_is_cut_is_no_device(root: Path) -> None:
    (root / "proc/diskstats").write_text(line("vda") + "\n 254 16 vdb 1 0 2")
    assert list(dict(devices(root))) == ["vda"]


def test_without_the_files_nothing_is_known(tmp_path: Path) -> None:
    assert list(devices(tmp_path)) == []
    assert stalled_us(tmp_path / "proc/pressure/io") == {}


def test_stalled_time_is_by_kind(tmp_path: Path) -> None:
    (tmp_path / "io").write_text(
        "some avg10=0.10 avg60=0.00 avg300=0.00 total=1500\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=500\n"
    )
    assert stalled_us(tmp_path / "io") == {"some": 1500.0, "full": 500.0}
