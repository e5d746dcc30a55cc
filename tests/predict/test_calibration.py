"""Intervals over pairs hold as often as they say, by what co-runs of other programs showed."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import pytest

from kongming.engine.load.models import ModelFiles, newest_signatures, site_of, solo_repeats
from kongming.learning import model_file as persist
from kongming.learning import predict
from kongming.learning.calibration import Calibration, CoRun, Score, calibrate, coruns_of
from kongming.learning.intervals import UNWIDENED, Widening, score
from kongming.learning.neighbour_identities import as_signed
from kongming.learning.repeat_noise import Variance
from kongming.learning.training import train_application
from kongming.local_service import LocalService
from kongming.records.questions import ColocationQuestion
from kongming.records.run import NEIGHBOUR_IDENTITIES, Run, Signature
from kongming.store import Store
from tests import builders
from tests.models import synthetic

APPS = 13
FEW = 4
MODELS = ("NNLOG", "RIDGE")


@dataclasses.dataclass(frozen=True)
class Program:
    powers: dict[str, float]
    loads: dict[str, float]
    noise: float


def programs() -> dict[str, Program]:
    """Programs of random sensitivity and pressure, some of them sensitive to nothing."""
    random = np.random.default_rng(7)
    families = sorted({builders.family_of(name) for name in synthetic.IDLE})

    def some(names: list[str], least: int, most: int) -> dict[str, float]:
        chosen = random.choice(names, random.integers(least, most), replace=False)
        return {str(name): float(random.uniform(0.1, 0.8)) for name in chosen}

    return {
        f"program{k:02d}": Program(
            some(list(synthetic.IDLE), 0, 4),
            some(families, 1, 4),
            float(random.choice([0.01, 0.03])),
        )
        for k in range(APPS)
    }


@functools.cache
def trained(name: str) -> persist.ModelFile:
    program, seed = programs()[name], list(programs()).index(name)
    runs = synthetic.campaign(name, program.powers, noise=program.noise, seed=seed)
    return persist.read(train_application(runs, models=MODELS))


@pytest.fixture(scope="module")
def files() -> dict[str, persist.ModelFile]:
    return {name: trained(name) for name in programs()}


@pytest.fixture(scope="module")
def few_files() -> dict[str, persist.ModelFile]:
    """Of as many as tell who widens whose intervals."""
    return {name: trained(name) for name in [*programs()][:FEW]}


@pytest.fixture(scope="module")
def signatures() -> dict[str, list[Signature]]:
    return {
        name: [synthetic.signature(name, program.loads, seed=100 * k + i) for i in range(3)]
        for k, (name, program) in enumerate(programs().items())
    }


def corun_slowdowns(*, drift: float, seed: int = 3, repeats: int = 4) -> list[CoRun]:
    """Every ordered pair: the neighbour's load differs from its signature, and the node drifts."""
    random = np.random.default_rng(seed)
    coruns = []
    for name, program in programs().items():
        for other, neighbour in programs().items():
            for _ in range(repeats):
                loads = {
                    family: load * math.exp(2.0 * drift * random.standard_normal())
                    for family, load in neighbour.loads.items()
                }
                log = math.log(
                    synthetic.slowdown(program.powers, synthetic.environment(loads, random))
                )
                log += math.hypot(program.noise, drift) * random.standard_normal()
                coruns.append(CoRun(name, (other,), math.exp(log)))
    return coruns


