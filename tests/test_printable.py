"""Names of others on a terminal and in a log: shown, and never obeyed."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.cli import output
from kongming.printable import PrintableFormatter, printable

FORGED = "node\n2026-11-22 05:00:00,000 ERROR forged\x1b[31m\x9b2J\u202e\u2028\r"


@given(st.text())
def test_no_text_holds_what_a_terminal_obeys(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert printable(shown) == shown


def test_what_is_plain_stays_as_it_is() -> None:
    assert printable("node-1 ünïcode 節點") == "node-1 ünïcode 節點"
    assert printable("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"


def test_a_line_of_the_log_cannot_be_forged() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrintableFormatter("%(levelname)s %(message)s"))
    log = logging.Logger("tests.printable")
    log.addHandler(handler)
    log.warning("%s reported", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("failed")
    text = stream.getvalue()
    assert "\x1b" not in text
    # Each line is a record of ours, or indented below one.
    assert all(line.startswith(("WARNING", "ERROR failed", "  ")) for line in text.splitlines())


def test_tables_and_errors_of_commands_obey_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.console().print(output.table(["name"], [[FORGED]]))
    output.console().print(FORGED, markup=False)
    shown = capsys.readouterr().out
    assert "forged" in shown
    assert "\x1b" not in shown.replace("\x1b[0m", "").replace("\x1b[1m", "")
    assert "\x9b" not in shown
    assert "\u202e" not in shown
