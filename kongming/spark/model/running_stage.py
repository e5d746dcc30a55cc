"""A stage while a replay launches its tasks, and its copies that are not due."""

from __future__ import annotations

from dataclasses import dataclass, field

from kongming.spark.model.speculation import Speculation


@dataclass(slots=True)
class Running:
    """A stage with tasks to launch. ``copies``: the speculative ones, until they are due; ``open``:
    how many have not come. With copies, ``starts`` and ``finishes`` are of the other tasks, and
    ``originals`` of the copies that have come, by their places in ``lengths``."""

    lengths: list[float]
    needed: list[bool] | None
    ready: float
    next: int = 0
    end: float = 0.0
    copies: list[DueCopy] = field(default_factory=list)
    open: int = 0
    starts: list[float] = field(default_factory=list)
    finishes: list[float] = field(default_factory=list)
    originals: dict[int, int] = field(default_factory=dict)

    def due_s(self, speculation: Speculation, turnover_s: float) -> list[float]:
        """Return when each copy is due: all other tasks are launched."""
        needed = self.needed or [True] * len(self.finishes)
        ends = [end - turnover_s for end, own in zip(self.finishes, needed, strict=True) if own]
        return speculation.due_s(self.starts, ends)


@dataclass(frozen=True, slots=True)
class DueCopy:
    """A speculative copy. ``original``: its place among the tasks of the stage without copies."""

    stage: int
    original: int
    length: float
    needed: bool


def set_aside(number: int, running: Running, speculation: Speculation) -> None:
    """Take the copies out of the tasks to launch."""
    lengths, needed = running.lengths, running.needed
    assert needed is not None
    running.copies = [
        DueCopy(number, copy.original, lengths[copy.place], needed[copy.place])
        for copy in speculation.copies
    ]
    running.open = len(running.copies)
    for place in sorted(speculation.places, reverse=True):
        del lengths[place], needed[place]
