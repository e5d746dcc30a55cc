from __future__ import annotations

import os
from pathlib import Path

import pytest

from kongming.probes.cgroups import cgroup_facts
from kongming.probes.node import allowed_cpu, memory_limit_bytes, node_facts, parse_cpu_list
from kongming.records.errors import InputError
from kongming.records.fingerprint import NodeFacts

GIB = 1 << 30


def files(root: Path, content: dict[str, str]) -> Path:
    for name, text in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


X86 = {
    "etc/machine-id": "0123456789abcdef0123456789abcdef",
    "proc/cpuinfo": (
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) @ 2.0GHz\n"
        "flags\t\t: fpu sse2\n\nprocessor\t: 1\nmodel name\t: another\n"
    ),
    "proc/meminfo": "MemTotal:       16777216 kB\nMemFree:  1 kB",
    "proc/sys/kernel/hostname": "alpha",
    "proc/sys/kernel/osrelease": "6.1.0",
    "proc/sys/kernel/arch": "x86_64",
    "sys/devices/system/cpu/online": "0-3",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
}


def bare_metal(root: Path) -> Path:
    """Two sockets of one core with two threads; each socket has its own last-level cache."""
    content = dict(X86)
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}"
        pair = "0,2" if cpu % 2 == 0 else "1,3"
        content[f"{base}/topology/thread_siblings_list"] = pair
        content[f"{base}/topology/physical_package_id"] = str(cpu % 2)
        for index, (level, kind, size, shared) in enumerate(
            [
                ("1", "Data", "48K", pair),
                ("1", "Instruction", "32K", pair),
                ("2", "Unified", "2048K", pair),
                ("3", "Unified", "30M", pair),
            ]
        ):
            cache = f"{base}/cache/index{index}"
            content[f"{cache}/level"] = level
            content[f"{cache}/type"] = kind
            content[f"{cache}/size"] = size
            content[f"{cache}/shared_cpu_list"] = shared
    return files(root, content)


def test_bare_metal(tmp_path: Path) -> None:
    node = node_facts(bare_metal(tmp_path))
    assert (node.name, node.architecture, node.kernel) == ("alpha", "x86_64", "6.1.0")
    assert (node.cpu_vendor, node.cpu_model) == ("GenuineIntel", "Intel(R) Xeon(R) @ 2.0GHz")
    assert (node.l1d_bytes, node.l2_bytes, node.llc_bytes) == (48 << 10, 2 << 20, 30 << 20)
    assert node.cpus == (0, 1, 2, 3)
    assert node.cores == {"0": 0, "1": 1, "2": 0, "3": 1}
    assert node.sockets == {"0": 0, "1": 1, "2": 0, "3": 1}
    assert node.llc_cpus == ((0, 2), (1, 3))
    assert node.memory_bytes == memory_limit_bytes(node) == 16 * GIB
    assert node.huge_pages == "madvise"
    assert node.hypervisor is None
    assert node.cgroup == {}
    assert NodeFacts.from_dict(node.to_dict()) == node


def test_allowed_cpus_do_not_change_the_identity(tmp_path: Path) -> None:
    root = bare_metal(tmp_path)
    unrestricted, part = node_facts(root), node_facts(root, allowed=[2])
    assert part.cpus == (2,)
    assert part.id == unrestricted.id


def test_other_hardware_is_another_node(tmp_path: Path) -> None:
    first = node_facts(bare_metal(tmp_path / "a"))
    root = files(bare_metal(tmp_path / "b"), {"proc/meminfo": "MemTotal: 8388608 kB"})
    assert node_facts(root).id != first.id


def test_a_little_memory_more_is_the_same_node(tmp_path: Path) -> None:
    first = node_facts(bare_metal(tmp_path / "a"))
    root = files(bare_metal(tmp_path / "b"), {"proc/meminfo": "MemTotal: 16770000 kB"})
    assert node_facts(root).id == first.id


def test_virtual_machine_without_cache_information(tmp_path: Path) -> None:
    content = X86 | {
        "proc/cpuinfo": "processor : 0\nmodel name : Virtual CPU\nflags : fpu hypervisor\n"
    }
    node = node_facts(files(tmp_path, content))
    assert (node.l1d_bytes, node.l2_bytes, node.llc_bytes) == (0, 0, 0)
    assert node.llc_cpus == ()
    assert node.cores == {str(cpu): cpu for cpu in range(4)}
    assert node.hypervisor == "unknown"


@pytest.mark.parametrize(
    ("vendor", "product", "expected"),
    [
        ("QEMU", "Standard PC", "kvm"),
        ("Amazon EC2", "c7g.large", "kvm"),
        ("Amazon EC2", "c7g.metal", None),
        ("Microsoft Corporation", "Virtual Machine", "hyper-v"),
    ],
)
def test_boards_tell_the_hypervisor(
    tmp_path: Path, vendor: str, product: str, expected: str | None
) -> None:
    board = {"sys/class/dmi/id/sys_vendor": vendor, "sys/class/dmi/id/product_name": product}
    assert node_facts(files(tmp_path, X86 | board)).hypervisor == expected


def test_aarch64(tmp_path: Path) -> None:
    content = X86 | {
        "proc/sys/kernel/arch": "aarch64",
        "proc/cpuinfo": (
            "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\n"
            "CPU part\t: 0xd0c\nCPU revision\t: 1\n\n"
        ),
        "sys/devices/system/cpu/cpu0/topology/physical_package_id": "-1",
    }
    node = node_facts(files(tmp_path, content))
    assert (node.architecture, node.cpu_vendor, node.cpu_model) == ("aarch64", "ARM", "Neoverse-N1")
    assert node.sockets["0"] == 0


