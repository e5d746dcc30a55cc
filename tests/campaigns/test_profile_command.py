"""``kongming profile`` from end to end: good programs, bad ones, budgets and placements."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kongming.profiling.plans.placement import available
from kongming.profiling.plans.steps import SIGNATURE_ITERATIONS
from kongming.profiling.seat_groups import SiblingGroups
from kongming.records.fingerprint import COUPLING, PLACEMENTS
from kongming.store import Store
from tests.campaigns.conftest import LOADED, QUICK, Profiled, steps
from tests.conftest import Kongming

pytestmark = pytest.mark.real

STEPS = {"solo": 3, "induced": 2}
"""Runs of an application in a plan of two levels; a signature comes on top."""

SAME_CORE = (*QUICK, "--placement", "same-core")
"""What every machine has, one with a single CPU as well."""


def test_good_programs_are_run_alone_and_under_load_and_get_a_signature(
    profiled: Profiled,
) -> None:
    document = profiled.document
    assert (document["complete"], document["failed"]) == (True, 0)
    assert sorted(document["apps"]) == ["count", "lines", "rate"]
    with Store.open(profiled.env["KONGMING_STORE"]) as store:
        for app, report in document["apps"].items():
            runs = store.runs(app=app)
            assert Counter(run.kind for run in runs) == STEPS
            assert all(run.ok and run.campaign == document["campaign"] for run in runs)
            assert all(run.fingerprint is not None and run.fingerprint.times() for run in runs)
            assert [bool(run.levels) for run in runs] == [run.kind == "induced" for run in runs]
            (signature,) = store.signatures(app=app)
            assert signature.fingerprint.times()
            # A short program is looped for longer where a surrogate was not seen yet.
            assert signature.iterations >= SIGNATURE_ITERATIONS[0]
            steps = [run.step for run in runs] + [signature.step]
            assert len(set(steps)) == 6
            assert (report["runs"], report["failed"], report["signatures"]) == (5, 0, 1)
            assert report["solo_s"] > 0
            # One of them always prints the same rate; the others are really timed.
            assert (report["noise_pct"] == 0) == (app == "rate")
            assert (report["dropped"], report["reasons"]) == (None, [])
        assert {"level", "idle"} <= set(store.fingerprint_purposes().values())


@pytest.mark.thorough
def test_surrogates_of_full_size_measure_a_campaign(profiled_at_full_size: Profiled) -> None:
    document = profiled_at_full_size.document
    assert (document["complete"], document["failed"]) == (True, 0)
    with Store.open(profiled_at_full_size.env["KONGMING_STORE"]) as store:
        runs = store.runs()
        assert Counter(run.kind for run in runs) == STEPS
        assert all(run.fingerprint is not None and run.fingerprint.times() for run in runs)
        (signature,) = store.signatures()
        assert signature.fingerprint.times()
        assert all(run.passive[COUPLING] > 0.0 for run in runs)
        assert signature.fingerprint.passive[COUPLING] > 0.0


def test_a_slowdown_is_above_one_for_worse_where_higher_is_better(profiled: Profiled) -> None:
    report = profiled.document["apps"]["rate"]
    assert report["solo_s"] == pytest.approx(100.0)
    assert report["metric_unit"] == "ops/s"
    assert report["worst_slowdown"] == pytest.approx(2.0)
    runs = profiled.json("runs", "--app", "rate")["runs"]
    assert {(run["kind"], run["metric"], run["slowdown"]) for run in runs} == {
        ("solo", 100.0, 1.0),
        ("induced", 50.0, 2.0),
    }


def test_a_service_is_driven_by_its_load(profiled: Profiled) -> None:
    runs = profiled.json("runs", "--app", "lines")["runs"]
    assert {(run["metric_unit"], run["better"]) for run in runs} == {("lines/s", "higher")}
    assert all(run["metric"] > 0 and run["wall_s"] > 0 for run in runs)


def test_a_finished_campaign_is_not_measured_again(profiled: Profiled) -> None:
    before = profiled.json("runs")["total"]
    again = profiled.run("profile", profiled.file, *QUICK)
    assert again.returncode == 0
    assert "complete" in again.stdout
    assert "--again" in again.stdout
    report = profiled.json("profile", profiled.file, *QUICK)
    assert report["campaign"] == profiled.document["campaign"]
    assert report["complete"] is True
    assert profiled.json("runs")["total"] == before


def test_a_dry_run_tells_what_it_would_cost(profiled: Profiled) -> None:
    before = profiled.json("runs")["total"]
    plan = profiled.json("profile", profiled.file, *QUICK, "--dry-run")
    assert set(plan["runs"]) == {"count", "lines", "rate"}
    assert all(runs >= 5 + SIGNATURE_ITERATIONS[0] for runs in plan["runs"].values())
    assert plan["steps"] == 18
    assert plan["seconds"] > 0
    # How long they take is known by now, whatever their metric is.
    assert plan["assumed_seconds"] == {}
    shown = profiled.run("profile", profiled.file, *QUICK, "--dry-run").stdout
    for word in ("runs", "planned", "taken 3 times", "min", "GB written"):
        assert word in shown
    writing = profiled.json("profile", profiled.file, "--levels", "5", "--dry-run")
    assert writing["written_bytes"]["at_most"] > plan["written_bytes"]["at_most"]
    assert writing["written_bytes"]["likely"] < writing["written_bytes"]["at_most"]
    limited = profiled.json(
        "profile", profiled.file, "--levels", "5", "--dry-run", "--write-limit", "1M"
    )
    assert limited["written_bytes"] == {"likely": 1_000_000, "at_most": 1_000_000}
    assert profiled.json("runs")["total"] == before


@pytest.mark.thorough
def test_an_adaptive_plan_counts_every_start_and_resumes(
    kongming: Kongming, store_url: str, tmp_path: Path, hasty: Path
) -> None:
    file = tmp_path / "apps.toml"
    file.write_text('[apps.a]\ncommand = "sleep 0.4"\n')
    arguments = (file, "--plan", "adaptive", "--runs", "10", "--suite", "quick", *SAME_CORE[-2:])
    first = document_of(kongming("profile", *arguments, "--budget", "1ms", "--json"))
    assert not first["complete"]
    complete = document_of(kongming("profile", *arguments, "--json"))
    assert complete["complete"]
    with Store.open(store_url) as store:
        runs = store.runs(app="a")
        (signature,) = store.signatures(app="a")
    levels = [run.levels for run in runs if run.kind == "induced"]
    assert len(set(levels)) == len(levels) >= 4
    assert len({run.step for run in runs}) == len(runs)
    # One more than it counts may have begun when the signature's loop is stopped.
    assert len(runs) + signature.iterations <= 10
    for wrong, message in (
        (("--plan", "adaptive"), "--plan adaptive --runs N"),
        (("--runs", "10"), "--plan adaptive --runs N"),
        (("--plan", "adaptive", "--runs", "7"), "Allowed: 8 or more"),
        (("--plan", "adaptive", "--runs", "9", "--repeats", "2"), "only runs"),
        (("--write-limit", "20"), "'20' is not a size with a unit. Allowed: 1M or more"),
        (("--write-limit", "20k"), "'20k' is too small. Allowed: 1M or more"),
    ):
        refused = kongming("profile", file, *wrong, "--dry-run")
        assert refused.returncode == 2
        assert message in refused.stderr


def test_a_write_limit_stops_early_and_the_same_command_goes_on(
    kongming: Kongming, store_url: str, tmp_path: Path, hasty: Path
) -> None:
    file = tmp_path / "apps.toml"
    file.write_text('[apps.a]\ncommand = "sleep 0.1"\n')
    limited = document_of(kongming("profile", file, *SAME_CORE, "--write-limit", "1M", "--json"))
    assert not limited["complete"]
    assert limited["left_out_steps"] > 0
    assert limited["written_bytes"] > 0
    assert 0 < len(steps(store_url)) < 6


@pytest.mark.thorough
def test_a_budget_stops_early_and_the_same_command_goes_on(
    kongming: Kongming, store_url: str, tmp_path: Path, hasty: Path
) -> None:
    file = tmp_path / "apps.toml"
    file.write_text('[apps.a]\ncommand = "sleep 0.3"\n')
    command = ("profile", file, *SAME_CORE)

    first = kongming(*command, "--budget", "1.2s")
    assert first.returncode == 0, first.stderr
    assert "the same command continues" in first.stdout
    part = steps(store_url)
    assert 0 < len(part) < 6

    rest = document_of(kongming(*command, "--json"))
    assert (rest["complete"], rest["apps"]["a"]["runs"]) == (True, 5)
    assert steps(store_url) == list(range(6))

    complete = document_of(kongming(*command, "--json"))
    assert complete["apps"]["a"] == {"judged": rest["apps"]["a"]["judged"]}
    assert len(steps(store_url)) == 6

    again = document_of(kongming(*command, "--again", "--budget", "1.2s", "--json"))
    assert again["campaign"] != rest["campaign"]
    assert again["complete"] is False
    assert len(steps(store_url)) > 6


@pytest.mark.thorough
def test_one_that_does_not_work_at_all_is_left_out_at_once(
    kongming: Kongming, tmp_path: Path, hasty: Path
) -> None:
    file = tmp_path / "apps.toml"
    switch = tmp_path / "works"
    file.write_text(
        '[apps.good]\ncommand = "sleep 0.05"\n'
        f'[apps.bad]\ncommand = "echo no such luck; test -e {switch}"\n'
        '[apps.unset]\nsetup = "echo nothing to set up; exit 9"\ncommand = "true"\n'
    )
    done = kongming("profile", file, *SAME_CORE)
    assert done.returncode == 1
    for words in ("exit status 1", "no such luck", "exit status 9", "nothing to set up"):
        assert words in done.stdout
    assert "bad was left out" in done.stdout
    assert "unset was left out" in done.stdout
    assert "kongming train good" in done.stdout
    runs = stored(kongming)
    assert Counter(run["app"] for run in runs) == {"good": 5, "bad": 1, "unset": 1}

    # The reason may lie outside what is known of it: it gets another chance.
    switch.touch()
    resumed = kongming("profile", file, *SAME_CORE, "--json")
    assert resumed.returncode == 1
    seen = json.loads(resumed.stdout)["apps"]
    assert (seen["good"]["runs"], seen["bad"]["runs"], seen["bad"]["failed"]) == (5, 5, 0)
    assert (seen["unset"]["runs"], seen["unset"]["failed"]) == (1, 1)
    assert "nothing to set up" in seen["unset"]["dropped"]


@pytest.mark.thorough
def test_a_run_under_load_is_ended_once_its_program_has_had_its_patience(
    kongming: Kongming, tmp_path: Path, hasty: Path
) -> None:
    file = tmp_path / "apps.toml"
    file.write_text(
        f'[apps.stuck]\ncommand = "if {LOADED}; then sleep 600; else sleep 0.1; fi"\n'
        f'[apps.slow]\ncommand = "if {LOADED}; then sleep 1.3; else sleep 0.1; fi"\n'
        f'[apps.limited]\ncommand = "if {LOADED}; then sleep 600; else sleep 0.1; fi"\n'
        "timeout_s = 0.8\n"
    )
    done = kongming("profile", file, *SAME_CORE, "--json")
    assert done.returncode == 0, done.stderr
    runs = stored(kongming)

    def under_load(app: str) -> list[dict[str, Any]]:
        return [run for run in runs if run["app"] == app and run["kind"] == "induced"]

    alone = statistics.median(
        run["metric"] for run in runs if run["app"] == "stuck" and run["kind"] == "solo"
    )
    stuck = under_load("stuck")
    assert stuck
    for run in stuck:
        assert run["ok"]
        assert run["passive"]["cut_off"] == 1.0
        assert re.search(r"cut off at [0-9.]+ times its runtime alone", " ".join(run["warnings"]))
        # It was given more than the usual five times, or second, beyond its time alone.
        assert run["metric"] > 20 * alone
    slow = under_load("slow")
    assert slow
    for run in slow:
        assert "cut_off" not in run["passive"]
        assert run["metric"] > 1.3
    limited = under_load("limited")
    assert limited
    for run in limited:
        assert run["ok"]
        assert run["passive"]["cut_off"] == 1.0
        assert run["metric"] < 1.0


@pytest.mark.thorough
def test_what_fails_under_load_is_kept_with_its_reason_and_the_campaign_goes_on(
    kongming: Kongming, tmp_path: Path, hasty: Path
) -> None:
    file = tmp_path / "apps.toml"
    ways = {
        "fails": ("echo out of luck; exit 7", ("exit status 7", "out of luck")),
        "hangs": ("echo waiting; sleep 600; true", ("did not end within 5 s", "waiting")),
        "silent": ("echo nothing; exit 0", ("matches its metric", "nothing")),
        "killed": ("kill -9 $$", ("SIGKILL",)),
    }
    tables = [
        f'[apps.{name}]\ncommand = "if {LOADED}; then {way}; fi; echo took 3 s"\n'
        "metric = { pattern = 'took ([0-9]+) s', unit = \"s\" }\n"
        + ("timeout_s = 5\n" if name == "hangs" else "")
        for name, (way, _) in ways.items()
    ]
    once = "echo x >> {dir}/n; test $(wc -l < {dir}/n) -lt 2"
    tables.append(f'[apps.once]\ncommand = "{once}"\n[apps.good]\ncommand = "true"\n')
    file.write_text("".join(tables))

    done = kongming("profile", file, *SAME_CORE, "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["complete"] is True
    runs = stored(kongming)
    for name, (_, words) in ways.items():
        seen = document["apps"][name]
        assert (seen["runs"], seen["failed"], seen["signatures"]) == (5, 2, 1)
        assert seen["dropped"] is None
        assert seen["solo_s"] == pytest.approx(3.0)
        for word in words:
            assert word in " ".join(seen["reasons"])
        mine = [run for run in runs if run["app"] == name]
        assert all(run["ok"] == (run["kind"] == "solo") for run in mine)
        assert all(run["ok"] or (run["error"] and run["metric"] is None) for run in mine)
    # It worked once: its place in the campaign is kept, whatever comes of it.
    later = document["apps"]["once"]
    assert (later["runs"], later["failed"], later["signatures"]) == (6, 5, 0)
    assert Counter(r["kind"] for r in runs if r["app"] == "once") == STEPS | {"signature": 1}
    assert (document["apps"]["good"]["runs"], document["apps"]["good"]["failed"]) == (5, 0)
    assert document["failed"] == 2 * len(ways) + 5
    failed = json.loads(kongming("runs", "--failed", "--json").stdout)
    assert failed["total"] == document["failed"]
    # A line break in a cell was shown as an escape.
    assert "\\n" not in kongming("runs", "--failed").stdout


@pytest.mark.thorough
def test_on_one_cpu_there_is_the_same_core(kongming: Kongming, tmp_path: Path, hasty: Path) -> None:
    file = tmp_path / "apps.toml"
    file.write_text('[apps.a]\ncommand = "true"\n')
    cpu = min(os.sched_getaffinity(0))

    def on_one_cpu() -> None:
        os.sched_setaffinity(0, {cpu})

    refused = kongming("profile", file, *QUICK, preexec_fn=on_one_cpu)
    assert refused.returncode == 2
    for words in ("placement", "'cross-core'", "Allowed: same-core", "one CPU"):
        assert words in refused.stderr
    done = document_of(kongming("profile", file, *SAME_CORE, "--json", preexec_fn=on_one_cpu))
    assert done["apps"]["a"]["signatures"] == 1
    with SiblingGroups() as groups:
        equal = groups.active
    for run in stored(kongming):
        assert run["placement"] == "same-core"
        warned = any("no sibling cgroups of equal weight" in text for text in run["warnings"])
        assert warned is not equal


def test_a_placement_that_does_not_exist_here_names_those_that_do(
    kongming: Kongming, tmp_path: Path, profiled: Profiled
) -> None:
    with Store.open(profiled.env["KONGMING_STORE"]) as store:
        (node,) = store.nodes()
    reasons = available(node)
    missing = [name for name in PLACEMENTS if reasons[name] is not None]
    if not missing:
        pytest.skip("this machine has every placement")
    done = profiled.run("profile", profiled.file, *QUICK, "--placement", missing[-1])
    assert done.returncode == 2
    assert done.stdout == ""
    possible = ", ".join(name for name, reason in reasons.items() if reason is None)
    assert f"Allowed: {possible}" in done.stderr


def document_of(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def stored(kongming: Kongming) -> list[dict[str, Any]]:
    return list(document_of(kongming("runs", "--json"))["runs"])
