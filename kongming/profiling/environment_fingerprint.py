"""What a process inside an environment would read: the quick suite, and the signs of its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kongming.fingerprint import Fingerprint
from kongming.probes.fingerprinting import take_fingerprint
from kongming.profiling.limits import Limits
from kongming.profiling.profiler import QUICK
from kongming.profiling.site import Site


def fingerprint_inside(site: Site, limits: Limits) -> Fingerprint:
    """The quick suite at the program's seat, with what a process in the groups would read there.

    The passive signals are read by this process, which is outside.
    """
    before = limits.throttled()
    seen = take_fingerprint(
        node=site.node,
        suite=QUICK,
        cpu=site.app_cpus[0],
        directory=site.io_dir,
        shared_core=site.shared_core or limits.environment.in_slices,
        cgroup_procs=limits.probe_procs,
    )
    signals = dict(seen.passive)
    if limits.environment.kind == "quota":
        signals["cpu_quota"] = limits.environment.parameters["cpu_quota"]
        signals |= throttling_between(before, limits.throttled())
    if limits.memory_bytes is not None:
        signals["memory_limit_bytes"] = float(limits.memory_bytes)
    return replace(seen, passive=signals)


def throttling_between(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """By how much the counters of ``Limits.throttled`` grew, as the passive signals are named."""
    grown = {key: float(after[key] - before[key]) for key in before if key in after}
    if "throttled_us" in grown:
        grown["throttled_s"] = grown.pop("throttled_us") / 1e6
    return grown
