"""``kongming observe``: what it records, how it ends, and how it goes on."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kongming.audit.readings import machine_of
from kongming.cli.main import cli
from kongming.probes.binary import locate
from kongming.probes.measuring import FOLDER, measuring
from kongming.probes.node import node_facts
from kongming.profiling import observing
from kongming.profiling.observing import order_of
from kongming.records.fingerprint import Fingerprint
from tests.audit.recordings import APPS, OBSERVE, Recording, begins_with, rows
from tests.probes.test_measuring import another
from tests.profiling.processes import eventually

HASTY = Path(__file__).parent.parent / "campaigns" / "programs" / "hasty-microbench"


@pytest.fixture
def recording(tmp_path: Path, kongming_env: dict[str, str]) -> Recording:
    return Recording(tmp_path, kongming_env)


def test_a_recording_says_on_what_machine_it_was_made(recording: Recording) -> None:
    done = recording.run("--for", "0.5s", "--tag", "rack=b 1", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    observations = recording.read()
    assert document["readings"] == observations.table.num_rows
    assert not recording.journal.exists()
    assert not recording.left()
    (session,) = observations.sessions.values()
    facts = node_facts()
    assert session["machine"] == facts.id
    assert machine_of(session)["cpu_model"] == facts.cpu_model
    assert session["tags"] == {"rack": "b 1"}
    assert session["instance"] is None
    assert session["programs"]["rate"]["unit"] == "ops/s"


def test_fingerprints_and_runs_alternate_in_rounds_of_random_order(recording: Recording) -> None:
    going = recording.start("--for", "1h", "--seed", "7")
    # Three whole rounds, each of two runs after a fingerprint of three surrogates and its signals.
    recording.after_steps(3 * 4, going)
    going.ctrl_c()
    observations = recording.read()
    runs, surrogates = rows(observations, "program"), rows(observations, "surrogate")
    assert all(run["ok"] for run in runs)
    assert {run["value"] for run in runs if run["name"] == "rate"} == {100.0}
    assert min(run["value"] for run in runs if run["name"] == "nap") > 0.05
    assert {run["position"] % 2 for run in runs} == {1}
    assert {(r["position"] % 2, r["name"]) for r in surrogates} == {
        (0, "memory.random.8M"),
        (0, "compute.int"),
        (0, "iobench.read.4M"),
    }
    # The fingerprint before a run that was ended is kept.
    assert len(surrogates) - 3 * len(runs) in (0, 3)
    assert all(r["median"] < r["value"] < r["p90"] for r in surrogates)
    by_round = {
        number: tuple(run["name"] for run in group)
        for number, group in groupby(runs, key=lambda run: run["round"])
    }
    assert len(by_round) > 1
    assert all(
        order == order_of(["nap", "rate"], 7, number)[: len(order)]
        for number, order in by_round.items()
    )
    signals = {(row["name"], row["unit"]) for row in rows(observations, "passive")}
    assert ("cpu_busy", "share") in signals
    assert ("memory_available_bytes", "bytes") in signals


def test_a_run_that_fails_is_kept_with_its_reason(
    tmp_path: Path, kongming_env: dict[str, str]
) -> None:
    apps = APPS + "\n[apps.bad]\ncommand = 'echo no /such/thing >&2; exit 3'\n"
    apps += "\n[apps.unset]\nsetup = 'exit 9'\ncommand = 'true'\n"
    recording = Recording(tmp_path, kongming_env, apps)
    going = recording.start("--for", "1h")
    recording.after_steps(3 * 6 + 4, going)
    err = going.ctrl_c()
    assert "bad is left out: exit status 3" in err
    assert "unset is left out: The setup of unset failed: exit status 9" in err
    runs = rows(recording.read(), "program")
    bad = [run for run in runs if run["name"] == "bad"]
    assert len(bad) == 3
    assert {(run["ok"], run["value"]) for run in bad} == {(False, None)}
    assert "exit status 3" in bad[0]["reason"]
    assert [run["ok"] for run in runs if run["name"] == "nap"].count(True) > 3
    # The status, too, says that something failed.
    recording.out.unlink()
    recording.journal.unlink()
    done = recording.run("--for", "0.1s", "--json")
    assert (done.returncode, list(json.loads(done.stdout)["dropped"])) == (1, ["unset"])


def test_surrogates_that_fail_are_kept_with_their_reason(recording: Recording) -> None:
    recording.env["FAKE_MODE"] = "io-fails"
    assert recording.run("--for", "0.5s").returncode == 0
    surrogates = rows(recording.read(), "surrogate")
    assert {r["name"]: (r["ok"], r["reason"]) for r in surrogates} == {
        "memory.random.8M": (True, None),
        "compute.int": (True, None),
        "iobench.read.4M": (False, "The folder is read-only."),
    }


def test_ctrl_c_keeps_what_was_measured_and_the_same_command_goes_on(
    recording: Recording,
) -> None:
    going = recording.start("--for", "1h")
    recording.after_steps(5, going)
    err = going.ctrl_c()
    assert going.returncode == 130
    assert eventually(lambda: not recording.left(), 30.0)
    assert "the same command continues" in err
    first = recording.read()
    steps = recording.steps()
    assert max(first.table["position"].to_pylist()) == steps - 1 >= 4
    assert not list((recording.folder / "io").glob("kongming-app-*"))
    going = recording.start("--for", "1h")
    recording.after_steps(steps + 4, going)
    going.ctrl_c()
    second = recording.read()
    assert set(second.sessions) == set(first.sessions)
    assert begins_with(second, first)
    runs = rows(second, "program")
    counted = Counter((run["round"], run["name"]) for run in runs)
    assert set(counted.values()) == {1}


def test_kill_9_loses_the_step_under_way_alone(recording: Recording) -> None:
    going = recording.start("--for", "1h")
    recording.after_steps(5, going)
    going.kill()
    assert eventually(lambda: not recording.left())
    steps_before = recording.steps()
    with recording.journal.open("ab") as journal:
        journal.write(b'{"at":"2026-01-01T00:00:00Z","position":9')
    going = recording.start("--for", "1h")
    recording.after_steps(steps_before + 3, going)
    err = going.ctrl_c()
    assert "continuing after" in err
    observations = recording.read()
    positions = sorted(set(observations.table["position"].to_pylist()))
    assert positions == list(range(len(positions)))
    assert len(positions) >= steps_before + 3


def test_a_complete_file_goes_on_only_when_asked(recording: Recording) -> None:
    assert recording.run("--for", "0.5s").returncode == 0
    first = recording.read()
    again = recording.run("--for", "0.5s")
    assert again.returncode == 2
    assert "is already complete" in again.stderr
    assert "--resume" in again.stderr
    going = recording.start("--for", "1h", "--resume")
    recording.after_steps(max(first.table["position"].to_pylist()) + 3, going)
    going.ctrl_c()
    second = recording.read()
    assert set(second.sessions) == set(first.sessions)
    assert second.table.num_rows > first.table.num_rows
    assert begins_with(second, first)


def test_another_recording_is_not_mixed_in(recording: Recording) -> None:
    going = recording.start("--for", "1h")
    recording.after_steps(2, going)
    busy = recording.run()
    assert (busy.returncode, "Another command is writing to" in busy.stderr) == (2, True)
    going.ctrl_c()
    (recording.folder / "apps.toml").write_text(APPS.replace("0.05", "0.06"), encoding="utf-8")
    other = recording.run()
    assert other.returncode == 2
    assert "recorded with another programs" in other.stderr
    (recording.folder / "apps.toml").write_text(APPS, encoding="utf-8")
    other = recording.run("--suite", "standard")
    assert "recorded with another suite." in other.stderr


def test_a_command_that_was_refused_leaves_no_recording(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may have other settings."""
    monkeypatch.setenv(FOLDER, str(recording.folder / "locks"))
    recording.env[FOLDER] = os.environ[FOLDER]
    with measuring("kongming profile"):
        refused = recording.run("--for", "1h")
    assert refused.returncode != 0
    assert "kongming profile" in refused.stderr
    assert not recording.journal.exists()


