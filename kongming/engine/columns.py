"""The order of surrogates in the engine's arrays, and which resource each one is of.

Environments are vectors of log seconds per operation, one place for each surrogate that any
fingerprint or model has named, NaN where there is no reading.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats

MOST_COLUMNS = 256
"""Surrogates beyond so many are not held: no suite has them, and memory must not grow by names."""

MOST_REPORTED = 128
"""Those that agents have named: models have a place for theirs, whatever agents report."""

MOST_OF_ONE = 64
"""Those that one agent's credentials have named first: it must not use up the places of others."""

DEVICE_FAMILIES = frozenset({"read", "write", "metadata", "network", "os"})
"""Resources that all last-level cache domains of a node share."""


class Columns:
    """Places by name; they never change once given."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._place: dict[str, int] = {}
        self._family: list[str] = []
        self._named_by: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.names)

    def family(self, place: int) -> str:
        """The surrogate's resource, empty where nobody has said."""
        return self._family[place]

    def learn(
        self, names: Sequence[str], families: Sequence[str], by: str = ""
    ) -> NDArray[np.intp]:
        """(n,) places of ``names``, given where they are new; -1 beyond the most that are held.

        ``by`` are the credentials of the agent that names them; empty for models, imports, and
        where nobody is asked for any.
        """
        places = []
        for name, family in zip(names, families, strict=True):
            place = self._place.get(name, -1)
            if place < 0 and self._room(by):
                self._named_by[by] += 1
                place = self._place[name] = len(self.names)
                self.names.append(name)
                self._family.append(family)
            elif place >= 0 and family and not self._family[place]:
                self._family[place] = family
            places.append(place)
        return np.array(places, dtype=np.intp)

    def logs(self, times: Mapping[str, float], families: Mapping[str, str], by: str = "") -> Floats:
        """(len(self),) log seconds per operation, NaN where ``times`` has no valid one; ``by`` as
        for ``learn``."""
        names = list(times)
        places = self.learn(names, [families.get(name, "") for name in names], by).tolist()
        vector = np.full(len(self.names), math.nan)
        for name, place in zip(names, places, strict=True):
            seconds = times[name]
            if place >= 0 and 0.0 < seconds < math.inf:
                vector[place] = math.log(seconds)
        return vector

    def _room(self, by: str) -> bool:
        if not by:
            return len(self.names) < MOST_COLUMNS
        reported = self._named_by.total() - self._named_by[""]
        return (
            self._named_by[by] < MOST_OF_ONE
            and reported < MOST_REPORTED
            and len(self.names) < MOST_COLUMNS
        )

    def times(self, logs: Floats) -> dict[str, float]:
        """Seconds per operation by name, of the places that have one."""
        return {
            name: math.exp(value)
            for name, value in zip(self.names, logs.tolist(), strict=False)
            if value == value
        }

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
