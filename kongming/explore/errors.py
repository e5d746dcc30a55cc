"""Errors that adaptive profiling raises where its input is wrong."""

from __future__ import annotations

from typing import Self

from kongming.records.errors import InputError


class ExploreError(InputError, ValueError):
    """A space, a point, a measurement or a setting of a profiler is wrong: names the field, what
    was found and what is allowed. What ``kongming.explore`` raises besides is exported there, too:
    UntrainedError where nothing can be predicted yet, and the errors of ``from_json``."""

    dimensions: tuple[str, ...] = ()
    """Of a point that is forbidden: those that make it so."""

    def in_list(self, number: int, count: int) -> Self:
        """The same error, of the point with this number (from 0) among ``count`` points; one that
        stands alone needs no number."""
        if count == 1:
            return self
        field = f"points[{number}]" + ("" if self.field == "point" else f": {self.field}")
        return self.at(field)
