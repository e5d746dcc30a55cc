"""Node facts: hardware, topology, kernel and limits, read from /proc and /sys."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from kongming.probes.cgroups import cgroup_facts, read_int, read_text
from kongming.probes.passive import cpu_ticks
from kongming.probes.topology import known_siblings
from kongming.records.errors import InputError
from kongming.records.fingerprint import NodeFacts

_SYSTEM = Path("/")

_ARM_IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x51: "Qualcomm",
    0x61: "Apple",
    0xC0: "Ampere",
}
_ARM_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x46, 0x001): "A64FX",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
}


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parse a kernel CPU list such as ``0-3,8``, in ascending order.

    Raises:
        ValueError: it is not a valid list.
    """
    cpus: set[int] = set()
    for part in text.split(","):
        if part.strip():
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def node_facts(root: Path = _SYSTEM, *, allowed: Iterable[int] | None = None) -> NodeFacts:
    """Read the facts of the machine whose /proc and /sys are under ``root``.

    ``cpus`` are those that this process may run on (``allowed``, else its affinity; with another
    root: all online CPUs). ``cores`` and ``sockets`` map every online CPU to its core, named by
    the core's lowest CPU, and to its socket. Unknown values are 0, None or empty.
    """
    cpuinfo = _cpuinfo(root)
    online = _online(root)
    if allowed is None:
        allowed = os.sched_getaffinity(0) if root == _SYSTEM else online
    vendor, model = _cpu_name(cpuinfo)
    sizes, llc_cpus = _caches(root, online)
    architecture = read_text(root / "proc/sys/kernel/arch") or os.uname().machine
    memory = _memory_bytes(root)
    name = read_text(root / "proc/sys/kernel/hostname") or ""
    identity = _node_id(root, name, architecture, model, online, memory, sizes)
    return NodeFacts(
        id=identity,
        name=name,
        architecture=architecture,
        cpu_vendor=vendor,
        cpu_model=model,
        cpus=tuple(sorted(allowed)),
        cores={str(cpu): _core(root, cpu) for cpu in online},
        sockets={str(cpu): _socket(root, cpu) for cpu in online},
        l1d_bytes=sizes[0],
        l2_bytes=sizes[1],
        llc_bytes=sizes[2],
        llc_cpus=llc_cpus,
        memory_bytes=memory,
        kernel=read_text(root / "proc/sys/kernel/osrelease") or "",
        hypervisor=_hypervisor(root, cpuinfo),
        huge_pages=_huge_pages(root),
        cgroup=cgroup_facts(root),
        siblings=known_siblings(identity) if root == _SYSTEM else {},
    )


def memory_limit_bytes(node: NodeFacts) -> int:
    """Usable memory in bytes: the minimum of the machine's and its control group's limit."""
    limit = node.cgroup.get("memory_limit_bytes")
    return min(node.memory_bytes, limit) if isinstance(limit, int) else node.memory_bytes


def allowed_cpu(node: NodeFacts, cpu: int | None) -> int:
    """Return ``cpu`` if this process may run on it; by default the first allowed CPU.

    Raises:
        InputError: it is not allowed; names those that are.
    """
    allowed = sorted(set(node.cpus) & os.sched_getaffinity(0))
    if cpu is None:
        return allowed[0]
    if cpu not in allowed:
        raise InputError(
            "This process may not run on it.",
            field="cpu",
            value=cpu,
            allowed=", ".join(map(str, allowed)),
        )
    return cpu


