"""When the server's process looks for garbage."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from kongming_server.running import garbage_collection as garbage


@pytest.fixture
def tuned() -> Iterator[None]:
    before = gc.get_threshold()
    garbage.tune()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


class Ring:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("tuned")
def test_what_was_there_is_never_looked_at_again() -> None:
    assert gc.get_freeze_count() > 1000
    old = gc.get_stats()[2]["collections"]
    lists = [[i] for i in range(200_000)]
    assert gc.get_stats()[2]["collections"] == old
    assert len(lists) == 200_000


@pytest.mark.thorough
@pytest.mark.usefixtures("tuned")
def test_what_came_since_is_looked_at_when_it_is_time() -> None:
    ring = Ring()
    gone = weakref.ref(ring)
    del ring
    asyncio.run(garbage.collect())
    assert gone() is None
