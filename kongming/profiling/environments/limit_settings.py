"""Kernel settings for an environment's limits, in both versions of cgroups. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kongming.profiling.environments.environment import LIMITED, Environment

PERIOD_US = 100_000
"""Period of a CPU quota: the kernel's default, which containers use too."""

MEMORY_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
"""File name of the memory limit, by version."""

_CONTROLLER_OF = {"quota": "cpu", "io": "blkio", "cpuset": "cpuset", "memory": "memory"}


@dataclass(frozen=True, slots=True)
class Setting:
    """Line to write to a file of a group; an ``optional`` file may be missing."""

    file: str
    text: str
    optional: bool = False


def controllers_of(environment: Environment) -> tuple[str, ...]:
    """Return the controllers of an environment, by their names in version 1."""
    controllers = [_CONTROLLER_OF[environment.kind]] if environment.kind in LIMITED else []
    if environment.shares_cpu:
        controllers.append("cpu")
    return tuple(controllers)


def settings(
    controller: str,
    version: int,
    environment: Environment,
    *,
    device: str = "",
    memory_bytes: int | None = None,
) -> tuple[Setting, ...]:
    """Return the settings of one controller's group. Pure.

    Args:
        controller: its name in version 1.
        device: ``major:minor`` of the disk to throttle.
        memory_bytes: the memory limit; None: none yet.
    """
    parameters = environment.parameters
    match controller:
        case "cpu" if environment.kind == "quota":
            quota = str(round(parameters["cpu_quota"] * PERIOD_US))
            if version == 2:
                return (Setting("cpu.max", f"{quota} {PERIOD_US}"),)
            return (
                Setting("cpu.cfs_period_us", str(PERIOD_US)),
                Setting("cpu.cfs_quota_us", quota),
            )
        case "cpuset":
            return (Setting("cpuset.cpus", str(parameters["cpu"])),)
        case "blkio":
            if version == 2:
                keys = ("read_bytes_per_s", "write_bytes_per_s", "read_iops", "write_iops")
                short = ("rbps", "wbps", "riops", "wiops")
                limits = " ".join(
                    f"{name}={parameters[key]}"
                    for name, key in zip(short, keys, strict=True)
                    if key in parameters
                )
                return (Setting("io.max", f"{device} {limits}"),)
            names = {
                "read_bytes_per_s": "read_bps",
                "write_bytes_per_s": "write_bps",
                "read_iops": "read_iops",
                "write_iops": "write_iops",
            }
            return tuple(
                Setting(f"blkio.throttle.{name}_device", f"{device} {parameters[key]}")
                for key, name in names.items()
                if key in parameters
            )
        case "memory":
            # Limit the page cache without swapping out the program itself.
            swapping = ("memory.swappiness", "memory.swap.max")[version - 1]
            unswapped = Setting(swapping, "0", optional=True)
            if memory_bytes is None:
                return (unswapped,)
            return (unswapped, Setting(MEMORY_LIMIT[version], str(memory_bytes)))
    return ()
