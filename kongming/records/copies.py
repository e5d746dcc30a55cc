"""Copies of frozen records, for what is copied with each call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields
from itertools import repeat
from operator import attrgetter, call
from typing import Any, TypeVar

R = TypeVar("R")


def copier(kind: type[R], *changed: str) -> Callable[..., R]:
    """``dataclasses.replace`` for these fields of records of this type, at a third of its cost: a
    function of a record and the new values, in the order of ``changed``.

    The type has slots and two or more other fields. Its ``__post_init__`` is not called.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    kept = [name for name in names if name not in changed]
    values_of = attrgetter(*kept)
    setters = [getattr(kind, name).__set__ for name in (*kept, *changed)]

    def copy(record: R, *values: Any) -> R:
        made = object.__new__(kind)
        # Past __setattr__, which a frozen record refuses.
        deque(map(call, setters, repeat(made), (*values_of(record), *values)), maxlen=0)
        return made

    return copy
