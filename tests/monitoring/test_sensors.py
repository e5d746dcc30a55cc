"""What batch systems read from a program of theirs, by the rules of their manuals."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import classad2
import htcondor2
import pytest

from kongming.cli.main import run
from kongming.cli.sensor.question import SensorQuestion, ask
from kongming.records.answers import NodeReport, RankedNode
from kongming.records.prediction import Interval
from kongming.sensors.gridengine import report
from kongming.sensors.htcondor import classad
from kongming.sensors.node_figures import NodeFigures, figures
from tests import builders
from tests.conftest import Kongming
from tests.docs import commands
from tests.monitoring.stack import DEPLOY, ROOT
from tests.service_contract.conftest import local_url, trained_store

__all__ = ["local_url", "trained_store"]

NO_CREDENTIALS = {"KONGMING_CA": "", "KONGMING_TOKEN_FILE": ""}
"""Against those that a shipped sensor names, which the machine of the tests lacks."""

ASK = ("--app", "chaser", "--app", "nobody-trained-it")


def attributes(text: str) -> dict[str, str]:
    """As a startd reads the output of a cron job: ``name = value`` up to a line with a hyphen.
    Names and values are those that HTCondor's own library reads."""
    *lines, last = text.splitlines()
    assert re.fullmatch(r"-\s*(\w+\s+)?(update:(true|false))?", last)
    parsed = {}
    for line in lines:
        match = re.fullmatch(r'([A-Za-z_]\w*) = (-?[\d.]+|true|false|"(?:[^"\\]|\\.)*")', line)
        assert match, line
        parsed[match[1]] = match[2]
    read = classad2.parseOne("\n".join(lines))
    assert dict(read) == {name: json.loads(value) for name, value in parsed.items()}
    return parsed


def loads(text: str) -> list[list[tuple[str, str, float]]]:
    """As execd reads a sensor's output: reports of (host, name, value)."""
    reports: list[list[tuple[str, str, float]]] = []
    inside = False
    for line in text.splitlines():
        if line == "begin":
            assert not inside
            inside = True
            reports.append([])
        elif line == "end":
            assert inside
            inside = False
        else:
            assert inside, line
            host, name, value = line.split(":")
            assert " " not in line
            reports[-1].append((host, name, float(value)))
    assert not inside
    return reports


def test_a_startd_reads_what_is_known_of_its_machine(local_url: str, kongming: Kongming) -> None:
    def ask(node: str) -> dict[str, str]:
        done = kongming("sensor", "htcondor", "--store", local_url, "--node", node, *ASK)
        assert (done.returncode, done.stderr) == (0, "")
        return attributes(done.stdout)

    busy = ask("busy")
    assert float(busy["KongmingSlowdown"]) > 1.1
    lost = 1.0 - 1.0 / float(busy["KongmingSlowdown"])
    assert float(busy["KongmingLostShare"]) == pytest.approx(lost, abs=1e-3)
    assert (
        float(busy["KongmingSlowdownUpper_chaser"]) > float(busy["KongmingSlowdown_chaser"]) > 1.1
    )
    assert "KongmingSlowdown_nobody_trained_it" not in busy
    # Its fingerprint is two hours old: what there is now is not known, and not said to be idle.
    dozing = ask("dozing")
    assert float(dozing["KongmingFingerprintAge"]) > 7000.0
    assert not [name for name in dozing if "Slowdown" in name or "Lost" in name]
    done = kongming("sensor", "htcondor", "--store", local_url, "--node", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr
    assert "busy" in done.stderr


def test_what_the_page_has_a_job_say_is_true_of_what_is_known_alone(
    local_url: str, kongming: Kongming
) -> None:
    page = (ROOT / "docs/other-schedulers.md").read_text()
    expressions = dict(re.findall(r"^(rank|requirements) += (.*)$", page, re.MULTILINE))

    def evaluated(node: str) -> list[object]:
        done = kongming("sensor", "htcondor", "--store", local_url, "--node", node, *ASK)
        machine = classad2.parseOne(done.stdout.rpartition("-")[0])
        written = (expressions[name].replace("sort", "chaser") for name in ("rank", "requirements"))
        return [classad2.ExprTree(expression).eval(machine) for expression in written]

    rank, accepted = evaluated("calm")
    assert accepted is True
    slowed_rank, accepted = evaluated("wild")
    assert accepted is False
    assert 0.0 < slowed_rank < rank
    # Neither is met, and the rank counts 0.
    assert evaluated("dozing") == [classad2.Value.Undefined] * 2


def test_execd_asks_by_lines_and_ends_the_sensor(local_url: str, tmp_path: Path) -> None:
    program = tmp_path / "kongming"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m kongming.cli.main "$@" --store "{local_url}" '
        "--node busy --app chaser --host n1.example\n"
    )
    program.chmod(0o755)
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [DEPLOY / "gridengine/kongming-load-sensor"],
        input="\n\nquit\n\n",
        env=os.environ | {"KONGMING": str(program), "PYTHONPATH": path} | NO_CREDENTIALS,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = loads(done.stdout)
    names = {name: value for host, name, value in first if host == "n1.example"}
    # The shipped sensor asks for an application that is not trained there, too.
    assert set(names) == {"kongming_slowdown", "kongming_lost", "kongming_chaser"}
    assert names["kongming_slowdown"] > 1.1 > names["kongming_lost"]
    assert [name for _, name, _ in second] == [name for _, name, _ in first]


