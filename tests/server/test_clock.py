"""The server's time when the system's clock jumps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kongming_server.running.clock import FOLLOWED_S, SLEW, SteadyClock

START_S = 1.8e9


class Machine:
    """A machine whose wall clock can be set."""

    def __init__(self) -> None:
        self.uptime = 1000.0
        self.wall = START_S

    def passes(self, seconds: float) -> None:
        self.uptime += seconds
        self.wall += seconds

    def clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.uptime)


def test_it_tells_the_systems_time() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.passes(5.0)
    assert clock.now() == START_S + 5.0


@given(jump=st.floats(-1e6, 1e6))
def test_a_jump_moves_no_deadline_and_is_caught_up_with(jump: float) -> None:
    machine = Machine()
    clock = machine.clock()
    clock.follow()
    machine.wall += jump
    before = clock.now()
    for _ in range(60):
        machine.passes(1.0)
        clock.follow()
    elapsed = clock.now() - before
    assert 60.0 * (1 - SLEW) - FOLLOWED_S <= elapsed <= 60.0 * (1 + SLEW) + FOLLOWED_S
    machine.passes(abs(jump) / SLEW + 2.0)
    clock.follow()
    machine.passes(1.0)
    clock.follow()
    assert abs(clock.now() - machine.wall) < 1e-3


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(-1e5, 1e5)), min_size=1, max_size=30))
def test_it_never_goes_back(steps: list[tuple[float, float]]) -> None:
    machine = Machine()
    clock = machine.clock()
    latest = clock.now()
    for passed, jump in steps:
        machine.passes(passed)
        machine.wall += jump
        clock.follow()
        assert clock.now() >= latest
        latest = clock.now()
