"""The schedule is tested on a clock of its own: a loop that does what the schedule says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

import pytest
from kongming_agent.agent_config import Budget, Probing
from kongming_agent.probing.budget import Cost
from kongming_agent.probing.schedule import Probe, Schedule, Wait

IDLE = {"cpu_busy": 0.01}
BUSY = {"cpu_busy": 0.6}
QUICK = Cost(0.7, 0.8, 30e6)
STANDARD = Cost(3.5, 3.7, 8e8)


def new_schedule(
    probing: Probing | None = None, budget: Budget | None = None, domains: int = 1, seed: int = 1
) -> Schedule:
    return Schedule(
        domains,
        probing or Probing(),
        budget or Budget(),
        now=0.0,
        rng=random.Random(seed),
    )


def live(
    schedule: Schedule,
    seconds: float,
    signals: Callable[[float], Mapping[str, float]] | Mapping[str, float] = BUSY,
    *,
    start: float = 0.0,
    own_share: float = 0.001,
    no_room: str = "",
    cpus: int = 2,
) -> list[tuple[float, Probe]]:
    """Samples every two seconds and probes on schedule; returns what was probed, when."""
    now, done = start, []
    while now < start + seconds:
        system = signals(now) if callable(signals) else signals
        schedule.spent(Cost(cpu_s=2.0 * own_share), now)
        schedule.sampled(system, 2.0, now, cpus=cpus, no_room=no_room)
        instruction = schedule.next(now)
        if isinstance(instruction, Probe):
            cost = QUICK if instruction.suite == "quick" else STANDARD
            if not instruction.writes:
                cost = Cost(cost.cpu_s, cost.wall_s, 0.0)
            done.append((now, instruction))
            now += cost.wall_s
            schedule.probed(instruction, cost, now, ok=True)
        now += 2.0
    return done


def gaps(done: list[tuple[float, Probe]]) -> list[float]:
    times = [at for at, _ in done]
    return [b - a for a, b in itertools.pairwise(times)]


def test_a_quick_fingerprint_comes_with_every_period_and_jitter() -> None:
    done = live(new_schedule(), 7200.0)
    assert {probe.suite for _, probe in done} == {"quick"}
    assert 50 <= len(done) <= 75
    assert min(gaps(done)) >= 120.0 * 0.8 - 4.0
    assert max(gaps(done)) - min(gaps(done)) > 20.0


def test_two_agents_that_start_together_do_not_probe_together() -> None:
    first, second = (live(new_schedule(seed=seed), 1800.0) for seed in (1, 2))
    assert [at for at, _ in first] != [at for at, _ in second]


def test_a_step_of_the_signals_calls_for_a_fingerprint_and_says_why() -> None:
    schedule = new_schedule(Probing(period_s=1000.0))

    def signals(now: float) -> Mapping[str, float]:
        return {"cpu_busy": 0.2, "psi_io_some": 0.5 if now > 300.0 else 0.0}

    done = live(schedule, 600.0, signals)
    assert len(done) == 2
    assert 300.0 < done[1][0] <= 315.0
    assert "psi_io_some rose" in done[1][1].reason


def test_one_odd_sample_is_no_step() -> None:
    schedule = new_schedule(Probing(period_s=1000.0))

    def signals(now: float) -> Mapping[str, float]:
        return {"cpu_busy": 0.55 if 300.0 <= now < 302.0 else 0.2}

    assert len(live(schedule, 600.0, signals)) == 1


def test_an_assignment_and_the_server_call_for_a_fingerprint() -> None:
    schedule = new_schedule(Probing(period_s=1000.0))
    live(schedule, 100.0)
    schedule.assignments(frozenset({"job-1"}))
    done = live(schedule, 30.0, start=100.0)
    assert [probe.reason for _, probe in done] == ["an assignment changed"]
    schedule.assignments(frozenset({"job-1"}))
    assert live(schedule, 30.0, start=130.0) == []
    schedule.request("the server asked")
    done = live(schedule, 30.0, start=160.0)
    assert [probe.reason for _, probe in done] == ["the server asked"]


@pytest.mark.parametrize("share", [0.002, 0.01, 0.05])
def test_the_cpu_budget_holds_over_every_hour_whatever_is_asked(share: float) -> None:
    schedule = new_schedule(
        Probing(period_s=5.0, least_gap_s=0.0), Budget(cpu_share=share, probe_share=1)
    )
    done = live(schedule, 3 * 3600.0, own_share=0.0005)
    assert len(done) > 5
    for start in range(0, 2 * 3600, 600):
        probes = sum(QUICK.cpu_s for at, _ in done if start <= at < start + 3600)
        assert probes + 0.0005 * 3600 <= share * 3600 + QUICK.cpu_s


def test_the_share_of_the_time_that_is_probed_is_bounded_too() -> None:
    budget = Budget(cpu_share=1.0, probe_share=0.01)
    done = live(new_schedule(Probing(period_s=5.0, least_gap_s=0.0), budget), 2 * 3600.0)
    for start in range(0, 3600, 600):
        probed = sum(QUICK.wall_s for at, _ in done if start <= at < start + 3600)
        assert probed <= 36.0 + QUICK.wall_s


def test_an_agent_that_uses_up_the_budget_itself_does_not_probe() -> None:
    schedule = new_schedule()
    live(schedule, 3600.0, own_share=0.02)
    assert live(schedule, 3600.0, start=3600.0, own_share=0.02) == []
    waiting = schedule.next(7200.0)
    assert isinstance(waiting, Wait)
    assert waiting.reason == "the budget is spent"


def test_when_the_bytes_are_spent_probes_go_on_without_writing() -> None:
    schedule = new_schedule(budget=Budget(bytes_per_day=10 * 40e6))
    done = live(schedule, 6 * 3600.0)
    writing = [probe for _, probe in done if probe.writes]
    assert len(done) > 100
    assert 0 < len(writing) <= 10


def test_under_memory_pressure_the_period_doubles_up_to_the_longest_gap() -> None:
    schedule = new_schedule(Probing(longest_gap_s=900.0))
    done = live(schedule, 7200.0, {"cpu_busy": 0.9, "psi_memory_full": 0.4})
    between = gaps(done)
    assert between[0] < between[1] < between[2]
    assert max(between) <= 900.0 + 10.0
    assert len(done) < 15
    assert schedule.pressed == "memory pressure of 40 %"


def test_when_the_pressure_ends_the_period_is_the_usual_one_again() -> None:
    schedule = new_schedule()
    live(schedule, 7200.0, {"cpu_busy": 0.9, "psi_io_full": 0.9})
    done = live(schedule, 1800.0, start=7200.0)
    assert len(done) >= 8


def test_nothing_starts_without_room_or_after_the_kernel_has_killed() -> None:
    schedule = new_schedule()
    assert live(schedule, 3600.0, no_room="no memory") == []
    assert schedule.next(3600.0) == Wait(3660.0, "no memory")
    schedule.sampled(BUSY, 2.0, 3602.0, cpus=2, oom=True)
    assert live(schedule, 290.0, start=3604.0) == []
    assert len(live(schedule, 300.0, start=3904.0)) >= 1


def test_nothing_starts_before_the_first_signals() -> None:
    assert isinstance(new_schedule().next(1000.0), Wait)


@pytest.mark.thorough
def test_an_idle_node_gets_its_reference_and_again_after_a_day() -> None:
    done = live(new_schedule(), 34 * 3600.0, IDLE)
    references = [at for at, probe in done if probe.suite == "standard"]
    assert references[0] >= 58.0
    settled = [at for at in references if at < 10 * 3600.0]
    assert len(settled) == 5
    assert min(b - a for a, b in itertools.pairwise(settled)) >= 300.0
    assert len(references) == 6


def test_a_busy_node_or_one_with_placements_gets_none() -> None:
    assert all(probe.suite == "quick" for _, probe in live(new_schedule(), 7200.0, BUSY))
    schedule = new_schedule()
    schedule.assignments(frozenset({"job"}))
    assert all(probe.suite == "quick" for _, probe in live(schedule, 7200.0, IDLE))


def test_a_large_node_is_idle_if_a_fifth_of_a_cpu_is_busy_and_not_a_share_of_all() -> None:
    few, many = {"cpu_busy": 0.1 / 64}, {"cpu_busy": 12 / 64}
    assert "standard" in {probe.suite for _, probe in live(new_schedule(), 200.0, few, cpus=64)}
    for cpus in (64, 0):
        done = live(new_schedule(), 200.0, many, cpus=cpus)
        assert {probe.suite for _, probe in done} == {"quick"}


@pytest.mark.thorough
def test_references_come_where_quick_ones_alone_would_spend_the_budget() -> None:
    done = live(new_schedule(), 12 * 3600.0, IDLE, own_share=0.003)
    assert sum(probe.suite == "standard" for _, probe in done) == 5
    assert sum(probe.suite == "quick" for _, probe in done) > 100


def test_a_reference_of_an_earlier_life_counts() -> None:
    schedule = new_schedule()
    schedule.reference_known(0, 5, 3600.0, 0.0)
    assert all(probe.suite == "quick" for _, probe in live(schedule, 7200.0, IDLE))


def test_domains_take_turns_within_one_budget() -> None:
    schedule = new_schedule(Probing(period_s=5.0, least_gap_s=0.0), domains=4)
    done = live(schedule, 4 * 3600.0)
    counts = [sum(probe.domain == domain for _, probe in done) for domain in range(4)]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) * QUICK.cpu_s <= 4 * 36.0 + QUICK.cpu_s


def test_a_pause_stops_probing_until_it_ends() -> None:
    schedule = new_schedule()
    schedule.pause("a campaign is under way")
    assert live(schedule, 3600.0) == []
    schedule.pause(None)
    assert len(live(schedule, 600.0, start=3600.0)) >= 3


def test_asking_changes_nothing() -> None:
    schedule = new_schedule()
    live(schedule, 500.0)
    assert schedule.next(501.0) == schedule.next(501.0)


def test_other_domains_keep_what_is_known_of_them_and_new_ones_are_probed_soon() -> None:
    schedule = new_schedule(Probing(period_s=1000.0), domains=2)
    live(schedule, 100.0)
    # The first is gone, the second is the first now, and there is a new one.
    schedule.rearranged([1, None], 100.0)
    done = live(schedule, 100.0, start=100.0)
    assert [probe.domain for _, probe in done] == [1]
    assert done[0][0] <= 120.0
    schedule.rearranged([0], 200.0)
    assert live(schedule, 100.0, start=200.0) == []


def test_a_probe_that_could_not_begin_comes_soon_and_not_at_once() -> None:
    schedule = new_schedule(Probing(period_s=1000.0))
    schedule.sampled(BUSY, 2.0, 50.0, cpus=2)
    schedule.request("the server asked")
    probe = schedule.next(50.0)
    assert isinstance(probe, Probe)
    schedule.postponed(probe, 50.0)
    instruction = schedule.next(50.0)
    assert isinstance(instruction, Wait)
    assert 50.0 < instruction.until < 60.0
    again = schedule.next(instruction.until)
    assert again == probe
