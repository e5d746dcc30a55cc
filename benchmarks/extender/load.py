"""Cost of the extender's responses in a large cluster. Prints one JSON document.

A simulated KONGMING server, in a process of its own, knows all nodes. The extender runs in this
process, and so does a bare HTTP handler that sends the same responses without parsing the
requests. Requests come one after the other over one connection, as the scheduler sends them, by
turns, from another process:

    filter, prioritize     of a pod that names its application, with a limit that a third of the
                           nodes is above; the rankings are in the cache
    names, nodes           with nodeCacheCapable (names alone) and without (complete nodes, --images
                           images each)
    server_ms              from the complete request to its response, as in the extender's metric
    wall_ms                what the scheduler waits for: sending, reading and TCP included
    echo_ms                the same of the bare handler, for the same bodies

and ``first_ms`` is a first response, for which the server ranks every node.

Target: p99 of server_ms under 50 ms with 5,000 nodes. Run it on an idle machine. Exit status 0; 4
with --check when the target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent import futures
from dataclasses import replace
from http.client import HTTPConnection
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import grpc
from aiohttp import web
from kongming_extender import app as extender_app
from kongming_extender.extender_config import Config, Extender, Pods, Server

from kongming.rpc.v1 import fleet_pb2, fleet_pb2_grpc, predictor_pb2, predictor_pb2_grpc

LIMIT_MS = 50.0


class Fleet(fleet_pb2_grpc.FleetServicer):
    def __init__(self, nodes: int) -> None:
        self.answer = fleet_pb2.ListNodesResponse()
        for n in range(nodes):
            node = self.answer.nodes.add(state=fleet_pb2.NODE_STATE_READY)
            node.facts.id, node.facts.name = f"id-{n:05}", name_of(n)

    def ListNodes(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.answer


class Predictor(predictor_pb2_grpc.PredictorServicer):
    """A third of the nodes is slowed beyond the limit."""

    def RankNodes(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = predictor_pb2.RankNodesResponse(basis=predictor_pb2.BASIS_MODEL)
        for id_ in request.nodes:
            n = int(id_.removeprefix("id-"))
            slowdown = 1.0 + (n % 30) / 30.0
            node = answer.nodes.add(
                node_id=id_, name=name_of(n), score=slowdown - 1.0, worst_resident_slowdown=1.0
            )
            node.slowdown.median = node.slowdown.upper = slowdown
            node.slowdown.lower, node.slowdown.level = 1.0, 0.9
        return answer


def name_of(n: int) -> str:
    return f"ip-10-{n // 65536}-{n // 256 % 256}-{n % 256}.ec2.internal"


def pod() -> dict[str, Any]:
    return {
        "metadata": {
            "name": "etl-1",
            "namespace": "default",
            "uid": "3f0c2a5e-7d0b-4c6e-9a55-0d6f1f2b7a10",
            "annotations": {"kongming.dev/app": "etl", "kongming.dev/limit": "1.66"},
        },
        "spec": {"containers": [{"name": "main", "image": "etl:1"}]},
        "status": {"phase": "Pending"},
    }


def node(n: int, images: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name_of(n),
            "uid": f"{n:08x}-0000-4000-8000-000000000000",
            "resourceVersion": str(10**6 + n),
            "labels": {f"topology.kubernetes.io/label-{k}": f"value-{n}-{k}" for k in range(8)},
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"aws:///zone/i-{n:017x}"},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [
                {"type": kind, "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": [
                {"names": [f"registry.example/team/app-{k}@sha256:{k:064x}"], "sizeBytes": 10**8}
                for k in range(images)
            ],
        },
    }


def bodies(nodes: int, images: int) -> dict[str, bytes]:
    def compact(document: Any) -> bytes:
        return json.dumps(document, separators=(",", ":")).encode()

    names = [name_of(n) for n in range(nodes)]
    node_list = {"metadata": {}, "items": [node(n, images) for n in range(nodes)]}
    return {
        "names": compact({"Pod": pod(), "Nodes": None, "NodeNames": names}),
        "nodes": compact({"Pod": pod(), "Nodes": node_list, "NodeNames": None}),
    }


def ask(address: str, requests: Sequence[tuple[str, bytes]], repeats: int) -> list[list[float]]:
    """Seconds of each request, in turns; in a process of its own."""
    host, _, port = address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=60)
    walls: list[list[float]] = [[] for _ in requests]
    for _ in range(repeats):
        for place, (path, body) in enumerate(requests):
            begun = time.perf_counter()
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            walls[place].append(time.perf_counter() - begun)
            assert answer.status == 200, answer.status
    connection.close()
    return walls


def percentiles_ms(times_s: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times_s)
    last = len(ordered) - 1
    return {
        name: round(1e3 * ordered[min(last, round(share * last))], 2)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


class Timed:
    """Replaces the histogram by a list of all values."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self._verb = ""

    def labels(self, verb: str) -> Timed:
        self._verb = verb
        return self

    def observe(self, seconds: float) -> None:
        self.seconds.setdefault(self._verb, []).append(seconds)


