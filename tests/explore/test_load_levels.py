"""Load levels learned from other programs: the chooser, and the adaptive plan that uses it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from kongming.campaigns.adaptive_levels import LevelChooser, _slowdowns
from kongming.explore.load_levels import next_level
from kongming.profiling.plans.campaign_plan import (
    FEWEST_STARTS,
    levels_of,
    make_adaptive_plan,
)
from kongming.records.errors import InputError
from kongming.records.run import CUT_OFF, Run
from tests.profiling.test_plans import INDUCERS

LADDER = levels_of("quick", INDUCERS)
APPS = ["a", "b", "c", "d"]
FAMILIES = sorted({level.family for mix in LADDER for level in mix})


def slowdown(mix: tuple, sensitivity: dict[str, float]) -> float:  # type: ignore[type-arg]
    return sum(level.intensity * sensitivity.get(level.family, 0.0) for level in mix)


def programs(count: int, seed: int = 0) -> np.ndarray:
    """Each is sensitive to the memory or to the disk, by its own factor."""
    rng = np.random.default_rng(seed)
    rows = []
    for place in range(count):
        chosen = FAMILIES[: len(FAMILIES) // 2] if place % 2 else FAMILIES[len(FAMILIES) // 2 :]
        factors = {family: rng.uniform(0.2, 0.8) for family in chosen}
        rows.append([slowdown(mix, factors) + rng.normal(0.0, 0.02) for mix in LADDER])
    return np.array(rows)


def test_without_other_programs_the_order_is_that_of_the_plan() -> None:
    for taught in (np.empty((0, len(LADDER))), programs(2)):
        used: list[int] = []
        while (place := next_level(LADDER, [{}], taught, used)) is not None:
            used.append(place)
        assert used == list(range(len(LADDER)))


def test_levels_that_tell_most_come_first() -> None:
    """Eight levels so chosen leave less unknown of the others than the plan's own first eight."""
    errors = {"chosen": [], "order": []}  # type: dict[str, list[float]]
    for seed in range(4):
        every = programs(9, seed)
        own, taught = every[0], every[1:]
        measured: dict[int, float] = {}
        while len(measured) < 8:
            place = next_level(LADDER, [measured], taught, measured)
            assert place is not None
            assert place not in measured
            measured[place] = float(own[place])
        for name, places in (("chosen", list(measured)), ("order", list(range(8)))):
            centre = taught.mean(axis=0)
            spread = (taught - centre).T @ (taught - centre) / len(taught)
            inner = spread[np.ix_(places, places)] + 1e-3 * np.eye(8)
            guess = centre + spread[:, places] @ np.linalg.solve(inner, (own - centre)[places])
            errors[name].append(float(((guess - own) ** 2).mean()))
    assert np.mean(errors["chosen"]) < np.mean(errors["order"])


@pytest.mark.parametrize("runs", [FEWEST_STARTS, 12, 24, 40])
def test_an_adaptive_plan_counts_all_starts(runs: int) -> None:
    plan = make_adaptive_plan(
        APPS, LADDER, lambda block: block[0].levels, runs=runs, placement="cross-core", seed=1
    )
    assert [step.index for step in plan.steps] == list(range(len(plan.steps)))
    for app in APPS:
        assert plan.runs_of(app) <= runs
        kinds = Counter(step.kind for step in plan.steps if step.app == app)
        assert kinds["signature"] == 1
        assert kinds["solo"] >= 2
        assert kinds["induced"] >= 2
    with pytest.raises(InputError, match=f"Allowed: {FEWEST_STARTS} or more"):
        make_adaptive_plan(
            APPS, LADDER, lambda block: (), runs=FEWEST_STARTS - 1, placement="cross-core", seed=1
        )


def run_of(step: object, app: str, levels: tuple, cost: float, index: int = -1) -> Run:  # type: ignore[type-arg]
    return Run(
        app=app,
        identity=f"identity-{app}",
        node_id="node",
        placement="cross-core",
        kind="induced" if levels else "solo",
        started_at="2026-01-01T00:00:00Z",
        wall_s=cost,
        metric=cost,
        levels=levels,
        step=index,
    )


def test_a_campaign_resumes_with_the_levels_that_it_measured() -> None:
    """No level is measured twice, each block has one, and blocks that are done keep theirs."""
    taught = []
    for place, row in enumerate(programs(6)):
        taught.append(run_of(None, f"p{place}", (), 1.0))
        taught += [
            run_of(None, f"p{place}", mix, float(np.exp(logs)))
            for mix, logs in zip(LADDER, row, strict=True)
        ]

    def plan(chooser: LevelChooser):  # type: ignore[no-untyped-def]
        return make_adaptive_plan(APPS, LADDER, chooser, runs=16, placement="cross-core", seed=3)

    def execute(done: list[Run], most: int) -> list[Run]:
        chooser = LevelChooser(LADDER, taught, done)
        runs = list(done)
        for block in plan(chooser).blocks():
            for step in block:
                if step.kind == "signature" or any(run.step == step.index for run in runs):
                    continue
                if len(runs) == most:
                    return runs
                cost = float(np.exp(0.3 * len(step.levels)))
                run = run_of(step, step.app, step.levels, cost, step.index)
                chooser.add(run)
                runs.append(run)
        return runs

    uninterrupted = execute([], 10_000)
    for most in (1, 7, 20):
        resumed = execute(execute([], most), 10_000)
        assert [(run.step, run.levels) for run in resumed] == [
            (run.step, run.levels) for run in uninterrupted
        ]
    for app in APPS:
        levels = [run.levels for run in uninterrupted if run.app == app and run.levels]
        assert len(set(levels)) == len(levels) > 2
    by_block: dict[int, set[object]] = {}
    for step in plan(LevelChooser(LADDER, taught, uninterrupted)).steps:
        ran = next((run for run in uninterrupted if run.step == step.index), None)
        if ran is not None and ran.levels:
            by_block.setdefault(step.block, set()).add(ran.levels)
    assert all(len(levels) == 1 for levels in by_block.values())
    failed = replace(uninterrupted[-1], error="no room", metric=None)
    assert execute([*uninterrupted[:-1], failed], 10_000)[-1] is failed


def test_a_run_that_was_cut_off_is_no_slowdown_of_its_own() -> None:
    """Two runs under a level took 14 times as long, another was ended at five times; so were both
    of another level, whose slowdown is not known to be less."""
    first, second, third = LADDER[:3]
    runs = [
        run_of(None, "a", levels, cost)
        for levels, cost in (((), 1.0), (first, 14.0), (first, 14.0), (third, 2.0))
    ]
    runs += [
        replace(run_of(None, "a", levels, 5.0), passive={CUT_OFF: 1.0})
        for levels in (first, second, second)
    ]
    places = {levels: place for place, levels in enumerate(LADDER)}
    (slowdowns,) = _slowdowns(runs, places).values()
    assert {place: np.exp(log) for place, log in slowdowns.items()} == pytest.approx(
        {0: 14.0, 1: 14.0, 2: 2.0}
    )
