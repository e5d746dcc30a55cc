"""Fingerprint as a process inside an environment would take it, including its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kongming.probes.fingerprinting import take_fingerprint
from kongming.profiling.environments.limits import Limits
from kongming.profiling.runs.site_run import QUICK
from kongming.profiling.site import Site
from kongming.records.fingerprint import Fingerprint


def fingerprint_inside(site: Site, limits: Limits) -> Fingerprint:
    """Take the quick suite on the program's CPU, with the signals that its groups would show.

    The passive signals are read by this process, which is outside the groups.
    """
    before = limits.throttled()
    fingerprint = take_fingerprint(
        node=site.node,
        suite=QUICK,
        cpu=site.app_cpus[0],
        directory=site.io_dir,
        shared_core=site.shared_core or limits.environment.in_slices,
        cgroup_procs=limits.probe_procs,
    )
    signals = dict(fingerprint.passive)
    if limits.environment.kind == "quota":
        signals["cpu_quota"] = limits.environment.parameters["cpu_quota"]
        signals |= throttling_between(before, limits.throttled())
    if limits.memory_bytes is not None:
        signals["memory_limit_bytes"] = float(limits.memory_bytes)
    return replace(fingerprint, passive=signals)


def throttling_between(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Compute increments of the counters of ``Limits.throttled``, named as passive signals."""
    increments = {key: float(after[key] - before[key]) for key in before if key in after}
    if "throttled_us" in increments:
        increments["throttled_s"] = increments.pop("throttled_us") / 1e6
    return increments
