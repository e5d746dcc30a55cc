"""Whether two CPUs share a core: measured, since virtual machines hide it.

A compute.int probe on one CPU is timed alone and with a compute.int load on the other. Two
threads of one core share its execution units and each slows the other by a third or more; two
cores do not. Pairs of readings are interleaved and the lowest ratio counts: any other neighbour
can only raise one of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kongming.errors import InputError, ProbeError
from kongming.probes.binary import Event, Microbench
from kongming.probes.folders import state_folder

SURROGATE = "compute.int"
SHARES_CORE_RATIO = 1.25
"""Above this ratio of together to alone, two CPUs are taken to share a core."""

_ROUNDS = 3
_ROUNDS_TO_BE_SURE = 12
_SECONDS = 0.15
_PATIENCE_S = 30.0
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class SiblingCheck:
    """What was measured between two CPUs: ``ratio`` is the time together over the time alone."""

    shares_core: bool
    ratio: float
    measured_at: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "shares_core": self.shares_core,
            "ratio": self.ratio,
            "measured_at": self.measured_at,
        }


def judge(pairs: Sequence[tuple[float, float]]) -> tuple[bool, float]:
    """(shares a core, ratio) from (alone, together) times in seconds per operation; pure.

    Raises:
        ProbeError: there is no pair, or a time cannot be true.
    """
    if not pairs or any(time <= 0.0 for pair in pairs for time in pair):
        raise ProbeError("The check of two CPUs gave no valid times.")
    ratio = min(together / alone for alone, together in pairs)
    return ratio > SHARES_CORE_RATIO, ratio


def check_siblings(first: int, second: int, *, seconds: float = _SECONDS) -> SiblingCheck:
    """Measures whether two CPUs share a core; takes about 6 x ``seconds`` and keeps nothing.

    Where they seem to, it takes four times as long: on a busy node, what runs beside the probe is
    driven onto its CPU by the load, round after round, until one round is spared.

    Raises:
        InputError: the CPUs are the same or not allowed to this process.
        ProbeError: a probe or a load failed.
    """
    _check_allowed(first, second)
    pairs: list[tuple[float, float]] = []
    for done in range(_ROUNDS_TO_BE_SURE):
        if done >= _ROUNDS and not judge(pairs)[0]:
            break
        alone = _time_per_op(first, seconds)
        load = ["induce", "--cpu", str(second), "--seconds", str(10 * seconds + 10), SURROGATE]
        with Microbench(load) as neighbour:
            _wait_ready(neighbour)
            together = _time_per_op(first, seconds)
        pairs.append((alone, together))
    shares, ratio = judge(pairs)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return SiblingCheck(shares, round(ratio, 4), now)


def measure_siblings(
    node_id: str, cpus: Sequence[int], *, again: bool = False
) -> dict[str, dict[str, Any]]:
    """Checks every pair of ``cpus`` that was not checked before, and keeps the results.

    Returns all that is known of the node, by pair (``"0,1"``), as ``NodeFacts.siblings`` has it.

    Raises:
        InputError, ProbeError: as check_siblings.
    """
    known = {} if again else known_siblings(node_id)
    for index, first in enumerate(sorted(cpus)):
        for second in sorted(cpus)[index + 1 :]:
            pair = f"{first},{second}"
            if pair not in known:
                known[pair] = check_siblings(first, second).to_dict()
                _keep(node_id, known)
    return known


def known_siblings(node_id: str, state: Path | None = None) -> dict[str, dict[str, Any]]:
    """What was measured on this node before, by pair; empty where nothing (readable) was kept."""
    nodes = _read(_path(state)).get(node_id, {})
    return {str(pair): dict(seen) for pair, seen in nodes.items() if isinstance(seen, Mapping)}


def _path(state: Path | None) -> Path:
    return (state_folder() if state is None else state) / "topology.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    # It is a cache of what can be measured again: what is not understood counts as not there.
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        return {}
    nodes = document.get("nodes")
    return nodes if isinstance(nodes, dict) else {}


def _keep(node_id: str, pairs: Mapping[str, Mapping[str, Any]]) -> None:
    path = _path(None)
    nodes = _read(path)
    nodes[node_id] = {**nodes.get(node_id, {}), **pairs}
    text = json.dumps({"schema": _SCHEMA, "nodes": nodes}, indent=1, sort_keys=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        # Without a state folder the check is simply made again the next time.
        temporary.unlink(missing_ok=True)


def _check_allowed(first: int, second: int) -> None:
    allowed = os.sched_getaffinity(0)
    for cpu in (first, second):
        if cpu not in allowed:
            known = ", ".join(map(str, sorted(allowed)))
            raise InputError("is not allowed here.", field="cpu", found=cpu, allowed=known)
    if first == second:
        raise InputError("A CPU has no pair with itself.", field="cpu", found=second)


def _time_per_op(cpu: int, seconds: float) -> float:
    ops, total_ns = 0.0, 0
    with Microbench(["probe", "--cpu", str(cpu), "--seconds", str(seconds), SURROGATE]) as probe:
        for event in _events(probe, seconds + _PATIENCE_S):
            if event.get("event") == "chunk":
                ops += float(event["ops"])
                total_ns += int(event["ns"])
            elif event.get("event") == "error":
                raise ProbeError(str(event.get("error")))
        probe.finish()
    if ops <= 0.0:
        raise ProbeError(f"{SURROGATE} gave no readings on CPU {cpu}.")
    return total_ns / ops * 1e-9


def _wait_ready(neighbour: Microbench) -> None:
    for event in _events(neighbour, _PATIENCE_S):
        if event.get("event") == "ready":
            return
        if event.get("event") == "error":
            raise ProbeError(str(event.get("error")))
    raise ProbeError(neighbour.failure())


def _events(running: Microbench, seconds: float) -> Iterator[Event]:
    deadline = time.monotonic() + seconds
    try:
        while (event := running.read(max(0.0, deadline - time.monotonic()))) is not None:
            yield event
    except TimeoutError as error:
        raise ProbeError(f"The check of two CPUs took more than {seconds:g} s.") from error