def held(scores: tuple[Score, ...], factors: dict[str, float]) -> np.ndarray:
    """(apps,) the share of each application's co-runs that its interval holds."""
    return np.array(
        [
            np.mean([score.value <= factor for score in scores if score.app == app])
            for app, factor in factors.items()
        ]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("drift", [0.02, 0.08, 0.15])
def test_intervals_hold_as_often_as_they_say_on_pairs_of_a_program_not_seen(
    drift: float,
    files: dict[str, persist.ModelFile],
    signatures: dict[str, list[Signature]],
) -> None:
    calibration = calibrate(files, signatures, corun_slowdowns(drift=drift))
    assert len(calibration.scores) == APPS * APPS * 4
    factors = {app: calibration.widening(app).factor for app in files}
    shares = held(calibration.scores, factors)
    error = np.std(shares, ddof=1) / math.sqrt(APPS)
    assert abs(np.mean(shares) - 0.9) <= 2.18 * error
    unwidened = held(calibration.scores, dict.fromkeys(files, 1.0))
    assert abs(np.mean(shares) - 0.9) <= abs(np.mean(unwidened) - 0.9)


def test_what_an_application_took_part_in_does_not_widen_its_own_intervals(
    few_files: dict[str, persist.ModelFile], signatures: dict[str, list[Signature]]
) -> None:
    coruns = [
        corun
        for corun in corun_slowdowns(drift=0.05)
        if few_files.keys() >= {corun.app, *corun.neighbours}
    ]
    spoilt = [
        dataclasses.replace(corun, slowdown=50.0)
        if "program00" in (corun.app, *corun.neighbours)
        else corun
        for corun in coruns
    ]
    clean, other = (calibrate(few_files, signatures, given) for given in (coruns, spoilt))
    assert clean.widening("program00") == other.widening("program00")
    assert clean.widening("program01").factor < other.widening("program01").factor
    widening = clean.widening("program00")
    assert (widening.groups, widening.pairs) == (FEW - 1, (FEW - 1) ** 2 * 4)
    assert clean.widening("newcomer").pairs == len(coruns)


def test_what_cannot_be_predicted_is_left_out(
    few_files: dict[str, persist.ModelFile], signatures: dict[str, list[Signature]]
) -> None:
    elsewhere = [
        dataclasses.replace(signature, node_id="node-2") for signature in signatures["program01"]
    ]
    coruns = [
        CoRun("program00", ("program01",), 1.1),
        CoRun("program00", ("unknown",), 1.1),
        CoRun("unknown", ("program00",), 1.1),
        CoRun("program00", ("program02",), 1.1),
    ]
    calibration = calibrate(few_files, {**signatures, "program01": elsewhere}, coruns)
    assert [score.neighbours for score in calibration.scores] == [("program02",)]
    assert calibrate(few_files, signatures, coruns, model="CART").scores == ()
    assert Calibration().widening("program00") == UNWIDENED


def a_corun(app: str, metric: float | None, **changes: Any) -> Run:
    values = {"kind": "corun", "neighbours": ("program01",), "campaign": "c9"} | changes
    return builders.run(app, metric, **values)


def test_co_runs_are_held_against_the_solo_runs_of_their_campaign(
    files: dict[str, persist.ModelFile],
) -> None:
    name, moment = "program00", builders.started_at()
    coruns = coruns_of(
        [
            builders.run(name, 2.0, campaign="c9", started_at=moment),
            builders.run(name, 8.0, campaign="c9", started_at=moment),
            builders.run(name, 77.0, campaign="another"),
            a_corun(name, 6.0),
            a_corun(name, 6.0, campaign="without"),
            a_corun(name, None),
            a_corun(name, 6.0, identity="as it was before"),
            a_corun("unknown", 6.0),
        ],
        files,
    )
    assert [(corun.app, corun.neighbours) for corun in coruns] == [(name, ("program01",))] * 2
    assert coruns[0].slowdown == pytest.approx(6.0 / 4.0)
    assert coruns[1].slowdown == pytest.approx(6.0 / files[name].solo.median)


def test_the_solo_runs_around_a_co_run_count_where_a_node_drifts(
    files: dict[str, persist.ModelFile],
) -> None:
    name = "program00"
    runs = []
    for hour, solo in (("10", 2.0), ("11", 4.0), ("12", 8.0)):
        runs += [
            builders.run(name, solo, campaign="c9", started_at=f"2026-01-01T{hour}:00:00Z"),
            a_corun(name, 1.5 * solo, started_at=f"2026-01-01T{hour}:02:00Z"),
        ]
    coruns = coruns_of(runs, files)
    assert [corun.slowdown for corun in coruns] == pytest.approx([1.5] * 3)


def test_a_higher_metric_is_a_lower_slowdown() -> None:
    runs = [
        dataclasses.replace(run, metric=1000.0 / run.metric, metric_unit="ops/s", better="higher")
        for run in synthetic.campaign("rate", {"stream.triad": 0.5})
        if run.metric is not None
    ]
    file = persist.read(train_application(runs, models=()))
    corun = a_corun("rate", 100.0, metric_unit="ops/s", better="higher")
    assert coruns_of([corun], {"rate": file})[0].slowdown == pytest.approx(file.solo_metric / 100.0)


def test_what_other_profiles_show_does_not_calibrate_a_far_smaller_one(
    few_files: dict[str, persist.ModelFile], signatures: dict[str, list[Signature]]
) -> None:
    coruns = [corun for corun in corun_slowdowns(drift=0.02, repeats=1) if corun.app in few_files]
    widening = calibrate(few_files, signatures, coruns).widening("program00")
    assert widening.loaded_runs == 22
    # As if they were enough applications.
    enough = dataclasses.replace(widening, groups=5)
    runs = synthetic.campaign("program00", programs()["program00"].powers)
    loaded = [run for run in runs if run.levels]
    company = {"program01": signatures["program01"]}
    for loads, by in ((10, ""), (11, "applications")):
        of_loads = [*(run for run in runs if not run.levels), *loaded[:loads]]
        file = persist.read(train_application(of_loads, models=("NNLOG",), quick_columns=()))
        prediction = predict.predict_colocated(file, company, widening=enough)
        assert prediction.slowdown.calibrated_by == by
        remarks = [text for text in prediction.warnings if "only 10 runs under a load" in text]
        assert bool(remarks) is not prediction.slowdown.calibrated


def test_widened_predictions_keep_their_median_and_say_when_they_are_calibrated(
    files: dict[str, persist.ModelFile], signatures: dict[str, list[Signature]]
) -> None:
    file, company = files["program00"], {"program01": signatures["program01"]}
    plain = predict.predict_colocated(file, company)
    wide = predict.predict_colocated(file, company, widening=Widening(0.5, 4, expected=0.5))
    sure = predict.predict_colocated(file, company, widening=Widening(0.5, 5, expected=0.5))
    assert plain.slowdown == predict.slowdown_colocated(file, company)
    assert wide.slowdown.median == plain.slowdown.median
    for end in ("lower", "upper", "expected_lower", "expected_upper"):
        plain_width, wide_width = (
            abs(math.log(getattr(prediction.slowdown, end) / prediction.slowdown.median))
            for prediction in (plain, wide)
        )
        # Upper ends of the wider interval may be at what the machine can do.
        assert wide_width == pytest.approx(0.5 * plain_width) or (
            end.endswith("upper") and plain_width > wide_width > 0.5 * plain_width
        )
    assert sure.slowdown == dataclasses.replace(
        wide.slowdown,
        calibrated=True,
        calibrated_by="applications",
        calibrated_groups=5,
    )
    assert not wide.slowdown.calibrated
    assert any("4 other applications" in warning for warning in wide.warnings)
    assert any("8 groups" in warning and "10 groups" in warning for warning in plain.warnings)
    assert not any("not calibrated" in warning for warning in sure.warnings)


def test_the_noise_of_other_programs_is_known_without_any_co_run() -> None:
    def solos(app: str, *costs: float) -> list[Run]:
        return [
            builders.run(app, cost, started_at=f"2026-01-01T00:00:0{place}Z", campaign="c1")
            for place, cost in enumerate(costs)
        ]

    drift = [1.0, 1.1, 1.21, 1.331]
    variances = solo_repeats(
        [*solos("calm", 2.0, 2.0, 2.0), *solos("once", 2.0), *solos("up", *drift)]
    )
    assert variances["calm"] == Variance(0.0, 2.0)
    assert "once" not in variances
    assert variances["up"].value == pytest.approx(math.log(1.1) ** 2 / 2.0)
    others = {name: Variance(0.1**2, 6.0) for name in "abcd"}
    assert Calibration(repeats=others).widening("new").pool.value == pytest.approx(0.1**2, rel=0.2)
    assert Calibration(repeats={"new": Variance(0.1**2, 6.0)}).widening("new") == UNWIDENED


@pytest.mark.thorough
def test_scores_are_in_units_of_the_intervals_that_are_answered(corun: str) -> None:
    """Programs without a co-run, which repeat better, are of the pool of both."""
    with Store.open(corun) as store:
        calm = [
            builders.run(f"calm{n}", 2.0 + 0.004 * (k % 2), campaign="calm")
            for n in range(5)
            for k in range(6)
        ]
        store.add_all(runs=calm, signatures=[])
        measured = {(run.app, run.neighbours): run for run in store.runs(kind="corun")}
        files = ModelFiles(store)
        file = files.serving("chaser", "cross-core")
        assert file is not None
        site = site_of(file)
        calibration = files.calibration(site)
        assert len(calibration.scores) == len(measured)
        for known in calibration.scores:
            served = files.serving(known.app, "cross-core")
            assert served is not None
            company = {name: newest_signatures(store, name, site) for name in known.neighbours}
            pool = calibration.widening(known.app).pool
            interval = predict.slowdown_colocated(served, company, widening=Widening(pool=pool))
            slowdown = measured[known.app, known.neighbours].cost / 3.0
            assert known.value == pytest.approx(score(interval, slowdown))


def test_co_runs_are_scored_next_to_the_repeats_that_predictions_average(corun: str) -> None:
    """Those of every campaign, of the program as it is now."""
    with Store.open(corun) as store:
        files = ModelFiles(store)
        file = files.serving("chaser", "cross-core")
        assert file is not None
        (first,) = newest_signatures(store, "writer", site_of(file))
        again = synthetic.signature("writer", {"write": 0.3}, campaign="c2")
        store.add_all(runs=[], signatures=[again])

        repeats = newest_signatures(store, "writer", site_of(file))

        assert [repeat.id for repeat in repeats] == [again.id, first.id]
        question = ColocationQuestion("chaser", ("writer",))
        answer = LocalService(store).predict_colocation(question).prediction
        theirs = predict.slowdown_colocated(
            file, {"writer": repeats}, widening=files.calibration(site_of(file)).widening("chaser")
        )
        assert answer.slowdown == theirs


def test_co_runs_of_a_program_that_changed_since_are_not_scored_with_its_new_signature(
    corun: str,
) -> None:
    with Store.open(corun) as store:
        file = ModelFiles(store).serving("chaser", "cross-core")
        assert file is not None
        before = ModelFiles(store).calibration(site_of(file))
        changed = synthetic.signature("writer", {"memory": 0.8}, identity="its next version")
        store.add_all(runs=[], signatures=[changed])

        after = ModelFiles(store).calibration(site_of(file))

        assert len(before.scores) == 16
        for had, left in (
            (before.scores, after.scores),
            (before.expected, after.expected),
            (before.expected_at_most, after.expected_at_most),
        ):
            assert left == tuple(each for each in had if each.neighbours != ("writer",))
        # Those that were measured next to the new one count.
        store.add_all(
            runs=[
                builders.run("writer", 3.0, identity="its next version", campaign="again"),
                a_corun("chaser", 3.3, neighbours=("writer",), campaign="again"),
            ],
            signatures=[],
        )
        again = ModelFiles(store).calibration(site_of(file))
        (new,) = [each for each in again.scores if each.neighbours == ("writer",)]
        assert new.app == "chaser"


NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"


@pytest.mark.parametrize(
    ("records", "changes", "scored"),
    [
        ([], {}, True),
        ([("old", "c1", NOON)], {}, False),
        ([("new", "c1", NOON)], {}, True),
        ([("old", "c1", NOON), ("new", "c1", LATER)], {}, False),
        # What came later says nothing, unless it is of the same campaign.
        ([("old", "c1", LATER)], {}, True),
        ([("new", "c1", NOON), ("old", "c9", LATER)], {}, False),
        ([("old", "c1", NOON), ("new", "c9", LATER)], {}, True),
        ([("old", "c9", NOON), ("new", "c9", LATER)], {}, False),
        # A co-run that says it itself is believed.
        ([("old", "c9", NOON)], {"config": {NEIGHBOUR_IDENTITIES: {"program01": "new"}}}, True),
        ([("new", "c9", NOON)], {"config": {NEIGHBOUR_IDENTITIES: {"program01": "old"}}}, False),
        ([("old", "c9", NOON)], {"config": {NEIGHBOUR_IDENTITIES: "of no use"}}, False),
    ],
)
def test_the_identity_of_a_neighbour_is_the_newest_that_was_known_by_then(
    records: list[tuple[str, str, str]], changes: dict[str, Any], scored: bool
) -> None:
    run = a_corun("program00", 3.0, started_at="2026-01-01T12:30:00Z", **changes)
    signed = {"program01": [builders.signature("program01", {}, identity="new")]}
    known = [
        builders.run("program01", 3.0, identity=identity, campaign=campaign, started_at=moment)
        for identity, campaign, moment in records
    ]
    assert as_signed([run], signed, known) == ([run] if scored else [])
    assert as_signed([run], {"program01": []}, known) == [run]
