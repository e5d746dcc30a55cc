"""Numbers and progress as people read them."""

from __future__ import annotations

import math

import pytest

from kongming.cli import output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (1.234e-9, "1.23 ns"),
        (190e-9, "190 ns"),
        (999.6e-9, "1.00 us"),
        (45.67e-6, "45.7 us"),
        (0.0123, "12.3 ms"),
        (2.5, "2.50 s"),
        (1234.0, "1234 s"),
    ],
)
def test_format_seconds(seconds: float | None, text: str) -> None:
    assert output.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "-"), (512.0, "512 B/s"), (31.2e9, "31.2 GB/s"), (999.9e6, "1.00 GB/s")],
)
def test_format_bandwidth(rate: float | None, text: str) -> None:
    assert output.format_bandwidth(rate) == text


@pytest.mark.parametrize(
    ("count", "text"), [(None, "-"), (100, "100 B"), (1 << 20, "1.00 MiB"), (3 << 30, "3.00 GiB")]
)
def test_format_bytes(count: int | None, text: str) -> None:
    assert output.format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45 s"), (125, "2 min 05 s"), (3720, "1 h 02 min")]
)
def test_format_duration(seconds: float, text: str) -> None:
    assert output.format_duration(seconds) == text


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_json_has_no_nan(value: float, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="JSON"):
        output.emit_json({"x": value})
    assert capsys.readouterr().out == ""


def test_cells_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.console().print(output.table(("a", "b"), [("[red]x[/red]", None)], right=("b",)))
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert "-" in out


def test_progress_without_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with output.progress("Measuring", total=4) as step:
        step.update(1)
        monkeypatch.setattr(output, "LINE_EVERY_S", 0.0)
        step.update(2, text="Still measuring")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Still measuring: 50 %\n")


def test_progress_over_a_day_does_not_fill_a_log() -> None:
    lines, last = [], 0.0
    for now in range(1, 86_400):
        if output.is_line_due(now, last, 0.0):
            lines.append(now)
            last = now
    assert lines[:3] == [10, 20, 30]
    assert len(lines) < 200


@pytest.mark.parametrize("columns", [None, "60"])
def test_warnings_are_folded_between_words_where_the_width_is_known(
    columns: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    text = "the machine counts of the runs end far below what was asked for " * 4
    output.print_warnings([text])
    lines = capsys.readouterr().err.splitlines()
    assert " ".join(" ".join(lines).split()) == f"warning: {text.strip()}"
    if columns is None:
        assert len(lines) == 1
    else:
        assert len(lines) > 1
        assert max(map(len, lines)) <= int(columns)
