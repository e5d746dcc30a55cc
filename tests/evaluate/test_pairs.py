"""Scores of pairs against small cases worked out by hand, and what must hold for any."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.evaluate import PairMeasurement, PairPrediction, pressures, score_pairs, to_markdown
from kongming.records.errors import InputError
from tests.evaluate.programs import NAMES, noisy, score, truth

KEYS = (
    *("kind", "placement", "node", "apps", "runs", "repeats", "elapsed_s", "excess", "noise"),
    *("table", "geomean_pct", "floored_geomean_pct", "noise_floor_pct", "skill", "all", "truth"),
    *("minutes", "coverage", "chosen"),
)


def two_repeats() -> dict[tuple[str, str], tuple[float, float]]:
    """Geometric means of 2 (next to b), 1 (next to c), 1.5 (next to d); repeats differ by 10, 4
    and 2 % in logs."""
    return {
        ("a", "b"): (2 * math.exp(0.05), 2 * math.exp(-0.05)),
        ("a", "c"): (math.exp(0.02), math.exp(-0.02)),
        ("a", "d"): (1.5 * math.exp(0.01), 1.5 * math.exp(-0.01)),
    }


def test_errors_of_two_repeats_by_hand() -> None:
    predicted = {("a", "b"): 1.8, ("a", "c"): 1.05, ("a", "d"): 1.5}
    document = score(two_repeats(), {"LM": predicted})
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
        for model in ("MEAN", "SOLO", "PAIRMEAN", "PAIRMEDIAN")
    }
    assert values["MEAN"] == [1.6, 1.6, 1.6]
    assert values["SOLO"] == [1.25, 1.25, 1.25]
    # The mean of the two others each: of 1 and 1.5, of 2 and 1.5, of 2 and 1.
    assert values["PAIRMEAN"] == pytest.approx([1.25, 1.75, 1.5])
    assert values["PAIRMEDIAN"] == pytest.approx([1.25, 1.75, 1.5])
    # One application: nothing is known of a partner without the scored pair.
    assert document["unpredicted"]["ROW+COL"] == 3
    assert [pair["slowdown"] for pair in document["pairs"]] == pytest.approx([1.6, 0.8, 1.2])


def test_skill_by_hand() -> None:
    """Two applications whose repeats differ by 6 %."""
    values: dict[tuple[str, str], tuple[float, ...]] = {}
    predicted: dict[tuple[str, str], float] = {}
    for app, off in (("a", 1.06), ("b", 1.12)):
        for neighbour, cost in (("x", 1.0), ("y", 2.0)):
            values[app, neighbour] = (cost * math.exp(0.03), cost * math.exp(-0.03))
            predicted[app, neighbour] = cost * off
    document = score(values, {"LM": predicted})
    # PAIRMEDIAN says 2 for 1 and 1 for 2: 100 and 50 %, the median of which is 75 in both.
    expected = (math.sqrt(6.0 * 12.0) - 3.0) / (75.0 - 3.0)
    assert document["skill"]["LM"]["value"] == pytest.approx(expected)
    assert document["skill"]["PAIRMEDIAN"]["value"] == pytest.approx(1.0)
    low, high = document["skill"]["LM"]["interval"]
    assert low == pytest.approx((6.0 - 3.0) / 72.0)
    assert high == pytest.approx((12.0 - 3.0) / 72.0)
    # No error counts as less than the noise.
    exact = score(values, {"LM": predicted | {("a", "x"): 1.0, ("a", "y"): 2.0}})
    assert exact["floored_geomean_pct"]["LM"] == pytest.approx(math.sqrt(3.0 * 12.0))


def test_where_partners_are_alike_the_truth_gains_nothing_by_choosing() -> None:
    """The least of six measured means is luck, and no partner is better than the others."""
    rng = random.Random(3)
    pairs = itertools.product(string.ascii_lowercase, "ABCDEF")
    measured = {pair: [math.exp(rng.gauss(0.0, 0.03)) for _ in range(4)] for pair in pairs}
    document = score(measured, {})
    assert document["truth"]["regret_pct"] == pytest.approx(0.0, abs=0.4)


def test_heavy_pairs_and_regret_by_hand() -> None:
    """One partner is always at 1.3; repeats next to the other are 1.2, 1.2, 1.6 and 1.6.

    Each of the latter names once: the rest has a geometric mean of ``low`` without a 1.6, and of
    ``high`` without a 1.2.
    """
    low, high = (1.2 * 1.2 * 1.6) ** (1 / 3), (1.2 * 1.6 * 1.6) ** (1 / 3)
    values = {("a", "b"): (1.3, 1.3, 1.3, 1.3), ("a", "c"): (1.2, 1.2, 1.6, 1.6)}
    document = score(values, {"LM": {("a", "b"): 1.3, ("a", "c"): 1.25}})
    # All repeats of b name it, and half of those of c do.
    heavy = (1.0 * 0.0 + 0.5 * (low - 1.25) / low) / 1.5
    assert document["all"]["LM"]["heavy_pct"] == pytest.approx(100 * heavy)
    assert document["all"]["LM"]["quiet_pct"] is None
    assert document["heavy_pairs"] == 2
    # The truth errs on c only: its repeats' standard deviation, without the bias of four of them,
    # over the root of three scoring rounds; times that of a mean absolute normal value.
    spread = statistics.stdev(map(math.log, values["a", "c"])) / 0.9213 / math.sqrt(3)
    truth = 0.5 * spread * math.sqrt(2 / math.pi) / 1.5
    assert document["truth"]["heavy_pct"] == pytest.approx(100 * truth, rel=0.02)
    # LM chooses c, as do the rounds in which it took 1.2; in the two others b is the choice.
    regret = (2 * 0.0 + 2 * (low / 1.3 - 1)) / 4
    assert document["all"]["LM"]["regret_pct"] == pytest.approx(100 * regret)
    anybody = (2 * ((high + 1.3) / 2 / high - 1) + 2 * ((low + 1.3) / 2 / 1.3 - 1)) / 4
    assert document["random_regret_pct"] == pytest.approx(100 * anybody)
    gain = document["all"]["LM"]["regret_gain"]["value"]
    assert gain == pytest.approx(100 * (anybody - regret))


def test_a_pair_is_quiet_by_another_round_than_it_is_scored_by() -> None:
    values = {("a", "b"): (1.0, 1.2), ("a", "c"): (1.5, 1.5)}
    document = score(values, {"LM": {("a", "b"): 1.1, ("a", "c"): 1.0}})
    assert document["all"]["LM"]["quiet_pct"] == pytest.approx(100 * math.log(1.2 / 1.1))


def test_predictors_that_cannot_choose_lose_as_much_as_any_choice() -> None:
    document = score(noisy(truth(), 0.05, 4), {})
    anybody = document["random_regret_pct"]
    assert anybody > 0
    assert document["all"]["MEAN"]["regret_pct"] == pytest.approx(anybody)
    assert document["all"]["SOLO"]["regret_pct"] == pytest.approx(anybody)
    assert document["all"]["PAIRMEAN"]["regret_pct"] is None
    assert document["all"]["PAIRMEDIAN"]["spearman"] is None


def test_single_repeats_name_nothing_and_have_no_noise() -> None:
    document = score(noisy(truth(), 0.05, 1), {"LM": truth()})
    assert document["all"]["LM"]["heavy_pct"] is None
    assert document["all"]["LM"]["regret_pct"] is None
    assert set(document["truth"].values()) == {None}
    assert document["random_regret_pct"] is None
    assert document["noise"] == {"share_of_solo": None, "too_noisy": None}
    assert document["excess"]["LM"] == {"value": None, "interval": [None, None]}


@pytest.mark.parametrize("repeats", [2, 5, 12])
def test_knowing_the_truth_beats_every_other_choice(repeats: int) -> None:
    values = noisy(truth(10), 0.03, repeats)
    wrong = {pair: 1 / value for pair, value in truth(10).items()}
    document = score(values, {"GBM": truth(10), "LM": wrong})
    assert document["all"]["GBM"]["regret_pct"] < 2.0
    assert document["random_regret_pct"] < document["all"]["LM"]["regret_pct"]
    low, high = document["all"]["GBM"]["regret_gain"]["interval"]
    assert 0.0 < low < high
    heavy = document["all"]["GBM"]["heavy_pct"]
    assert heavy == pytest.approx(document["truth"]["heavy_pct"], rel=0.35)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "repeats", [2, *(pytest.param(n, marks=pytest.mark.thorough) for n in (3, 4, 6))]
)
def test_the_truth_scores_what_it_is_said_to(repeats: int) -> None:
    """Floors are unbiased, the mean error is that of the noise, and the excess is about 0."""
    floors, errors, logs, truths, excesses = [], [], [], [], []
    for seed in range(12):
        document = score(noisy(truth(10, seed), 0.05, repeats, seed), {"LM": truth(10, seed)})
        floors.append(document["noise_floor_pct"]["geomean"])
        errors.append(document["geomean_pct"]["LM"])
        logs.append(document["all"]["LM"]["mean_abs_log_pct"])
        truths.append(document["truth"]["mean_abs_log_pct"])
        excesses.append(document["excess"]["LM"]["value"])
    assert sum(errors) / sum(floors) == pytest.approx(1.0, abs=0.09)
    assert sum(logs) / sum(truths) == pytest.approx(1.0, abs=0.09)
    assert statistics.fmean(excesses) == pytest.approx(0.0, abs=0.003)


def test_excess_by_hand() -> None:
    """Two pairs slowed to 2 and 1.5; repeats differ by 0.2 and 0.1, so their means have a variance
    of 0.02 / 2 and 0.005 / 2."""
    values = {
        ("a", "b"): (2 * math.exp(0.1), 2 * math.exp(-0.1)),
        ("c", "b"): (1.5 * math.exp(0.05), 1.5 * math.exp(-0.05)),
    }
    document = score(values, {"LM": {("a", "b"): 1.6, ("c", "b"): 1.5}})
    noise = 0.01 + 0.0025
    solo = math.log(2) ** 2 + math.log(1.5) ** 2
    excess = document["excess"]["LM"]
    assert excess["value"] == pytest.approx((math.log(1.25) ** 2 - noise) / (solo - noise))
    # One presser; of two victims one may be drawn twice.
    low = (0.0 - 0.0025) / (math.log(1.5) ** 2 - 0.0025)
    high = (math.log(1.25) ** 2 - 0.01) / (math.log(2) ** 2 - 0.01)
    assert excess["interval"] == pytest.approx([low, high])
    assert document["noise"] == {
        "share_of_solo": pytest.approx(noise / solo),
        "too_noisy": False,
    }
    # What solo runs add to the noise is taken off too.
    shared = [PairMeasurement(app, "b", values[app, "b"], solo_variance=0.1) for app in ("a", "c")]
    again = rescore(shared)
    assert again["noise"] == {
        "share_of_solo": pytest.approx((noise + 0.2) / solo),
        "too_noisy": True,
    }
    assert "Too noisy to compare models" in to_markdown(again)


def rescore(measured: list[PairMeasurement]) -> dict[str, Any]:
    return score_pairs(
        measured,
        [],
        solo=dict.fromkeys((pair.app for pair in measured), 1.0),
        training_mean={},
        repeats=2,
        chosen={},
        placement="",
        node={},
        runs=4,
        elapsed_s=0.0,
        scored="raw",
    )


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 5), st.floats(0.001, 0.3))
def test_solo_has_an_excess_of_one(seed: int, repeats: int, noise: float) -> None:
    values = noisy(truth(4, seed), noise, repeats, seed)
    document = score(values, {"LM": dict.fromkeys(values, 1.0)})
    assert document["excess"]["LM"] == document["excess"]["SOLO"]
    if document["excess"]["SOLO"]["value"] is not None:
        assert document["excess"]["SOLO"]["value"] == pytest.approx(1.0)
        assert document["excess"]["SOLO"]["interval"][0] == pytest.approx(1.0)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(3, 6))
def test_row_and_column_effects_are_found_without_the_scored_pair(seed: int, apps: int) -> None:
    rng = random.Random(seed)
    names = NAMES[:apps]
    row, column = ({name: rng.uniform(0.0, 0.7) for name in names} for _ in range(2))
    values = {(a, b): (math.exp(row[a] + column[b]),) for a in names for b in names if a != b}
    values["xz", "stencil"] = (9.0,)
    document = score(values, {})
    predicted = {
        (pair["app"], pair["neighbour"]): pair["predictions"]["ROW+COL"]["value"]
        for pair in document["pairs"]
    }
    # The scored pair is an outlier, and does not predict itself.
    assert predicted["xz", "stencil"] == pytest.approx(math.exp(row["xz"] + column["stencil"]))


def test_minutes_make_curves_of_error() -> None:
    values = noisy(truth(6), 0.02, 4)
    document = score(values, {"auto": truth(6)}, minutes={"ROW+COL": 60.0, "auto": 30.0})
    assert document["minutes"]["auto"] == 30.0
    assert document["minutes"]["SOLO"] is None
    curves = document["measuring"]
    minutes, errors = zip(*curves["ROW+COL"], strict=True)
    assert list(minutes) == pytest.approx([12.0, 24.0, 36.0, 48.0])
    # The more pairs are known, the better the others are predicted.
    assert errors[-1] < errors[0]
    (once, _), (twice, better) = curves["measured"]
    assert (once, twice) == pytest.approx((15.0, 30.0))
    # Two repeats against the mean of two others.
    assert better == pytest.approx(100 * 0.02 * math.sqrt(2 / math.pi), rel=0.2)
    assert score(values, {})["measuring"] == {}


def test_only_pairs_that_succeeded_are_scored() -> None:
    values: dict[tuple[str, str], tuple[float, ...]] = {
        ("a", "b"): (1.0, 1.1, 1.2, 1.0),
        ("a", "c"): (1.5,),
        ("a", "d"): (),
    }
    document = score(values, {"LM": {("a", "b"): 1.0, ("a", "d"): 1.0}}, repeats=4)
    assert document["unmeasured"] == [["a", "d"]]
    assert document["unpredicted"] == {"LM": 1, "ROW+COL": 2}
    assert [pair["neighbour"] for pair in document["pairs"]] == ["b", "c"]
    assert document["pairs"][1]["noise_floor_pct"] is None
    # One pair that was both measured and predicted is nothing to choose among.
    assert document["all"]["LM"]["heavy_pct"] is None


def test_a_model_named_mean_gives_way_to_the_training_mean() -> None:
    values = two_repeats()
    document = score(values, {"MEAN": dict.fromkeys(values, 9.0)}, training_mean={"a": 1.5})
    assert [p["predictions"]["MEAN"]["value"] for p in document["pairs"]] == [1.5, 1.5, 1.5]
    assert list(document["all"]) == ["MEAN", "SOLO", "PAIRMEAN", "PAIRMEDIAN", "ROW+COL"]
    without = score(values, {"MEAN": dict.fromkeys(values, 9.0)}, training_mean={})
    assert [p["predictions"]["MEAN"]["value"] for p in without["pairs"]] == [9.0, 9.0, 9.0]


def test_the_document_has_the_keys_in_order() -> None:
    document = score(noisy(truth(), 0.05, 4), {"LM": truth(), "auto": truth(), "CART": truth()})
    assert [key for key in document if key in KEYS] == list(KEYS)
    trivial = ["MEAN", "SOLO", "PAIRMEAN", "PAIRMEDIAN", "ROW+COL"]
    assert list(document["all"]) == [*trivial, "LM", "CART", "auto"]
    assert set(document["all"]["LM"]) == {
        *("mean_abs_log_pct", "spearman", "heavy_pct", "quiet_pct", "regret_pct", "regret_gain")
    }


def test_marked_repeats_are_scored_and_shown_apart() -> None:
    measured = [
        PairMeasurement("a", "b", (1.0, 4.0), (False, True)),
        PairMeasurement("a", "c", (1.0, 1.0), (False, False)),
    ]
    predicted = [PairPrediction("a", neighbour, "LM", 1.0) for neighbour in "bc"]
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
    prediction = PairPrediction("a", "b", "LM", 1.0)
    settings: dict[str, Any] = {
        **{"solo": {"a": 1.0}, "training_mean": {}, "repeats": 1, "chosen": {}},
        **{"placement": "", "node": {}, "runs": 1, "elapsed_s": 0.0, "scored": "raw"},
    }
    with pytest.raises(InputError, match="a next to b"):
        score_pairs([pair, pair], [], **settings)
    with pytest.raises(InputError, match="LM for a next to b"):
        score_pairs([pair], [prediction, prediction], **settings)
    with pytest.raises(InputError, match="no pair"):
        score_pairs([PairMeasurement("a", "b", ())], [prediction], **settings)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PairMeasurement("a", "b", (1.0, 0.0)), "values"),
        (lambda: PairMeasurement("a", "b", (math.inf,)), "values"),
        (lambda: PairMeasurement("a", "b", (1.0, 1.0), (True,)), "marked"),
        (lambda: PairMeasurement("a", "b", (1.0,), solo_variance=-1.0), "solo_variance"),
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
    pairs = [(app, neighbour) for app in apps for neighbour in partners]
    values = {
        pair: draw(st.lists(costs, min_size=0, max_size=repeats).map(tuple)) for pair in pairs
    }
    values[pairs[0]] = (1.0, *values[pairs[0]][1:])
    predicted = {
        model: {pair: draw(costs) for pair in pairs if draw(st.booleans())}
        for model in ("LM", "auto")
    }
    return values, predicted, repeats


@settings(deadline=None, max_examples=30)
@given(evaluations(), st.randoms(use_true_random=False))
def test_any_evaluation_is_json_and_free_of_the_order(
    evaluation: Any, shuffle: random.Random
) -> None:
    values, predicted, repeats = evaluation
    document = score(values, predicted, repeats=repeats)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    pairs = list(values)
    shuffle.shuffle(pairs)
    again = {
        model: {pair: by_pair[pair] for pair in pairs if pair in by_pair}
        for model, by_pair in predicted.items()
    }
    assert score({pair: values[pair] for pair in pairs}, again, repeats=repeats) == document
    for app, floor in document["noise_floor_pct"]["per_app"].items():
        of_app = [pair for pair in document["pairs"] if pair["app"] == app]
        assert (floor is None) == all(pair["noise_floor_pct"] is None for pair in of_app)


@pytest.mark.thorough
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.integers(2, 5), st.floats(0.0, 0.3))
def test_saying_what_was_measured_has_no_error(seed: int, repeats: int, noise: float) -> None:
    values = noisy(truth(4, seed), noise, repeats, seed)
    first = score(values, {})
    exact = {(pair["app"], pair["neighbour"]): pair["measured"] for pair in first["pairs"]}
    document = score(values, {"LM": exact})
    assert all(cells["LM"]["median_pct"] == 0.0 for cells in document["table"].values())
    assert document["all"]["LM"]["mean_abs_log_pct"] == 0.0
    skill = document["skill"]["LM"]["value"]
    assert skill is None or skill <= 1e-6
    assert document["all"]["LM"]["spearman"] == pytest.approx(1.0)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.1, 10.0), st.floats(0.1, 50.0))
def test_a_constant_slowdown_ranks_nothing(slowdown: float, solo: float) -> None:
    values = noisy(truth(3), 0.1, 2)
    solos = {app: solo * (k + 1) for k, app in enumerate(NAMES[:3])}
    predicted = {(app, neighbour): slowdown * solos[app] for app, neighbour in values}
    document = score(values, {"LM": predicted}, solo=solos)
    assert document["all"]["LM"]["spearman"] is None
    assert document["all"]["SOLO"]["spearman"] is None


def test_a_predictor_that_ranks_one_application_of_two_gets_half() -> None:
    values = {(a, b): (cost,) for a in "ab" for b, cost in zip("xyz", (1.0, 1.2, 1.5), strict=True)}
    predicted = {(a, b): values[a, b][0] if a == "a" else 1.0 for a, b in values}
    assert score(values, {"LM": predicted})["all"]["LM"]["spearman"] == pytest.approx(0.5)


def test_ranks_with_ties_by_hand() -> None:
    """Ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: a correlation of 4.5 over the root of 4.5 x 5."""
    values = {("a", name): (cost,) for name, cost in zip("bcde", (1.0, 1.2, 1.1, 1.3), strict=True)}
    predicted = {("a", name): cost for name, cost in zip("bcde", (1.0, 1.5, 1.5, 2.0), strict=True)}
    spearman = score(values, {"LM": predicted})["all"]["LM"]["spearman"]
    assert spearman == pytest.approx(4.5 / math.sqrt(4.5 * 5.0))


def test_another_seed_draws_other_intervals_and_the_same_values() -> None:
    values, predicted = noisy(truth(), 0.05, 4), {"LM": dict.fromkeys(truth(), 1.5)}
    first, same, other = (score(values, predicted, seed=seed) for seed in (1, 1, 2))
    assert first == same
    assert first["skill"]["LM"]["value"] == other["skill"]["LM"]["value"]
    assert first["skill"]["LM"]["interval"] != other["skill"]["LM"]["interval"]
