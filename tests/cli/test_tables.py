"""Tables on narrow terminals and terminals of few characters: nothing that is shown is cut."""

from __future__ import annotations

import ast
import io
import re
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kongming.cli import options, output
from kongming.cli.main import cli
from kongming.cli.predict import models
from kongming.cli.profile.profile import show_judged
from kongming.processes.entry import print_plainly
from kongming.records.judgement import Judgement, Reason
from tests import warm_start
from tests.conftest import ROOT

CLI = ROOT / "kongming" / "cli"

WITHOUT_TABLE = {"rollback"}
"""Commands next to others that print one."""

names = st.text("abcdefgh._0123456789", min_size=1, max_size=70)
numbers = st.floats(0.001, 1e6).map(lambda value: f"{value:.3g} ms")
prose = st.lists(st.text("abcdefghij", min_size=1, max_size=12), min_size=1, max_size=20).map(
    " ".join
)


def printed(table: object, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@given(
    rows=st.lists(st.tuples(names, numbers, prose, names, numbers), min_size=1, max_size=4),
    width=st.sampled_from([60, 80, 100, 140, 400]),
    minor=st.sampled_from([(), ("words",), ("node", "words"), ("noise", "node")]),
)
def test_what_is_shown_is_shown_whole(
    rows: list[tuple[str, ...]], width: int, minor: tuple[str, ...]
) -> None:
    columns = ("application", "solo time", "words", "node", "noise")
    out = printed(output.table(columns, rows, right=("noise",), minor=minor), width)
    assert "…" not in out
    assert max(len(line) for line in out.splitlines()) <= width
    left_out = re.search(r"Not shown: (.*)\. --wide shows all", out.replace("\n", " "))
    hidden = set(left_out.group(1).split(", ")) if left_out else set()
    assert hidden <= set(minor)
    lines = out.splitlines()
    for row in rows:
        for name, cell in zip(columns, row, strict=True):
            if name in hidden or name == "words":
                continue
            if len(cell) > width // 2:
                # Only what no line can hold is broken, and no character of it is lost.
                assert cell in re.sub(r"\s", "", out) or cell.replace(" ", "") in re.sub(
                    r"\s", "", out
                )
            else:
                assert any(cell in line for line in lines), (name, cell)
        if "words" not in hidden:
            assert all(word in out for word in row[2].split())


def test_the_least_important_columns_go_first_and_empty_ones_before_them() -> None:
    columns = ("application", "identity", "empty", "solo")
    rows = [("a-name-of-thirty-characters-xx", "0123456789abcdef", None, "2.79 s")]
    table = output.table(columns, rows, minor=("identity", "empty"))
    assert "Not shown" not in printed(table, 80)
    assert "Not shown: empty. --wide shows all." in printed(table, 62)
    assert "Not shown: identity, empty. --wide shows all." in printed(table, 46)
    stacked = printed(table, 30)
    assert "Not shown" not in stacked
    assert re.search(r"identity +0123456789abcdef", stacked)


def test_rows_of_own_lines_have_few_of_them() -> None:
    columns = ("one", "two", "three", "four", "five", "six", "")
    rows = [(*(f"{name}-{10**12}" for name in columns[:-1]), "picked")] * 2
    printed_rows = printed(output.table(columns, rows, minor=("six", "two", "five")), 40)
    for lines in printed_rows.split("\n\n")[:2]:
        assert [line.split()[0] for line in lines.strip().splitlines()] == [
            *("one", "three", "four", "picked"),
        ]
    assert "Not shown: two, five, six." in printed_rows


def test_wide_shows_every_column_on_any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    @click.command()
    @options.wide_option
    def command() -> None:
        output.console().print(output.table(("a", "b"), [("x" * 20, "y" * 50)], minor=("b",)))

    assert f"{'x' * 20}   {'y' * 50}" in CliRunner().invoke(command, ["--wide"]).output
    assert "y" not in CliRunner().invoke(command, []).output.replace("--wide", "")


def test_no_unknown_column_is_called_minor() -> None:
    with pytest.raises(ValueError, match="identty"):
        output.table(("identity",), [], minor=("identty",))


def test_every_command_that_prints_a_table_has_the_option() -> None:
    lacking = []
    for file in sorted(CLI.rglob("*.py")):
        text = file.read_text()
        if file.name in ("output.py", "tables.py", "options.py"):
            continue
        assert not re.search(r"\b(Rich)?Table\(", text), f"{file}: tables are made by output.table"
        commands = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef)
            and any("json_option" in ast.unparse(each) for each in node.decorator_list)
        ]
        if "output.table(" in text and commands:
            lacking += [
                f"{file.relative_to(CLI)}: {node.name}"
                for node in commands
                if node.name not in WITHOUT_TABLE
                and not any("wide_option" in ast.unparse(each) for each in node.decorator_list)
            ]
    assert lacking == []


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_names_of_surrogates_are_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = CliRunner().invoke(cli, ["suite"]).output
    for name in ("memory.streaming.L2half", "memory.random.LLChalf", "iobench.write.64M"):
        assert name in out
    assert "…" not in out


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_characters_that_a_terminal_lacks_are_replaced(encoding: str, errors: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors=errors)
    print_plainly(stream)
    stream.write("3 \u00d7 4 … ▂█ µs 你 é \udcff")
    stream.flush()
    text = raw.getvalue().decode(encoding)
    if encoding == "utf-8":
        assert text == "3 \u00d7 4 … ▂█ µs 你 é ?"
    else:
        assert re.fullmatch("3 [x\u00d7] 4 ([.]{3}|…) [.]# [uµ]s [?] [?é] [?]", text)


def test_a_command_goes_on_where_its_terminal_is_ascii(tmp_path: Path) -> None:
    done = warm_start.run(
        "kongming.cli.main",
        "suite",
        env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert sys.getdefaultencoding() == "utf-8"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_models_of_one_version_are_told_apart_by_their_surrogates(width: int) -> None:
    document = {
        "app": "sort",
        "placement": "cross-core",
        "version": 1,
        "in_service": True,
        "problem": None,
        "newer": False,
        "node_id": "0123456789abcdef",
        "solo_noise_pct": 10.3,
        "runs": 9,
        "trained_at": "2026-01-01T00:00:00Z",
        "variants": {
            "full": {"columns": 36, "model": "STACK", "mean_error_pct": 28.1},
            "quick": {"columns": 15, "model": "STACK", "mean_error_pct": 22.0},
        },
    }
    out = printed(models.table_of([document], {}), width)
    words = " ".join(out.split())
    assert "36 (all)" in words
    assert "15 (quick)" in words


def test_advice_on_several_profiles_is_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    spread = {"ratio": 2.2, "runs": 3, "shortest": 0.4, "longest": 0.8}
    spoiled = Judgement("spoiled", (Reason("solo-spread", "spoiled", spread),))
    lost = Judgement("spoiled", (Reason("no-solo-run", "spoiled"),))
    show_judged({"gz": spoiled, "xz": spoiled, "sort": lost})
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("See what else runs") == 1
    assert "kongming profile APPS.toml --app gz --app xz --again See why" in out
