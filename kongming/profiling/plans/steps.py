"""The steps of a campaign's plan, and the blocks that share one load. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kongming.records.run import LoadLevel

Mixed = tuple[LoadLevel, ...]
"""The inducers that run at once."""

SIGNATURE_ITERATIONS = (2, 3)
"""Minimum and usual maximum number of complete iterations per signature; a program that is too
short to see every surrogate in so many is looped for longer."""


@dataclass(frozen=True, slots=True)
class Step:
    """Run or signature of one application. ``index`` is its position in the plan."""

    index: int
    block: int
    kind: Literal["solo", "induced", "signature"]
    app: str
    levels: tuple[LoadLevel, ...] = ()
    repeat: int = 0
    neighbour: str | None = None
    """Program that loops as the load of an induced run, instead of surrogates."""
    follows: bool = False
    """Whether its block is measured right after the one before it, with nothing between them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of a campaign in order. The same ``seed`` reproduces the order."""

    name: str
    placement: str
    suite: str
    seed: int
    steps: tuple[Step, ...]

    def blocks(self) -> Iterator[tuple[Step, ...]]:
        """Yield the groups of steps that share one load, in order."""
        start = 0
        for stop in range(1, len(self.steps) + 1):
            if stop == len(self.steps) or self.steps[stop].block != self.steps[start].block:
                yield self.steps[start:stop]
                start = stop

    def runs_of(self, app: str) -> int:
        """Planned number of starts of an application, including iterations of signatures. What was
        disturbed is taken up to ``control.TAKES`` times, which is not counted."""
        # A signature's loop is stopped during one additional iteration.
        most = SIGNATURE_ITERATIONS[1] + 1
        return sum(most if s.kind == "signature" else 1 for s in self.steps if s.app == app)
