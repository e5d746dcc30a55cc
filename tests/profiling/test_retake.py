"""A disturbed measurement is taken again: how often, and which take stays."""

from __future__ import annotations

import pytest

from kongming.profiling.events import Doing, Event
from kongming.profiling.runs.retake import least_disturbed
from kongming.records import control

QUIET, DISTURBED = 0.5 * control.LIMIT, 2.0 * control.LIMIT


def retaken(excesses: list[float]) -> tuple[int, list[Event]]:
    """The number of the take that stays, and what was yielded meanwhile."""
    numbers = iter(range(len(excesses)))
    events: list[Event] = []
    taking = least_disturbed(
        lambda: next(numbers), excesses.__getitem__, Doing("again", 0, 1, "app")
    )
    while True:
        try:
            events.append(next(taking))
        except StopIteration as ended:
            assert list(numbers) == [], "not every take was made"
            return ended.value, events


@pytest.mark.parametrize(
    ("excesses", "stays"),
    [
        ([QUIET], 0),
        ([DISTURBED, QUIET], 1),
        ([3 * DISTURBED, DISTURBED, 2 * DISTURBED], 1),
        ([DISTURBED, DISTURBED, DISTURBED], 2),
    ],
)
def test_a_take_is_repeated_until_it_is_undisturbed_or_the_last(
    excesses: list[float], stays: int
) -> None:
    taken, events = retaken(excesses)
    assert taken == stays
    assert events == [Doing("again", 0, 1, "app")] * (len(excesses) - 1)
    assert len(excesses) <= control.TAKES
