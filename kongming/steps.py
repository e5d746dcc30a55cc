"""Long answers in steps: between two of them a server attends to other calls.

A procedure in steps is a generator that yields where it can pause, and returns its result.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")

Steps = Generator[None, None, _T]


def finish(steps: Steps[_T]) -> _T:
    """Go through all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
