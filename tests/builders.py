"""Records with plausible values for tests: say only what the test is about.

Times of day rise by a second from one record to the next, so "newest first" is well defined.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kongming import Fingerprint, LoadLevel, NodeFacts, Reading, Run, Signature

_clock = itertools.count()
_CACHE_SIZES = ("1K", "1M", "8M", "L2half", "LLChalf")
_FIRST_PARTS = {
    "stream": "memory",
    "compute": "compute",
    "os": "os",
    "metadata": "metadata",
    "net": "network",
}


def started_at() -> str:
    """A UTC time, one second after the last one asked for."""
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(_clock))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def family_of(name: str) -> str:
    """The resource family of a surrogate, from its name."""
    first, _, rest = name.partition(".")
    if first == "memory":
        return "cache" if name.rpartition(".")[2] in _CACHE_SIZES else "memory"
    if first == "iobench":
        return "read" if rest.startswith("read") else "write"
    return _FIRST_PARTS.get(first, "compute")


def identity_of(app: str) -> str:
    """The 16 hexadecimal digits that ``run`` and ``signature`` use for ``app``."""
    return hashlib.sha256(app.encode()).hexdigest()[:16]


def node(**changes: Any) -> NodeFacts:
    """A two-CPU node: one socket, two cores, one last-level cache of 32 MiB."""
    facts: dict[str, Any] = {
        "id": "node-1",
        "name": "example",
        "architecture": "x86_64",
        "cpu_vendor": "ExampleVendor",
        "cpu_model": "Example CPU",
        "cpus": (0, 1),
        "cores": {"0": 0, "1": 1},
        "sockets": {"0": 0, "1": 0},
        "l1d_bytes": 32 << 10,
        "l2_bytes": 1 << 20,
        "llc_bytes": 32 << 20,
        "llc_cpus": ((0, 1),),
        "memory_bytes": 8 << 30,
        "kernel": "6.1.0",
        "hypervisor": None,
        "huge_pages": "madvise",
        "cgroup": {"version": 2, "cpu_quota": None},
        "siblings": {"0,1": {"shares_core": False, "ratio": 1.02}},
    }
    return NodeFacts(**(facts | changes))


def reading(name: str, seconds: float, **changes: Any) -> Reading:
    """A good reading of ``seconds`` per operation; for a failed one, build a Reading."""
    values: dict[str, Any] = {
        "name": name,
        "family": family_of(name),
        "op": "one operation",
        "seconds_per_op": seconds,
        "median": seconds,
        "p90": seconds * 1.1,
        "n": 20,
        "ops": max(20, int(0.05 / seconds)),
        "elapsed_s": 0.05,
    }
    return Reading(**(values | changes))


def fingerprint(times: Mapping[str, float], **changes: Any) -> Fingerprint:
    """A fingerprint with these seconds per operation by surrogate."""
    values: dict[str, Any] = {
        "node": node(),
        "suite": "standard",
        "suite_version": "1-0123abcd",
        "cpu": 0,
        "started_at": started_at(),
        "elapsed_s": 1.9,
        "surrogates": {name: reading(name, seconds) for name, seconds in times.items()},
        "passive": {"psi_cpu_some": 0.0, "load1": 0.1},
    }
    return Fingerprint(**(values | changes))


def level(surrogate: str = "memory.streaming.8M", **changes: Any) -> LoadLevel:
    """One inducer at full intensity, of the surrogate's own family."""
    return LoadLevel(**({"surrogate": surrogate, "family": family_of(surrogate)} | changes))


def run(
    app: str, metric: float | None, times: Mapping[str, float] | None = None, **changes: Any
) -> Run:
    """A run on ``node()``: solo without ``levels``, induced with them; failed for metric None."""
    values: dict[str, Any] = {
        "app": app,
        "identity": identity_of(app),
        "node_id": "node-1",
        "placement": "cross-core",
        "kind": "induced" if changes.get("levels") else "solo",
        "started_at": started_at(),
        "wall_s": 1.0 if metric is None else metric,
        "metric": metric,
        "fingerprint": None if times is None else fingerprint(times),
        "exit_status": 1 if metric is None else 0,
        "error": "exit status 1" if metric is None else None,
    }
    return Run(**(values | changes))


def signature(app: str, times: Mapping[str, float], **changes: Any) -> Signature:
    """What a neighbour of ``app`` sees."""
    values: dict[str, Any] = {
        "app": app,
        "identity": identity_of(app),
        "node_id": "node-1",
        "placement": "cross-core",
        "fingerprint": fingerprint(times),
        "iterations": 3,
    }
    return Signature(**(values | changes))
