"""Detection of CPUs that share a core: measured, since virtual machines hide the topology.

A compute.int probe on one CPU is timed alone and with a compute.int load on the other. Two
threads of one core share its execution units and each slows the other by a third or more; two
cores do not. Readings alone and together are interleaved, and the least of each count, because
other work can only raise them: also those alone, and then a ratio within one round is too low. A
reading is the median over batches of a fraction of a millisecond, not their mean: other work that
takes the CPU for a time slice makes one batch longer, and says nothing of its core. So two virtual
CPUs that take turns on one real CPU are not noticed either: both look like time that is stolen.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kongming.probes.folders import state_folder
from kongming.probes.measuring import disturbed_since, measuring
from kongming.probes.two_cpus import alone_and_together
from kongming.records import moments
from kongming.records.errors import InputError, ProbeError

SURROGATE = "compute.int"
SHARES_CORE_RATIO = 1.25
"""Two CPUs share a core above this ratio of co-located to solo time."""

_ROUNDS = 3
_ROUNDS_TO_CONFIRM = 12
_SECONDS = 0.15
_SCHEMA = 1
_COMMAND = "A check which CPUs share a core"
"""What others read who want to measure there."""

DISTURBED = "disturbed"
"""The key of a result, true for one that is used once and not stored."""


@dataclass(frozen=True, slots=True)
class SiblingCheck:
    """Result for a pair of CPUs: ``ratio`` is the co-located time over the solo time;
    ``disturbed``: something else was measured there meanwhile."""

    shares_core: bool
    ratio: float
    measured_at: str
    disturbed: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "shares_core": self.shares_core,
            "ratio": self.ratio,
            "measured_at": self.measured_at,
            **({DISTURBED: True} if self.disturbed else {}),
        }


def judge(pairs: Sequence[tuple[float, float]]) -> tuple[bool, float]:
    """Return (shares a core, ratio) from (solo, co-located) seconds per operation. Pure.

    Raises:
        ProbeError: there is no pair, or a time is not plausible.
    """
    if not pairs or any(time <= 0.0 for pair in pairs for time in pair):
        raise ProbeError("The check of two CPUs gave no valid times.")
    ratio = min(together for _, together in pairs) / min(alone for alone, _ in pairs)
    return ratio > SHARES_CORE_RATIO, ratio


def check_siblings(first: int, second: int, *, seconds: float = _SECONDS) -> SiblingCheck:
    """Measure whether two CPUs share a core; takes about 6 x ``seconds`` and stores nothing.

    A positive result takes four times as long: work on a busy node may slow every early round, so
    the check goes on until one round is undisturbed.

    Raises:
        InputError: the CPUs are the same or not allowed to this process.
        ProbeError: a probe or a load failed.
    """
    _check_allowed(first, second)
    pairs: list[tuple[float, float]] = []
    for round_number in range(_ROUNDS_TO_CONFIRM):
        if round_number >= _ROUNDS and not judge(pairs)[0]:
            break
        pairs.append(alone_and_together(SURROGATE, first, SURROGATE, second, seconds=seconds))
    shares, ratio = judge(pairs)
    now = moments.now("seconds")
    return SiblingCheck(shares, round(ratio, 4), now)


def measure_siblings(
    node_id: str,
    cpus: Sequence[int],
    *,
    again: bool = False,
    anyway: bool | None = None,
    patience_s: float | None = None,
) -> dict[str, dict[str, Any]]:
    """Check every pair of ``cpus`` that was not checked before, and store the results.

    Holds the locks of both CPUs meanwhile; ``anyway`` and ``patience_s`` as in ``measuring``. A
    result from beside another measurement is returned as ``disturbed``, and not stored.

    Returns all results of the node, by pair (``"0,1"``), as in ``NodeFacts.siblings``.

    Raises:
        InputError, ProbeError: as check_siblings.
        BusyError: something else measures on one of these CPUs, and ``anyway`` is not true.
    """
    results = {} if again else known_siblings(node_id)
    for index, first in enumerate(sorted(cpus)):
        for second in sorted(cpus)[index + 1 :]:
            pair = f"{first},{second}"
            if pair not in results:
                seats = (first, second)
                with measuring(_COMMAND, seats, anyway=anyway, patience_s=patience_s):
                    began = time.time()
                    checked = check_siblings(first, second)
                    other = disturbed_since(began, seats)
                results[pair] = replace(checked, disturbed=other is not None).to_dict()
                _store(node_id, results)
    return results


def known_siblings(node_id: str, state: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the stored results of a node, by pair; empty without a readable file."""
    nodes = _read(_path(state)).get(node_id, {})
    return {
        str(pair): dict(result) for pair, result in nodes.items() if isinstance(result, Mapping)
    }


def _path(state: Path | None) -> Path:
    return (state_folder() if state is None else state) / "topology.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    # The file is a cache of repeatable measurements: ignore unknown formats.
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        return {}
    nodes = document.get("nodes")
    return nodes if isinstance(nodes, dict) else {}


def _store(node_id: str, pairs: Mapping[str, Mapping[str, Any]]) -> None:
    path = _path(None)
    nodes = _read(path)
    undisturbed = {pair: result for pair, result in pairs.items() if not result.get(DISTURBED)}
    nodes[node_id] = {**nodes.get(node_id, {}), **undisturbed}
    text = json.dumps({"schema": _SCHEMA, "nodes": nodes}, indent=1, sort_keys=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        # Without a state folder the check is repeated the next time.
        temporary.unlink(missing_ok=True)


def _check_allowed(first: int, second: int) -> None:
    allowed = os.sched_getaffinity(0)
    for cpu in (first, second):
        if cpu not in allowed:
            allowed_list = ", ".join(map(str, sorted(allowed)))
            raise InputError("is not allowed here.", field="cpu", value=cpu, allowed=allowed_list)
    if first == second:
        raise InputError("A CPU has no pair with itself.", field="cpu", value=second)
