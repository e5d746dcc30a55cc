"""Whoever reaches the port of the agent's metrics holds up neither the agent nor who reads them."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.request import urlopen

from kongming_agent.reporting.metrics import Exporter

from tests.server.process import eventually

STRANGERS = 200


def _files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_silent_connections_keep_nobody_out() -> None:
    exporter = Exporter(lambda: {"probes_total": [(("quick",), 3.0)]}, listen="127.0.0.1:0")
    try:
        before = _files()
        with ExitStack() as open_ones:
            for number in range(STRANGERS):
                connection = socket.create_connection(("127.0.0.1", exporter.port or 0), timeout=60)
                open_ones.callback(connection.close)
                if number % 2:
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: l")
            with urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=60) as answer:
                assert b'kongming_agent_probes_total{suite="quick"} 3.0' in answer.read()
            # The strangers' sockets are counted too; the server keeps none without a request.
            eventually(lambda: _files() - before - STRANGERS <= 0)
    finally:
        exporter.close()


def test_a_flood_has_a_small_share_of_a_core_and_keeps_nobody_out() -> None:
    """Strangers connect as fast as they can and send no request, or a part of one."""
    exporter = Exporter(lambda: {"probes_total": [(("quick",), 3.0)]}, listen="localhost:0")
    address = ("localhost", exporter.port or 0)
    ended = threading.Event()
    came = 0

    def flood() -> None:
        nonlocal came
        open_ones: deque[socket.socket] = deque()
        while not ended.wait(0.002):
            with suppress(OSError):
                open_ones.append(socket.create_connection(address, timeout=60))
                open_ones[-1].sendall(b"GET /met" if came % 2 else b"")
                came += 1
            if len(open_ones) > STRANGERS:
                open_ones.popleft().close()
        for connection in open_ones:
            connection.close()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        eventually(lambda: came > STRANGERS)
        [server] = (
            candidate for candidate in threading.enumerate() if candidate.name == "kongming-metrics"
        )
        clock = time.pthread_getcpuclockid(server.ident or 0)
        begun, used = time.monotonic(), time.clock_gettime(clock)
        for _ in range(5):
            with urlopen(f"http://localhost:{exporter.port}/metrics", timeout=60) as answer:
                assert b"kongming_agent_probes_total" in answer.read()
            time.sleep(0.1)
        # Ten times what it keeps to: one read of the numbers is much in so short a time.
        used = time.clock_gettime(clock) - used
        assert used < 0.5 * (time.monotonic() - begun)
    finally:
        ended.set()
        thread.join()
        exporter.close()
    assert not server.is_alive()
