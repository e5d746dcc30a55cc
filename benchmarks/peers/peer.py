"""What a peer is given, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kongming.records.run import Run, Signature

Pair = tuple[str, str]
"""An application, and the one that it runs next to."""

Measured = Mapping[Pair, float]
"""Slowdowns of pairs that were really run."""


@dataclass(frozen=True, slots=True)
class Profile:
    """All that was measured of one application on one node at one placement.

    Of ``runs`` only the solo and the induced ones that succeeded are learned from: the budget
    of KONGMING's own models. Co-runs among them are never looked at.
    """

    app: str
    runs: tuple[Run, ...]
    signatures: tuple[Signature, ...] = ()


class Peer(Protocol):
    """A predictor of pairs. ``predictions`` and the tests call both methods."""

    name: str

    def fit(self, profiles: Mapping[str, Profile], measured: Measured | None = None) -> None:
        """Learn from the profiles, by name of application.

        ``measured`` are pairs beyond the profiles' budget; a peer that does not need them takes
        no notice of them.

        Raises:
            IncompatibleError: the profiles are of different nodes, placements or suites.
            UntrainedError: they lack what this peer cannot do without.
        """

    def slowdown(self, app: str, neighbour: str) -> float:
        """The median slowdown of ``app`` next to ``neighbour`` over its solo runtime, 1 or more.

        Raises:
            UnknownNameError: no profile has one of the names.
            UntrainedError: ``neighbour`` has no signature, or ``app`` no run to learn from.
        """
