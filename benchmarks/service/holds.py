"""How long the largest requests hold the server's event loop. Prints one JSON document.

    python -m benchmarks.service.holds [--agents 10000] [--apps 200] [--check]

A real server has as many nodes and models as it is made for, residents on some of the nodes, and a
clock at each step of its event loop. Then the largest request of each kind that the limits allow
comes, one after another, ``--times`` times: ``longest_ms`` is the longest step while it was
answered, in CPU time of the loop's own thread, so that a busy machine does not change it; nothing
else of the server has its turn for so long. ``first_ms`` is that of the first time, when modules
are loaded that nobody needed before. ``quiet`` is what the server does by itself meanwhile.

With --check the exit status is 4 where a step took more than 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc

from benchmarks.service.echo_server import EchoServer
from benchmarks.service.load import (
    ONE_ADDRESS,
    Agents,
    all_of,
    caught_up,
    fleet_parser,
    measured_on,
)
from benchmarks.service.rank import SETS, scale_file
from benchmarks.service.watched_server import FILE
from kongming.rpc.v1 import (
    assignments_pb2,
    assignments_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    predictor_pb2,
    predictor_pb2_grpc,
    profiles_pb2,
    profiles_pb2_grpc,
)
from kongming.scale.fit.model_file import seal
from kongming.store import Store
from kongming.store.models import SCALE
from tests.server.process import ServerProcess

LIMIT_MS = 50.0
_BATCH = 10_000
_JOB = 64
_AT_ONCE = 16
_MESSAGE_BYTES = 4 << 20
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

Call = Callable[[], Awaitable[object]]


class WatchedServer(ServerProcess):
    """``longest()`` is the longest step since it was last called."""

    module = "benchmarks.service.watched_server"

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._file = folder / "holds.json"
        super().__init__(folder, settings=settings, env={FILE: str(self._file)})

    async def longest(self) -> dict[str, Any]:
        self._file.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 60.0
        while not self._file.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("The server does not say how long its steps were.")
            await asyncio.sleep(0.02)
        step: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        return step


def requests(agents: Agents, channel: grpc.aio.Channel, http: str, apps: int) -> dict[str, Call]:
    """The largest of each kind."""
    predictor = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
    fleet = fleet_pb2_grpc.FleetStub(channel)  # type: ignore[no-untyped-call]
    assignments = assignments_pb2_grpc.AssignmentsStub(channel)  # type: ignore[no-untyped-call]
    profiles = profiles_pb2_grpc.ProfilesStub(channel)  # type: ignore[no-untyped-call]
    nodes = [facts.id for facts in agents.facts]
    app = "app-001"

    def rank(**given: Any) -> Call:
        return lambda: predictor.RankNodes(predictor_pb2.RankNodesRequest(app=app, **given))

    def job(size: int) -> predictor_pb2.Scaling:
        return predictor_pb2.Scaling(machines=size, model="job")

    def batch(**given: Any) -> predictor_pb2.PredictRequest:
        questions = [
            predictor_pb2.PredictQuestion(
                app=f"app-{n % apps:03}", node=nodes[n % len(nodes)], **given
            )
            for n in range(_BATCH)
        ]
        return predictor_pb2.PredictRequest(questions=questions)

    def of_a_job(size: int) -> Call:
        chosen = nodes[:size]
        question = predictor_pb2.PredictQuestion(app=app, nodes=chosen, scaling=job(len(chosen)))
        return lambda: predictor.Predict(predictor_pb2.PredictRequest(questions=[question]))

    def explain() -> Awaitable[object]:
        question = predictor_pb2.PredictQuestion(app=app, node=nodes[0])
        return predictor.Explain(predictor_pb2.ExplainRequest(question=question))  # type: ignore[no-any-return]

    each = agents._report(0, 1).ByteSize()
    reporters = itertools.cycle(range(len(nodes)))

    async def get(path: str) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{http}{path}") as response,
        ):
            # A node that has not reported for long is not found: that is an answer, too.
            if response.status != 404:
                response.raise_for_status()
            await response.read()

    return {
        "rank_10": rank(limit=10),
        "rank_all": rank(limit=len(nodes)),
        "rank_named": rank(limit=len(nodes), nodes=nodes[:_BATCH]),
        "rank_limits": rank(limit=len(nodes), slowdown_limit=8.0, resident_slowdown_limit=8.0),
        "rank_history": rank(
            limit=len(nodes), stale_policy=predictor_pb2.STALE_POLICY_HISTORY, resident_weight=3.0
        ),
        **{f"rank_set_{size}": rank(limit=1, scaling=job(size)) for size in SETS},
        "rank_set_64_many": rank(limit=len(nodes) // _JOB, scaling=job(_JOB)),
        "predict_batch": lambda: predictor.Predict(batch()),
        "predict_job_64": of_a_job(_JOB),
        "predict_job_all": of_a_job(len(nodes)),
        "explain": explain,
        "list_nodes": lambda: fleet.ListNodes(fleet_pb2.ListNodesRequest()),
        "list_assignments": lambda: assignments.ListAssignments(
            assignments_pb2.ListAssignmentsRequest(ended=True)
        ),
        "list_models": lambda: profiles.ListModels(profiles_pb2.ListModelsRequest()),
        "list_applications": lambda: profiles.ListApplications(
            profiles_pb2.ListApplicationsRequest()
        ),
        "metrics": lambda: get("/metrics"),
        "watcher": lambda: get("/watcher"),
        "watcher_host": lambda: get(f"/watcher?host={agents.facts[0].name}"),
        # Of another agent each time: what one brings so fast has to wait.
        "report": lambda: agents.report(next(reporters), int(0.9 * _MESSAGE_BYTES / each)),
    }


async def place(channel: grpc.aio.Channel, agents: Agents, residents: int, apps: int) -> None:
    """Residents on the first nodes."""
    stub = assignments_pb2_grpc.AssignmentsStub(channel)  # type: ignore[no-untyped-call]
    bound = [
        assignments_pb2.BindRequest(
            assignment_id=f"resident-{n}",
            app=f"app-{n % apps:03}",
            node=agents.facts[n % len(agents.facts)].id,
        )
        for n in range(residents)
    ]
    await all_of(
        [lambda request=request: stub.Bind(request, timeout=60) for request in bound], _AT_ONCE
    )


async def measure(
    server: WatchedServer, echo: EchoServer, options: argparse.Namespace
) -> dict[str, Any]:
    agents = Agents(server.grpc, echo.address, options)
    figures: dict[str, Any] = {}
    try:
        async with grpc.aio.insecure_channel(server.grpc, _UNLIMITED) as channel:
            everyone = range(options.agents)
            for call in (agents.register, agents.report):
                calls = [lambda agent=a, call=call: call(agent) for a in everyone]
                await all_of(calls, _AT_ONCE)
            await place(channel, agents, options.residents, options.apps)
            await caught_up(server, options.settle)
            await server.longest()
            await asyncio.sleep(options.quiet)
            figures["quiet"] = _summary([await server.longest()], 0.0)
            for kind, ask in requests(agents, channel, server.http, options.apps).items():
                steps, begun = [], time.perf_counter()
                for _ in range(options.times):
                    try:
                        await asyncio.wait_for(ask(), 300.0)
                    except grpc.aio.AioRpcError as error:
                        raise SystemExit(f"{kind}: {error.code().name} {error.details()}") from None
                    except aiohttp.ClientError as error:
                        raise SystemExit(f"{kind}: {error}") from None
                    steps.append(await server.longest())
                figures[kind] = _summary(steps, (time.perf_counter() - begun) / options.times)
                print(f"{kind}: {figures[kind]}", file=sys.stderr)
    finally:
        await agents.close()
    return figures


def _summary(steps: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    first, *later = (step.get("cpu_ms", 0.0) for step in steps)
    worst = max(steps, key=lambda step: float(step.get("cpu_ms", 0.0)))
    return {
        "longest_ms": round(max(later, default=first), 1),
        "first_ms": round(first, 1),
        "step": worst.get("step", ""),
        "call_s": round(seconds, 2),
    }


def main() -> int:
    parser = fleet_parser(__doc__, settle_s=1.0)
    parser.add_argument("--residents", type=int, default=2_000)
    parser.add_argument("--times", type=int, default=4, help="each request comes")
    parser.add_argument("--quiet", type=float, default=5.0, help="seconds without a request")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kongming-holds-") as name:
        server = WatchedServer(Path(name), ONE_ADDRESS)
        with Store.open(server.store_url) as store:
            store.put_model("scale:job", SCALE, "", SCALE, seal(scale_file()))
        figures = measured_on(server, options, measure)
    over = [
        kind
        for kind, figure in figures.items()
        if max(figure["longest_ms"], figure["first_ms"]) > LIMIT_MS
    ]
    document = {
        "schema": 1,
        "benchmark": "service.holds",
        "agents": options.agents,
        "applications": options.apps,
        "residents": options.residents,
        "holds": figures,
        "limit_ms": LIMIT_MS,
        "over": over,
        "python": platform.python_version(),
    }
    print(json.dumps(document, indent=2))
    return 4 if options.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
