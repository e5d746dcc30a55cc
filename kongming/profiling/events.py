"""What a campaign yields as it goes: records to keep, and words for a person."""

from __future__ import annotations

from dataclasses import dataclass

from kongming.fingerprint import Fingerprint
from kongming.run import Run, Signature


@dataclass(frozen=True, slots=True)
class Measured:
    """A fingerprint to keep; ``purpose`` says what for (level, idle, signature)."""

    fingerprint: Fingerprint
    purpose: str


@dataclass(frozen=True, slots=True)
class Doing:
    """What is being done now; ``step`` of ``steps`` runs and signatures are behind it."""

    text: str
    step: int
    steps: int
    app: str | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """An application that is left out from here on, and why (the end of its output)."""

    app: str
    reason: str


Event = Measured | Doing | Dropped | Run | Signature
