"""The order of surrogates in the engine's arrays, and which resource each one is of.

Environments are vectors of log seconds per operation, NaN where there is no reading. A surrogate
that models or imports name, or the agents of several credentials, has a place for all nodes. One
that the credentials of one agent alone have named has a place that means something on nodes of that
agent only: each agent has the same few of them for its own, so that what it names takes no
place of others. As soon as others name it too, it moves to a place for all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats

MOST_OF_ONE = 64
"""Surrogates that one agent's credentials alone name, and those that they first made known to all
together with another one's: it must not use up the places of others."""

MOST_SHARED = 256
"""Surrogates with a place for all nodes: no suite has more, and memory must not grow by names."""

MOST_REPORTED = 128
"""Those of them that agents have named: models have a place for theirs, whatever agents report."""

MOST_COLUMNS = MOST_SHARED + MOST_OF_ONE
"""Places in all."""

DEVICE_FAMILIES = frozenset({"read", "write", "metadata", "network", "os"})
"""Resources that all last-level cache domains of a node share."""


Moved = Callable[[str, int, int], None]
"""Is called with whose surrogate moves from which of its own places to which place for all."""


_SIGNED = "signatures of "


class Columns:
    """Places by name. Those for all never change once given.

    Throughout, ``by`` are the credentials of the agent that names surrogates, or whose node it is;
    empty for models, imports, and where callers are not authenticated.
    """

    def __init__(self, moved: Moved = lambda by, place, to: None) -> None:
        self._moved = moved
        # Empty for a place that is not for all.
        self._names: list[str] = []
        self._family: list[str] = []
        self._place: dict[str, int] = {}
        # The places that each agent has for itself, and which of them its surrogates have.
        self._own_places: list[int] = []
        self._own: dict[str, dict[str, int]] = {}
        # Of which resource agents say that surrogates are, until that is settled.
        self._claims: dict[str, dict[str, str]] = {}
        self._made_known: Counter[str] = Counter()
        self._reported = 0

    def __len__(self) -> int:
        return len(self._names)

    def name(self, place: int, by: str = "") -> str:
        """The surrogate of a place on nodes of ``by``."""
        if self._names[place]:
            return self._names[place]
        own = self._own.get(by, {})
        return next((name for name, its in own.items() if its == place), "")

    def family(self, place: int) -> str:
        """The surrogate's resource, empty where it was not reported, or by one agent alone."""
        return self._family[place]

    def own_places(self) -> list[int]:
        """Those that mean something else for each agent."""
        return list(self._own_places)

    def learn(
        self, names: Sequence[str], families: Sequence[str], by: str = ""
    ) -> NDArray[np.intp]:
        """(n,) places of ``names``, given where they are new; -1 beyond the most that are held."""
        learn = self._of_agent if by else self._of_all
        places = [learn(name, family, by) for name, family in zip(names, families, strict=True)]
        return np.array(places, dtype=np.intp)

    def logs(self, times: Mapping[str, float], families: Mapping[str, str], by: str = "") -> Floats:
        """(len(self),) log seconds per operation, NaN where ``times`` has no valid one."""
        names = list(times)
        places = self.learn(names, [families.get(name, "") for name in names], by)
        return self._vector(times, places)

    def signature(
        self, times: Mapping[str, float], families: Mapping[str, str], node_id: str
    ) -> Floats:
        """``logs`` of a signature that an operator or the server asked a node for: it counts on all
        nodes, and makes no more known to them than the word of an agent may."""
        for name in times:
            if name not in self._place and self._may_make_known(_SIGNED + node_id):
                self._reported += 1
                self._made_known[_SIGNED + node_id] += 1
                self._share(name, families.get(name, ""))
        places = [self._place.get(name, -1) for name in times]
        return self._vector(times, np.array(places, dtype=np.intp))

    def _vector(self, times: Mapping[str, float], places: NDArray[np.intp]) -> Floats:
        vector = np.full(len(self), math.nan)
        for seconds, place in zip(times.values(), places.tolist(), strict=True):
            if place >= 0 and 0.0 < seconds < math.inf:
                vector[place] = math.log(seconds)
        return vector

    def _of_all(self, name: str, family: str, by: str) -> int:
        place = self._place.get(name, -1)
        if place < 0:
            return self._share(name, family)
        if family:
            # Models and imports are believed before agents.
            self._family[place] = family
            self._claims.pop(name, None)
        return place

    def _of_agent(self, name: str, family: str, by: str) -> int:
        place = self._place.get(name, -1)
        if place >= 0 and (self._family[place] or not family):
            return place
        other = self._agreeing(name, family, by)
        if place >= 0:
            if other:
                self._family[place] = family
                del self._claims[name]
            else:
                self._claims.setdefault(name, {})[by] = family
            return place
        if other and self._may_make_known(by, other):
            self._reported += 1
            self._made_known.update((by, other))
            return self._share(name, family or self._claims[name][other])
        own = self._own.setdefault(by, {})
        if name not in own:
            if len(own) >= MOST_OF_ONE:
                return -1
            own[name] = self._free_place(own)
        claims = self._claims.setdefault(name, {})
        claims[by] = family or claims.get(by, "")
        return own[name]

    def _agreeing(self, name: str, family: str, by: str) -> str:
        """Another agent that has named a surrogate, of the same resource; empty for none."""
        claims = self._claims.get(name, {})
        return next(
            (o for o, its in claims.items() if o != by and (its == family or not (its and family))),
            "",
        )

    def _may_make_known(self, *agents: str) -> bool:
        return self._reported < MOST_REPORTED and all(
            self._made_known[agent] < MOST_OF_ONE for agent in agents
        )

    def _share(self, name: str, family: str) -> int:
        """Give a surrogate a place for all, and move what agents have of it there."""
        if len(self._place) >= MOST_SHARED:
            return -1
        place = self._place[name] = len(self._names)
        self._names.append(name)
        self._family.append(family)
        for by in self._claims.get(name, {}):
            before = self._own.get(by, {}).pop(name, None)
            if before is not None:
                self._moved(by, before, place)
        if family:
            self._claims.pop(name, None)
        return place

    def _free_place(self, own: Mapping[str, int]) -> int:
        taken = set(own.values())
        for place in self._own_places:
            if place not in taken:
                return place
        self._own_places.append(len(self._names))
        self._names.append("")
        self._family.append("")
        return self._own_places[-1]

    def times(self, logs: Floats, by: str = "") -> dict[str, float]:
        """Seconds per operation by name, of the places that have one."""
        own = {place: name for name, place in self._own.get(by, {}).items()}
        seconds = {
            self._names[place] or own.get(place, ""): math.exp(value)
            for place, value in enumerate(logs.tolist()[: len(self._names)])
            if value == value
        }
        seconds.pop("", None)
        return seconds

    def devices(self) -> NDArray[np.bool_]:
        """(len(self),): whether a surrogate is of what a node's domains share."""
        return np.array([family in DEVICE_FAMILIES for family in self._family], dtype=np.bool_)


def fitted(vector: Floats, width: int) -> Floats:
    """The vector with NaN (for surrogates that were named later) up to ``width`` places, or
    without the room beyond them that arrays have to spare."""
    if len(vector) >= width:
        return vector[:width]
    longer = np.full(width, math.nan)
    longer[: len(vector)] = vector
    return longer


def fitted_rows(rows: Floats, width: int) -> Floats:
    """``rows`` (n, C) with NaN for surrogates that were named later, up to ``width`` places."""
    missing = width - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, missing)), constant_values=math.nan) if missing > 0 else rows
