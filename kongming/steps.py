"""Long answers in steps: between two of them a server attends to other calls.

A procedure in steps is a generator that yields where it can pause, and returns its result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

Steps = Generator[None, None, _T]


def finish(steps: Steps[_T]) -> _T:
    """Go through all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def at_once(procedure: Callable[_P, Steps[_T]]) -> Callable[_P, _T]:
    """A procedure in steps as one that goes through all of them."""

    @functools.wraps(procedure)
    def run_through(*arguments: _P.args, **named: _P.kwargs) -> _T:
        return finish(procedure(*arguments, **named))

    return run_through
