from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kongming_agent.probing import signals

from kongming.rpc import bounds
from kongming.rpc.v1 import fleet_pb2


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def system(root: Path, *, busy: int, idle: int, io_us: int, sectors: int, kills: int) -> None:
    write(
        root,
        "proc/stat",
        f"cpu  {2 * busy} 0 0 {2 * idle} 0 0 0 0\n"
        f"cpu0 {2 * busy} 0 0 {idle} 0 0 0 0\ncpu1 0 0 0 {idle} 0 0 0 0\nctxt 5\n",
    )
    write(root, "proc/vmstat", f"pgfault 10\noom_kill {kills}\n")
    write(root, "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    write(root, "proc/pressure/io", f"some avg10=0 total={io_us}\nfull avg10=0 total={io_us}\n")
    lines = [
        f"254 0 vda 1 0 {sectors} 0 1 0 {sectors} 0 0 {sectors} 0",
        f"254 1 vda1 1 0 {sectors} 0 1 0 {sectors} 0 0 {sectors} 0",
        "7 0 loop0 1 0 9 0 1 0 9 0 0 9 0",
    ]
    write(root, "proc/diskstats", "\n".join(lines))
    write(root, "sys/class/block/vda1/partition", "1")
    write(root, "proc/self/cgroup", "0::/system.slice/agent.service\n")
    mount = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    write(root, "proc/self/mountinfo", mount)
    top = "sys/fs/cgroup"
    for group in ("", "/system.slice", "/system.slice/agent.service", "/user.slice"):
        write(root, f"{top}{group}/cgroup.controllers", "cpu memory\n")
        write(root, f"{top}{group}/io.pressure", f"some avg10=0 total={io_us}\n")


WINDOW_S = 0.05


def sample_at(root: Path, moment: float) -> signals.Sample:
    """A sample as if all of it was read at ``moment``, however long the reading took."""
    sample = signals.sample(root)
    return replace(sample, at=moment, system=replace(sample.system, monotonic_s=moment))


def window(tmp_path: Path) -> signals.Signals:
    system(tmp_path, busy=0, idle=0, io_us=0, sectors=0, kills=1)
    before = sample_at(tmp_path, 100.0)
    system(tmp_path, busy=50, idle=50, io_us=10_000, sectors=1000, kills=2)
    return signals.between(before, sample_at(tmp_path, 100.0 + WINDOW_S))


def test_a_group_whose_name_fits_no_message_is_left_out(tmp_path: Path) -> None:
    for name in ("a" * 100, "b" * 120, "c\nd", os.fsdecode(b"\xff")):
        write(tmp_path, f"sys/fs/cgroup/{name}/io.pressure", "some avg10=0 total=1\n")
    seen = window(tmp_path)
    assert set(seen.groups) == {"self", "a" * 100, "system.slice", "user.slice"}
    heartbeat = fleet_pb2.Heartbeat(passive=seen.flat())
    bounds.check(heartbeat)


def test_cpus_devices_groups_and_kills_are_seen(tmp_path: Path) -> None:
    seen = window(tmp_path)
    assert seen.cpu_busy == {0: pytest.approx(2 / 3), 1: 0.0}
    assert set(seen.devices) == {"vda"}
    assert seen.devices["vda"]["read_bytes_per_s"] == pytest.approx(512_000 / WINDOW_S)
    assert seen.oom_kills == 1.0
    assert set(seen.groups) == {"self", "system.slice", "user.slice"}
    expected = pytest.approx(0.01 / WINDOW_S)
    assert seen.groups["user.slice"]["psi_io_some"] == expected
    assert seen.system["psi_io_full"] == expected
    flat = seen.flat()
    assert flat["device.vda.busy"] == 1.0
    assert flat["cgroup.self.psi_io_some"] == expected


def test_a_counter_that_goes_back_is_left_out(tmp_path: Path) -> None:
    system(tmp_path, busy=100, idle=100, io_us=10_000, sectors=1000, kills=5)
    before = signals.sample(tmp_path)
    system(tmp_path, busy=1, idle=1, io_us=10, sectors=10, kills=0)
    seen = signals.between(before, signals.sample(tmp_path))
    assert seen.devices == {}
    assert seen.cpu_busy == {}
    assert seen.oom_kills == 0.0


def test_a_kernel_that_tells_nothing_gives_nothing(tmp_path: Path) -> None:
    before = signals.sample(tmp_path)
    seen = signals.between(before, signals.sample(tmp_path))
    assert seen.flat() == {}
    assert signals.room(None, 1e9, 1e9, None, None).ok


def test_this_machine_has_signals() -> None:
    before = signals.sample()
    time.sleep(0.05)
    seen = signals.between(before, signals.sample())
    assert seen.cpu_busy
    assert 0.0 <= seen.system["cpu_busy"] <= 1.0


def test_no_probe_starts_on_a_machine_that_is_out_of_memory_or_disk() -> None:
    gib = float(1 << 30)
    enough = (4 * gib, 1 * gib, 16 * gib, 40 * gib, 100 * gib)
    assert signals.room(*enough).ok
    assert "memory" in signals.room(1.2 * gib, *enough[1:]).reason
    assert "disk" in signals.room(*enough[:3], 9 * gib, 100 * gib).reason
    assert "disk" in signals.room(*enough[:3], 1.9 * gib, 10 * gib).reason
    assert "killed" in signals.room(*enough, oom_kills=1.0).reason


def test_the_idlest_cpu_is_the_first_among_equals() -> None:
    assert signals.idlest((0, 1, 2), {0: 0.5, 1: 0.101, 2: 0.099}) == 1
    assert signals.idlest((4, 5), {}) == 4


def test_room_on_disk_is_that_of_the_next_folder_that_exists(tmp_path: Path) -> None:
    free, total = signals.disk_room(tmp_path / "not" / "yet")
    assert free is not None
    assert total is not None
    assert 0 < free <= total
