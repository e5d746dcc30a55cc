"""What a prediction costs, compared with an echo in a server of its own. Prints one JSON document.

A real server is started with one application, one node and a live fingerprint. The echo is a
unary call of messages of the same size as the question and its answer, to a process that serves
nothing else, with the same gRPC options and without interceptors. Callers are coroutines of this
one process, each with one call under way; blocks of both calls and of all numbers of callers come
in random order, so that a phase of the machine cannot hit one of them alone.

    python -m benchmarks.service.predict [--rounds 30] [--seconds 0.4] [--check]

The ratios are medians over rounds of the ratio within the round, and of all latencies together.
With --check the exit status is 4 where p50 is above 1.5 times the echo's, or p99 above 2 times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue

from benchmarks.service.echo_server import EchoServer, echo_call
from kongming.learning.training import train_application
from kongming.rpc.v1 import predictor_pb2, predictor_pb2_grpc
from kongming.store import Store
from tests import builders
from tests.models import synthetic
from tests.server.fleet import FakeAgent, moment
from tests.server.process import ServerProcess

CALLERS = (1, 8)
KINDS = ("predict", "echo")
LIMITS = {"p50": 1.5, "p99": 2.0}
APP, NODE = "fft", "node-1"

Call = Callable[[], Awaitable[object]]


def prepare(folder: Path) -> str:
    """A store with a node, its reference and a trained application; returns its URL."""
    url = f"sqlite:///{folder / 'server.db'}"
    runs = synthetic.campaign(APP, {"memory.random.128M": 0.6})
    document = train_application(runs)
    with Store.open(url) as store:
        store.put_node(builders.node())
        store.add_all(runs=runs, signatures=[synthetic.signature(APP, {"memory": 0.5})])
        store.put_model(APP, document["identity"], NODE, "cross-core", document)
    return url


def report(server: ServerProcess) -> None:
    """Report as the node's agent: its reference, and a live fingerprint."""
    agent = FakeAgent(server.channel(), NODE)
    idle = builders.fingerprint(synthetic.IDLE, started_at=moment(60), node=agent.facts)
    loaded = {name: seconds * 1.3 for name, seconds in synthetic.IDLE.items()}
    live = builders.fingerprint(loaded, started_at=moment(), node=agent.facts)
    agent.register(references=[idle])
    agent.report(live)


def question() -> predictor_pb2.PredictRequest:
    return predictor_pb2.PredictRequest(
        request_id="default/job-7f9c-42",
        questions=[predictor_pb2.PredictQuestion(app=APP, node=NODE)],
    )


def padding(size: int, prefix: bytes = b"") -> BytesValue:
    """A BytesValue that takes ``size`` bytes on the wire."""
    length = size
    while length > 0 and BytesValue(value=bytes(length)).ByteSize() > size:
        length -= 1
    return BytesValue(value=prefix + bytes(max(length - len(prefix), 0)))


async def block(call: Call, callers: int, seconds: float) -> list[float]:
    """Latencies in seconds of ``callers`` that each ask again as soon as they are answered."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def ask() -> None:
        while (begun := time.perf_counter()) < end:
            await call()
            latencies.append(time.perf_counter() - begun)

    await asyncio.gather(*(ask() for _ in range(callers)))
    return latencies


def quantiles(latencies: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return {"p50": cuts[49], "p99": cuts[98]}


async def measure(
    address: str, echo_address: str, rounds: int, seconds: float, seed: int
) -> dict[str, Any]:
    order = random.Random(seed)
    async with (
        grpc.aio.insecure_channel(address) as channel,
        grpc.aio.insecure_channel(echo_address) as echo_channel,
    ):
        stub = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
        request = question()
        answered = await stub.Predict(request)
        if answered.answers[0].prediction.basis != predictor_pb2.BASIS_MODEL:
            raise SystemExit(f"The server does not predict: {answered}")
        echo_asked = padding(request.ByteSize(), _length(answered).to_bytes(4, "big"))
        echo = echo_call(echo_channel)
        echoed = await echo(echo_asked)
        calls: dict[str, Call] = {
            "predict": lambda: stub.Predict(request),
            "echo": lambda: echo(echo_asked),
        }
        latencies: dict[tuple[str, int], list[list[float]]] = {
            (kind, callers): [] for kind in KINDS for callers in CALLERS
        }
        for kind, callers in latencies:  # not counted
            await block(calls[kind], callers, seconds)
        for _ in range(rounds):
            blocks = list(latencies)
            order.shuffle(blocks)
            for kind, callers in blocks:
                latencies[kind, callers].append(await block(calls[kind], callers, seconds))
    sizes = {
        "request_bytes": {"predict": request.ByteSize(), "echo": echo_asked.ByteSize()},
        "response_bytes": {"predict": answered.ByteSize(), "echo": echoed.ByteSize()},
    }
    return sizes | {"callers": {str(callers): _compared(latencies, callers) for callers in CALLERS}}


def _length(answered: Message) -> int:
    return len(padding(answered.ByteSize()).value)


def _compared(blocks: dict[tuple[str, int], list[list[float]]], callers: int) -> dict[str, Any]:
    rounds = {kind: [quantiles(latencies) for latencies in blocks[kind, callers]] for kind in KINDS}
    overall = {
        kind: quantiles([latency for part in blocks[kind, callers] for latency in part])
        for kind in KINDS
    }
    ratio = {
        name: statistics.median(
            mine[name] / its[name]
            for mine, its in zip(rounds["predict"], rounds["echo"], strict=True)
        )
        for name in LIMITS
    }
    return {
        **{
            kind: {
                "calls": sum(map(len, blocks[kind, callers])),
                **{f"{name}_us": round(value * 1e6, 1) for name, value in overall[kind].items()},
            }
            for kind in KINDS
        },
        "ratio": {name: round(value, 3) for name, value in ratio.items()},
        "ratio_of_all": {
            name: round(overall["predict"][name] / overall["echo"][name], 3) for name in LIMITS
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one block")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="exit 4 above the limits")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = ServerProcess(folder, store_url=prepare(folder))
        try:
            server.start()
            report(server)
            with EchoServer() as echo:
                measured = asyncio.run(
                    measure(
                        server.grpc, echo.address, options.rounds, options.seconds, options.seed
                    )
                )
        finally:
            server.close()
    over = [
        f"{name} at {callers} callers"
        for callers, figures in measured["callers"].items()
        for name, limit in LIMITS.items()
        if figures["ratio"][name] > limit
    ]
    machine = {"cpus": os.cpu_count(), "python": sys.version.split()[0], "grpc": grpc.__version__}
    print(json.dumps(measured | {"limits": LIMITS, "over": over, "machine": machine}, indent=2))
    return 4 if options.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
