"""The coupling of training runs: kept with the model, and compared with a fingerprint's."""

from __future__ import annotations

from typing import Any

import pytest

from kongming.learning.predict import predict_environment
from kongming.learning.training import train_application
from kongming.records.fingerprint import COUPLING
from tests import builders
from tests.models import synthetic


def trained(**changes: Any) -> dict[str, Any]:
    runs = synthetic.campaign("chaser", {"memory.random.128M": 0.6}, **changes)
    return train_application(runs, models=["MEAN"])


def test_a_fingerprint_of_another_coupling_is_warned_of() -> None:
    coupled, without = trained(passive={COUPLING: 1.1}), trained()
    # It is no column: what is predicted is the same.
    assert coupled["coupling"] == 1.1
    assert coupled["variants"] == without["variants"]
    assert "coupling" not in without
    times = without["variants"]["full"]["idle"]
    for document, now, warned in ((coupled, 1.2, 0), (coupled, 3.0, 1), (without, 3.0, 0)):
        environment = builders.fingerprint(times, passive={COUPLING: now})
        warnings = predict_environment(document, environment).warnings
        assert len([warning for warning in warnings if "coupling of 3.00" in warning]) == warned


@pytest.mark.parametrize("impossible", [0.0, -1.0, 0.6])
def test_a_coupling_that_cannot_be_is_none(impossible: float) -> None:
    assert "coupling" not in trained(passive={COUPLING: impossible})
    document = trained(passive={COUPLING: 1.1})
    times = document["variants"]["full"]["idle"]
    environment = builders.fingerprint(times, passive={COUPLING: impossible})
    answer = predict_environment(document, environment)
    assert answer == predict_environment(document, builders.fingerprint(times))
