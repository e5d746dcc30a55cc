"""Retention goes on while something is left, and says so where it does not keep up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_server.configuration.settings import Config
from kongming_server.configuration.settings import Retention as Settings
from kongming_server.monitoring.metrics import Metrics
from kongming_server.upkeep import Upkeep, oldest

from kongming.store import Retained, Retention

DAY_S = 86_400.0


class SharedState:
    """A store whose passes of retention end as ``passes`` says."""

    def __init__(self) -> None:
        self.config = Config(retention=Settings(budget_s=0.01))
        self.store = self
        self.time = 1e9
        self.passes: list[Retained] = []

    def now(self) -> float:
        return self.time

    async def stored(self, call: Callable[[], Any]) -> Any:
        return call()

    def retain(self, retention: Retention, *, now: float, budget_s: float) -> Retained:
        assert (now, budget_s) == (self.time, 0.01)
        return self.passes.pop(0)


@pytest.fixture
def state() -> SharedState:
    return SharedState()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def upkeep(state: SharedState, metrics: Metrics) -> Upkeep:
    return Upkeep(cast("Any", state), cast("Any", SimpleNamespace(queued=0)), metrics)


def test_retention_goes_on_until_nothing_is_left(state: SharedState, upkeep: Upkeep) -> None:
    state.passes = [
        Retained(rolled_up=5, finished=False),
        Retained(deleted={"run": 3}, finished=False),
        Retained(complete_at=state.time),
        Retained(),
    ]
    asyncio.run(upkeep.thin())
    assert len(state.passes) == 1
    # Another server is at it: nothing is done, and nothing is waited for.
    state.passes = [Retained(deleted={"run": 0}, finished=False), Retained()]
    asyncio.run(upkeep.thin())
    assert len(state.passes) == 1


def test_retention_that_is_behind_is_reported_once(
    state: SharedState, upkeep: Upkeep, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def lag_s(done: Retained) -> float | None:
        state.passes = [done]
        asyncio.run(upkeep.thin())
        return metrics.registry.get_sample_value("kongming_server_retention_lag_seconds")

    assert lag_s(Retained(complete_at=state.time)) == 0.0
    state.time += DAY_S
    assert lag_s(Retained(finished=False)) == DAY_S
    assert caplog.messages == []
    for _ in range(2):
        state.time += DAY_S
        lag_s(Retained(finished=False))
    (message,) = caplog.messages
    assert "48 h behind" in message
    # A round that began two days ago.
    assert lag_s(Retained(complete_at=state.time - 2.0 * DAY_S)) == 2.0 * DAY_S
    assert len(caplog.messages) == 1
    assert lag_s(Retained(complete_at=state.time)) == 0.0
    assert "caught up" in caplog.messages[1]


AGES = st.dictionaries(
    st.integers(0, 99).map(str),
    st.tuples(st.floats(0.0, 5000.0), st.floats(7.0, 1800.0)),
    max_size=20,
)


@given(nodes=AGES)
def test_the_oldest_fingerprint_is_that_which_is_oldest_for_its_time_to_live(
    nodes: dict[str, tuple[float, float]],
) -> None:
    ages = {node: age for node, (age, _) in nodes.items()}
    age, ttl = oldest(ages, lambda node: nodes[node][1], 7.0)
    assert age / ttl == max((age / ttl for age, ttl in nodes.values()), default=0.0)