async def measure(options: argparse.Namespace, server: str) -> dict[str, Any]:
    config = Config(
        extender=Extender(listen="127.0.0.1:0"),
        server=replace(Server(), address=server, deadline_s=30.0),
        pods=Pods(watch=False),
    )
    app = extender_app.App(config)
    address = await app.start()
    timed = Timed()
    app.metrics.request_seconds = timed  # type: ignore[assignment]
    echoed: dict[str, bytes] = {}
    echo, runner = await echo_handler(echoed)
    loop = asyncio.get_running_loop()
    result: dict[str, Any] = {}
    with futures.ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for mode, body in bodies(options.nodes, options.images).items():
            requests = [("/filter", body), ("/prioritize", body)]
            if mode == "names":
                (first, *_) = await loop.run_in_executor(pool, ask, address, requests[:1], 1)
                result["first_ms"] = round(1e3 * first[0], 1)
            for verb, answer in await answers(address, requests):
                echoed[verb] = answer
            await loop.run_in_executor(pool, ask, address, requests, 3)
            timed.seconds.clear()
            walls = await loop.run_in_executor(pool, ask, address, requests, options.repeats)
            echo_walls = await loop.run_in_executor(pool, ask, echo, requests, options.repeats)
            for place, (path, _) in enumerate(requests):
                verb = path.removeprefix("/")
                result[f"{verb}_{mode}"] = {
                    "server_ms": percentiles_ms(timed.seconds[verb]),
                    "wall_ms": percentiles_ms(walls[place]),
                    "echo_ms": percentiles_ms(echo_walls[place]),
                    "request_bytes": len(body),
                    "answer_bytes": len(echoed[path]),
                }
    await runner.cleanup()
    await app.stop()
    return result


async def answers(address: str, requests: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    import aiohttp

    bodies = []
    async with aiohttp.ClientSession() as session:
        for path, body in requests:
            async with session.post(f"http://{address}{path}", data=body) as answer:
                bodies.append((path, await answer.read()))
    return bodies


async def echo_handler(echoed: dict[str, bytes]) -> tuple[str, web.AppRunner]:
    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=echoed[request.path], content_type="application/json")

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/{verb}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return "{}:{}".format(*runner.addresses[0][:2]), runner


def serve(nodes: int, ports: Connection) -> None:
    """Serve in a process of its own, whose time is not the extender's."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    fleet_pb2_grpc.add_FleetServicer_to_server(Fleet(nodes), server)
    predictor_pb2_grpc.add_PredictorServicer_to_server(Predictor(), server)
    ports.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def run(options: argparse.Namespace) -> dict[str, Any]:
    spawn = get_context("spawn")
    here, there = spawn.Pipe()
    server = spawn.Process(target=serve, args=(options.nodes, there), daemon=True)
    server.start()
    try:
        result = asyncio.run(measure(options, f"127.0.0.1:{here.recv()}"))
    finally:
        server.terminate()
        server.join()
    worst = max(row["server_ms"]["p99"] for row in result.values() if isinstance(row, dict))
    return {
        "schema": 1,
        "benchmark": "extender",
        "met": worst < LIMIT_MS,
        "targets": {"server_p99_ms": LIMIT_MS},
        "nodes": options.nodes,
        "images_per_node": options.images,
        "repeats": options.repeats,
        **result,
        "python": sys.version.split()[0],
        "load1": os.getloadavg()[0],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--images", type=int, default=10, help="in each node's status")
    parser.add_argument("--repeats", type=int, default=100, help="timed requests of each kind")
    parser.add_argument("--check", action="store_true", help="exit 4 when the target is missed")
    options = parser.parse_args()
    if min(options.nodes, options.repeats) < 1 or options.images < 0:
        parser.error("--nodes and --repeats must be 1 or more, --images 0 or more")
    document = run(options)
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