def test_unknown_arm_part_keeps_its_number(tmp_path: Path) -> None:
    cpuinfo = "CPU implementer : 0x41\nCPU part : 0xfff\n"
    node = node_facts(files(tmp_path, X86 | {"proc/cpuinfo": cpuinfo}))
    assert node.cpu_model == "ARM part 0xfff"


def test_nothing_readable_still_gives_facts(tmp_path: Path) -> None:
    node = node_facts(tmp_path)
    assert node.cpus == (0,)
    assert node.memory_bytes == 0
    assert node.huge_pages == ""
    assert node.id


V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
)


def version_1(root: Path) -> Path:
    cpu, memory = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"
    return files(
        bare_metal(root),
        {
            "proc/self/mountinfo": V1_MOUNTS,
            "proc/self/cgroup": "4:memory:/a/b\n3:cpuset:/\n1:cpu,cpuacct:/a/b\n0::/",
            "sys/fs/cgroup/unified/cgroup.controllers": "",
            "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-2",
            f"{cpu}/cpu.cfs_quota_us": "-1",
            f"{cpu}/cpu.cfs_period_us": "100000",
            f"{cpu}/a/cpu.cfs_quota_us": "150000",
            f"{cpu}/a/cpu.cfs_period_us": "100000",
            f"{cpu}/a/cpu.stat": "nr_periods 10\nnr_throttled 3\nthrottled_time 5000000",
            f"{cpu}/a/b/cpu.cfs_quota_us": "-1",
            f"{cpu}/a/b/cpu.cfs_period_us": "100000",
            f"{cpu}/a/b/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0",
            f"{memory}/memory.limit_in_bytes": "9223372036854771712",
            f"{memory}/a/memory.limit_in_bytes": str(4 * GIB),
            f"{memory}/a/b/memory.limit_in_bytes": str(8 * GIB),
        },
    )


def test_cgroup_version_1_with_a_quota_above(tmp_path: Path) -> None:
    node = node_facts(version_1(tmp_path))
    assert node.cgroup == {
        "version": 1,
        "cpu_quota": 1.5,
        "period_us": 100000,
        "memory_limit_bytes": 4 * GIB,
        "cpus": "0-2",
        "nr_periods": 10,
        "nr_throttled": 3,
        "throttled_us": 5000,
    }
    assert node.memory_bytes == 16 * GIB
    assert memory_limit_bytes(node) == 4 * GIB


def test_limits_do_not_change_the_identity(tmp_path: Path) -> None:
    limited, free = version_1(tmp_path / "a"), bare_metal(tmp_path / "b")
    assert node_facts(limited).id == node_facts(free).id


def version_2(root: Path, group: str, mounted: str = "/") -> Path:
    base = "sys/fs/cgroup"
    return files(
        bare_metal(root),
        {
            "proc/self/mountinfo": f"31 23 0:28 {mounted} /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "proc/self/cgroup": f"0::{group}",
            f"{base}/cgroup.controllers": "cpuset cpu io memory pids",
            f"{base}/pod/cgroup.controllers": "cpuset cpu memory",
            f"{base}/pod/cpu.max": "300000 100000",
            f"{base}/pod/memory.max": str(3 * GIB),
            f"{base}/pod/app/cgroup.controllers": "cpu memory",
            f"{base}/pod/app/cpu.max": "50000 100000",
            f"{base}/pod/app/memory.max": "max",
            f"{base}/pod/app/cpu.stat": "usage_usec 5\nnr_periods 7\nnr_throttled 2\n"
            "throttled_usec 900",
            f"{base}/pod/cpuset.cpus.effective": "1-2",
        },
    )


def test_cgroup_version_2_takes_the_smallest_along_the_path(tmp_path: Path) -> None:
    facts = cgroup_facts(version_2(tmp_path, "/pod/app"))
    assert facts["version"] == 2
    assert facts["cpu_quota"] == 0.5
    assert facts["memory_limit_bytes"] == 3 * GIB
    assert facts["cpus"] == "1-2"
    assert (facts["nr_periods"], facts["nr_throttled"], facts["throttled_us"]) == (7, 2, 900)


def test_cgroup_version_2_mounted_from_within(tmp_path: Path) -> None:
    """A container that sees the host's name of its group, but only its own part of the tree."""
    root = version_2(tmp_path, "/docker/1234/pod", mounted="/docker/1234")
    assert cgroup_facts(root)["cpu_quota"] == 3.0


def test_cgroup_outside_of_what_is_mounted(tmp_path: Path) -> None:
    root = version_2(tmp_path, "/../elsewhere")
    facts = cgroup_facts(root)
    assert facts["cpu_quota"] is None
    assert facts["memory_limit_bytes"] is None


def test_cpu_lists() -> None:
    assert parse_cpu_list("0-3,8,10-11") == (0, 1, 2, 3, 8, 10, 11)
    assert parse_cpu_list("") == ()


def test_a_cpu_that_is_not_allowed_names_those_that_are(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    node = node_facts(bare_metal(tmp_path), allowed=allowed)
    assert allowed_cpu(node, None) == allowed[0]
    with pytest.raises(InputError, match=f"cpu: .*{allowed[-1]}"):
        allowed_cpu(node, 4096)


def test_this_machine() -> None:
    node = node_facts()
    assert set(node.cpus) == os.sched_getaffinity(0)
    assert node.memory_bytes > 0
    assert node.id == node_facts().id
