"""Sessions and readings made up for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def session(machine: str = "m1", **changes: Any) -> dict[str, Any]:
    """The facts of one recording."""
    document = {
        "machine": machine,
        "started_at": "2026-03-01T12:00:00.000Z",
        "suite": "quick",
        "suite_version": "1",
        "kongming_version": "0.1.0",
        "command": ["kongming", "observe", "/home/ann/apps.toml"],
        "facts": {
            "id": machine,
            "name": "ann-laptop",
            "hardware": {
                "architecture": "x86_64",
                "cpu_vendor": "V",
                "cpu_model": "V 1000",
                "microcode": "0x1",
                "l1d_bytes": 32768,
                "l2_bytes": 1 << 20,
                "llc_bytes": 32 << 20,
                "memory_bytes": 8 << 30,
            },
            "topology": {"cpus": [0, 1]},
            "kernel": "6.1.0",
            "hypervisor": "kvm",
            "huge_pages": "madvise",
            "cgroup": {"path": "/user.slice/ann", "memory_limit_bytes": None},
        },
        "instance": None,
        "tags": {},
        "programs": {"sort": {"identity": "abc", "unit": "s", "better": "lower"}},
    }
    return {**document, **changes}


def reading(name: str, value: float | None, **changes: Any) -> dict[str, Any]:
    """One row: by default a surrogate's reading at the first step of session ``s1`` on ``m1``."""
    row = {
        "session": "s1",
        "machine": "m1",
        "at": BEGIN,
        "position": 0,
        "round": 0,
        "kind": "surrogate",
        "name": name,
        "value": value,
        "median": value,
        "p90": value,
        "count": 10,
        "unit": "s",
        "ok": value is not None,
        "reason": None if value is not None else "it failed",
        "cpu": 0,
    }
    return {**row, **changes}


def later(seconds: float) -> datetime:
    """A moment after the begin of a session."""
    return BEGIN + timedelta(seconds=seconds)


def fleet(
    speeds: Sequence[float], *, runs: int = 12, seed: int = 0, noise: float = 0.005
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Rows and sessions of machines whose memory and CPU are so much slower than the first's, and
    are loaded by turns. ``walk`` waits for memory alone, ``spin`` for the CPU alone."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    sessions = {}
    families = {"chase": "memory", "ints": "compute", "blocks": "read"}
    programs = {
        name: {"identity": name, "unit": "s", "better": "lower"} for name in ("walk", "spin")
    }
    for number, slower in enumerate(speeds):
        machine, name = f"m{number}", f"s{number}"
        sessions[name] = session(
            machine,
            surrogates={key: {"family": family} for key, family in families.items()},
            programs=programs,
        )
        for step in range(runs * len(programs)):
            loaded = 1.0 + draw.random()
            memory = 1e-8 * slower * loaded
            cpu = 1e-9 * slower**0.5
            at = {"session": name, "machine": machine, "round": step // 2}
            for key, true in (("chase", memory), ("ints", cpu), ("blocks", 1e-3)):
                value = true * draw.lognormvariate(0.0, noise)
                rows.append(reading(key, value, position=2 * step, at=later(4 * step), **at))
            program, true = (("walk", 2e8 * memory), ("spin", 1e9 * cpu))[step % 2]
            rows.append(
                reading(
                    program,
                    true * draw.lognormvariate(0.0, noise),
                    kind="program",
                    position=2 * step + 1,
                    at=later(4 * step + 2),
                    **at,
                )
            )
    return rows, sessions
