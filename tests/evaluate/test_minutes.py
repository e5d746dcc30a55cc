"""How long measuring took, by the records of campaigns."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from kongming.evaluate.minutes import machine_seconds
from kongming.records.run import Run
from tests import builders

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def run(at_s: float, wall_s: float) -> Run:
    started = (BEGIN + timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")
    return builders.run("any", wall_s, started_at=started, wall_s=wall_s)


def test_a_run_that_goes_on_for_long_is_no_interruption() -> None:
    """Each run of 3 s comes 2 s after the one before; one is slowed 30 times, then an hour passes
    before the last."""
    runs = [run(5.0 * k, 3.0) for k in range(6)]
    runs += [run(30.0, 90.0), run(122.0, 3.0), run(3722.0, 3.0)]
    seconds = [time for _, time in machine_seconds(runs)]
    assert seconds == pytest.approx([3.0, *[5.0] * 5, 92.0, 5.0, 5.0])
    assert math.fsum(seconds) == pytest.approx(130.0)
