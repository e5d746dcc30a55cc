"""Copies of records are those that ``dataclasses.replace`` makes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from kongming.records.copies import copier
from kongming.records.prediction import Interval


def test_a_copy_differs_in_what_is_given_alone_and_is_frozen() -> None:
    interval = Interval(2.0, 1.0, 3.0, calibrated=False, expected_lower=1.5, expected_upper=2.5)

    copy = copier(Interval, "at_least", "upper")(interval, True, 4.0)

    assert copy == replace(interval, at_least=True, upper=4.0)
    assert interval.upper == 3.0
    with pytest.raises(FrozenInstanceError):
        copy.upper = 5.0  # type: ignore[misc]
