"""How a daemon of ours reports an error: a sentence and a way out, no traceback."""

from __future__ import annotations

import contextlib
import importlib
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import kongming.cli.start
from kongming.processes.entry import Terminated, run, start
from kongming.records.errors import InputError


@click.group()
def program() -> None:
    """A program."""


@program.command()
@click.option("--kind", type=click.Choice(["good", "badly"]), required=True)
def choose(kind: str) -> None:
    """Choose."""


@program.command()
@click.option("--word")
@click.option("--version", is_flag=True)
@click.argument("number", type=int)
def divide(number: int, word: str | None, version: bool) -> None:
    if number < 0:
        raise InputError("is below 0.", field="NUMBER", hint="Give another.")
    if number == 1:
        raise OSError(13, "Permission denied", "state")
    1 // number


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ["nosuch"],
            2,
            "error: There is no command named 'nosuch'.\n"
            "hint: Known: choose, divide. See 'daemon --help'.\n",
        ),
        (
            ["devide"],
            2,
            "error: There is no command named 'devide'.\n"
            "hint: Did you mean divide? See 'daemon --help'.\n",
        ),
        (
            ["choose", "--kind", "bad"],
            2,
            "error: Invalid value for '--kind': 'bad' is not one of 'good', 'badly'.\n"
            "hint: Did you mean badly? See 'daemon choose --help'.\n",
        ),
        (
            ["divide", "x"],
            2,
            "error: Invalid value for 'NUMBER': 'x' is not a whole number.\n"
            "hint: See 'daemon divide --help'.\n",
        ),
        (
            ["divide", "--wrod", "1"],
            2,
            "error: No such option '--wrod'. Did you mean '--word'?\n"
            "hint: See 'daemon divide --help'.\n",
        ),
        (
            ["divide", "--json", "1"],
            2,
            "error: No such option '--json'.\nhint: See 'daemon divide --help'.\n",
        ),
        (
            ["choose"],
            2,
            "error: Missing option '--kind'. Allowed: good, badly.\n"
            "hint: See 'daemon choose --help'.\n",
        ),
        (["divide", "1"], 1, "error: Permission denied: state.\n"),
        (
            ["divide", "0"],
            1,
            "error: Something went wrong that daemon did not foresee (ZeroDivisionError: integer "
            "division or modulo by zero).\n"
            "hint: Set KONGMING_DEBUG=1 to see the traceback, and please report it.\n",
        ),
    ],
)
def test_an_error_is_a_sentence_and_a_way_out(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(program, "daemon", arguments, failures=(OSError,)) == status
    assert capsys.readouterr().err == message


def test_an_error_of_ours_has_its_own_status_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(program, "daemon", ["divide", "--", "-1"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: NUMBER: is below 0.")
    assert message.endswith("hint: Give another.\n")


def test_a_traceback_is_shown_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONGMING_DEBUG", "1")
    assert run(program, "daemon", ["divide", "0"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ended", "status"), [(KeyboardInterrupt(), 130), (Terminated(signal.SIGTERM), 143)]
)
def test_what_a_library_raises_while_it_is_interrupted_is_no_error(
    ended: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def interrupted() -> None:
        try:
            try:
                raise ended
            finally:
                # As SQLAlchemy's Transaction.close does, between two of its statements.
                raise AssertionError
        finally:
            raise ValueError("closed twice")

    assert run(interrupted, "daemon", []) == status
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_said_of_a_command_that_is_interrupted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command()
    def interrupted() -> None:
        try:
            raise Terminated(signal.SIGTERM)
        finally:
            raise OSError(28, "No space left on device", "state")

    assert run(interrupted, "daemon", []) == 1
    assert "No space left on device" in capsys.readouterr().err


def test_an_error_after_an_interruption_that_was_handled_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command()
    def careless() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            raise KeyboardInterrupt
        raise AssertionError

    assert run(careless, "daemon", []) == 1
    assert "AssertionError" in capsys.readouterr().err


def test_a_program_without_its_extra_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lacking_wire.py").write_text("import wire_of_somebody.else_\n")
    (tmp_path / "lacking_ours.py").write_text("import kongming_nowhere\n")
    with pytest.raises(SystemExit) as ended:
        start("kongming-agent", "lacking_wire", "agent")
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: kongming-agent needs wire_of_somebody, which is not installed.\n"
        "hint: Install it with: pip install 'kongming[agent]'\n"
    )
    # A fault of ours is none of the installation.
    with pytest.raises(ModuleNotFoundError):
        start("kongming-agent", "lacking_ours", "agent")

    @click.command()
    def late() -> None:
        importlib.import_module("lacking_wire")

    assert run(late, "kongming-slurm", [], extra="slurm") == 2
    assert "pip install 'kongming[slurm]'" in capsys.readouterr().err


def test_an_interrupt_while_a_program_is_imported_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slow_to_import.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(SystemExit) as ended:
        start("kongming-agent", "slow_to_import", "agent")
    assert ended.value.code == 130

    # The command itself, whose module is imported by no test as if for the first time.
    class Interrupting:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "kongming.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "kongming.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        kongming.cli.start.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "error: Interrupted.\n"


def test_the_package_itself_imports_nothing_before_a_console_script_can_handle_signals() -> None:
    code = (
        "import sys, kongming.cli.start\n"
        "print([name for name in sys.modules if name.startswith('kongming')])\n"
        "import kongming; print(kongming.Run.__name__, 'Run' in dir(kongming))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, exported = done.stdout.splitlines()
    assert imported == "['kongming', 'kongming.cli', 'kongming.cli.start']"
    assert exported == "Run True"
