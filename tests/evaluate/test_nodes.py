"""Scores of runs in environments that were left out."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from kongming.evaluate import (
    EnvironmentMeasurement,
    EnvironmentPrediction,
    score_environments,
    to_csv,
    to_markdown,
)
from kongming.records.errors import InputError


def score(
    measured: list[EnvironmentMeasurement],
    predicted: list[EnvironmentPrediction],
    **changes: Any,
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "solo": {measurement.app: 1.0 for measurement in measured},
        "chosen": {},
        "node": {"id": "node-1"},
        "runs": sum(len(measurement.values) for measurement in measured),
        "elapsed_s": 60.0,
        "scored": "raw",
    }
    return score_environments(measured, predicted, **(settings | changes))


def quotas(app: str = "a", *, synthetic: bool = False) -> list[EnvironmentMeasurement]:
    return [
        EnvironmentMeasurement(app, "quota-50", "cpu-quota", synthetic, (2.0, 2.0 * math.exp(0.1))),
        EnvironmentMeasurement(app, "quota-80", "cpu-quota", synthetic, (1.0, 1.0)),
    ]


def test_errors_of_single_runs_by_hand() -> None:
    predicted = [
        EnvironmentPrediction("a", "quota-50", "LM", (2.2, 2.0 * math.exp(0.1))),
        EnvironmentPrediction("a", "quota-80", "LM", (1.02, 1.04)),
    ]
    document = score(quotas(), predicted)
    # 10, 0, 2 and 4 per cent off.
    assert document["table"]["a"]["LM"]["median_pct"] == pytest.approx(3.0)
    assert document["per_environment"]["quota-80"]["LM"] == pytest.approx(3.0)
    values = [run["predictions"]["MEAN"]["value"] for run in document["scored_runs"]]
    both = (2.0 + 2.0 * math.exp(0.1)) / 2
    assert values == pytest.approx([1.0, 1.0, both, both])
    # Two repeats that differ by 0.1 in logs: half of it for their mean, sqrt(2) that for one.
    floor = (100 * 0.05 * math.sqrt(2) + 0.0) / 2
    assert document["noise_floor_pct"]["per_app"]["a"] == pytest.approx(floor)
    # One run of four is off by 10 % of its cost; the noise is that of one run.
    squares = math.log(1.1) ** 2 + math.log(1.02) ** 2 + math.log(1.04) ** 2
    solos = math.log(2.0) ** 2 + (math.log(2.0) + 0.1) ** 2
    noise = 2 * 0.1**2 / 2
    excess = document["excess"]["LM"]["value"]
    assert excess == pytest.approx((squares - noise) / (solos - noise))
    mean = document["geomean_pct"]["MEAN"]
    assert document["ratio_to_mean"]["LM"]["value"] == pytest.approx(3.0 / mean)
    assert document["ratio_to_mean"]["MEAN"]["value"] == pytest.approx(1.0)
    assert list(document["all"]) == ["MEAN", "SOLO", "LM"]
    assert [environment["name"] for environment in document["environments"]] == [
        "quota-50",
        "quota-80",
    ]


def test_synthetic_environments_are_scored_apart() -> None:
    stand_ins = [
        EnvironmentMeasurement("a", "mix-1", "mix", True, (5.0, 5.0)),
        EnvironmentMeasurement("a", "mix-2", "mix", True, (7.0, 7.0)),
    ]
    document = score(quotas() + stand_ins, [])
    assert score(quotas(), [])["table"] == document["table"]
    assert document["synthetic"]["per_environment"]["mix-1"]["MEAN"] == pytest.approx(40.0)
    assert {run["environment"]: run["synthetic"] for run in document["scored_runs"]} == {
        **{"quota-50": False, "quota-80": False},
        **{"mix-1": True, "mix-2": True},
    }
    assert "## Synthetic environments" in to_markdown(document)
    assert score(quotas(), [])["synthetic"] is None


def test_nothing_but_synthetic_environments() -> None:
    document = score(quotas(synthetic=True), [])
    assert document["table"] == {}
    assert document["geomean_pct"] == {"MEAN": None, "SOLO": None}
    assert document["synthetic"]["table"]["a"]["SOLO"]["median_pct"] > 0
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_intervals_and_marks_by_run() -> None:
    measured = [
        EnvironmentMeasurement(app, name, "mix", False, (1.0, 3.0), (False, True))
        for app in "ab"
        for name in ("mix-1", "mix-2")
    ]
    predicted = [
        EnvironmentPrediction(
            *(measurement.app, measurement.environment, "auto", (1.0, 1.5)),
            lower=(0.9, 1.2),
            upper=(1.1, 1.8),
            extrapolating=(False, True),
        )
        for measurement in measured
    ]
    document = score(measured, predicted)
    assert document["coverage"]["run"]["actual"] == 0.5
    assert document["coverage"]["run"]["median_width_pct"] == pytest.approx((20.0 + 40.0) / 2)
    assert document["geomean_pct"]["auto"] == pytest.approx((0.0 + 50.0) / 2)
    assert document["marked"]["share"] == 0.5
    assert document["marked"]["geomean_pct"]["auto"] == pytest.approx(1e-3)
    assert document["marked"]["runs_left"] == 4
    last = document["scored_runs"][1]
    assert last["marked"] is True
    assert last["predictions"]["auto"]["extrapolating"] is True
    rows = to_csv(document).splitlines()
    assert rows[0].startswith("app,environment,kind,synthetic,run,model,predicted,measured")
    assert len(rows) == 1 + 8 * 3


@pytest.mark.parametrize(
    ("measured", "predicted", "field"),
    [
        ([*quotas(), *quotas()], [], "measured"),
        ([EnvironmentMeasurement("a", "e", "mix", False, ())], [], "measured"),
        (quotas(), [EnvironmentPrediction("a", "quota-50", "LM", (1.0,))], "values"),
        (quotas(), [EnvironmentPrediction("a", "quota-50", "LM", (1.0, 1.0))] * 2, "predicted"),
        ([*quotas("a"), *quotas("b", synthetic=True)], [], "kind"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    measured: list[EnvironmentMeasurement], predicted: list[EnvironmentPrediction], field: str
) -> None:
    with pytest.raises(InputError) as refused:
        score(measured, predicted)
    assert refused.value.field == field


def test_a_missing_solo_time_is_named() -> None:
    with pytest.raises(InputError, match="solo: is missing or not a cost for a"):
        score(quotas(), [], solo={})


def test_what_is_slower_than_at_least_is_held() -> None:
    measured = [
        EnvironmentMeasurement(app, "quota", "cpu-quota", False, (9.0, 2.0)) for app in "ab"
    ]
    predicted = [
        EnvironmentPrediction(
            app, "quota", "auto", (5.0, 5.0), (4.0, 4.0), (6.0, 6.0), at_least=(True, True)
        )
        for app in "ab"
    ]
    document = score(measured, predicted)
    assert document["coverage"]["run"]["actual"] == 0.5
    assert document["coverage"]["run"]["at_least"] == {"n": 4, "above": 2, "below": 2}
    assert document["scored_runs"][0]["predictions"]["auto"]["at_least"]
