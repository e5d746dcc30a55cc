"""Ten inputs for each target of ``make fuzz``, so that each of them keeps working."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.servers import server_targets
from tests.fuzz.target import Target, attempt
from tests.fuzz.targets import TARGETS


@pytest.fixture(scope="module")
def servers() -> Iterator[Mapping[str, Target]]:
    with server_targets() as targets:
        yield targets


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_whatever_is_read_is_taken_or_refused_with_a_reason(name: str) -> None:
    some(TARGETS[name])


@pytest.mark.parametrize("name", ["grpc", "http"])
def test_whatever_is_asked_is_answered(name: str, servers: Mapping[str, Target]) -> None:
    some(servers[name])


def some(target: Target) -> None:

    @settings(
        max_examples=target.examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(target.draws())
    def run(drawn: object) -> None:
        attempt(target, drawn)

    run()