def test_while_the_server_is_away_a_report_is_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\nquit\n"))
    arguments = ("--server", "127.0.0.1:9", "--timeout", "1s", "--node", "n1")
    assert run(["sensor", "gridengine", *arguments]) == 0
    out, err = capsys.readouterr()
    assert loads(out) == [[], []]
    assert err.count("kongming sensor: ") == 1


def test_names_and_texts_keep_to_what_readers_take() -> None:
    node_figures = NodeFigures("ready", 1, 3.0, 2.0, 0.5, {"my.app-2": (1.5, 2.0)})
    read = attributes(classad(node_figures, 1e9))
    assert read["KongmingSlowdown_my_app_2"] == "1.5000"
    assert ("n1", "kongming_my_app_2", 1.5) in loads(report("n1", node_figures))[0]


def test_at_least_so_much_has_no_upper_end_and_keeps_no_limit() -> None:
    known = Interval(1.5, 1.2, 2.0)
    ranked = RankedNode("n", "n", 0, 0.0, known)
    open_ = replace(ranked, slowdown=replace(known, at_least=True))
    node = NodeReport(builders.node(), "ready", last_fingerprint_at=1e9)
    node_figures = figures(node, {"known": ranked, "open": open_}, 1e9, 60.0)
    read = attributes(classad(node_figures, 1e9))
    assert read["KongmingSlowdown_open"] == read["KongmingSlowdown_known"] == "1.5000"
    assert (read["KongmingSlowdownAtLeast_open"], read["KongmingSlowdownAtLeast_known"]) == (
        "true",
        "false",
    )
    assert "KongmingSlowdownUpper_known" in read
    assert "KongmingSlowdownUpper_open" not in read
    # There a job's limit is compared with the value itself: without one it waits.
    assert loads(report("n1", node_figures)) == [[("n1", "kongming_known", 1.5)]]


def test_values_that_would_have_one_name_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = ("--server", "127.0.0.1:9", "--node", "n1")
    for sensor, apps in (("htcondor", ("my.app", "My-App")), ("gridengine", ("lost",))):
        assert run(["sensor", sensor, *away, *(f"--app={app}" for app in apps)]) == 2
        other = "my.app" if apps[1:] else "the"
        assert f"--app: would have the attribute of {other}" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert run(["sensor", "gridengine", *away, "--host", "n1:x"]) == 2
    assert capsys.readouterr().out == ""


def test_of_nodes_of_one_name_the_one_in_service_is_reported() -> None:
    class Fleet:
        def nodes(self) -> list[NodeReport]:
            ids = {"old": "silent", "new": "ready"}
            return [
                NodeReport(replace(builders.node(), id=id_, name="n1"), state)  # type: ignore[arg-type]
                for id_, state in ids.items()
            ]

    states = [ask(Fleet(), SensorQuestion(node, (), 60.0)).state for node in ("n1", "old")]  # type: ignore[arg-type]
    assert states == ["ready", "silent"]


@pytest.mark.parametrize("state", ["silent", "suspect", "unreferenced"])
def test_only_its_state_is_reported_of_a_node_that_is_not_in_service(state: str) -> None:
    node = NodeReport(builders.node(), state, last_fingerprint_at=99.0, general_slowdown=2.0)  # type: ignore[arg-type]
    node_figures = figures(node, {}, now=100.0, max_age_s=60.0)
    assert (node_figures.state, node_figures.slowdown, node_figures.lost_share) == (
        state,
        None,
        None,
    )


def test_what_is_shipped_and_documented_is_of_options_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONDOR_CONFIG", str(DEPLOY / "htcondor/kongming.conf"))
    htcondor2.reload_config()
    job = {
        name: htcondor2.param[f"STARTD_CRON_KONGMING_{name}"]
        for name in ("ARGS", "ENV", "KILL", "MODE", "PERIOD")
    }
    assert htcondor2.param["STARTD_CRON_JOBLIST"].split() == ["KONGMING"]
    assert commands.unknown(["kongming", *job["ARGS"].split()]) == []
    # complex(5): "request relop value", and a request is the most that a job bears.
    sensor = (DEPLOY / "gridengine/kongming-load-sensor").read_text()
    complexes = re.findall(r"^#   kongming_\w+ +\w+ +DOUBLE +(\S+)", sensor, re.MULTILINE)
    assert complexes == [">="] * 3
    pages = commands.in_page(ROOT / "docs/other-schedulers.md")
    assert len(pages) >= 2
    assert [commands.unknown(page_commands) for page_commands in pages] == [[]] * len(pages)
