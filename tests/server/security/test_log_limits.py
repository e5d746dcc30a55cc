"""What connections cause is bounded in the log, and nothing else is."""

from __future__ import annotations

import asyncio
import logging
import ssl
from unittest.mock import Mock

import pytest
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser
from kongming_server.calls import call_errors
from kongming_server.commands.server_command import log_limits

from kongming.rpc.log_limits import LogLimits


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def record(
    name: str, message: str, *values: object, error: BaseException | None = None
) -> logging.LogRecord:
    raised = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(name, logging.ERROR, __file__, 1, message, values, raised)


def test_ten_lines_of_a_kind_in_a_minute_and_the_number_of_the_others() -> None:
    clock = Clock()
    limits = LogLimits(clock=clock)
    passed = [limits.filter(record("asyncio", "from %s", number)) for number in range(1000)]
    assert sum(passed) == 10
    # Another kind has its own ten.
    assert limits.filter(record("asyncio", "to %s", 1))
    clock.now = 61.0
    late = record("asyncio", "from %s", "x")
    assert limits.filter(late)
    assert late.getMessage() == "from x (990 more of these in a minute were left out)"


def test_agents_have_ten_lines_of_a_kind_each() -> None:
    limits = LogLimits(clock=Clock())
    passed = {"token a": 0, "token b": 0, "": 0}
    for number in range(60):
        for agent in passed:
            line = record("kongming_server.services.fleet", "%s reported", number)
            line.agent = agent
            passed[agent] += limits.filter(line)
    # What no agent has caused is logged each time.
    assert passed == {"token a": 10, "token b": 10, "": 60}


def test_a_failure_of_a_connection_is_one_line_without_a_traceback() -> None:
    for error in (OSError(24, "Too many open files"), ssl.SSLError("bad\nrecord")):
        line = record("aiohttp.server", "Error handling request\nmore", error=error)
        assert LogLimits().filter(line)
        assert line.exc_info is None
        assert type(error).__name__ in line.getMessage()
        assert "more" not in line.getMessage()


def test_who_speaks_grpc_to_the_http_port_gets_a_calm_line() -> None:
    async def error_of(sent: bytes) -> HttpProcessingError:
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(Mock(), loop, 2**16, max_line_size=8190, max_field_size=8190)
        with pytest.raises(HttpProcessingError) as caught:
            parser.feed_data(sent)
        return caught.value

    for sent, phrase in (
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x24",
            "as gRPC does",
        ),
        (b"\x16\x03\x01\x00\r\n\r\n", "not a request: "),
    ):
        error = asyncio.run(error_of(sent))
        line = record("aiohttp.server", "Error handling request from 127.0.0.1", error=error)
        assert LogLimits().filter(line)
        assert (line.levelname, line.exc_info) == ("WARNING", None)
        assert phrase in line.getMessage()
        assert "\\x" not in line.getMessage()


def test_what_is_no_connections_fault_keeps_its_traceback() -> None:
    line = record("asyncio", "Task exception was never retrieved", error=KeyError("x"))
    assert LogLimits().filter(line)
    assert line.exc_info is not None


def test_our_own_lines_are_not_counted() -> None:
    limits = LogLimits(clock=Clock())
    assert all(limits.filter(record("kongming_server.state", "line")) for _ in range(100))


def test_calls_that_fail_while_the_disk_is_full_do_not_fill_it() -> None:
    limits, name = log_limits(), call_errors.__name__
    assert sum(limits.filter(record(name, "request %s", n)) for n in range(100)) == 10


def test_kinds_do_not_pile_up() -> None:
    limits = LogLimits(clock=Clock())
    for number in range(5000):
        limits.filter(record("asyncio", f"line {number}"))
    assert len(limits) <= 1000
