"""Interface of a correction: it turns the tasks' lengths at the recorded size into those at
another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kongming.arrays import Floats
from kongming.spark.model.cluster import Cluster

Lengths = list[Floats]


@dataclass(frozen=True, slots=True)
class Change:
    """A change from the recorded cluster to another one. Under dynamic allocation ``target`` has
    the executors that come, and ``present`` (stages,) are those that each stage begins with.
    """

    recorded: Cluster
    target: Cluster
    present: tuple[int, ...] | None = None


class Correction(Protocol):
    """``apply`` gives the lengths at the asked size; at the recorded size it changes nothing.

    ``remarks`` are sentences on what changes at that size and what the log cannot tell.
    """

    @property
    def name(self) -> str: ...

    def apply(self, lengths: Lengths, change: Change) -> Lengths: ...

    def remarks(self, change: Change) -> list[str]: ...
