"""Events of a running campaign: records to store, and progress messages."""

from __future__ import annotations

from dataclasses import dataclass

from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature


@dataclass(frozen=True, slots=True)
class Measured:
    """Fingerprint to store; ``purpose`` is level, idle or signature."""

    fingerprint: Fingerprint
    purpose: str


@dataclass(frozen=True, slots=True)
class Doing:
    """Progress message; ``step`` of ``steps`` runs and signatures are completed. ``part`` says of
    which campaign, where several measure in turns."""

    text: str
    step: int
    steps: int
    app: str | None = None
    part: int = 0


@dataclass(frozen=True, slots=True)
class Dropped:
    """Application excluded from the rest of the campaign, and why (the end of its output)."""

    app: str
    reason: str


@dataclass(frozen=True, slots=True)
class Short:
    """An application that runs for ``wall_s`` seconds, fewer than the ``needed_s`` in which every
    surrogate is surely seen next to it: its signature may lack some."""

    app: str
    wall_s: float
    needed_s: float


@dataclass(frozen=True, slots=True)
class Between:
    """Nothing runs at this moment: the campaign may wait here while another one measures."""


Event = Measured | Doing | Dropped | Short | Between | Run | Signature
