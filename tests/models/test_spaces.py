"""Spaces between seconds per operation and log slowdown, there and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning import spaces


@pytest.mark.parametrize("space", spaces.SPACES)
@given(logs=st.lists(st.floats(-1.0, 3.0), min_size=1, max_size=5))
def test_targets_come_back_as_log_slowdowns(space: spaces.Space, logs: list[float]) -> None:
    wanted = np.array(logs)
    back = spaces.log_slowdown(spaces.target(wanted, space), space, (-5.0, 5.0))
    np.testing.assert_allclose(back, wanted, atol=1e-12)


@pytest.mark.parametrize("space", spaces.SPACES)
def test_predictions_stay_within_what_is_credible(space: spaces.Space) -> None:
    bounds = spaces.credible_bounds(np.array([0.0, 0.7]), 0.02)
    wild = spaces.log_slowdown(np.array([-1e9, 1e9]), space, bounds)
    assert wild.tolist() == pytest.approx([-0.02, 0.7 + math.log(1.25)])
