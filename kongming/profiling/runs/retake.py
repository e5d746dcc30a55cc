"""Measure again what somebody else disturbed, and keep the least disturbed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from kongming.profiling.events import Event
from kongming.records import control

Taken = TypeVar("Taken")


def least_disturbed(
    take: Callable[[], Taken], excess: Callable[[Taken], float], again: Event
) -> Generator[Event, None, Taken]:
    """Call ``take`` until what it returns is undisturbed by its ``excess`` (``control.Watch``), or
    was taken ``control.TAKES`` times. Yields ``again`` before each further take, and returns the
    least disturbed."""
    takes: list[tuple[float, Taken]] = []
    while not control.is_enough(takes):
        if takes:
            yield again
        taken = take()
        takes.append((excess(taken), taken))
    return control.least_disturbed(takes)
