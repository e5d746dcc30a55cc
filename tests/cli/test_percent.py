"""Per cent as people read it: one function writes it, with a space before the sign."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from kongming.quantities import exact_percent, format_percent, per_cent
from tests.conftest import ROOT

WRITES_ITSELF = {
    # The function.
    "kongming/quantities.py",
    # What records are made of imports nothing.
    "kongming/records/judgement.py",
    # A share as it is typed, which "5%" is.
    "kongming/cli/shares.py",
    "kongming/cli/explore/replay.py",
    "kongming/profiling/plans/precision.py",
}

SOURCES = sorted(
    path
    for folder in ("kongming", "daemon")
    for path in (ROOT / folder).rglob("*.py")
    if "deploy" not in path.parts
)


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (12.34, ".1f", "12.3 %"),
        (90.0, "g", "90 %"),
        (3.21, "+.1f", "+3.2 %"),
        (7.0, "3.0f", "  7 %"),
    ],
)
def test_there_is_a_space_before_the_sign(value: float, spec: str, text: str) -> None:
    assert per_cent(value, spec) == text


@pytest.mark.parametrize(("share", "text"), [(0.0251, "2.5 %"), (0.5, "50 %"), (3.4, "340 %")])
def test_a_share_has_two_digits(share: float, text: str) -> None:
    assert format_percent(share) == text


def _written_by_hand(source: str) -> Iterator[int]:
    """Yield lines of f-strings in which the sign follows a value, or is in its format."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            if ast.unparse(node.format_spec).rstrip("'\"").endswith("%"):
                yield node.lineno
        elif isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, node.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue):
                    continue
                if isinstance(after, ast.Constant) and re.match(r" ?%(?!\w)", str(after.value)):
                    yield node.lineno


def test_what_is_written_by_hand_is_found() -> None:
    texts = ["f'{x:.1f}%'", "f'{x:.1f} %'", "f'{x:.0%}'", "f'{x} {per_cent(x)} 5 %'", "f'{x:%Y}'"]
    assert [len(list(_written_by_hand(text))) for text in texts] == [1, 1, 1, 0, 0]


def test_one_function_writes_per_cent() -> None:
    offenders = {
        f"{name}:{line}"
        for path in SOURCES
        if "%" in (text := path.read_text())
        for name in [path.relative_to(ROOT).as_posix()]
        if name not in WRITES_ITSELF
        for line in _written_by_hand(text)
    }
    assert offenders == set(), "write it with kongming.quantities.per_cent"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.9, "90 %"),
        (0.29, "29 %"),
        (0.975, "97.5 %"),
        (0.999999999999, "99.9999999999 %"),
        (1e-12, "0.0000000001 %"),
        (0.9999999999999999, "99.99999999999999 %"),
        (1.0, "100 %"),
    ],
)
def test_a_probability_below_1_is_never_all_of_it(share: float, text: str) -> None:
    assert exact_percent(share) == text
