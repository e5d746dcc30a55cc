"""Which node a job is given."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from kongming.records.errors import InputError, UnknownNameError, UntrainedError
from kongming.simulate import (
    Beliefs,
    Fleet,
    Kind,
    Queueing,
    Study,
    alike,
    beliefs_of,
    documented,
    known_truth,
    made_up,
    slowdowns,
)
from kongming.simulate.aware import Aware
from tests.simulate.tables import APPS, SLOWDOWN, drawn, study, table, trace


def test_slurm_fills_light_nodes_first_and_then_the_fullest() -> None:
    fleet = Fleet((Kind("heavy", 1, 3, weight=5.0), Kind("light", 2, 3)))
    outcome = study(trace([0.0] * 7, ["quiet"] * 7), fleet).run("slurm")
    assert outcome.node.tolist() == [1, 1, 1, 2, 2, 2, 0]


def test_slurm_prefers_the_fullest_node_and_first_fit_the_first() -> None:
    # Three on the first node and one on the second; two on the first end, then one comes.
    work = [5.0, 5.0, 50.0, 50.0, 50.0, 1.0]
    jobs = trace([0.0] * 5 + [6.0], ["quiet"] * 6, work=work)
    assert study(jobs, alike(2, 3)).run("first-fit").node[5] == 0
    assert study(jobs, alike(2, 3)).run("slurm").node[5] == 1


def test_least_loaded_spreads() -> None:
    outcome = study(trace([0.0] * 4, ["quiet"] * 4), alike(4, 2)).run("least-loaded")
    assert sorted(outcome.node.tolist()) == [0, 1, 2, 3]


def test_random_takes_every_node_now_and_then() -> None:
    jobs = trace([float(i) * 100.0 for i in range(200)], ["quiet"] * 200)
    assert set(study(jobs, alike(4, 2)).run("random").node.tolist()) == {0, 1, 2, 3}


def test_exclusive_never_shares() -> None:
    outcome = study(drawn(60, 2), alike(3, 2)).run("exclusive")
    assert outcome.shared_s == 0.0


def test_the_oracle_separates_those_that_disturb_each_other() -> None:
    jobs = trace([0.0, 1.0, 2.0, 3.0], ["hog", "victim", "victim", "quiet"])
    node = study(jobs, alike(2, 2)).run("oracle").node
    assert node[1] != node[0]
    assert node[2] == node[1]
    assert node[3] == node[0]


def test_kongming_believes_its_predictions() -> None:
    """By a prediction that victims disturb each other and hogs nobody, it keeps victims apart."""
    wrong = SLOWDOWN | {("victim", "hog"): 1.0, ("hog", "victim"): 1.0, ("victim", "victim"): 3.0}
    predicted = {pair: (value, None) for pair, value in wrong.items()}
    beliefs = beliefs_of(predicted, table(), source="a test")
    jobs = trace([0.0, 1.0, 2.0], ["hog", "victim", "victim"])
    simulation = Study(jobs, alike(2, 2), table(), beliefs)
    assert simulation.run("kongming").node[1] != simulation.run("kongming").node[2]
    assert simulation.run("oracle").node[1] == simulation.run("oracle").node[2]


def test_the_upper_end_of_an_interval_refuses_what_the_median_allows() -> None:
    truth = known_truth(table())
    wide = Beliefs(truth.logs, truth.logs + math.log(1.3), "a test")
    jobs = trace([0.0, 1.0], ["quiet", "quiet"], limit=1.2)
    simulation = Study(jobs, alike(1, 2), table(), wide, queueing=Queueing(patience=math.inf))
    assert simulation.run("kongming").start_s[1] == 1.0
    assert simulation.run("kongming-upper").start_s[1] == 10.0


@pytest.mark.parametrize("bounded", [("quiet", "victim"), ("victim", "quiet")])
def test_a_lower_bound_keeps_no_limit(bounded: tuple[str, str]) -> None:
    predicted = {pair: (value, value) for pair, value in SLOWDOWN.items()}

    def started(limit: float, *at_least: tuple[str, str]) -> list[float]:
        beliefs = beliefs_of(predicted, table(), source="a test", at_least=at_least)
        jobs = trace([0.0, 1.0], ["victim", "quiet"], limit=limit)
        waiting = Queueing(patience=math.inf)
        simulation = Study(jobs, alike(1, 2), table(), beliefs, queueing=waiting)
        return [float(simulation.run(name).start_s[1]) for name in ("kongming", "kongming-upper")]

    assert started(1.2) == [1.0, 1.0]
    # Neither that of the new job nor that of the resident.
    assert started(1.2, bounded) == [30.0, 30.0]
    # Where there is no limit, nothing is to be kept.
    assert started(math.inf, bounded) == [1.0, 1.0]


def test_perfect_predictions_are_the_oracle() -> None:
    jobs = drawn(300, 5)
    simulation = Study(jobs, alike(6, 2), table(), made_up(table(), 0.0, 0))
    figures = documented(simulation, ("random", "kongming", "oracle"))["policies"]
    kongming, oracle = (figures[name]["slowdown"]["mean"] for name in ("kongming", "oracle"))
    assert kongming == pytest.approx(oracle, rel=0.01)


def test_without_predictions_kongming_has_no_answer() -> None:
    with pytest.raises(UntrainedError, match="there are none"):
        study(drawn(3, 0)).run("kongming")
    # Before the others are replayed.
    replayed: list[str] = []
    with pytest.raises(UntrainedError, match="there are none"):
        documented(
            study(drawn(3, 0)), ("random", "kongming"), (), lambda text, _: replayed.append(text)
        )
    assert replayed == []


def test_a_policy_that_is_not_known() -> None:
    with pytest.raises(UnknownNameError, match="oracel"):
        study(drawn(3, 0)).run("oracel")


def test_many_states_are_forgotten_and_learned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = drawn(400, 8, every_s=2.0)
    usual = study(jobs, alike(8, 4)).run("oracle")
    monkeypatch.setattr("kongming.simulate.aware._SPARE_STATES", 0)
    assert (study(jobs, alike(8, 4)).run("oracle").end_s == usual.end_s).all()


def test_a_limit_of_its_own_for_each_job_costs_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []
    score = Aware._score

    def counted(self: Aware, app: int, state: int) -> tuple[float, float, float]:
        scored.append(state)
        return score(self, app, state)

    monkeypatch.setattr(Aware, "_score", counted)
    jobs = drawn(200, 8, every_s=2.0)
    limits = 1.1 + np.arange(200.0) / 1000.0
    outcome = study(replace(jobs, limit=limits), alike(8, 2)).run("oracle")
    assert len(scored) == len(APPS) * len(set(scored))
    assert len(set(scored)) <= outcome.states


def test_figures_by_hand() -> None:
    """One victim and one hog, side by side from the start: 22 s in which the victim does 11 s."""
    jobs = trace([0.0, 0.0], ["victim", "hog"], limit=1.2)
    figures = documented(study(jobs, alike(1, 2)), ("random", "slurm"), (0.9,))
    own = figures["policies"]["slurm"]
    assert own["makespan_s"] == pytest.approx(41.0)
    assert own["slowdown"]["mean"] == pytest.approx((41.0 / 30.0 + 1.1) / 2.0)
    assert own["over_limit_share"] == 0.5
    assert own["slots_in_use"] == pytest.approx((41.0 + 22.0) / 82.0)
    assert own["work_per_busy_node"] == pytest.approx(50.0 / 41.0)
    assert own["quality"]["alone_gap_pct"] == pytest.approx(100 - 50 * (30 / 41 + 1 / 1.1))
    assert own["quality"]["held"]["0.90"] == 0.5
    assert own["waiting_s"]["mean"] == 0.0
    assert own["over"]["random"]["slowdown.mean"] == pytest.approx(1.0)
    assert figures["quality"][0]["policies"]["slurm"]["violated_share"] == 0.5


def test_no_more_than_all_nodes_are_in_use() -> None:
    fleet = Fleet((Kind("fast", 1, 1, speed=2.0), Kind("slow", 1, 3)))
    figures = documented(study(trace([0.0] * 400, ["quiet"] * 400), fleet), ("random",))
    assert figures["policies"]["random"]["nodes_in_use"] == pytest.approx(1.0, abs=0.02)


def test_a_quality_target_is_kept_by_the_oracle() -> None:
    jobs = drawn(300, 5, every_s=3.0)
    simulation = study(jobs, alike(8, 2), queueing=Queueing(patience=math.inf))
    qualities = documented(simulation, ("random", "oracle"), (0.85, 0.95))["quality"]
    for entry in qualities:
        assert entry["policies"]["oracle"]["violated_share"] == 0.0
        assert entry["policies"]["random"]["violated_share"] > 0.0
    gained = [entry["policies"]["oracle"]["gained_pct"] for entry in qualities]
    assert gained[0] >= gained[1] > 0.0


def test_a_quality_above_the_speed_of_a_node_is_named_and_of_all_refused() -> None:
    fleet = Fleet((Kind("old", 4, 2, speed=0.8), Kind("new", 4, 2, speed=0.95)))
    simulation = study(drawn(50, seed=3), fleet)
    for target in (0.9, 0.95):
        (entry,) = documented(simulation, ("oracle",), (target,))["quality"]
        assert entry["too_slow"] == ["old"]
        assert entry["policies"]["oracle"]["held_share"] == 1.0
    assert documented(simulation, ("oracle",), (0.8,))["quality"][0]["too_slow"] == []
    with pytest.raises(InputError, match=r"cannot be kept.*up to 0\.95"):
        documented(simulation, ("oracle",), (0.9, 0.98))


def test_targets_that_a_fleet_cannot_keep_concern_only_policies_that_respect_limits() -> None:
    fleet = Fleet((Kind("old", 4, 2, speed=0.8), Kind("new", 4, 2, speed=0.95)))
    simulation = study(drawn(50, seed=3), fleet)
    assert simulation.default_targets(("random", "oracle")) == (0.9, 0.95)
    names = ("random", "slurm")
    targets = simulation.default_targets(names)
    assert targets == (0.9, 0.95, 0.98, 0.99)
    for entry in documented(simulation, names, targets)["quality"]:
        assert entry["too_slow"] == []


def test_a_quality_target_counts_as_exact_as_it_is() -> None:
    simulation = study(drawn(300, 5, every_s=3.0), alike(8, 2))
    slowed = slowdowns(simulation.trace, simulation.run("random"))
    reached = sorted(set(1.0 / slowed[(1.0 / slowed > 0.945) & (1.0 / slowed < 0.955)]))
    targets = [(a + b) / 2.0 for a, b in pairwise(reached) if b - a > 1e-4]
    assert targets
    for entry in documented(simulation, ("random",), targets)["quality"]:
        held_share = float((1.0 / slowed >= entry["target"]).mean())
        assert entry["policies"]["random"]["held_share"] == pytest.approx(held_share)


def test_apps_are_by_name() -> None:
    assert table().apps == APPS
