"""What every command has in common: help, usage errors, one JSON document, exit status."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from kongming.cli import failures, output
from kongming.cli.extras import require
from kongming.cli.main import COMMANDS, cli, run
from kongming.processes.entry import Terminated
from kongming.records.errors import (
    CheckFailedError,
    InputError,
    KongmingError,
    MissingExtraError,
    StoreError,
    UntrainedError,
)
from tests import warm_start
from tests.conftest import ROOT, Kongming
from tests.variants import variants


def test_help_names_every_command_and_imports_none() -> None:
    code = (
        "import sys\n"
        "from kongming.cli.main import run\n"
        "status = run(['--help'])\n"
        "heavy = {'rich', 'sqlalchemy', 'alembic', 'numpy', 'sklearn', 'lightgbm', 'psutil'}\n"
        "print(status, sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    *help_, last = done.stdout.splitlines()
    assert last == "0 []"
    for name, entry in COMMANDS.items():
        assert any(line.split()[:1] == [name] and entry.help in line for line in help_), name


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_imports_what_it_needs(
    kongming: Kongming, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(warm_start.COLD, "1")
    done = kongming(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: kongming {name}")
    assert done.stderr == ""


def test_unknown_command_suggests_the_nearest(kongming: Kongming) -> None:
    done = kongming("fingerprnt")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: There is no command named 'fingerprnt'.\nhint: Did you")
    assert "fingerprint" in done.stderr


@pytest.mark.parametrize(
    ("word", "program"),
    [
        ("server", "kongming-server"),
        ("token", "kongming-server token"),
        ("agent", "kongming-agent"),
    ],
)
def test_the_word_of_another_program_names_it(kongming: Kongming, word: str, program: str) -> None:
    done = kongming(word)
    assert done.returncode == 2
    assert f"There is no command named '{word}'" in done.stderr
    assert f"{program} --help" in done.stderr


@pytest.mark.parametrize("args", [["runs", "--limt", "3"], ["runs", "--limit", "x"], ["--wrong"]])
def test_usage_errors_end_with_2(kongming: Kongming, args: list[str]) -> None:
    done = kongming(*args)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "--help'" in done.stderr


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["--store", "sqlite:///x.db", "apps"], "kongming COMMAND --OPTION"),
        (["runs", "--kind", "sole"], "Did you mean solo?"),
        (["models", "--sotre", "x"], "See 'kongming models --help'."),
        (["reference", "--raedings", "15"], "Did you mean '--readings'?"),
        (["spark", "conf", "--dir"], "See 'kongming spark conf --help'."),
        (["induce", "compute.int", "--seconds"], "See 'kongming induce --help'."),
        (["rank", "sort", "--server", ""], "See 'kongming rank --help'."),
        (["scale", "fitt"], "See 'kongming scale --help'."),
    ],
)
def test_usage_errors_say_what_was_meant(kongming: Kongming, args: list[str], hint: str) -> None:
    error = kongming(*args).stderr
    assert hint in error
    assert ("COMMAND" in hint) == ("COMMAND" in error)


def test_options_of_another_kind_are_not_suggested(kongming: Kongming) -> None:
    """Two dashes and three letters are no likeness: '--json' is not '--version'."""
    assert "Did you mean" not in kongming("--json", "apps").stderr


@pytest.mark.parametrize("closed", variants(("<&- >&- 2>&-", ">&-", "<&-", "2>&-"), 2))
def test_standard_streams_may_be_closed(
    kongming_env: dict[str, str], tmp_path: Path, closed: str
) -> None:
    """A file that is opened later must not become stdout, and no error is a traceback."""
    code = "from kongming.cli.start import main; main()"
    script = f'"$0" -c "$1" runs {closed}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, code],
        env=kongming_env,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2), done.stderr
    store = tmp_path / "store.db"
    assert not store.exists() or store.read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (click.IntRange(1), "0", "1 or more"),
        (click.IntRange(max=9), "10", "up to 9"),
        (click.IntRange(1, 1000000), "0", "1 to 1000000"),
        (click.FloatRange(0.0, min_open=True), "0", "above 0"),
        (click.FloatRange(max=0.5, max_open=True), "1", "below 0.5"),
        (click.FloatRange(0.0, 1.0, min_open=True), "2", "above 0, up to 1"),
        (click.FloatRange(0.0, 1.0, max_open=True), "2", "0 or more, below 1"),
    ],
)
def test_ranges_are_said_in_words(
    capsys: pytest.CaptureFixture[str], kind: click.ParamType, value: str, words: str
) -> None:
    command = click.Command("x", params=[click.Option(["--number"], type=kind)])
    with pytest.raises(click.UsageError) as refused:
        command.make_context("x", ["--number", value])
    assert failures.report(refused.value, cli, [], as_json=False) == 2
    assert f" is out of range. Allowed: {words}.\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        (["runs", "--limt", "--json"], "NoSuchOption"),
        (["rnus", "--json"], "UnknownNameError"),
        (["runs", "--json", "--app", "sort"], "UnknownNameError"),
        (["runs", "--json", "--store", "sqlite:////nowhere/at/all.db"], "InputError"),
    ],
)
def test_error_is_one_json_document(kongming: Kongming, args: list[str], kind: str) -> None:
    done = kongming(*args)
    document = json.loads(done.stdout)
    assert set(document) == {"error"}
    assert document["error"]["kind"] == kind
    assert document["error"]["message"]
    assert f"error: {document['error']['message']}" in done.stderr


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KongmingError("x"), 1),
        (StoreError("x"), 1),
        (InputError("x"), 2),
        (UntrainedError("x"), 3),
        (CheckFailedError("x"), 4),
        (click.UsageError("x"), 2),
        (OSError(28, "No space left on device", "/x"), 1),
        (RuntimeError("surprise"), 1),
        (ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm"), 2),
        (ModuleNotFoundError("No module named 'typo'", name="typo"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (Terminated(signal.SIGTERM), 143),
        (click.exceptions.Exit(7), 7),
    ],
)
def test_exit_status_of_errors(
    error: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: Sequence[str]) -> int:
        raise error

    assert run(["train", "--json"], fail) == status
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    if not isinstance(error, click.exceptions.Exit):
        assert json.loads(out)["error"]["message"]
        assert err.startswith("error: ")


@pytest.mark.parametrize(
    ("ended", "status"), [(KeyboardInterrupt(), 130), (Terminated(signal.SIGTERM), 143)]
)
def test_what_a_library_raises_while_it_is_interrupted_is_the_interruption(
    ended: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Sequence[str]) -> int:
        try:
            raise ended
        finally:
            # As SQLAlchemy's Transaction.close does, between two of its statements.
            raise AssertionError

    assert run(["train", "--json"], fail) == status
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["kind"] == "KeyboardInterrupt"
    assert err == "error: Interrupted.\n"


def test_a_path_of_the_arguments_is_wrong_input_and_any_other_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: Sequence[str]) -> int:
        raise FileNotFoundError(2, "No such file or directory", "/there/x.svg")

    assert run(["model", "xz", "--plot", "/there/x.svg"], fail) == 2
    assert "/there/x.svg cannot be used: No such file" in capsys.readouterr().err
    assert run(["model", "xz"], fail) == 1


def test_missing_extra_names_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(args: Sequence[str]) -> int:
        raise ModuleNotFoundError("No module named 'sklearn.svm'", name="sklearn.svm")

    assert run(["--debug", "train"], fail) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "kongming train needs sklearn" in err
    assert "pip install 'kongming[predict]'" in err


def test_require_says_what_is_missing() -> None:
    assert require("Anything", "predict", "json") is json
    with pytest.raises(MissingExtraError, match=r"kongming\[server\]"):
        require("The server", "server", "no_such_module_at_all")


def test_error_after_the_document_adds_no_second_one(capsys: pytest.CaptureFixture[str]) -> None:
    def half(args: Sequence[str]) -> int:
        output.emit_json({"done": 3})
        raise CheckFailedError("Two of five.", hint="Look.")

    assert run(["corun", "--json"], half) == 4
    out, err = capsys.readouterr()
    assert json.loads(out) == {"done": 3}
    assert err == "error: Two of five.\nhint: Look.\n"


def test_returned_status_is_the_exit_status() -> None:
    assert run([], lambda args: 1) == 1


def test_traceback_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: Sequence[str]) -> int:
        raise RuntimeError("surprise")

    run([], fail)
    quiet = capsys.readouterr().err
    assert "surprise" in quiet
    assert "KONGMING_DEBUG=1" in quiet
    monkeypatch.setenv("KONGMING_DEBUG", "1")
    run([], fail)
    assert "Traceback" in capsys.readouterr().err


def test_json_after_two_dashes_belongs_to_someone_else() -> None:
    assert failures.wants_json(["runs", "--json"])
    assert not failures.wants_json(["runs", "--", "--json"])


@pytest.mark.parametrize("words", [("runs", "--help"), ("suite",)], ids=" ".join)
def test_reader_that_goes_away_is_no_error(
    words: Sequence[str], kongming_env: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "kongming.cli.main", *words]
    process = subprocess.Popen(
        command, env=kongming_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as stderr:
        assert stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_clean_up_and_end(tmp_path: Path, signum: signal.Signals, status: int) -> None:
    # A command of our own: what matters is that its ``finally`` runs, whatever the signal.
    code = (
        "import sys, time, pathlib, click\n"
        "from kongming.cli import main\n"
        "def work(args):\n"
        "    try:\n"
        "        pathlib.Path('started').touch(); time.sleep(60)\n"
        "    finally:\n"
        "        pathlib.Path('cleaned').touch()\n"
        "main._listen()\n"
        "sys.exit(main.run(['--json'], work))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "started").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signum)
    try:
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == status
    assert (tmp_path / "cleaned").exists()
    assert json.loads(out)["error"]["message"] == "Interrupted."
    assert err == "error: Interrupted.\n"


def test_predicting_loads_no_solver() -> None:
    """An engine without a scale model needs no SciPy, whose import takes longer than an answer."""
    script = "import sys, kongming.engine.load; print(*(n for n in sys.modules if 'scipy' in n))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []
