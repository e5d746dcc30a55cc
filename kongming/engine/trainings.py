"""Models in service by where they were trained, and the first by name of each place.

The first lends its idle node's times and spread to programs that were signed there and never
trained there. It is the same in whatever order models come, and few that come change it.
"""

from __future__ import annotations

from kongming.engine.scoring import Served

Place = tuple[str, int]
"""Node (id) of a training, and the code of the suite."""


class Trainings:
    """A model stands where it was trained until it is replaced or goes."""

    def __init__(self) -> None:
        self._at: dict[Place, dict[tuple[str, str], Served]] = {}
        self._first: dict[Place, Served] = {}

    def first(self, place: Place) -> Served | None:
        """The first by name of those at this place; None without any."""
        return self._first.get(place)

    def replace(self, before: Served | None, after: Served | None) -> list[Place]:
        """Put ``after`` in the stead of ``before``, of the same key (None: there was, or is, none);
        returns the places whose first is another model now."""
        places = {_place(model): None for model in (before, after) if model is not None}
        known = [self._first.get(place) for place in places]
        if before is not None and (after is None or _place(after) != _place(before)):
            self._remove(before)
        if after is not None:
            self._at.setdefault(_place(after), {})[after.key] = after
            first = self._first.get(_place(after))
            if first is None or after.key <= first.key:
                self._first[_place(after)] = after
        return [
            place
            for place, first in zip(places, known, strict=True)
            if self._first.get(place) is not first
        ]

    def _remove(self, model: Served) -> None:
        place = _place(model)
        left = self._at[place]
        del left[model.key]
        if not left:
            del self._at[place], self._first[place]
        elif self._first[place].key == model.key:
            self._first[place] = left[min(left)]


def _place(model: Served) -> Place:
    return model.file.node_id, model.suite
