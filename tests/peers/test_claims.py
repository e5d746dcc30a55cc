"""Each peer reproduces its paper's claim where its assumption holds, and beats trivial ones."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from benchmarks.peers import reproduce

# Of benchmarks, which change seldom; what predicts by them is tested in test_predictions.py.
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=[1, 3])
def results(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(reproduce.run(seeds=request.param)["results"])


@pytest.mark.parametrize("name", sorted(reproduce.CLAIMS))
def test_a_peer_keeps_its_limit_and_clearly_beats_trivial_predictors(
    name: str, results: dict[str, Any]
) -> None:
    _, peer, limit = reproduce.CLAIMS[name]
    errors = results[name]["error_pct"]
    trivial = [errors[other] for other in reproduce.TRIVIAL if other in errors]
    assert len(trivial) == 2
    assert errors[peer] <= limit
    assert errors[peer] <= 0.5 * min(trivial)


def test_pieces_are_what_makes_the_difference_where_the_dominant_factor_changes(
    results: dict[str, Any],
) -> None:
    errors = results["ZHAO"]["error_pct"]
    assert errors["ZHAO"] <= 0.5 * errors["one piece"]


def test_measured_pairs_do_not_make_it_worse(results: dict[str, Any]) -> None:
    errors = results["PARAGON, pairs"]["error_pct"]
    assert errors["PARAGON-PAIRS"] <= errors["PARAGON"]


def test_the_command_prints_one_json_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reproduce", "--seeds", "1", "--check"])
    status = reproduce.main()
    document = json.loads(capsys.readouterr().out)
    assert status == (0 if document["met"] else 4)
    assert set(document["results"]) == set(reproduce.CLAIMS)