def test_what_was_measured_beside_another_measurement_is_marked(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in recording.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(FOLDER, str(recording.folder / "locks"))
    monkeypatch.chdir(recording.folder)
    take = observing.take_fingerprint

    def disturbed(*args: Any, **more: Any) -> Fingerprint:
        with another("kongming profile", min(os.sched_getaffinity(0)), "anyway"):
            return take(*args, **more)

    observed_s = 0.0
    # A fingerprint and a run each, the second time in the next round.
    for wrapped, first in ((take, []), (disturbed, [2])):
        monkeypatch.setattr(observing, "take_fingerprint", wrapped)
        line = [*OBSERVE, "--for", f"{observed_s + 0.001:f}s", "--resume", "--json"]
        document = json.loads(CliRunner().invoke(cli, line).stdout)
        observed_s = document["observed_s"]
        marked = [row for row in rows(recording.read(), "passive") if row["name"] == "disturbed"]
        assert [row["position"] for row in marked][:1] == first
        assert document["disturbed"] == len(marked)
        assert {row["value"] for row in marked} <= {1.0}


def test_rounds_begin_when_they_are_to_and_ctrl_c_ends_the_waiting(recording: Recording) -> None:
    going = recording.start("--for", "1h", "--every", "30m", "--pause", "0.1s")
    recording.after_steps(4, going)
    assert not eventually(lambda: recording.steps() > 4, 0.7)
    # The next round is half an hour away.
    going.ctrl_c()
    assert going.returncode == 130
    assert eventually(lambda: not recording.left(), 30.0)
    assert {row["round"] for row in rows(recording.read(), "program")} == {0}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--for", "soon"), "is not an allowed duration"),
        (("--for", "0s"), "is not an allowed duration"),
        (("--tag", "rack"), "is not key=value"),
        (("--out", "missing/o.parquet"), "a folder that does not exist"),
        (("--app", "napp"), "Did you mean nap?"),
        (("--cpu", "4000"), "may not run on it"),
        (("--cpu", "0", "--placement", "same-core"), "is chosen by --placement"),
    ],
)
def test_wrong_usage_says_the_way_out(
    recording: Recording, args: tuple[str, ...], words: str
) -> None:
    done = recording.run(*args)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert not recording.journal.exists()


