"""Where each microsecond of the server goes that agents' reports take. Prints one JSON document.

    python -m benchmarks.service.ingest_account [--agents 10000] [--seconds 15] [--check]

The fleet of ``benchmarks.service.load`` reports to a real server as it does there, at one
fingerprint every --period seconds from each agent; the server has a clock at each stage
(``staged_server``). Meanwhile nothing else is asked. Of each stage: ``microseconds`` of CPU for
each call of ``Report`` (heartbeats that come alone are calls as well), and ``core``, the share of
one core that it is for 10,000 nodes.

    wire        as many empty calls of the same bytes, in a server of their own: gRPC's own work
    admission   who calls, whether it may, its rate, and the request's id
    decode      the message from its bytes, and the bounds of all that it holds
    service     quotas, the heartbeat and the answer
    checks      to a record: every number checked, and against the node's idle reference
    state       into the engine's columns and history
    queue       the line before the store, and the futures of those who wait in it
    store       rows to the store, in transactions
    refresh     what follows from it: the predictions of every application in service there
    rest        what none of these is: the event loop, threads that wake each other, the clocks

Exit status 0; with --check 4 where the sum is more than a quarter of a core.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.service.echo_server import EchoServer
from benchmarks.service.load import (
    CORE_LIMIT,
    ONE_ADDRESS,
    REGISTERING,
    Agents,
    Cost,
    all_of,
    caught_up,
    fleet_parser,
    measured_on,
    steady,
)
from benchmarks.service.staged_server import FILE
from tests.server.process import ServerProcess

FLEET = 10_000
STAGES = (
    "admission",
    "decode",
    "service",
    "checks",
    "state",
    "queue",
    "store",
    "refresh",
)


class StagedServer(ServerProcess):
    """The server with clocks; ``stages()`` are the CPU seconds and calls so far."""

    module = "benchmarks.service.staged_server"

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._stages = folder / "stages.json"
        super().__init__(folder, settings=settings, env={FILE: str(self._stages)})

    def stages(self) -> tuple[dict[str, float], dict[str, int]]:
        self._stages.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 30.0
        while not self._stages.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("The server does not say where its time goes.")
            time.sleep(0.02)
        document = json.loads(self._stages.read_text(encoding="utf-8"))
        return document["seconds"], document["calls"]


async def measure(
    server: StagedServer, echo: EchoServer, options: argparse.Namespace
) -> dict[str, Any]:
    agents = Agents(server.grpc, echo.address, options)
    everyone = range(options.agents)
    try:
        for call in (agents.register, agents.report):
            await all_of([lambda agent=a, call=call: call(agent) for a in everyone], REGISTERING)
        caught_up_s = await caught_up(server, options.settle)
        seconds, calls = server.stages()
        sent, cost = agents.sent, Cost(psutil.Process(server.pid))
        await steady(agents, options.seconds)
        served = cost.document()
        after, calls_after = server.stages()
        sent = agents.sent - sent
        cost = Cost(psutil.Process(echo.pid))
        await steady(agents, options.seconds, echo=True)
        empty = cost.document()
    finally:
        await agents.close()
    reports = calls_after["service.Report"] - calls["service.Report"]
    if not reports:
        raise SystemExit("No report came in that time: measure longer, or with more agents.")
    taken = {name: after.get(name, 0.0) - seconds.get(name, 0.0) for name in STAGES}
    # As many calls came in either part, but for chance.
    taken["wire"] = empty["server_core"] * served["seconds"]
    taken["rest"] = served["server_cpu_s"] - sum(taken.values())
    scale = FLEET / options.agents
    return {
        "calls": reports,
        "fingerprints": sent,
        "failed": agents.failed,
        "caught_up_s": round(caught_up_s, 1),
        "generator_core": served["generator_core"],
        "stages": {
            name: {
                "microseconds": round(1e6 * taken[name] / reports, 1),
                "core": round(scale * taken[name] / served["seconds"], 4),
            }
            for name in ("wire", *STAGES, "rest")
        },
        "total": {
            "microseconds": round(1e6 * served["server_cpu_s"] / reports, 1),
            "core": round(scale * served["server_core"], 4),
        },
    }


def main() -> int:
    parser = fleet_parser(__doc__, settle_s=1.0)
    parser.add_argument("--period", type=float, default=60.0, help="of fingerprints, in seconds")
    parser.add_argument("--heartbeat", type=float, default=75.0, help="of heartbeats, in seconds")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each of the two parts")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kongming-ingest-account-") as name:
        server = StagedServer(Path(name), ONE_ADDRESS)
        figures = measured_on(server, options, measure)
    document = {
        "schema": 1,
        "benchmark": "service.ingest_account",
        "agents": options.agents,
        "applications": options.apps,
        "period_s": options.period,
        **figures,
        "limit_core": CORE_LIMIT,
        "took_s": round(time.monotonic() - begun, 1),
        "python": platform.python_version(),
    }
    print(json.dumps(document, indent=2))
    return 4 if options.check and figures["total"]["core"] > CORE_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
