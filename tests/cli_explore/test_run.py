"""``kongming explore run`` with real processes: rows, resuming, refusals, and an end that leaves
nothing."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from kongming.files.line_file import LineFile
from kongming.profiling.runs.page_cache import FILES_ONLY, WHOLE_NODE
from tests.conftest import Kongming

APPS = """
[apps.job]
command = "test {n} -lt 8 && sleep {n}e-3 && echo $MODE {dir}"
env = { MODE = "{codec}" }
check = "^(gz|xz) /"
"""
SPACE = """
n = [1, 2, 3, 4, 5, 6, 7, 8]
codec = { choices = ["gz", "xz"] }
"""
OUT = ("--out", "runs.csv")


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "apps.toml").write_text(APPS)
    (tmp_path / "space.toml").write_text(SPACE)
    return "apps.toml", "--app", "job", "--space", "space.toml", "--policy", "uni"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run(kongming: Kongming, *args: str, status: int = 0) -> dict[str, Any]:
    done = kongming("explore", "run", *args, "--json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_rows_resume_and_go_on(kongming: Kongming, job: tuple[str, ...], tmp_path: Path) -> None:
    first = run(kongming, *job, *OUT, "--budget", "6", "--jobs", str(len(os.sched_getaffinity(0))))
    assert (first["resumed"], first["measured"], first["runs"]) == (0, 6, 6)
    table = rows(tmp_path / "runs.csv")
    rest = run(kongming, *job, *OUT, "--budget", "16")
    assert (rest["resumed"], rest["measured"]) == (6, 10)
    everything = rows(tmp_path / "runs.csv")
    assert everything[:6] == table
    assert len({(row["n"], row["codec"]) for row in everything}) == 16
    for row in everything:
        failed = row["n"] == "8"
        assert row["status"] == ("failed" if failed else "ok")
        assert (row["seconds"] == "") == failed
        assert row["error"].startswith("exit status 1") == failed
        assert float(row["cost"]) > float(row["seconds"] or 0.0)
    assert [each["at"]["n"] for each in rest["failed"] + first["failed"]] == [8, 8]
    assert run(kongming, *job, *OUT, "--budget", "16")["measured"] == 0
    assert list((tmp_path / "io").iterdir()) == []


@contextmanager
def started(env: dict[str, str], folder: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kongming.cli.main", "explore", "run", *args]
    process = subprocess.Popen(
        command, cwd=folder, env=env, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.real
def test_killed_and_interrupted(
    kongming: Kongming, kongming_env: dict[str, str], job: tuple[str, ...], tmp_path: Path
) -> None:
    """After kill -9 nothing is lost or doubled; Ctrl-C leaves no process and no file."""
    slow = (tmp_path / "apps.toml").read_text().replace("sleep {n}e-3", "sleep 0.2{n}")
    (tmp_path / "apps.toml").write_text(slow)
    out = tmp_path / "runs.csv"
    for end in (signal.SIGINT, signal.SIGKILL):
        before = len(rows(out)) if out.exists() else 0
        with started(
            kongming_env, tmp_path, *job, *OUT, "--budget", "10", "--jobs", "1"
        ) as process:
            wait_for(lambda before=before: out.exists() and len(rows(out)) > before + 1)
            own = psutil.Process(process.pid).children(recursive=True)
            rows_before = rows(out)
            process.send_signal(end)
            _, message = process.communicate(timeout=30)
        assert process.returncode == (130 if end == signal.SIGINT else -end)
        assert rows(out)[: len(rows_before)] == rows_before
        wait_for(lambda own=own: not any(each.is_running() for each in own))
        if end == signal.SIGINT:
            assert "Interrupted" in message
            assert f"{len(rows(out))} runs are kept" in message
            assert "the same command goes on" in message
            assert list((tmp_path / "io").iterdir()) == []
    with out.open("a") as file:
        file.write("3,gz,0.5")  # what a process that was killed may leave
    rows_before = rows(out)[:-1]
    document = run(kongming, *job, *OUT, "--budget", "10")
    assert document["resumed"] == len(rows_before)
    table = rows(out)
    assert table[: len(rows_before)] == rows_before
    assert len({(row["n"], row["codec"]) for row in table}) == len(table) == 10


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("apps.toml", "sleep {n}", "sleep 0{n}", "row 1 (line 2), column 'identity'"),
        ("apps.toml", 'MODE = "{codec}"', 'MODE = "x{codec}"', "the program, its set-up or"),
        ("space.toml", ", 8]", ", 9]", "row 1 (line 2), column 'space'"),
        ("space.toml", "codec", "coder", "stands for no parameter of the space. Found '{codec}'"),
        ("runs.csv", "n,codec", "k,codec", "a table with other columns"),
        ("space.toml", "codec =", "level = [1, 2]\ncodec =", "space: level: has no placeholder"),
        ("apps.toml", "{n} -lt", "{m} -lt", "apps.job.command: stands for no parameter"),
        ("space.toml", ", 8]", ', "8"]', "n: mixes kinds of values"),
        ("space.toml", "n = [1, 2, 3, 4, 5, 6, 7, 8]", "n = []", "n: has no values"),
        ("space.toml", "\nn", '\nforbid = ["n > 0", "n > 2"]\nn', "n > 0"),
    ],
)
def test_another_program_space_or_table_is_refused(
    kongming: Kongming,
    job: tuple[str, ...],
    tmp_path: Path,
    file: str,
    old: str,
    new: str,
    message: str,
) -> None:
    run(kongming, *job, *OUT, "--budget", "2")
    path = tmp_path / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    content = (tmp_path / "runs.csv").read_text()
    document = run(kongming, *job, *OUT, "--budget", "4", status=2)
    assert message in document["error"]["message"]
    assert (tmp_path / "runs.csv").read_text() == content


def test_a_table_is_appended_to_by_one_command_at_a_time(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    table = tmp_path / "runs.csv"
    with closing(LineFile(table)):
        error = run(kongming, *job, *OUT, "--budget", "2", status=2)["error"]
        assert "Another command appends to this table" in error["message"]
    run(kongming, *job, *OUT, "--budget", "2")
    with table.open("a") as file:
        file.write("3,gz,0.5")  # what a process that was killed may leave
    done = kongming("explore", "run", *job, *OUT, "--budget", "2")
    assert done.returncode == 0
    assert "not complete, and was removed: '3,gz,0.5'" in " ".join(done.stderr.split())


def test_runs_get_cpus_of_their_own_or_are_refused(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    cpus = len(os.sched_getaffinity(0))
    document = run(kongming, *job, *OUT, "--budget", "4", "--jobs", str(cpus + 1), status=2)
    assert f"this process may use {cpus}" in document["error"]["message"]
    assert not (tmp_path / "runs.csv").exists()
    app = (tmp_path / "apps.toml").read_text()
    seen = "grep Cpus_allowed_list /proc/self/status"
    (tmp_path / "apps.toml").write_text(app.replace("echo $MODE", f"{seen} && echo $MODE"))
    run(kongming, *job, *OUT, "--budget", "4", "--jobs", str(cpus))


def test_budgets_of_time_and_of_cost(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "apps.toml").write_text(APPS.replace("sleep {n}e-3", "sleep 0.1"))
    timed = run(kongming, *job, "--out", "timed.csv", "--budget", "0.5s", "--batch", "1")
    assert timed["budget_in"] == "cost"
    assert 1 <= timed["measured"] <= 6
    spent = sum(float(row["cost"]) for row in rows(tmp_path / "timed.csv"))
    assert timed["spent"] == pytest.approx(spent, abs=1e-4)
    cost = ("--cost", "n", "--budget", "cost 20")
    priced = run(kongming, *job, "--out", "priced.csv", *cost, "--batch", "2")
    paid = sum(float(row["n"]) for row in rows(tmp_path / "priced.csv"))
    assert priced["spent"] == paid
    assert 12 < paid <= 20
    for wrong in ("0", "1", "cost -1", "cost", "many"):
        assert kongming("explore", "run", *job, *OUT, "--budget", wrong).returncode == 2


def test_runs_that_cost_nothing_take_a_little_of_what_is_left(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    """As rows of a cache."""
    run(kongming, *job, *OUT, "--budget", "2")
    known = rows(tmp_path / OUT[1])
    for row, cost in zip(known, ("9.9", "0"), strict=True):
        row["cost"] = cost
    with (tmp_path / OUT[1]).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(known[0]))
        writer.writeheader()
        writer.writerows(known)
    # Both runs are a whole batch: nothing of it is awaited.
    document = run(kongming, *job, *OUT, "--budget", "10s", "--batch", "2")
    assert document["measured"] == 0
    assert document["spent"] == pytest.approx(9.9)
    assert document["left"] == pytest.approx(0.09)
    warned = " ".join(document["warnings"])
    assert "What is left of the budget, 0.09 seconds, pays for no further run." in warned
    assert "1 run that cost nothing took a thousandth of the budget" in warned


@pytest.mark.thorough
def test_metrics_of_any_sign_and_the_seconds_next_to_them(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    profit = 'command = "test {n} -lt 8 && echo $MODE profit $(({n} - 4))"'
    apps = [profit if line.startswith("command") else line for line in APPS.splitlines()]
    apps = [line.replace("(gz|xz) /", "(gz|xz) profit") for line in apps]
    metric = "[apps.job.metric]\npattern = 'profit (-?[0-9]+)'\nunit = 'USD'\nbetter = 'higher'\n"
    (tmp_path / "apps.toml").write_text("\n".join([*apps, metric]))
    document = run(kongming, *job, *OUT, "--budget", "16")
    assert document["target"] == "metric"
    for row in rows(tmp_path / "runs.csv"):
        failed = row["n"] == "8"
        assert row["metric"] == ("" if failed else str(int(row["n"]) - 4))
        assert (row["seconds"] == "") == failed
        assert float(row["cost"]) >= float(row["seconds"] or 0.0)
    for target in ("metric", "seconds"):
        fitted = kongming(
            "explore", "fit", "space.toml", "runs.csv", "--target", target, "--out", "m.json"
        )
        assert fitted.returncode == 0, fitted.stderr
        assert "ignored" not in fitted.stderr
    # Its columns are no parameters of a replay.
    replayed = kongming(
        *("explore", "replay", "runs.csv", "--target", "metric", "--budget", "6"),
        *("--policy", "uni", "--repeats", "1", "--json"),
    )
    assert replayed.returncode == 0, replayed.stderr


def test_a_budget_of_time_is_passed_by_a_run_and_not_by_a_batch(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    """How long runs take is not known before the first of a batch has ended."""
    app = APPS.replace("-lt 8 && sleep {n}e-3", "-lt 9 && sleep 0.5")
    (tmp_path / "apps.toml").write_text(app)
    document = run(kongming, *job, *OUT, "--budget", "1s")
    *earlier, last = (float(row["cost"]) for row in rows(tmp_path / OUT[1]))
    assert document["measured"] == len(earlier) + 1
    assert document["spent"] == pytest.approx(sum(earlier) + last, abs=1e-4)
    # However long they took: the last run passed it, and those before it did not.
    assert sum(earlier) < 1.0 <= document["spent"]
    assert run(kongming, *job, *OUT, "--budget", "1s")["measured"] == 0
    assert run(kongming, *job, *OUT, "--budget", "1.6s")["measured"] <= 2


def test_a_time_is_no_budget_of_other_costs(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    """Two hours would be 7,200 of whatever --cost counts."""
    error = run(kongming, *job, *OUT, "--budget", "2h", "--cost", "n", status=2)["error"]
    assert error["message"].startswith("--budget: is a time, and --cost")
    assert "'cost N' in the units of --cost" in error["message"]
    assert not (tmp_path / "runs.csv").exists()


def test_costs_that_some_point_does_not_have_are_refused_before_the_first_run(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "apps.toml").write_text(APPS.replace("sleep {n}", "sleep 0{level}{n}"))
    level = "level = { from = 1, to = 9, when = \"codec == 'xz'\" }\n"
    (tmp_path / "space.toml").write_text(SPACE + level)
    out = (*job[:-2], *OUT, "--budget", "8")
    error = run(kongming, *out, "--cost", "level * 2", status=2)["error"]
    assert "level * 2 is not defined at" in error["message"]
    assert not (tmp_path / "runs.csv").exists()
    error = run(kongming, *job, *OUT, "--budget", "8", "--cost", "n", status=2)["error"]
    assert "--cost: is looked at by neither the policy uni" in error["message"]


def test_all_runs_failed(kongming: Kongming, job: tuple[str, ...], tmp_path: Path) -> None:
    app = (tmp_path / "apps.toml").read_text().replace("-lt 8", "-lt 0")
    (tmp_path / "apps.toml").write_text(app)
    document = run(kongming, *job, *OUT, "--budget", "3", status=3)
    assert "All 3 runs failed: 3 times: exit status 1" in document["error"]["message"]
    assert len(rows(tmp_path / "runs.csv")) == 3


def test_machines_and_scale_use_the_runners_of_scale_run(
    kongming: Kongming, tmp_path: Path
) -> None:
    (tmp_path / "apps.toml").write_text(
        '[apps.job]\ncommand = "test {machines} -lt 4 -o {mode} = fast && sleep 0.0{machines}"\n'
    )
    (tmp_path / "space.toml").write_text(
        'machines = [1, 2, 4]\nscale = [0.5, 1.0]\nmode = { choices = ["fast", "slow"] }\n'
        'forbid = ["machines == 2 and scale < 1"]\n'
    )
    args = ("apps.toml", "--space", "space.toml", *OUT)
    document = run(kongming, *args, "--budget", "10", status=2)
    assert "space: scale: has no placeholder" in document["error"]["message"]
    app = (tmp_path / "apps.toml").read_text().replace("sleep 0.0", "echo {scale} && sleep 0.0")
    (tmp_path / "apps.toml").write_text(f'{app}[apps.other]\ncommand = "true"\n')
    document = run(kongming, *args, "--budget", "10", status=2)
    assert "--app: is missing. Allowed: one of job, other" in document["error"]["message"]
    (tmp_path / "apps.toml").write_text(app)
    document = run(kongming, *args, "--budget", "10")
    assert document["app"] == "job"
    assert (document["runs"], len(document["failed"])) == (10, 2)
    table = rows(tmp_path / "runs.csv")
    assert {row["how"] for row in table} <= {"cgroup 0.125", "process"}
    assert {float(row["cost"]) > 0.0 for row in table} == {True}
    fitted = kongming("scale", "fit", "runs.csv", "--model", "ernest", "--json")
    assert fitted.returncode == 0, fitted.stderr
    assert json.loads(fitted.stdout)["runs"] == 8
    complete = (tmp_path / "runs.csv").read_text()
    (tmp_path / "runs.csv").write_text(complete.replace("process", "cgroup 0.125"))
    # All ten are there.
    assert run(kongming, *args, "--budget", "10", "--share", "0.25")["resumed"] == 10
    refused = run(kongming, *args, "--budget", "11", "--share", "0.25", status=2)
    assert "--share: The machines of the table had 0.125 CPUs" in refused["error"]["message"]
    refused = run(kongming, *args, "--budget", "10", "--jobs", "2", status=2)
    assert "one after the other" in refused["error"]["message"]


def test_a_budget_that_pays_for_no_model(kongming: Kongming, job: tuple[str, ...]) -> None:
    prices = ("--cost", "n + 0.5")
    refused = run(kongming, *job, *OUT, "--budget", "cost 2.9", *prices, status=2)["error"]
    # Of the cheapest two points, which differ in the codec.
    assert refused["message"].startswith("budget: does not pay for 2 runs")
    assert "3 or more" in refused["message"]
    few = run(kongming, *job, *OUT, "--budget", "0.001s")
    assert few["measured"] == 1
    assert "1 point with a value: a model needs 2" in few["warnings"][-1]


def test_another_program_behind_a_placeholder_is_refused(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    for codec in ("gz", "xz"):
        program = tmp_path / f"pack-{codec}"
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
    command = 'command = ["{dir}/../pack-{codec}", "{n}"]'.replace("{dir}/..", str(tmp_path))
    (tmp_path / "apps.toml").write_text(f"[apps.job]\n{command}\n")
    run(kongming, *job, *OUT, "--budget", "2")
    assert run(kongming, *job, *OUT, "--budget", "3")["resumed"] == 2
    (tmp_path / "pack-xz").write_text("#!/bin/sh\nsleep 0.001\n")
    refused = run(kongming, *job, *OUT, "--budget", "4", status=2)["error"]
    assert "column 'identity'" in refused["message"]


def test_a_program_that_preparing_makes_is_resumed(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    program = f"{tmp_path}/made-{{codec}}"
    (tmp_path / "apps.toml").write_text(
        f'[apps.job]\ncommand = ["{program}", "{{n}}"]\nprepare = "cp /bin/echo {program}"\n'
    )
    run(kongming, *job, *OUT, "--budget", "2")
    assert run(kongming, *job, *OUT, "--budget", "4")["resumed"] == 2


def test_a_campaign_whose_runs_were_all_ended(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    app = '[apps.job]\ncommand = "sleep {n}; echo {codec}"\ntimeout_s = 0.2\n'
    (tmp_path / "apps.toml").write_text(app)
    ended = run(kongming, *job, *OUT, "--budget", "2", status=3)["error"]
    assert "2 of 2 were ended at their time limit" in ended["message"]
    assert [row["status"] for row in rows(tmp_path / "runs.csv")] == ["timeout"] * 2


def test_another_script_that_the_command_names_is_refused(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    """What runs write, and read, under a name in the command is no part of the program."""
    for name, text in (("prog-gz.sh", "cat $1\n"), ("prog-xz.sh", "cat $1\n"), ("log", "")):
        (tmp_path / name).write_text(text)
    (tmp_path / "input").write_text("1")
    command = "sh -u prog-{codec}.sh input > out-{n}; echo {n} | tee -a log"
    (tmp_path / "apps.toml").write_text(f"[apps.job]\ncommand = '{command}'\n")
    for budget in (2, 4):
        run(kongming, *job, *OUT, "--budget", str(budget))
    content = (tmp_path / "runs.csv").read_text()
    assert (tmp_path / "log").read_text().count("\n") >= 4
    for name in ("prog-gz.sh", "prog-xz.sh"):
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(f"{before}# another\n")
        refused = run(kongming, *job, *OUT, "--budget", "6", status=2)["error"]
        assert "column 'identity': the content of a script" in refused["message"]
        (tmp_path / name).write_text(before)
    assert (tmp_path / "runs.csv").read_text() == content
    (tmp_path / "input").write_text("2")
    assert run(kongming, *job, *OUT, "--budget", "6")["resumed"] == 4


def test_a_table_that_was_begun_before_scripts_counted_goes_on(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "prog.sh").write_text("exit 0\n")
    command = 'command = "sh prog.sh {n} {codec}"'
    (tmp_path / "apps.toml").write_text(f"[apps.job]\n{command}\n")
    identity = run(kongming, *job, *OUT, "--budget", "2")["identity"]
    table = tmp_path / "runs.csv"
    assert table.read_text().count(f",{identity},") == 2
    table.write_text(table.read_text().replace(identity, identity.partition("+")[0]))
    assert run(kongming, *job, *OUT, "--budget", "4")["resumed"] == 2
    (tmp_path / "prog.sh").write_text("exit  0\n")
    refused = run(kongming, *job, *OUT, "--budget", "6", status=2)["error"]
    assert "row 3 (line 4), column 'identity'" in refused["message"]


def test_a_cold_cache_that_stays_warm_is_a_warning(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "data-gz").mkdir()
    (tmp_path / "data-xz").mkdir()
    app = "[apps.job]\ncommand = 'ls data-{codec} | head -{n}'\n"
    (tmp_path / "apps.toml").write_text(app)
    assert run(kongming, *job, "--out", "warm.csv", "--budget", "2")["warnings"] == []
    (tmp_path / "apps.toml").write_text(f"{app}cache = 'cold'\n")
    caution, evicted = run(kongming, *job, *OUT, "--budget", "3")["warnings"]
    assert caution.startswith("job is to start with a cold cache, but files below data-")
    assert evicted in (FILES_ONLY, WHOLE_NODE)
    done = kongming("explore", "run", *job, *OUT, "--budget", "4")
    assert " ".join(done.stderr.split()).count("is to start with a cold cache") == 1


def test_what_was_ended_did_not_fail(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    command = "case {n} in [1-6]) ;; 7) sleep 60;; *) exit 1;; esac; echo {codec}"
    (tmp_path / "apps.toml").write_text(f"[apps.job]\ncommand = '{command}'\ntimeout_s = 1\n")
    document = run(kongming, *job, *OUT, "--budget", "16")
    assert {each["at"]["n"] for each in document["failed"]} == {8}
    assert all("exit status 1" in each["error"] for each in document["failed"])
    assert {each["at"]["n"] for each in document["timed_out"]} == {7}
    assert all(each["at_least"] == 1.0 for each in document["timed_out"])


def test_that_enough_is_known_is_no_warning(
    kongming: Kongming, job: tuple[str, ...], tmp_path: Path
) -> None:
    """All points were run when it stops, which is not why."""
    (tmp_path / "space.toml").write_text("n = { from = 10, to = 39 }\n")
    (tmp_path / "apps.toml").write_text(
        "[apps.job]\ncommand = 'echo x 10{n}'\n"
        "metric = { pattern = 'x ([0-9]+)', unit = 'x', better = 'higher' }\n"
    )
    document = run(kongming, *job, *OUT, "--budget", "60", "--stop-pct", "100%")
    assert document["stopped"]
    assert document["spent"] == 30
    assert document["warnings"] == []
    document = run(kongming, *job, *OUT, "--budget", "60")
    assert "The space has no further point: all 30 were run" in document["warnings"][0]
