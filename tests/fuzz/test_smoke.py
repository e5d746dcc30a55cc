"""Ten inputs for each target of ``make fuzz``, so that none of them rots."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.targets import TARGETS, attempt


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_whatever_is_read_is_taken_or_refused_with_a_reason(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=target.examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(target.draws())
    def some(drawn: object) -> None:
        attempt(target, drawn)

    some()
