"""``kongming evaluate`` from end to end: budgets, resuming, what is reused, Ctrl-C."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kongming.store import Store
from tests.campaigns.conftest import LOADED, QUICK, steps
from tests.campaigns.test_interrupt import PHASES, Campaign, scratch_folders
from tests.conftest import Kongming

pytestmark = pytest.mark.real

STUBBORN = "trap '' INT TERM HUP; sleep 0.3; true"
TWO = f"""
[apps.count]
command = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"

[apps.rate] # half as fast under an inducer
command = "if {LOADED}; then echo rate 50; else echo rate 100; fi"
metric = {{ pattern = 'rate (\\d+)', unit = "ops/s", better = "higher" }}
"""

Json = Callable[..., Any]


@pytest.fixture
def run_json(kongming: Kongming, tmp_path: Path, hasty: Path) -> Json:
    """What a command over two tiny programs answers, by its exit status if that is not 0."""
    (tmp_path / "apps.toml").write_text(TWO)

    def answer(*args: str | Path, status: int = 0) -> Any:
        done = kongming(*args, "--json")
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    return answer


@pytest.mark.thorough
def test_pairs_stop_at_a_budget_resume_and_are_not_run_again(
    run_json: Json, kongming: Kongming, tmp_path: Path, one_cpu: None
) -> None:
    profiled = run_json("profile", "apps.toml", *QUICK, "--placement", "same-core")
    common = ("--placement", "same-core", "--repeats", "1", "--models", "RIDGE")
    evaluate = ("evaluate", "apps.toml", "--pairs", *common)
    before = run_json("runs")["total"]

    plan = run_json(*evaluate, "--dry-run")
    assert (plan["runs"], plan["profile"]["apps"], plan["pairs"]["pairs"]) == (4, [], 2)
    assert plan["seconds"] > 0
    missing = run_json(*evaluate, "--dry-run", "--plan", "paper")
    assert missing["profile"]["apps"] == ["count", "rate"]
    assert missing["runs"] > 300
    assert run_json("runs")["total"] == before

    part = kongming(*evaluate, "--budget", "6ms")
    assert part.returncode == 1
    assert "The same command continues" in part.stdout + part.stderr
    assert run_json("runs")["total"] == before + 1

    done = kongming(*evaluate, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "resuming: 1 of 4" in done.stderr
    assert "Profiled at few load levels only" in done.stdout
    document = json.loads((tmp_path / "out" / "document.json").read_text())
    assert document["complete"] is True
    assert {(pair["app"], pair["neighbour"]) for pair in document["pairs"]} == {
        ("count", "rate"),
        ("rate", "count"),
    }
    # No inducer runs next to them: the output of this one says that nothing slowed it down.
    (rate,) = (pair for pair in document["pairs"] if pair["app"] == "rate")
    assert rate["slowdown"] == pytest.approx(1.0)
    assert rate["predictions"]["MEAN"]["value"] > 1.1
    assert {profile["campaign"] for profile in document["profiles"].values()} == {
        profiled["campaign"]
    }
    assert run_json("runs")["total"] == before + 4

    again = run_json(*evaluate, "--scored", "raw")
    assert again["campaign"] == document["campaign"]
    assert again["table"]["rate"]["SOLO"]["median_pct"] == pytest.approx(0.0)
    assert run_json("runs")["total"] == before + 4
    # Again, with what is expected written down before: four of each at the least, for precision.
    precise = ("--placement", "same-core", "--models", "RIDGE", "--precision", "50%")
    known = ("evaluate", "apps.toml", "--pairs", *precise, "--preregister", "plan.json")
    anew = run_json(*known)
    assert anew["campaign"] != document["campaign"]
    assert anew["preregistered"]["before_first_run"] is True
    assert anew["preregistered"]["code_changed"] == []
    assert {len(pair["repeats"]) for pair in anew["pairs"]} == {4}
    assert [entry["kind"] for entry in anew["order"]].count("corun") == 8
    total = run_json("runs")["total"]
    # It is precise enough: the same command measures nothing, and another list is refused.
    assert run_json(*known)["campaign"] == anew["campaign"]
    assert run_json("runs")["total"] == total
    other = kongming(*known, "--plan", "paper")
    assert other.returncode == 2
    assert "other settings" in other.stderr

    # One that does not work is left out of the pairs; the others' are those that are there.
    (tmp_path / "apps.toml").write_text(f'{TWO}[apps.bad]\ncommand = "echo a sad end; exit 3"\n')
    without = run_json(*evaluate, status=1)
    assert without["campaign"] == document["campaign"]
    assert "a sad end" in without["dropped"]["bad"]
    assert set(without["table"]) == {"count", "rate"}


@pytest.mark.thorough
def test_a_sample_of_the_pairs_is_all_that_is_measured_and_scored(
    run_json: Json, kongming: Kongming, tmp_path: Path, one_cpu: None
) -> None:
    (tmp_path / "apps.toml").write_text(f'{TWO}[apps.nap]\ncommand = "sleep 0.05"\n')
    common = ("--placement", "same-core", "--repeats", "1", "--models", "RIDGE", "--sample", "3")
    run_json("profile", "apps.toml", *QUICK, "--placement", "same-core")
    evaluate = ("evaluate", "apps.toml", "--pairs", *common)
    assert run_json(*evaluate, "--dry-run")["pairs"] == {
        "pairs": 3,
        "runs": 6,
        "seconds": pytest.approx(1, abs=60),
    }
    document = run_json(*evaluate)
    pairs = [(pair["app"], pair["neighbour"]) for pair in document["pairs"]]
    assert sorted(app for app, _ in pairs) == sorted(other for _, other in pairs)
    assert len(pairs) == 3
    assert document["sample"] == 3
    assert document["unmeasured"] == []
    # The same pairs again, and without measuring.
    assert run_json(*evaluate, "--score-only")["campaign"] == document["campaign"]
    refused = kongming(*evaluate[:-1], "7")
    assert refused.returncode == 2
    assert "3 (one for each application) to 6" in refused.stderr
    # One that does not work takes its pairs along; scored are those of the others.
    with (tmp_path / "apps.toml").open("a") as file:
        file.write('[apps.bad]\ncommand = "echo a sad end; exit 3"\n')
    every = (*evaluate[:-1], "12")
    document = run_json(*every, status=1)
    assert "a sad end" in document["dropped"]["bad"]
    assert len(document["pairs"]) == 6
    apps = ("--app", "count", "--app", "rate", "--app", "nap")
    assert run_json(*every, *apps, "--score-only")["campaign"] == document["campaign"]


@pytest.mark.thorough
def test_nodes_are_environments_of_this_machine(run_json: Json) -> None:
    common = ("--environments", "6", "--repeats", "1", "--models", "RIDGE")
    evaluate = ("evaluate", "apps.toml", "--nodes", "--placement", "same-core", *common)
    plan = run_json(*evaluate, "--dry-run")
    names = {
        environment["name"]
        for environment in plan["environments"]
        if environment["unavailable"] is None
    }
    assert "idle" in names
    assert len(names) in (6, 7)
    assert plan["runs"] == 2 * len(names)
    document = run_json(*evaluate)
    kinds = {environment["kind"] for environment in document["environments"]}
    assert kinds == {
        environment["kind"]
        for environment in plan["environments"]
        if environment["unavailable"] is None
    }
    assert set(document["unavailable"]) == {
        environment["name"]
        for environment in plan["environments"]
        if environment["unavailable"] is not None
    }
    assert document["complete"] is True
    assert document["runs"] == 2 * len(names)
    assert {"MEAN", "SOLO", "RIDGE", "auto"} == set(document["geomean_pct"])
    # The idle node is among the real environments, and this program takes no notice of limits.
    assert document["table"]["rate"]["SOLO"]["median_pct"] == pytest.approx(0.0)
    total = run_json("runs")["total"]
    again = run_json(*evaluate)
    assert again["campaign"] == document["campaign"]
    assert run_json("runs")["total"] == total


def test_ctrl_c_while_it_profiles_leaves_nothing_and_keeps_what_was_measured(
    kongming: Kongming, kongming_env: dict[str, str], store_url: str, tmp_path: Path, hasty: Path
) -> None:
    (tmp_path / "apps.toml").write_text(
        "".join(f'[apps.{name}]\ncommand = "{STUBBORN}"\n' for name in ("first", "second"))
    )
    evaluate = ("evaluate", "apps.toml", "--pairs", "--placement", "same-core", "--seed", "0")
    plan = json.loads(kongming(*evaluate, "--dry-run", "--json").stdout)
    assert plan["profile"]["apps"] == ["first", "second"]
    shown = " ".join(kongming(*evaluate, "--dry-run").stdout.split())
    assert re.search(r"about [0-9.]+ GB written, [0-9.]+ GB at the most\.", shown)
    assert steps(store_url) == []
    campaign = Campaign(tmp_path, kongming_env, evaluate)
    campaign.wait_until(PHASES["a load is induced"])
    err = campaign.ctrl_c()
    assert campaign.process.returncode == 130, err
    assert "Interrupted" in err
    assert campaign.left() == []
    assert scratch_folders(hasty) == []
    steps_before = steps(store_url)
    assert steps_before
    # The next one goes on, and runs no pairs before the profiles are complete.
    done = kongming(*evaluate, "--budget", "6ms", "--json")
    assert done.returncode == 1
    assert "before every application was profiled" in json.loads(done.stdout)["error"]["message"]
    assert len(steps_before) < len(steps(store_url))
    with Store.open(store_url) as store:
        campaigns = store.campaigns()
    assert [c.document["plan"] for c in campaigns if "plan" in c.document] == ["quick"]
    assert not any(c.finished_at for c in campaigns)
