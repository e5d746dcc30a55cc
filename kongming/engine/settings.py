"""Settings of the engine, and the purposes of fingerprints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from kongming.records.errors import InputError


class Purpose(Enum):
    """Purpose for which a fingerprint was taken. An estimate is never kept as history."""

    LIVE = "live"
    REFERENCE = "reference"
    ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of how the engine answers; every time in seconds.

    A fingerprint's time to live is learnt from its node's own history, between ``least_ttl_s``
    and ``most_ttl_s``: the time in which the log environment moves by ``ttl_movement``; it is
    ``ttl_s`` while there are too few fingerprints to learn from. The log environment then, and for
    ages beyond the time that the history spans, counts as moving by ``default_movement`` in an
    hour. ``silent_after_s`` without a heartbeat makes a node silent. ``tie_share`` of the first
    one's interval (its half, in logs) is what scores may differ by and still be tied.
    ``unknown_pressure`` is the log slowdown that a resident without a signature is taken to inflict
    while none is known at its placement. ``history`` fingerprints are kept for each domain, and
    ``answers`` predictions are remembered.
    """

    ttl_s: float = 180.0
    least_ttl_s: float = 60.0
    most_ttl_s: float = 1800.0
    ttl_movement: float = 0.1
    default_movement: float = 0.3
    silent_after_s: float = 200.0
    tie_share: float = 0.25
    unknown_pressure: float = 0.1
    history: int = 16
    answers: int = 20_000

    def __post_init__(self) -> None:
        for name in ("ttl_s", "least_ttl_s", "most_ttl_s", "silent_after_s"):
            _positive(name, getattr(self, name))
        for name in ("ttl_movement", "default_movement", "unknown_pressure", "tie_share"):
            _not_negative(name, getattr(self, name))
        if self.least_ttl_s > self.most_ttl_s:
            raise InputError(
                "is above most_ttl_s.",
                field="least_ttl_s",
                value=self.least_ttl_s,
                allowed=f"up to {self.most_ttl_s:g}",
            )
        for name in ("history", "answers"):
            if getattr(self, name) < 1:
                raise InputError(
                    "is too few.", field=name, value=getattr(self, name), allowed="1 or more"
                )


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise InputError("is out of range.", field=name, value=value, allowed="finite, above 0")


def _not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0.0):
        raise InputError("is out of range.", field=name, value=value, allowed="finite, 0 or more")
