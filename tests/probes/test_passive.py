from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kongming.probes.passive import difference, snapshot

BEFORE = {
    "proc/pressure/cpu": "some avg10=0.0 avg60=0.0 avg300=0.0 total=1000000\n"
    "full avg10=0.0 avg60=0.0 avg300=0.0 total=0",
    "proc/pressure/io": "some avg10=0.0 total=0\nfull avg10=0.0 total=0",
    "proc/stat": "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\nctxt 500\nprocs_running 3",
    "proc/loadavg": "0.50 0.40 0.30 1/100 999",
    "proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 60 kB\nDirty: 4 kB",
    "proc/vmstat": "pgfault 1000\npgmajfault 1",
    "proc/diskstats": (
        " 254 0 vda 1 0 100 0 1 0 200 0 0 0 0 0 0 0 0 0 0\n"
        " 254 1 vda1 1 0 100 0 1 0 200 0 0 0 0 0 0 0 0 0 0\n"
        " 253 0 zram0 1 0 999 0 1 0 999 0 0 0 0 0 0 0 0 0 0\n"
        " 252 0 dm-0 1 0 999 0 1 0 999 0 0 0 0 0 0 0 0 0 0\n"
    ),
}
AFTER = BEFORE | {
    "proc/pressure/cpu": "some avg10=0.0 avg60=0.0 avg300=0.0 total=2000000",
    "proc/pressure/io": "some avg10=0.0 total=500000\nfull avg10=0.0 total=250000",
    "proc/stat": "cpu  150 0 150 860 20 0 0 20 0 0\nctxt 900\nprocs_running 2",
    "proc/vmstat": "pgfault 3000\npgmajfault 1",
    "proc/diskstats": " 254 0 vda 1 0 300 0 1 0 600 0 0 0 0 0 0 0 0 0 0\n",
}


def root(path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text + "\n")
    return path


def over_two_seconds(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> dict[str, float]:
    first = replace(snapshot(root(tmp_path / "before", before)), monotonic_s=10.0)
    second = replace(snapshot(root(tmp_path / "after", after)), monotonic_s=12.0)
    return difference(first, second)


def test_shares_rates_and_levels(tmp_path: Path) -> None:
    assert over_two_seconds(tmp_path, BEFORE, AFTER) == pytest.approx(
        {
            "psi_cpu_some": 0.5,
            "psi_io_some": 0.25,
            "psi_io_full": 0.125,
            "cpu_busy": 0.6,
            "iowait": 0.1,
            "steal": 0.1,
            "context_switches_per_s": 200.0,
            "running_tasks": 2.0,
            "load1": 0.5,
            "memory_available_bytes": 61440.0,
            "dirty_bytes": 4096.0,
            "page_faults_per_s": 1000.0,
            "major_faults_per_s": 0.0,
            "disk_read_bytes_per_s": 51200.0,
            "disk_write_bytes_per_s": 102400.0,
        }
    )


def test_without_psi_the_keys_are_missing_not_zero(tmp_path: Path) -> None:
    def without(files: dict[str, str]) -> dict[str, str]:
        return {name: text for name, text in files.items() if "pressure" not in name}

    signals = over_two_seconds(tmp_path, without(BEFORE), without(AFTER))
    assert not [key for key in signals if key.startswith("psi")]
    assert signals["cpu_busy"] == pytest.approx(0.6)


def test_nothing_readable_is_an_empty_answer(tmp_path: Path) -> None:
    assert over_two_seconds(tmp_path, {}, {}) == {}


def test_idle_states_are_of_the_neighbour_only(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu"
    names = {
        f"{folder}/cpuidle/current_driver": "haltpoll",
        f"{folder}/cpu0/cpuidle/state0/name": "POLL",
        f"{folder}/cpu0/cpuidle/state0/time": "7",
        f"{folder}/cpu1/cpuidle/state0/name": "POLL",
        f"{folder}/cpu1/cpuidle/state1/name": "haltpoll idle",
    }
    seen = []
    for moment, slept in ((10.0, ("0", "1000000")), (12.0, ("100000", "2500000"))):
        times = {f"{folder}/cpu1/cpuidle/state{i}/time": us for i, us in enumerate(slept)}
        read = snapshot(root(tmp_path, names | times), neighbour=1)
        seen.append(replace(read, monotonic_s=moment))
    first, second = seen
    assert difference(first, second) == {
        "cpuidle.haltpoll.POLL": 0.05,
        "cpuidle.haltpoll.haltpoll_idle": 0.75,
    }
    # As on machines without a driver: absent, not 0.
    assert snapshot(tmp_path, neighbour=2).counters == {}
    assert snapshot(tmp_path).counters == {}


def test_a_counter_that_went_back_is_left_out(tmp_path: Path) -> None:
    signals = over_two_seconds(tmp_path, AFTER, BEFORE)
    assert "disk_read_bytes_per_s" not in signals
    assert "psi_cpu_some" not in signals


def test_throttling_and_quota(tmp_path: Path) -> None:
    groups = {
        "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory",
        "sys/fs/cgroup/cpu.max": "50000 100000",
        "sys/fs/cgroup/cpu.stat": "nr_periods 5\nnr_throttled 1\nthrottled_usec 1000",
    }
    later = groups | {
        "sys/fs/cgroup/cpu.stat": "nr_periods 25\nnr_throttled 11\nthrottled_usec 501000"
    }
    signals = over_two_seconds(tmp_path, groups, later)
    assert signals == pytest.approx(
        {"cpu_quota": 0.5, "nr_periods": 20.0, "nr_throttled": 10.0, "throttled_s": 0.5}
    )


def test_this_machine_gives_numbers() -> None:
    before = snapshot()
    signals = difference(before, snapshot())
    assert signals["memory_available_bytes"] > 0
    assert all(isinstance(value, float) and value >= 0.0 for value in signals.values())
