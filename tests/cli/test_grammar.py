"""One grammar of durations and of shares on the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kongming.cli.durations import DURATION, DURATION_OR_NONE
from kongming.cli.main import cli, run
from kongming.cli.shares import FRACTION, SHARE, Share
from kongming.cli.sizes import MEMORY, SIZE
from kongming.quantities import has_thousands, with_point


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("0.5", 0.5), ("90s", 90.0), ("5m", 300.0), ("1h30m", 5400.0), ("2d", 172800.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["0", "-1", "0s", "5 minutes", "m", "1h30", "nan", "inf", ""])
def test_no_durations(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"Allowed: above 0, as 90 \(seconds\), 5m"):
        DURATION.convert(text, None, None)


def test_a_duration_that_may_be_none() -> None:
    assert DURATION_OR_NONE.convert("0", None, None) == 0.0
    with pytest.raises(click.BadParameter, match="0 or more"):
        DURATION_OR_NONE.convert("-1", None, None)


@pytest.mark.parametrize(("text", "share"), [("0.5", 0.5), ("50%", 0.5), ("100%", 1.0), ("1", 1.0)])
def test_shares(text: str, share: float) -> None:
    assert SHARE.convert(text, None, None) == pytest.approx(share)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (SHARE, "1.5", r"above 0, up to 1 \(100 %\)"),
        (SHARE, "50", r"Did you mean 50%\?"),
        (FRACTION, "100%", "below 1"),
        (FRACTION, "5", r"Did you mean 5%\?"),
        (Share(1.5), "85", r"up to 1\.5 \(150 %\).*Did you mean 85%\?"),
        (Share(math.inf), "0", "above 0"),
        (SHARE, "half", "not an allowed share"),
    ],
)
def test_no_shares(kind: Share, text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("kind", "text", "meant"),
    [
        (SHARE, "0,5", "0.5"),
        (SHARE, "2,5%", "2.5%"),
        (DURATION, "1,5h", "1.5h"),
        (DURATION, "1,5 hours", "1.5h"),
        (SIZE, "0,5G", "0.5G"),
    ],
)
def test_a_decimal_comma(kind: click.ParamType[float], text: str, meant: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert f"Did you mean {meant}? The decimal mark is a point" in caught.value.message


def test_a_comma_that_is_no_decimal_mark() -> None:
    assert with_point("0,5") == "0.5"
    for text in ("1,2,4", "a,b", ",5", "5,", "1.000,5", "0.5", "", "1,000", "12,500", "1,000s"):
        assert with_point(text) is None
    with pytest.raises(click.BadParameter) as caught:
        SHARE.convert("3,5", None, None)
    assert "Did you mean" not in caught.value.message


@pytest.mark.parametrize(
    ("kind", "text"),
    [(DURATION, "1,000"), (DURATION, "1,500s"), (SIZE, "1,000M"), (SHARE, "1,500%")],
)
def test_commas_that_may_separate_thousands(kind: click.ParamType[float], text: str) -> None:
    """A number that was meant would be wrong by 1000 in half of the cases."""
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert "separate thousands are not read" in caught.value.message
    assert "Did you mean" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "thousands"),
    [
        ("1,000", True),
        ("12,500,000", True),
        ("1,234.5", True),
        ("1,000 s", True),
        ("0,125", False),
        ("1,00", False),
        ("1,0000", False),
        ("1000,000", False),
        ("1,2,4", False),
    ],
)
def test_which_commas_may_separate_thousands(text: str, thousands: bool) -> None:
    assert has_thousands(text) is thousands


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("5min", "5m"),
        ("5 minutes", "5m"),
        ("1 h 30 min", "1h30m"),
        ("30sec", "30s"),
        ("2days", "2d"),
    ],
)
def test_units_in_words(text: str, meant: str) -> None:
    with pytest.raises(click.BadParameter, match=f"Did you mean {meant}[?]"):
        DURATION.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "amount"), [("0", 0), ("4000", 4000), ("4G", 4_000_000_000), ("512MiB", 2**29)]
)
def test_amounts_of_memory(text: str, amount: int) -> None:
    assert MEMORY.convert(text, None, None) == amount


@pytest.mark.parametrize("text", ["-1", "4X", "much", "", "1e9", "9" * 30, "9" * 30 + "G"])
def test_no_amounts_of_memory(text: str) -> None:
    with pytest.raises(click.BadParameter, match="Allowed: a whole number of bytes, or a size"):
        MEMORY.convert(text, None, None)


def test_a_number_with_a_decimal_comma(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--limit", "1,2"]) == 2
    assert "Did you mean 1.2? The decimal mark is a point" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["apps", "--store", ""], "'' names no store"),
        (["apps", "--store", "sqlite://"], "'sqlite://' names no store"),
        (["scale", "fit", "runs.csv", "--name", ""], "is empty"),
    ],
)
def test_a_name_that_is_empty_is_not_the_default(
    args: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.csv").write_text("machines,seconds\n1,2\n2,1\n")
    assert run(args) == 2
    assert message in capsys.readouterr().err


def options() -> Iterator[tuple[str, click.Option]]:
    waiting: list[tuple[str, click.Command]] = [("kongming", cli)]
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            for child in command.list_commands(context):
                subcommand = command.get_command(context, child)
                assert subcommand is not None
                waiting.append((f"{name} {child}", subcommand))
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield f"{name} {parameter.opts[0]}", parameter


BARE = (click.types.FloatParamType, click.FloatRange)


def test_no_option_takes_nan() -> None:
    numbers = [(name, option.type) for name, option in options() if isinstance(option.type, BARE)]
    assert len(numbers) > 10
    for name, kind in numbers:
        for text in ("nan", "-NaN"):
            with pytest.raises(click.BadParameter):
                pytest.fail(f"{name} is {kind.convert(text, None, None)}")


def test_every_duration_and_share_has_the_grammar() -> None:
    """No option takes seconds, minutes or per cent as a bare number of its own kind."""
    words = re.compile("seconds|minutes|per cent|probability|share of", re.IGNORECASE)
    wrong = [
        name
        for name, option in options()
        if isinstance(option.type, BARE) and words.search(f"{option.metavar} {option.help}")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "words",
    [
        ("rank", "xz", "--slowdown-limit", "0.5"),
        ("rank", "xz", "--resident-slowdown-limit", "0"),
        ("simulate", "--load", "85"),
        ("profile", "apps.toml", "--budget", "5 minutes"),
        ("induce", "compute.int", "--intensity", "200%"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(words)) == 2
    assert words[-1] in capsys.readouterr().err
