"""Errors that adaptive profiling raises where its input is wrong."""

from __future__ import annotations

from kongming.records.errors import InputError


class ExploreError(InputError, ValueError):
    """A space, a point, a measurement or a setting of a profiler is wrong: names the field, what
    was found and what is allowed."""

    dimensions: tuple[str, ...] = ()
    """Of a point that is forbidden: those that make it so."""
