"""A server of one checkout with a small fleet, called when its standard input says so.

Started by ``by_turns.py``, with the modules of the checkout that PYTHONPATH names. A line of input
is the name of a call; the answer is a line with the seconds that each of a turn's calls took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from benchmarks.service import load
from kongming.rpc.v1 import predictor_pb2, predictor_pb2_grpc


async def answer(server: Any, echo: load.EchoServer, options: argparse.Namespace) -> dict[str, Any]:
    """Bring the fleet up, then call the server by turns until the input ends."""
    agents = load.Agents(server.grpc, echo.address, options)
    every = range(options.agents)
    try:
        await load.all_of([lambda n=n: agents.register(n) for n in every], load.REGISTERING)
        await load.all_of([lambda n=n: agents.report(n) for n in every], load.REGISTERING)
        await load.caught_up(server, 1.0)
        async with grpc.aio.insecure_channel(server.grpc) as channel:
            stub = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
            calls = calls_of(stub, [facts.id for facts in agents.facts], options)
            print(json.dumps(sorted(calls)), flush=True)
            loop = asyncio.get_running_loop()
            while call := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
                taken = []
                for _ in range(options.calls):
                    began = time.perf_counter()
                    await calls[call]()
                    taken.append(time.perf_counter() - began)
                print(json.dumps(taken), flush=True)
    finally:
        await agents.close()
    return {}


def calls_of(
    stub: Any, nodes: list[str], options: argparse.Namespace
) -> dict[str, Callable[[], Awaitable[object]]]:
    """What is called, by name; the same seed gives the same calls."""
    source = random.Random(options.seed)

    def app() -> str:
        return f"app-{source.randrange(options.apps):03}"

    def predict() -> Awaitable[object]:
        question = predictor_pb2.PredictQuestion(app=app(), node=source.choice(nodes))
        request = predictor_pb2.PredictRequest(questions=[question])
        return stub.Predict(request, timeout=30)  # type: ignore[no-any-return]

    def rank() -> Awaitable[object]:
        request = predictor_pb2.RankNodesRequest(app=app(), limit=10)
        return stub.RankNodes(request, timeout=30)  # type: ignore[no-any-return]

    return {"Predict": predict, "RankNodes": rank}


def main() -> None:
    parser = load.fleet_parser(__doc__, settle_s=1.0)
    parser.add_argument("--calls", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kongming-by-turns-") as name:
        server = load.ServerProcess(Path(name), store_url=None, settings=dict(load.ONE_ADDRESS))
        load.measured_on(server, options, answer)


if __name__ == "__main__":
    main()
