"""Whoever reaches the port of the agent's metrics holds up neither the agent nor who reads them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from kongming_agent.reporting.metrics import Exporter

from tests.server.process import eventually

STRANGERS = 60


def _files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_silent_connections_keep_nobody_out() -> None:
    exporter = Exporter(lambda: {"probes_total": [(("quick",), 3.0)]}, listen="127.0.0.1:0")
    try:
        before = _files()
        with ExitStack() as open_ones:
            for number in range(STRANGERS):
                made = socket.create_connection(("127.0.0.1", exporter.port or 0), timeout=60)
                open_ones.callback(made.close)
                if number % 2:
                    made.sendall(b"GET /metrics HTTP/1.1\r\nHost: l")
            with urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=60) as answer:
                assert b'kongming_agent_probes_total{suite="quick"} 3.0' in answer.read()
            # Those of the strangers are ours as well; of the server's few are left.
            eventually(lambda: _files() - before - STRANGERS <= STRANGERS // 3)
    finally:
        exporter.close()
