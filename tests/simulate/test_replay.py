"""Jobs next to each other: how far they get, and when they end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.simulate import NAMES, Fleet, Kind, Queueing, Rules, Study, alike, made_up, slowdowns
from tests.simulate.tables import APPS, SLOWDOWN, SOLO_S, drawn, study, table, trace, work_done

WITHOUT_PREDICTIONS = tuple(name for name in NAMES if not name.startswith("kongming"))


@pytest.mark.parametrize("name", WITHOUT_PREDICTIONS)
def test_one_job_alone_takes_its_solo_time(name: str) -> None:
    outcome = study(trace([5.0], ["victim"])).run(name)
    assert outcome.start_s[0] == 5.0
    assert outcome.end_s[0] == 5.0 + SOLO_S["victim"]


def test_two_jobs_as_by_hand() -> None:
    """The victim has done 10 of its 30 s when the hog comes; next to it it goes at half speed,
    the hog at 1/1.1: the hog's 20 s take 22 s, in which the victim does 11 s. The last 9 s it is
    alone again."""
    outcome = study(trace([0.0, 10.0], ["victim", "hog"]), alike(1, 2)).run("slurm")
    assert outcome.end_s == pytest.approx([41.0, 32.0], abs=1e-12)
    assert outcome.busy_s == pytest.approx(41.0)
    assert outcome.shared_s == pytest.approx(2 * 22.0)


def test_three_beside_each_other_add_up_in_logs() -> None:
    outcome = study(trace([0.0] * 3, ["victim", "hog", "hog"]), alike(1, 3)).run("random")
    hog = 20.0 * SLOWDOWN["hog", "hog"] * SLOWDOWN["hog", "victim"]
    assert outcome.end_s[1:] == pytest.approx([hog, hog])
    left = 30.0 - hog / SLOWDOWN["victim", "hog"] ** 2
    assert outcome.end_s[0] == pytest.approx(hog + left)


def test_a_slow_node_takes_longer() -> None:
    outcome = study(trace([0.0], ["quiet"]), Fleet((Kind("slow", 1, 1, speed=0.5),))).run("random")
    assert outcome.end_s[0] == 20.0


def test_a_job_waits_for_a_slot_and_the_first_goes_first() -> None:
    jobs = trace([0.0, 1.0, 2.0], ["quiet", "hog", "victim"])
    outcome = study(jobs, alike(1, 1)).run("slurm")
    assert outcome.start_s.tolist() == [0.0, 10.0, 30.0]


@pytest.mark.parametrize("name", WITHOUT_PREDICTIONS)
@given(seed=st.integers(0, 10_000), slots=st.integers(1, 4), every_s=st.sampled_from([2.0, 12.0]))
def test_every_job_does_its_work_and_no_more(
    name: str, seed: int, slots: int, every_s: float
) -> None:
    fleet = Fleet((Kind("fast", 1, slots), Kind("slow", 2, slots, speed=0.7, weight=2.0)))
    simulation = study(drawn(30, seed, every_s=every_s), fleet)
    outcome = simulation.run(name)
    assert work_done(simulation, outcome) == pytest.approx(
        simulation.trace.work_s.tolist(), rel=1e-9
    )
    assert (outcome.start_s >= simulation.trace.arrival_s).all()
    assert (slowdowns(simulation.trace, outcome) >= 1.0 - 1e-9).all()


def by_small_steps(
    arrivals: list[float], apps: list[str], works: list[float], nodes: int, slots: int, step: float
) -> list[float]:
    """Ends under first fit, by moving the clock a little at a time."""
    left, ends = list(works), [math.nan] * len(works)
    places: list[list[int]] = [[] for _ in range(nodes)]
    waiting: list[int] = []
    k, ticks = 0, 0
    while any(map(math.isnan, ends)):
        now = ticks * step
        while k < len(arrivals) and arrivals[k] <= now + 1e-12:
            waiting.append(k)
            k += 1
        while waiting and any(len(place) < slots for place in places):
            next(place for place in places if len(place) < slots).append(waiting.pop(0))
        for place in places:
            rates = {
                job: 1.0
                / math.prod(SLOWDOWN[apps[job], apps[other]] for other in place if other != job)
                for job in place
            }
            for job, rate in rates.items():
                left[job] -= rate * step
        for place in places:
            for job in [job for job in place if left[job] <= 1e-9]:
                ends[job] = now + step
                place.remove(job)
        ticks += 1
    return ends


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_as_a_simulator_of_small_steps(seed: int, slots: int) -> None:
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.integers(0, 12, 12)).astype(float).tolist()
    apps = [APPS[i] for i in random.integers(0, 3, 12)]
    works = random.integers(2, 30, 12).astype(float).tolist()
    step = 0.01
    expected = by_small_steps(arrivals, apps, works, 2, slots, step)
    outcome = study(trace(arrivals, apps, work=works), alike(2, slots)).run("first-fit")
    # A step too late at each end that one waits for, at the most.
    assert outcome.end_s == pytest.approx(expected, abs=step * len(arrivals) * 2)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same(name: str) -> None:
    jobs = drawn(200, 3)
    ends = []
    for _ in range(2):
        simulation = study(jobs, alike(5, 2))
        beliefs = made_up(simulation.table, 0.1, 4)
        again = study(jobs, alike(5, 2), seed=9)
        object.__setattr__(again, "beliefs", beliefs)
        ends.append(again.run(name))
    assert (ends[0].end_s == ends[1].end_s).all()
    assert (ends[0].node == ends[1].node).all()


def test_the_order_of_the_table_changes_nothing() -> None:
    jobs = drawn(150, 1)
    mixed = table(dict(sorted(SLOWDOWN.items(), reverse=True)))
    simulation = study(jobs, alike(4, 2))
    other = study(jobs, alike(4, 2))
    object.__setattr__(other, "table", mixed)
    assert (simulation.run("oracle").end_s == other.run("oracle").end_s).all()


def test_jobs_that_arrive_in_another_order_of_the_file_are_the_same_jobs() -> None:
    arrivals, apps = [3.0, 1.0, 2.0], ["hog", "victim", "quiet"]
    first = study(trace(arrivals, apps)).run("slurm")
    second = study(trace(sorted(arrivals), ["victim", "quiet", "hog"])).run("slurm")
    assert first.end_s.tolist() == second.end_s.tolist()


def test_a_limit_is_kept_by_waiting_and_patience_ends() -> None:
    """The victim must not run next to the hog. It waits for it to end, or for its patience."""
    jobs = trace([0.0, 1.0], ["hog", "victim"], limit=1.2)
    patient = study(jobs, alike(1, 2), queueing=Queueing(patience=math.inf)).run("oracle")
    assert patient.start_s.tolist() == [0.0, 20.0]
    assert patient.forced == 0
    hasty = study(jobs, alike(1, 2), queueing=Queueing(patience=0.1)).run("oracle")
    assert hasty.start_s.tolist() == [0.0, 1.0 + 0.1 * SOLO_S["victim"]]
    assert hasty.forced == 1


def test_patience_ends_behind_a_longer_job_of_its_kind() -> None:
    """Two that bear no neighbour fill both nodes; of two that wait, the later one is short."""
    jobs = trace([0.0, 0.0, 1.0, 2.0], ["victim"] * 4, work=[1e4, 1e4, 1000.0, 1.0], limit=1.1)
    outcome = study(jobs, alike(2, 2)).run("oracle")
    assert outcome.start_s.tolist() == [0.0, 0.0, 1001.0, 3.0]
    assert outcome.forced == 2


def test_patience_that_ends_without_a_slot_takes_the_next() -> None:
    """The long one is the first to wait, the short one the first whose patience ends."""
    jobs = trace([0.0, 1.0, 2.0], ["victim"] * 3, work=[20.0, 500.0, 1.0], limit=1.1)
    outcome = study(jobs, alike(1, 1)).run("oracle")
    assert outcome.start_s.tolist() == [0.0, 21.0, 20.0]


def test_a_resident_is_protected_from_a_newcomer_that_would_not_suffer() -> None:
    jobs = trace([0.0, 1.0], ["victim", "hog"], limit=1.2)
    outcome = study(jobs, alike(1, 2), queueing=Queueing(patience=math.inf)).run("oracle")
    assert outcome.start_s[1] == outcome.end_s[0]


def test_a_job_starts_when_a_neighbour_comes_who_makes_it_fast_enough() -> None:
    """A victim bears no hog, unless somebody keeps its CPU awake."""
    faster = SLOWDOWN | {("victim", "quiet"): 0.5, ("victim", "hog"): 1.4}
    jobs = trace([0.0, 1.0, 2.0], ["hog", "victim", "quiet"], limit=[math.inf, 1.2, math.inf])
    simulation = Study(jobs, alike(1, 3), table(faster), None, queueing=Queueing(math.inf))
    assert simulation.run("oracle").start_s.tolist() == [0.0, 2.0, 2.0]


def test_what_no_limit_allows_anywhere_still_runs() -> None:
    fleet = Fleet((Kind("slow", 1, 2, speed=0.5),))
    jobs = trace([0.0, 4.0], ["quiet", "quiet"], limit=1.2)
    outcome = study(jobs, fleet, queueing=Queueing(patience=math.inf)).run("oracle")
    assert np.isfinite(outcome.end_s).all()
    assert outcome.forced == 2


def test_the_best_fit_of_those_that_wait() -> None:
    """Next to the running victim the quiet one is started, though the hog came before it."""
    jobs = trace([0.0, 0.0, 1.0, 2.0], ["victim", "quiet", "hog", "quiet"], work=[90, 5, 20, 10])
    first = study(jobs, alike(1, 2)).run("oracle")
    assert first.start_s[2] < first.start_s[3]
    fits = study(jobs, alike(1, 2), queueing=Queueing(math.inf, best_fit=True)).run("oracle")
    assert fits.start_s[3] < fits.start_s[2]


def test_packed_beside_who_does_no_harm_before_an_idle_node() -> None:
    jobs = trace([0.0, 1.0, 2.0], ["victim", "quiet", "hog"], limit=1.2)
    packed = study(jobs, alike(3, 2), rules=Rules(pack=True)).run("oracle")
    assert packed.node[0] == packed.node[1]
    assert packed.node[2] != packed.node[0]
    spread = study(jobs, alike(3, 2)).run("oracle")
    assert len(set(spread.node.tolist())) == 3
