"""Scores of pairs against small cases worked out by hand, and what must hold for any."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.evaluate import PairMeasurement, PairPrediction, pressures, score_pairs
from kongming.records.errors import InputError
from tests.evaluate.programs import NAMES, noisy, score, truth

KEYS = (
    *("kind", "placement", "node", "apps", "runs", "repeats", "elapsed_s", "table"),
    *("geomean_pct", "noise_floor_pct", "skill", "uninformative", "all", "coverage", "chosen"),
)


def two_repeats() -> dict[tuple[str, str], tuple[float, float]]:
    """Geometric means of 2 (beside b), 1 (beside c), 1.5 (beside d); repeats differ by 10, 4
    and 2 % in logs."""
    return {
        ("a", "b"): (2 * math.exp(0.05), 2 * math.exp(-0.05)),
        ("a", "c"): (math.exp(0.02), math.exp(-0.02)),
        ("a", "d"): (1.5 * math.exp(0.01), 1.5 * math.exp(-0.01)),
    }


def test_errors_of_two_repeats_by_hand() -> None:
    said = {("a", "b"): 1.8, ("a", "c"): 1.05, ("a", "d"): 1.5}
    document = score(two_repeats(), {"LM": said})
    cell = document["table"]["a"]["LM"]
    # 10, 5 and 0 per cent off.
    assert cell["median_pct"] == pytest.approx(5.0)
    assert cell["iqr_pct"] == pytest.approx(5.0)
    assert document["geomean_pct"]["LM"] == pytest.approx(5.0)
    logs = (abs(math.log(0.9)) + abs(math.log(1.05)) + 0.0) / 3
    assert document["all"]["LM"]["mean_abs_log_pct"] == pytest.approx(100 * logs)
    assert document["noise_floor_pct"]["per_app"] == {"a": pytest.approx(2.0)}
    assert document["noise_floor_pct"]["geomean"] == pytest.approx(2.0)


def test_trivial_predictors_by_hand() -> None:
    document = score(two_repeats(), {"LM": {}}, training_mean={"a": 1.6}, solo={"a": 1.25})
    values = {
        model: [pair["predictions"][model]["value"] for pair in document["pairs"]]
        for model in ("MEAN", "SOLO", "PAIRMEAN")
    }
    assert values["MEAN"] == [1.6, 1.6, 1.6]
    assert values["SOLO"] == [1.25, 1.25, 1.25]
    # The mean of the two others each: of 1 and 1.5, of 2 and 1.5, of 2 and 1.
    assert values["PAIRMEAN"] == pytest.approx([1.25, 1.75, 1.5])
    assert [pair["slowdown"] for pair in document["pairs"]] == pytest.approx([1.6, 0.8, 1.2])


def test_skill_by_hand() -> None:
    """Two informative applications and one whose pairs are all alike."""
    values: dict[tuple[str, str], tuple[float, ...]] = {}
    said: dict[tuple[str, str], float] = {}
    for app, off in (("a", 1.06), ("b", 1.12)):
        for beside, cost in (("x", 1.0), ("y", 2.0)):
            values[app, beside] = (cost * math.exp(0.03), cost * math.exp(-0.03))
            said[app, beside] = cost * off
    values["c", "x"] = values["c", "y"] = (math.exp(0.03), math.exp(-0.03))
    said["c", "x"] = said["c", "y"] = 1.5
    document = score(values, {"LM": said})
    assert document["uninformative"] == ["c"]
    # PAIRMEAN says 2 for 1 and 1 for 2: 100 and 50 %, the median of which is 75 in both.
    expected = (math.sqrt(6.0 * 12.0) - 3.0) / (75.0 - 3.0)
    assert document["skill"]["LM"]["value"] == pytest.approx(expected)
    assert document["skill"]["PAIRMEAN"]["value"] == pytest.approx(1.0)
    low, high = document["skill"]["LM"]["interval"]
    assert low == pytest.approx((6.0 - 3.0) / 72.0)
    assert high == pytest.approx((12.0 - 3.0) / 72.0)


def test_heavy_pairs_and_regret_by_hand() -> None:
    """One partner is always at 1.3; repeats beside the other are 1.2, 1.2, 1.6 and 1.6.

    Of the six divisions of the latter, one picks on 1.2 (not heavy), one picks on 1.6 and scores
    on 1.2, and four pick and score on their geometric mean.
    """
    middle = math.sqrt(1.2 * 1.6)
    values = {("a", "b"): (1.3, 1.3, 1.3, 1.3), ("a", "c"): (1.2, 1.2, 1.6, 1.6)}
    document = score(values, {"LM": {("a", "b"): 1.3, ("a", "c"): 1.25}})
    heavy = 6 * 0.0 + (1.25 - 1.2) / 1.2 + 4 * (middle - 1.25) / middle
    assert document["all"]["LM"]["heavy_pct"] == pytest.approx(100 * heavy / 11)
    assert document["perfect"]["heavy_pct"] == pytest.approx(100 * (0.4 / 1.2) / 11)
    assert document["heavy_pairs"] == 2
    # LM chooses c. Where 1.2 was picked on, c is the measured choice too; in the five others
    # it is b, at 1.3, and c costs 1.2 once and the geometric mean four times.
    regret = (1.2 / 1.3 - 1) + 4 * (middle / 1.3 - 1)
    assert document["all"]["LM"]["regret_pct"] == pytest.approx(100 * regret / 6)
    assert document["perfect"]["regret_pct"] == 0.0
    anybody = regret / 2 + ((1.6 + 1.3) / 2 / 1.6 - 1)
    assert document["random_regret_pct"] == pytest.approx(100 * anybody / 6)
    # The measured choice, where it turns out not to be the best: c at 1.6 and b at 1.3, and
    # b at 1.3 and c at 1.2.
    noise = (1.6 / 1.3 - 1) + (1.3 / 1.2 - 1)
    assert document["regret_noise_pct"] == pytest.approx(100 * noise / 6)


def test_predictors_that_cannot_choose_lose_as_much_as_any_choice() -> None:
    document = score(noisy(truth(), 0.05, 4), {})
    anybody = document["random_regret_pct"]
    assert anybody > 0
    assert document["all"]["MEAN"]["regret_pct"] == pytest.approx(anybody)
    assert document["all"]["SOLO"]["regret_pct"] == pytest.approx(anybody)
    assert document["all"]["PAIRMEAN"]["regret_pct"] is None


@pytest.mark.parametrize("repeats", [2, 3])
def test_too_few_repeats_pick_nothing(repeats: int) -> None:
    document = score(noisy(truth(), 0.05, repeats), {"LM": truth()})
    assert document["all"]["LM"]["heavy_pct"] is None
    assert document["all"]["LM"]["regret_pct"] is None
    assert document["perfect"] == {"heavy_pct": None, "regret_pct": None}
    assert document["random_regret_pct"] is None


@pytest.mark.parametrize("repeats", [4, 5, 8, 12])
def test_knowing_the_truth_beats_every_other_choice(repeats: int) -> None:
    values = noisy(truth(10), 0.03, repeats)
    wrong = {pair: 1 / value for pair, value in truth(10).items()}
    document = score(values, {"GBM": truth(10), "LM": wrong})
    assert document["all"]["GBM"]["regret_pct"] < 2.0
    assert document["random_regret_pct"] < document["all"]["LM"]["regret_pct"]
    assert document["all"]["GBM"]["heavy_pct"] < document["perfect"]["heavy_pct"]


@pytest.mark.parametrize("repeats", [2, 3, 4, 6])
def test_the_floor_is_what_a_perfect_predictor_shows(repeats: int) -> None:
    floors, errors = [], []
    for seed in range(12):
        document = score(noisy(truth(10, seed), 0.05, repeats, seed), {"LM": truth(10, seed)})
        floors.append(document["noise_floor_pct"]["geomean"])
        errors.append(document["geomean_pct"]["LM"])
    # Above two repeats a pair's floor is a mean over divisions, whose median over partners lies
    # a little above that of single differences.
    assert sum(errors) / sum(floors) == pytest.approx(1.0, abs=0.2)


def test_only_pairs_that_succeeded_are_scored() -> None:
    values: dict[tuple[str, str], tuple[float, ...]] = {
        ("a", "b"): (1.0, 1.1, 1.2, 1.0),
        ("a", "c"): (1.5,),
        ("a", "d"): (),
    }
    document = score(values, {"LM": {("a", "b"): 1.0, ("a", "d"): 1.0}}, repeats=4)
    assert document["unmeasured"] == [["a", "d"]]
    assert document["unpredicted"] == {"LM": 1}
    assert [pair["beside"] for pair in document["pairs"]] == ["b", "c"]
    assert document["pairs"][1]["noise_floor_pct"] is None
    # One pair that was both measured and predicted is nothing to choose among.
    assert document["all"]["LM"]["heavy_pct"] is None


def test_a_model_named_mean_gives_way_to_the_training_mean() -> None:
    values = two_repeats()
    document = score(values, {"MEAN": dict.fromkeys(values, 9.0)}, training_mean={"a": 1.5})
    assert [p["predictions"]["MEAN"]["value"] for p in document["pairs"]] == [1.5, 1.5, 1.5]
    assert list(document["all"]) == ["MEAN", "SOLO", "PAIRMEAN"]
    without = score(values, {"MEAN": dict.fromkeys(values, 9.0)}, training_mean={})
    assert [p["predictions"]["MEAN"]["value"] for p in without["pairs"]] == [9.0, 9.0, 9.0]


def test_the_document_has_the_keys_in_order() -> None:
    document = score(noisy(truth(), 0.05, 4), {"LM": truth(), "auto": truth(), "CART": truth()})
    assert [key for key in document if key in KEYS] == list(KEYS)
    assert list(document["all"]) == ["MEAN", "SOLO", "PAIRMEAN", "LM", "CART", "auto"]
    assert set(document["all"]["LM"]) == {
        *("mean_abs_log_pct", "spearman", "heavy_pct", "regret_pct")
    }


def test_marked_repeats_are_scored_and_shown_apart() -> None:
    measured = [
        PairMeasurement("a", "b", (1.0, 4.0), (False, True)),
        PairMeasurement("a", "c", (1.0, 1.0), (False, False)),
    ]
    predicted = [PairPrediction("a", beside, "LM", 1.0) for beside in "bc"]
    document = score_pairs(
        measured,
        predicted,
        solo={"a": 1.0},
        training_mean={},
        repeats=2,
        chosen={},
        placement="same-core",
        node={},
        runs=4,
        elapsed_s=1.0,
        scored="bracketed",
    )
    assert document["table"]["a"]["LM"]["median_pct"] == pytest.approx((50.0 + 0.0) / 2)
    assert document["marked"]["share"] == 0.25
    assert document["marked"]["pairs_left"] == 2
    assert document["marked"]["geomean_pct"]["LM"] == pytest.approx(1e-3)
    assert score(two_repeats(), {})["marked"] is None


def test_pressure_is_the_mean_slowdown_inflicted() -> None:
    values = {("a", "c"): (2.0,), ("b", "c"): (4.5,), ("c", "c"): (9.0,), ("a", "b"): (1.5,)}
    document = score(values, {}, solo={"a": 1.0, "b": 1.0, "c": 1.0})
    assert pressures(document) == {"b": pytest.approx(1.5), "c": pytest.approx(3.0)}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"solo": {}}, "solo"),
        ({"solo": {"a": math.nan}}, "solo"),
        ({"training_mean": {"a": 0.0}}, "training_mean"),
    ],
)
def test_bad_reference_times_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match="for a") as refused:
        score(two_repeats(), {}, **changes)
    assert refused.value.field == field


def test_nothing_is_scored_twice() -> None:
    pair = PairMeasurement("a", "b", (1.0,))
    said = PairPrediction("a", "b", "LM", 1.0)
    settings: dict[str, Any] = {
        **{"solo": {"a": 1.0}, "training_mean": {}, "repeats": 1, "chosen": {}},
        **{"placement": "", "node": {}, "runs": 1, "elapsed_s": 0.0, "scored": "raw"},
    }
    with pytest.raises(InputError, match="a beside b"):
        score_pairs([pair, pair], [], **settings)
    with pytest.raises(InputError, match="LM for a beside b"):
        score_pairs([pair], [said, said], **settings)
    with pytest.raises(InputError, match="no pair"):
        score_pairs([PairMeasurement("a", "b", ())], [said], **settings)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PairMeasurement("a", "b", (1.0, 0.0)), "values"),
        (lambda: PairMeasurement("a", "b", (math.inf,)), "values"),
        (lambda: PairMeasurement("a", "b", (1.0, 1.0), (True,)), "marked"),
        (lambda: PairPrediction("a", "b", "LM", math.nan), "value"),
        (lambda: PairPrediction("a", "b", "LM", 1.0, lower=0.5), "upper"),
        (lambda: PairPrediction("a", "b", "LM", 1.0, lower=2.0, upper=1.0), "upper"),
        (lambda: PairPrediction("a", "b", "LM", 1.0, level=90.0), "level"),
    ],
)
def test_records_refuse_what_cannot_be(make: Any, field: str) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert refused.value.field == field


costs = st.floats(0.01, 100.0)


@st.composite
def evaluations(draw: st.DrawFn) -> tuple[dict[Any, Any], dict[str, dict[Any, float]], int]:
    apps = NAMES[: draw(st.integers(1, 4))]
    partners = NAMES[: draw(st.integers(1, 4))]
    repeats = draw(st.integers(1, 5))
    pairs = [(app, beside) for app in apps for beside in partners]
    values = {
        pair: draw(st.lists(costs, min_size=0, max_size=repeats).map(tuple)) for pair in pairs
    }
    values[pairs[0]] = (1.0, *values[pairs[0]][1:])
    said = {
        model: {pair: draw(costs) for pair in pairs if draw(st.booleans())}
        for model in ("LM", "auto")
    }
    return values, said, repeats


@settings(deadline=None, max_examples=60)
@given(evaluations(), st.randoms(use_true_random=False))
def test_any_evaluation_is_json_and_free_of_the_order(
    evaluation: Any, shuffle: random.Random
) -> None:
    values, said, repeats = evaluation
    document = score(values, said, repeats=repeats)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    pairs = list(values)
    shuffle.shuffle(pairs)
    again = {
        model: {pair: by_pair[pair] for pair in pairs if pair in by_pair}
        for model, by_pair in said.items()
    }
    assert score({pair: values[pair] for pair in pairs}, again, repeats=repeats) == document
    for app, floor in document["noise_floor_pct"]["per_app"].items():
        pairs_of = [pair["noise_floor_pct"] for pair in document["pairs"] if pair["app"] == app]
        known = [pair_floor for pair_floor in pairs_of if pair_floor is not None]
        assert (floor is None) == (not known)
        if floor is not None:
            assert min(known) * (1 - 1e-9) <= floor <= max(known) * (1 + 1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 5), st.floats(0.0, 0.3))
def test_saying_what_was_measured_has_no_error(seed: int, repeats: int, noise: float) -> None:
    values = noisy(truth(4, seed), noise, repeats, seed)
    first = score(values, {})
    exact = {(pair["app"], pair["beside"]): pair["measured"] for pair in first["pairs"]}
    document = score(values, {"LM": exact})
    assert all(cells["LM"]["median_pct"] == 0.0 for cells in document["table"].values())
    assert document["all"]["LM"]["mean_abs_log_pct"] == 0.0
    skill = document["skill"]["LM"]["value"]
    assert skill is None or skill <= 1e-6
    assert document["all"]["LM"]["spearman"] == pytest.approx(1.0)


@given(st.floats(0.1, 10.0), st.floats(0.1, 50.0))
def test_a_constant_slowdown_ranks_nothing(slowdown: float, solo: float) -> None:
    values = noisy(truth(3), 0.1, 2)
    solos = {app: solo * (k + 1) for k, app in enumerate(NAMES[:3])}
    said = {(app, beside): slowdown * solos[app] for app, beside in values}
    document = score(values, {"LM": said}, solo=solos)
    assert document["all"]["LM"]["spearman"] is None
    assert document["all"]["SOLO"]["spearman"] is None


def test_ranks_with_ties_by_hand() -> None:
    """Ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: a correlation of 4.5 over the root of 4.5 x 5."""
    values = {("a", name): (cost,) for name, cost in zip("bcde", (1.0, 1.2, 1.1, 1.3), strict=True)}
    said = {("a", name): cost for name, cost in zip("bcde", (1.0, 1.5, 1.5, 2.0), strict=True)}
    spearman = score(values, {"LM": said})["all"]["LM"]["spearman"]
    assert spearman == pytest.approx(4.5 / math.sqrt(4.5 * 5.0))


def test_another_seed_draws_other_intervals_and_the_same_values() -> None:
    values, said = noisy(truth(), 0.05, 4), {"LM": dict.fromkeys(truth(), 1.5)}
    one, same, other = (score(values, said, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one["skill"]["LM"]["value"] == other["skill"]["LM"]["value"]
    assert one["skill"]["LM"]["interval"] != other["skill"]["LM"]["interval"]
