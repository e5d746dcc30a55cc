"""A memory cliff over contexts: a load per machine above which times are longer by one factor.

What has to fit into a machine is a share of the input: the scale, or a number of the context (its
size), over the machines, and over another number where one tells the memory. Which numbers these
are, and where the cliff is (for each name of one column, as machine types differ in their memory),
is what explains most of the residuals of the terms. A context that no run took across the cliff
has it all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.context_columns import Column, Context, by_name, show
from kongming.scale.points import Integers, Points

JUMP = float(np.log(1.5))
"""Least height (in logs) of a step that is taken for a cliff."""

EXPLAINED = 0.25
"""Least share of the residuals' sum that a cliff explains once the terms are fitted without it."""

CANDIDATE, FOR_PLACE = 0.05, 0.03
"""Least share before that, when the terms are still bent by it, and more for each of its places
and for a second number."""

CLIPPED = 1.5
"""Residuals (in logs) above this are alike."""

BEYOND_LEAST, INSIDE_LEAST = 2, 3
"""Minimum number of configurations beyond and inside of a cliff."""

CONTEXTS_LEAST = 2
"""Minimum number of contexts with configurations beyond: one tells nothing about others."""

SPLITS = 30
"""Maximum number of places that are tried for each load."""


@dataclass(frozen=True, slots=True)
class ContextCliff:
    """``over`` and ``under`` are the places of the columns of the load (None: the scale alone, no
    memory), ``by`` that of the names which ``ends`` are given for (None: for all, by the name "").
    ``ends``: for each name the largest log of a load inside, and the smallest beyond; ``jump`` is
    the log of the factor."""

    over: int | None
    under: int | None
    by: int | None
    ends: dict[str, tuple[float, float]]
    jump: float

    def offset(self, context: Context) -> float:
        """Return the log of the load at scale 1 on one machine."""
        above = 0.0 if self.over is None else np.log(float(context[self.over]))
        below = 0.0 if self.under is None else np.log(float(context[self.under]))
        return float(above - below)

    def place(self, context: Context) -> tuple[float, float] | None:
        """Return where the cliff is in a context; None if that is unknown."""
        return self.ends.get("" if self.by is None else show(context[self.by]))

    def document(self) -> dict[str, Any]:
        return {
            "over": self.over,
            "under": self.under,
            "by": self.by,
            "ends": {name: list(ends) for name, ends in self.ends.items()},
            "jump": self.jump,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """A cliff in one context: see ``ContextCliff``."""

    offset: float
    inside: float
    beyond: float
    jump: float

    def share(self, points: Points) -> Floats:
        """(n,) probability of being beyond: between the loads that were run it is not known."""
        load = self.offset + np.log(points.load)
        return np.clip((load - self.inside) / (self.beyond - self.inside), 0.0, 1.0)


def step_at(
    cliff: ContextCliff | None, context: Context, columns: Sequence[Column] = ()
) -> Step | None:
    """Return the cliff in a context, if there is one. For a name without runs, of which ``columns``
    tell, it lies anywhere between the others'."""
    if cliff is None:
        return None
    ends = cliff.place(context)
    if columns and cliff.by is not None and show(context[cliff.by]) not in columns[cliff.by].names:
        inside, beyond = zip(*cliff.ends.values(), strict=True)
        ends = min(inside), max(beyond)
    return None if ends is None else Step(cliff.offset(context), *ends, cliff.jump)


def steps(
    cliff: ContextCliff | None, contexts: Sequence[Context], points: Points, owner: Integers
) -> Floats:
    """(n,) logs of the cliff's factor at configurations of contexts (by number)."""
    logs = np.zeros(len(points))
    for i, context in enumerate(contexts):
        step, mine = step_at(cliff, context), owner == i
        if step is not None:
            logs[mine] = step.jump * step.share(points.take(mine))
    return logs


def find_cliff(
    columns: Sequence[Column],
    contexts: Sequence[Context],
    points: Points,
    owner: Integers,
    residual: Floats,
) -> ContextCliff | None:
    """Find the cliff that explains most of the residuals (n,), logs that are about 0 for the
    configurations that the terms describe."""
    total = total_of(residual)
    # Of several that explain as much the first by name is taken.
    places = by_name(columns)
    numbers = [i for i in places if columns[i].log and not columns[i].names]
    names = [i for i in places if columns[i].names]
    best, most = None, CANDIDATE * total
    for over in (None, *numbers):
        for under in (None, *(i for i in numbers if i != over and over is not None)):
            # Without a memory among the numbers it may differ by name.
            for by in (None, *(names if under is None else ())):
                cliff = ContextCliff(over, under, by, {}, 0.0)
                gain, placed = _placed(cliff, contexts, points, owner, residual)
                gain -= FOR_PLACE * total * (len(placed.ends) + (under is not None))
                if placed.ends and gain > most:
                    best, most = placed, gain
    return best


def total_of(residual: Floats) -> float:
    """Return the sum of the residuals' sizes that a cliff has to explain."""
    return float(np.sum(np.minimum(np.abs(residual), CLIPPED)))


def _placed(
    cliff: ContextCliff,
    contexts: Sequence[Context],
    points: Points,
    owner: Integers,
    residual: Floats,
) -> tuple[float, ContextCliff]:
    """Return the cliff at its best places, and how much of the residuals' sum it explains."""
    load = np.array([cliff.offset(each) for each in contexts])[owner] + np.log(points.load)
    name = np.array(["" if cliff.by is None else show(each[cliff.by]) for each in contexts])[owner]
    ends: dict[str, tuple[float, float]] = {}
    over: list[Floats] = []
    across: set[int] = set()
    gain = 0.0
    for each in np.unique(name).tolist():
        mine = name == each
        split = _split(load[mine], residual[mine])
        if split is None:
            continue
        own, inside, beyond = split
        ends[each] = (inside, beyond)
        far = mine & (load >= beyond)
        over.append(residual[far])
        across.update(owner[far].tolist())
        gain += own
    if len(across) < CONTEXTS_LEAST:
        ends = {}
    jump = float(np.median(np.concatenate(over))) if over else 0.0
    return gain, ContextCliff(cliff.over, cliff.under, cliff.by, ends, jump)


def _split(load: Floats, residual: Floats) -> tuple[float, float, float] | None:
    """Return how much a step at the best place explains, and the loads on both sides of it."""
    order = np.argsort(load)
    load, residual = load[order], residual[order]
    size = np.minimum(np.abs(residual), CLIPPED)
    places = np.arange(INSIDE_LEAST, len(load) - BEYOND_LEAST + 1)
    places = places[load[places] > load[places - 1] + 1e-9] if len(places) else places
    if len(places) > SPLITS:
        # The widest gaps between the residuals' neighbouring means.
        rise = np.abs(residual[places] - residual[places - 1])
        places = np.sort(places[np.argsort(-rise)[:SPLITS]])
    best: tuple[float, float, float] | None = None
    for place in places.tolist():
        jump = float(np.median(residual[place:]))
        if jump < JUMP:
            continue
        left = np.minimum(np.abs(residual[place:] - jump), CLIPPED)
        gain = float(np.sum(size[place:]) - np.sum(left))
        if gain > 0.0 and (best is None or gain > best[0]):
            best = gain, float(load[place - 1]), float(load[place])
    return best
