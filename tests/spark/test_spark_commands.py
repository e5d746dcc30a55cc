"""``kongming spark inspect`` and ``conf``: what they print, and how they refuse."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from tests.conftest import Kongming
from tests.spark.event_lines import content, run
from tests.spark.record import LOGS

QUERIES = LOGS / "spark-4-queries.zstd"


def test_inspect_as_json(kongming: Kongming) -> None:
    document = json.loads(kongming("spark", "inspect", QUERIES, "--json").stdout)
    application = document["application"]
    assert (application["complete"], application["executors"], application["slots"]) == (True, 1, 2)
    slots = document["slots_s"]
    parts = slots["busy"] + slots["idle_no_job"] + slots["idle_few_tasks"]
    assert parts == pytest.approx(slots["total"])
    assert [limit["kind"] for limit in document["limits"]][-1] == "widest-stage"
    described = [(group["execution"], group["description"][:8]) for group in document["groups"]]
    assert described == [(0, "collect "), (1, "collect "), (None, ""), (None, "")]
    assert [finding["kind"] for finding in document["findings"]] == ["skipped-stages"]


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_inspect_fits_the_terminal(columns: int, kongming: Kongming) -> None:
    shown = kongming("spark", "inspect", QUERIES, env={"COLUMNS": str(columns)})
    assert shown.returncode == 0
    assert max(map(len, shown.stdout.splitlines())) <= columns
    assert "what limits it" in shown.stdout
    assert "note: 3 stages were skipped" in shown.stderr


def test_inspect_shows_the_longest_and_all(kongming: Kongming, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(content(run(stages=20)))
    shown = kongming("spark", "inspect", "log")
    assert "Stages: the longest 12 of 20; --all shows all" in shown.stdout
    assert "--all" not in kongming("spark", "inspect", "log", "--all").stdout


def test_inspect_draws_a_timeline(kongming: Kongming, tmp_path: Path) -> None:
    assert kongming("spark", "inspect", QUERIES, "--plot", "run.svg").returncode == 0
    drawn = (tmp_path / "run.svg").read_text()
    assert "busy slots" in drawn
    refused = kongming("spark", "inspect", QUERIES, "--plot", "run.txt")
    assert (refused.returncode, "Allowed: .svg or .png" in refused.stderr) == (2, True)


def test_inspect_lists_several_applications(kongming: Kongming, tmp_path: Path) -> None:
    for app in ("app-1", "app-2"):
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / app).write_bytes(content(run(app=app)))
    listed = json.loads(kongming("spark", "inspect", "logs", "--json").stdout)
    assert [each["id"] for each in listed["applications"]] == ["app-1", "app-2"]
    assert "--app ID" in kongming("spark", "inspect", "logs").stdout
    assert "(app-2)" in kongming("spark", "inspect", "logs", "--app", "app-2").stdout
    (tmp_path / "logs" / "again").write_bytes(content(run(app="app-2", stages=2)))
    message = " ".join(kongming("spark", "inspect", "logs").stdout.split())
    assert "app-2 has 2 logs, which --app does not tell apart. Give one of them" in message
    assert "logs/again, logs/app-2" in message or "logs/app-2, logs/again" in message
    assert "(app-2)" in kongming("spark", "inspect", "logs/again").stdout


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("nothing",), 2, "There is no file or folder nothing."),
        (("empty",), 2, "no events of a Spark application"),
        (("idle",), 3, "No task ran"),
        (("log", "--app", "app-7"), 2, "Did you mean app-1?"),
        (("log", "--attempt", "4"), 2, "no attempt named '4'"),
        (("log", "--missing", "2"), 2, "--missing"),
        (("dropped",), 3, "--missing"),
    ],
)
def test_inspect_refuses(
    words: tuple[str, ...], status: int, message: str, kongming: Kongming, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "idle").write_bytes(content(run(stages=0)))
    (tmp_path / "log").write_bytes(content(run()))
    events = [event for event in run() if not event["Event"].endswith("TaskEnd")]
    (tmp_path / "dropped").write_bytes(content(events))
    refused = kongming("spark", "inspect", *words)
    assert (refused.returncode, refused.stdout) == (status, "")
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_conf_says_the_same_in_every_form(kongming: Kongming) -> None:
    def printed(form: str) -> str:
        shown = kongming("spark", "conf", "--for", form, "--dir", "s3a://logs/here")
        assert shown.returncode == 0
        return shown.stdout

    settings = json.loads(kongming("spark", "conf", "--dir", "s3a://logs/here", "--json").stdout)[
        "settings"
    ]
    assert settings["spark.eventLog.dir"] == "s3a://logs/here"
    options = printed("spark-submit").split(" \\\n  --conf ")[1:]
    assert dict(option.split(" ")[0].split("=") for option in options) == settings
    lines = [line.split() for line in printed("yarn").splitlines()[1:]]
    assert {key: value for key, value in lines} == settings
    assert yaml.safe_load(printed("kubernetes"))["spec"]["sparkConf"] == settings
    assert json.loads(printed("emr"))[0]["Properties"] == settings
    policy = json.loads(printed("databricks"))
    document = json.loads(kongming("spark", "conf", "--for", "databricks", "--json").stdout)
    assert {f"spark_conf.{key}" for key in document["settings"]} == {
        key for key in policy if key.startswith("spark_conf.")
    }
    assert policy["cluster_log_conf.path"]["value"] == "s3a://logs/here"
    assert policy["cluster_log_conf.type"]["value"] == "S3"
    assert {key.removeprefix("spark_conf.") for key in policy} - set(settings) == {
        "cluster_log_conf.type",
        "cluster_log_conf.path",
    }


def test_conf_for_a_shell_quotes_a_folder(kongming: Kongming) -> None:
    shown = kongming("spark", "conf", "--dir", "/my logs/spark").stdout
    assert "spark.eventLog.dir=/my logs/spark" in shlex.split(shown)


def test_conf_refuses_an_empty_folder(kongming: Kongming) -> None:
    refused = kongming("spark", "conf", "--dir", "")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--dir: is empty." in refused.stderr
