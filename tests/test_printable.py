"""Names of others on a terminal and in a log: shown, and never interpreted."""

from __future__ import annotations

import io
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.cli import main, output
from kongming.printable import PrintableFormatter, printable
from kongming.rpc.v1 import profiles_pb2, profiles_pb2_grpc

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


def test_tables_of_commands_obey_no_name(
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


class _Forger(profiles_pb2_grpc.ProfilesServicer):
    """A malicious server: its texts have terminal control sequences."""

    def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, FORGED)

    def PromoteModel(self, request: Any, context: Any) -> Any:  # noqa: N802
        model = profiles_pb2.Model(app=FORGED, version=1, placement=1)
        return profiles_pb2.PromoteModelResponse(model=model)


def test_what_a_server_says_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    profiles_pb2_grpc.add_ProfilesServicer_to_server(_Forger(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        server_option = ("--server", f"127.0.0.1:{port}")
        assert main.run(["models", *server_option]) == 2
        assert main.run(["models", "rollback", "sort", *server_option]) == 0
    finally:
        server.stop(0)
    out, err = capsys.readouterr()
    for shown in (out, err):
        assert "forged\\x1b[31m\\x9b2J\\u202e" in shown
        assert not set("\x1b\x9b\u202e\u2028\r") & set(shown)
