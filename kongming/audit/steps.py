"""A step of an observation, a fingerprint or a run, and its readings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kongming.records.fingerprint import Fingerprint


class Reading(NamedTuple):
    """A row of an observation file, without the columns that all rows of its step share."""

    kind: str
    name: str
    value: float | None
    unit: str
    median: float | None = None
    p90: float | None = None
    batches: int | None = None
    reason: str | None = None

    @property
    def ok(self) -> bool:
        return self.reason is None and self.value is not None


@dataclass(frozen=True, slots=True)
class Step:
    """A step with its readings. ``at`` is UTC in ISO 8601 with a final Z; ``elapsed_s`` is the
    duration of the session at the end of the step, without interruptions."""

    at: str
    position: int
    round: int
    cpu: int | None
    elapsed_s: float
    readings: tuple[Reading, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "position": self.position,
            "round": self.round,
            "cpu": self.cpu,
            "elapsed_s": round(self.elapsed_s, 3),
            "readings": [list(reading) for reading in self.readings],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Step:
        """Inverse of ``to_dict``. Raises KeyError, TypeError or ValueError for other documents."""
        return cls(
            at=str(document["at"]),
            position=int(document["position"]),
            round=int(document["round"]),
            cpu=document["cpu"],
            elapsed_s=float(document["elapsed_s"]),
            readings=tuple(Reading(*reading) for reading in document["readings"]),
        )


def of_fingerprint(fingerprint: Fingerprint) -> tuple[Reading, ...]:
    """The readings of a fingerprint: its surrogates, and the signals over its window."""
    surrogates = (
        Reading(
            "surrogate",
            name,
            reading.seconds_per_op if reading.ok else None,
            "s",
            reading.median,
            reading.p90,
            reading.n if reading.ok else None,
            None if reading.ok else reading.error or "no timed work",
        )
        for name, reading in fingerprint.surrogates.items()
    )
    return (*surrogates, *of_signals(fingerprint.passive))


def of_failure(names: tuple[str, ...], reason: str) -> tuple[Reading, ...]:
    """Failed readings of all these surrogates, for one reason."""
    return tuple(Reading("surrogate", name, None, "s", reason=reason) for name in names)


def of_run(
    name: str, metric: float | None, unit: str, reason: str | None, signals: Mapping[str, float]
) -> tuple[Reading, ...]:
    """The readings of a run: the program, and the signals over the run."""
    if metric is None and reason is None:
        reason = "no metric"
    value = metric if reason is None else None
    return (Reading("program", name, value, unit, reason=reason), *of_signals(signals))


def of_signals(signals: Mapping[str, float]) -> tuple[Reading, ...]:
    """The readings of the system's own signals in order of name; those not finite are left out."""
    return tuple(
        Reading("passive", name, value, unit_of(name))
        for name, value in sorted(signals.items())
        if math.isfinite(value)
    )


def unit_of(signal: str) -> str:
    """The unit of a signal of the system, by its name."""
    if signal.startswith("psi_") or signal in ("iowait", "steal", "cpu_busy"):
        return "share"
    for ending, unit in (
        ("_bytes_per_s", "bytes/s"),
        ("_per_s", "1/s"),
        ("_bytes", "bytes"),
        ("_hz_mean", "Hz"),
        ("_hz_min", "Hz"),
        ("_s", "s"),
    ):
        if signal.endswith(ending):
            return unit
    return "CPUs" if signal == "cpu_quota" else "1"