def _node_id(
    root: Path,
    name: str,
    architecture: str,
    model: str,
    online: tuple[int, ...],
    memory: int,
    sizes: tuple[int, int, int],
) -> str:
    machine = ""
    for path in ("etc/machine-id", "var/lib/dbus/machine-id"):
        machine = machine or read_text(root / path) or ""
    # A virtual machine moved to another host is another node, so the hardware is hashed too.
    # Memory is rounded to GiB, since the amount that the kernel reserves varies.
    memory_gib = -(-memory // (1 << 30))
    parts = (machine or name, architecture, model, len(online), memory_gib, *sizes)
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def _cpuinfo(root: Path) -> dict[str, str]:
    """Fields of the first processor, in lower case; the other processors repeat them."""
    fields: dict[str, str] = {}
    try:
        with (root / "proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, colon, value = line.partition(":")
                if colon:
                    fields[key.strip().lower()] = value.strip()
                elif fields:
                    break
    except OSError:
        pass
    return fields


def _cpu_name(cpuinfo: dict[str, str]) -> tuple[str, str]:
    vendor = cpuinfo.get("vendor_id", "")
    model = cpuinfo.get("model name", "")
    try:
        implementer = int(cpuinfo["cpu implementer"], 0)
        part = int(cpuinfo["cpu part"], 0)
    except (KeyError, ValueError):
        return vendor, model or cpuinfo.get("cpu model", "") or cpuinfo.get("cpu", "unknown")
    vendor = vendor or _ARM_IMPLEMENTERS.get(implementer, f"implementer {implementer:#04x}")
    return vendor, model or _ARM_PARTS.get((implementer, part), f"{vendor} part {part:#05x}")


def _online(root: Path) -> tuple[int, ...]:
    text = read_text(root / "sys/devices/system/cpu/online")
    if text:
        return parse_cpu_list(text)
    return tuple(sorted(cpu_ticks(root))) or (0,)


def _core(root: Path, cpu: int) -> int:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        text = read_text(folder / name)
        if text:
            return parse_cpu_list(text)[0]
    return cpu


def _socket(root: Path, cpu: int) -> int:
    # Some ARM boards report -1 for "unknown".
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"
    return max(0, read_int(path) or 0)


def _caches(
    root: Path, online: tuple[int, ...]
) -> tuple[tuple[int, int, int], tuple[tuple[int, ...], ...]]:
    """Return ((L1 data, L2, last level) bytes, groups of CPUs sharing a last-level cache)."""
    sizes = {1: 0, 2: 0}
    last_size, groups = 0, set()
    grouped: set[int] = set()
    for cpu in online:
        if cpu in grouped:
            continue
        last_level, shared = 0, ""
        for index in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            level, size = read_int(index / "level"), _size(read_text(index / "size"))
            if level is None or size == 0 or read_text(index / "type") == "Instruction":
                continue
            if cpu == online[0] and level in sizes:
                sizes[level] = size
            if level >= last_level:
                last_level, shared = level, read_text(index / "shared_cpu_list") or str(cpu)
                if cpu == online[0]:
                    last_size = size
        if shared:
            group = tuple(c for c in parse_cpu_list(shared) if c in online)
            groups.add(group)
            grouped.update(group)
    return (sizes[1], sizes[2], last_size), tuple(sorted(groups))


def _size(text: str | None) -> int:
    """Parse a cache size such as ``1024K`` into bytes; 0 if there is none."""
    if not text:
        return 0
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    digits, factor = (text[:-1], units[text[-1]]) if text[-1] in units else (text, 1)
    return int(digits) * factor if digits.isdigit() else 0


def _memory_bytes(root: Path) -> int:
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _hypervisor(root: Path, cpuinfo: dict[str, str]) -> str | None:
    """Name of the hypervisor or virtual board; None on bare metal or if unknown."""
    kind = read_text(root / "sys/hypervisor/type")
    if kind:
        return kind
    vendor = read_text(root / "sys/class/dmi/id/sys_vendor") or ""
    product = read_text(root / "sys/class/dmi/id/product_name") or ""
    board = f"{vendor} {product}".lower()
    tree = read_text(root / "proc/device-tree/hypervisor/compatible")
    if tree:
        return tree.strip("\0").split("\0")[0]
    for mark, hypervisor in (
        ("qemu", "kvm"),
        ("kvm", "kvm"),
        ("amazon ec2", "kvm"),
        ("google compute engine", "kvm"),
        ("vmware", "vmware"),
        ("microsoft corporation virtual", "hyper-v"),
        ("virtualbox", "virtualbox"),
        ("xen", "xen"),
    ):
        # Bare-metal instances of Amazon and Google have the same vendor string.
        if mark in board and "metal" not in product:
            return hypervisor
    return "unknown" if "hypervisor" in cpuinfo.get("flags", "").split() else None


def _huge_pages(root: Path) -> str:
    """Transparent huge pages setting: always, madvise or never; "" if unknown."""
    text = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    _, bracket, rest = text.partition("[")
    return rest.partition("]")[0] if bracket else ""