@pytest.mark.thorough
def test_a_disk_that_is_full_ends_it_with_a_sentence_and_keeps_what_was_measured(
    recording: Recording,
) -> None:
    done = recording.run("--for", "1h", file_bytes=40_000)
    assert done.returncode == 1
    assert "o.parquet.part cannot be written: File too large" in done.stderr
    assert "Free some space" in done.stderr
    first = recording.read()
    assert max(first.table["position"].to_pylist()) == recording.steps() - 1 > 2
    going = recording.start("--for", "1h")
    recording.after_steps(recording.steps() + 2, going)
    going.ctrl_c()
    assert begins_with(recording.read(), first)


def test_what_is_no_journal_is_left_alone(recording: Recording) -> None:
    recording.journal.write_text("dear diary", encoding="utf-8")
    done = recording.run("--for", "1s")
    assert (done.returncode, "is not a journal" in done.stderr) == (2, True)
    assert recording.journal.read_text(encoding="utf-8") == "dear diary"
    recording.journal.unlink()
    recording.journal.symlink_to("/dev/null")
    done = recording.run("--for", "1s")
    assert (done.returncode, "is not a file" in done.stderr) == (2, True)


def test_seats_of_a_placement(recording: Recording) -> None:
    assert recording.run("--for", "0.5s", "--placement", "same-core").returncode == 0
    cpus = {row["cpu"] for row in rows(recording.read(), "program")}
    assert cpus == {min(os.sched_getaffinity(0))}


@pytest.mark.real
def test_real_surrogates(recording: Recording) -> None:
    (recording.folder / "io").mkdir()
    recording.env["REAL_MICROBENCH"] = str(locate())
    recording.env["KONGMING_MICROBENCH"] = str(HASTY)
    done = recording.run("--for", "0.1s")
    assert done.returncode == 0, done.stderr
    observations = recording.read()
    measured = [row for row in rows(observations, "surrogate") if row["ok"]]
    assert {row["unit"] for row in measured} == {"s"}
    assert all(0.0 < row["value"] < 60.0 and row["count"] > 0 for row in measured)
    (session,) = observations.sessions.values()
    assert {row["name"] for row in measured} <= set(session["surrogates"])
    assert len(measured) > 3


def test_help_tells_of_export(recording: Recording) -> None:
    done = recording.run("--help", args=OBSERVE[:1])
    assert "observe export FILE..." in " ".join(done.stdout.split())
