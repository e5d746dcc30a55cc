"""``kongming corun`` from end to end: before and after training, with itself, and with failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kongming.cli.profile.corun import measured_slowdown, pairs_among
from kongming.records.run import DISTURBED
from tests.builders import run
from tests.campaigns.conftest import Profiled
from tests.conftest import Kongming

pytestmark = pytest.mark.real


@pytest.fixture
def mine(profiled: Profiled, tmp_path: Path) -> Profiled:
    """A finished campaign whose store this test may add to."""
    return profiled.copied_to(tmp_path)


def test_untrained_programs_are_measured_all_the_same(mine: Profiled) -> None:
    report = mine.json("corun", "count", "lines")
    assert set(report) == {"placement", "predictions", "measured", "noise_floor_pct"}
    assert report["placement"] == "cross-core"
    # Two runs of a real program never take just as long.
    assert report["noise_floor_pct"] > 0
    for entries in (report["predictions"], report["measured"]):
        assert [e["app"] for e in entries] == ["count", "lines"]
    assert [e["neighbours"][0]["app"] for e in report["predictions"]] == ["lines", "count"]
    assert [e["neighbour"] for e in report["measured"]] == ["lines", "count"]
    for predicted, measured in zip(report["predictions"], report["measured"], strict=True):
        assert measured["runs"] == 2
        assert measured["slowdown"] > 0
        better_is_higher = measured["app"] == "lines"
        ratio = measured["runtime_s"] / measured["solo_s"]
        wanted = 1 / ratio if better_is_higher else ratio
        assert measured["slowdown"] == pytest.approx(wanted)
        assert predicted["measured"] == measured
        assert (predicted["slowdown"], predicted["error_pct"]) == (None, None)
        assert "kongming train" in " ".join(predicted["warnings"])
    runs = mine.json("runs", "--kind", "corun")["runs"]
    assert sorted((run["app"], *run["neighbours"]) for run in runs) == [
        *[("count", "lines")] * 2,
        *[("lines", "count")] * 2,
    ]


@pytest.mark.thorough
def test_what_is_not_predicted_is_shown_beside_what_was_measured(mine: Profiled) -> None:
    shown = mine.run("corun", "count", "rate", "--repeats", "1")
    assert shown.returncode == 0, shown.stderr
    assert "measured" in shown.stdout
    assert "Not predicted: rate has no model" in " ".join(shown.stdout.split())


def test_after_training_predicted_and_measured_are_compared(mine: Profiled) -> None:
    mine.train("count", "rate")
    report = mine.json("corun", "count", "rate", "--model", "MEAN", "--repeats", "1")
    for predicted, measured in zip(report["predictions"], report["measured"], strict=True):
        assert predicted.get("model") == "MEAN", predicted["warnings"]
        median = predicted["slowdown"]["median"]
        wanted = 100 * abs(median - measured["slowdown"]) / measured["slowdown"]
        assert predicted["error_pct"] == pytest.approx(wanted)
    # No inducer ran: nothing slowed it down, as its own output says.
    assert report["measured"][1]["slowdown"] == pytest.approx(1.0)


@pytest.mark.thorough
def test_a_prediction_that_cannot_be_made_hides_nothing_measured(mine: Profiled) -> None:
    mine.train("count")
    # Nobody profiled the neighbour, so nothing is known of what it does to others.
    short = mine.folder / "short.toml"
    short.write_text('[apps.count]\ncommand = "sleep 0.1"\n[apps.new]\ncommand = "sleep 0.1"\n')
    report = mine.json("corun", "count", "new", "--apps", short, "--repeats", "1")
    assert [entry["slowdown"] is not None for entry in report["measured"]] == [True, True]
    assert all(entry["slowdown"] is None and entry["warnings"] for entry in report["predictions"])


@pytest.mark.thorough
def test_a_program_colocated_with_itself(mine: Profiled) -> None:
    report = mine.json("corun", "count", "count", "--repeats", "1")
    (measured,) = report["measured"]
    assert (measured["app"], measured["neighbour"], measured["runs"]) == ("count", "count", 1)
    assert len(report["predictions"]) == 1
    runs = mine.json("runs", "--kind", "corun")["runs"]
    assert [run["neighbours"] for run in runs] == [["count"]]


@pytest.mark.thorough
def test_of_three_programs_every_pair_is_run(mine: Profiled) -> None:
    report = mine.json("corun", "count", "lines", "rate", "--repeats", "1")
    pairs = [(each["app"], each["neighbour"]) for each in report["measured"]]
    assert pairs == [
        *[("count", "lines"), ("lines", "count")],
        *[("count", "rate"), ("rate", "count")],
        *[("lines", "rate"), ("rate", "lines")],
    ]
    assert [(each["app"], each["neighbours"][0]["app"]) for each in report["predictions"]] == pairs
    assert all(each["runs"] == 1 and each["slowdown"] > 0 for each in report["measured"])
    # One campaign: the solo runs of a program serve all of its pairs.
    solo = {(each["app"], each["solo_s"]) for each in report["measured"]}
    assert len(solo) == 3
    (campaign,) = {run["campaign"] for run in mine.json("runs", "--kind", "corun")["runs"]}
    runs = [run for run in mine.json("runs")["runs"] if run["campaign"] == campaign]
    assert len(runs) == len(pairs) + 3


def test_an_unknown_name_gets_the_nearest_suggested(profiled: Profiled) -> None:
    done = profiled.run("corun", "count", "rates")
    assert done.returncode == 2
    assert "rates" in done.stderr
    assert "Did you mean rate?" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "option", [("--repeats", "0"), ("--placement", "next-door"), ("--model", "MEEN")]
)
def test_wrong_options_are_refused(profiled: Profiled, option: tuple[str, str]) -> None:
    done = profiled.run("corun", "count", "rate", *option)
    assert done.returncode == 2
    assert option[1] in done.stderr
    assert profiled.json("runs", "--kind", "corun")["total"] == 0


def test_runs_while_somebody_else_measured_are_counted() -> None:
    solo = [run("a", 2.0), run("a", 2.0, passive={DISTURBED: 1.0}), run("b", 9.0)]
    together = [
        run("a", 3.0, kind="corun", neighbours=("b",), passive={DISTURBED: 1.0}),
        run("a", 3.0, kind="corun", neighbours=("b",)),
        run("b", 9.0, kind="corun", neighbours=("a",)),
    ]
    first, second = (measured_slowdown([*solo, *together], *pair) for pair in ("ab", "ba"))
    assert (first["disturbed_runs"], second["disturbed_runs"]) == (2, 0)
    assert (first["slowdown"], second["slowdown"]) == pytest.approx((1.5, 1.0))


def test_pairs_stand_in_both_orders_next_to_each_other() -> None:
    assert pairs_among(["a", "b"]) == [("a", "b"), ("b", "a")]
    assert pairs_among(["a", "a"]) == [("a", "a")]
    of_three = pairs_among(["c", "a", "b"])
    assert of_three[::2] == [("c", "a"), ("c", "b"), ("a", "b")]
    assert of_three[1::2] == [(b, a) for a, b in of_three[::2]]


@pytest.mark.parametrize(
    ("names", "reason"), [(("count",), "two applications"), (("count", "rate", "count"), "once")]
)
def test_programs_that_are_no_pairs_are_refused(
    profiled: Profiled, names: tuple[str, ...], reason: str
) -> None:
    refused = profiled.run("corun", *names)
    assert refused.returncode == 2
    assert reason in refused.stderr
    assert "count" in refused.stderr


def test_a_neighbour_that_fails_is_reported(
    kongming: Kongming, tmp_path: Path, hasty: Path
) -> None:
    file = tmp_path / "apps.toml"
    file.write_text(
        '[apps.good]\ncommand = "sleep 0.1"\n[apps.bad]\ncommand = "echo a sad end; exit 3"\n'
    )
    command = ("corun", "good", "bad", "--apps", file, "--placement", "same-core")
    done = kongming(*command, "--repeats", "1", "--json")
    assert done.returncode == 1
    assert "the neighbour bad failed" in done.stderr
    assert "a sad end" in done.stderr
    report = json.loads(done.stdout)
    assert [entry["slowdown"] for entry in report["measured"]] == [None, None]
    runs = json.loads(kongming("runs", "--json").stdout)["runs"]
    errors = {(run["app"], run["kind"]): run["error"] for run in runs}
    assert len(runs) == len(errors) == 4
    assert errors["good", "solo"] is None
    assert "neighbour" in errors["good", "corun"]
    assert "exit status 3" in errors["bad", "solo"]
    assert "exit status 3" in errors["bad", "corun"]


def test_a_set_up_that_fails_is_reported(kongming: Kongming, tmp_path: Path, hasty: Path) -> None:
    file = tmp_path / "apps.toml"
    file.write_text(
        '[apps.good]\ncommand = "sleep 0.1"\n'
        '[apps.bad]\nsetup = "echo no input; exit 4"\ncommand = "true"\n'
    )
    done = kongming("corun", "good", "bad", "--apps", file, "--placement", "same-core", "--json")
    assert done.returncode == 1
    assert "no input" in json.loads(done.stdout)["error"]["message"]
    assert list(hasty.glob("kongming-app-*")) == []
