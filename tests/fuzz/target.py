"""One thing that reads what others wrote: with whatever it is given it answers, or refuses with an
error of ours. Anything else that it raises is a defect."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from kongming.records.errors import KongmingError


class Target(NamedTuple):
    """``draws`` an input, and ``tries`` it. ``examples``: of how many a smoke run is."""

    draws: Callable[[], st.SearchStrategy[Any]]
    tries: Callable[[Any], object]
    examples: int = 10


def attempt(target: Target, drawn: Any) -> None:
    """Raises what is a defect."""
    with suppress(KongmingError):
        target.tries(drawn)


@contextmanager
def file_of(content: bytes, suffix: str = "") -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(content)
        file.flush()
        yield Path(file.name)
