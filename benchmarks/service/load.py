"""Ten thousand agents against a real server, by the real protocol. Prints one JSON document.

    python -m benchmarks.service.load [--agents 10000] [--seconds 30] [--store URL] [--check]

A real server is started on an empty store (SQLite in the folder for temporary files, or --store)
with made-up models of --apps applications. Every agent registers with a reference, and then sends
what a real one sends, when it would: a fingerprint every --period seconds, a fifth more or less,
with a heartbeat in the same call, and a heartbeat alone where it has sent nothing for --heartbeat
seconds. The fingerprints are a recorded quick one, varied. What the agents share, unlike real
ones, is --connections TCP connections and one process.

    register        every agent once, 256 at a time: calls a second and CPU seconds of the server
    steady          so many agents at one fingerprint a period each: the server's share of one
                    core, milliseconds that a call took, fingerprints that were sent and accepted;
                    from when the server has caught up with all that came at once. echo_core is
                    what as many calls of as many bytes take that do nothing, in a server of their
                    own while this one is idle
    rank            the ten best of all nodes for one application after another, from end to end,
                    next to an echo of as many bytes: the limit is 1.5 times the echo and 4 ms
    burst           what is sent as fast as it is taken, as after an outage: 20 at a time
    memory_mib      of the server at the end, resident and proportional
    generator_core  share of one core that this process took meanwhile: near 1, and the figures of
                    steady and burst are those of the generator

Exit status 0; with --check 4 when the share is a quarter of a core or more, the memory 512 MiB or
more, or a fingerprint was not accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import random
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import psutil

from benchmarks.service.echo_server import EchoServer, echo_call, echo_request
from benchmarks.service.rank import RANK_MS, Fleet
from benchmarks.service.samples import nodes, recorded, varied
from kongming.learning.model_file import seal
from kongming.rpc.record_codec import fingerprint_to_message, node_to_message
from kongming.rpc.v1 import fleet_pb2, fleet_pb2_grpc, predictor_pb2, predictor_pb2_grpc
from kongming.store import Store
from tests.server.process import ServerProcess

CORE_LIMIT, MEMORY_LIMIT_MIB = 0.25, 512.0
REGISTERING = 256
STREAMS, IN_A_STREAM = 16, 20
_SAMPLES = 500
_TICK_S = 0.01
_REPORT_ANSWER_BYTES = 64
_RANKINGS = 500
_STALENESS = "kongming_server_matrix_staleness_seconds"
_CATCHING_UP_S = 300.0


class Agents:
    """All agents of the fleet: their connections, sequence numbers and latencies."""

    def __init__(self, address: str, echo_address: str, options: argparse.Namespace) -> None:
        self.options = options
        self.source = random.Random(options.seed)
        like = recorded()
        self.facts = nodes(options.agents, like.node)
        self.sequences = [0] * options.agents
        now = time.time()
        self._samples = []
        for _ in range(_SAMPLES):
            message = fingerprint_to_message(varied(like, like.node, now, self.source))
            message.ClearField("node")
            self._samples.append(message)
        self._reference = fingerprint_to_message(like)
        pool = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [
            grpc.aio.insecure_channel(address, options=pool) for _ in range(options.connections)
        ]
        self._stubs = [
            fleet_pb2_grpc.FleetStub(channel)  # type: ignore[no-untyped-call]
            for channel in self._channels
        ]
        self._echo_channels = [
            grpc.aio.insecure_channel(echo_address, options=pool)
            for _ in range(options.connections)
        ]
        self._echoes = [echo_call(channel) for channel in self._echo_channels]
        self.latencies: dict[str, list[float]] = {"fingerprint": [], "heartbeat": []}
        self.sent = self.accepted = 0
        self.failed: dict[str, int] = {}

    def stub(self, agent: int) -> Any:
        return self._stubs[agent % len(self._stubs)]

    async def close(self) -> None:
        channels = (*self._channels, *self._echo_channels)
        await asyncio.gather(*(channel.close() for channel in channels))

    async def register(self, agent: int) -> None:
        node = node_to_message(self.facts[agent])
        reference = type(self._reference)()
        reference.CopyFrom(self._reference)
        reference.node.CopyFrom(node)
        reference.id = self._id()
        await self.stub(agent).Register(
            fleet_pb2.RegisterRequest(
                node=node,
                agent_version="0",
                suite_version=reference.suite_version,
                references=[reference],
            ),
            timeout=30,
        )

    async def report(self, agent: int, count: int = 1) -> None:
        """``count`` fingerprints, and a heartbeat with them."""
        self.sent += count
        request = self._report(agent, count)
        begun = time.perf_counter()
        response = await self.stub(agent).Report(request, timeout=30)
        self.accepted += len(response.accepted)
        self.latencies["fingerprint"].append(time.perf_counter() - begun)

    async def heartbeat(self, agent: int) -> None:
        request = self._report(agent, 0)
        begun = time.perf_counter()
        await self.stub(agent).Report(request, timeout=30)
        self.latencies["heartbeat"].append(time.perf_counter() - begun)

    async def echo(self, agent: int, fingerprint: bool) -> None:
        report = self._report(agent, 1 if fingerprint else 0)
        request = echo_request(report.SerializeToString(), _REPORT_ANSWER_BYTES)
        await self._echoes[agent % len(self._echoes)](request, timeout=30)

    async def counted(self, call: Awaitable[None]) -> None:
        """A call that may fail: by which status it did is counted."""
        try:
            await call
        except grpc.aio.AioRpcError as error:
            name = error.code().name
            self.failed[name] = self.failed.get(name, 0) + 1

    def _report(self, agent: int, count: int) -> fleet_pb2.ReportRequest:
        return fleet_pb2.ReportRequest(
            node_id=self.facts[agent].id,
            fingerprints=[self._reported(agent) for _ in range(count)],
            heartbeat=fleet_pb2.Heartbeat(
                probe_cost=0.006,
                passive={"cpu_busy": self.source.random(), "psi_memory_full": 0.0},
            ),
        )

    def _reported(self, agent: int) -> fleet_pb2.ReportedFingerprint:
        self.sequences[agent] += 1
        reported = fleet_pb2.ReportedFingerprint(
            sequence=self.sequences[agent],
            purpose=fleet_pb2.PURPOSE_LIVE,
            fingerprint=self.source.choice(self._samples),
        )
        reported.fingerprint.id = self._id()
        reported.fingerprint.started_at.FromNanoseconds(time.time_ns())
        return reported

    def _id(self) -> str:
        return f"{self.source.getrandbits(128):032x}"


class Cost:
    """CPU seconds of the server and of this process since it was made."""

    def __init__(self, server: psutil.Process) -> None:
        self._server, self._own = server, psutil.Process()
        self._before = (_cpu(server), _cpu(self._own))
        self._began = time.perf_counter()

    def document(self) -> dict[str, float]:
        wall = time.perf_counter() - self._began
        server = _cpu(self._server) - self._before[0]
        own = _cpu(self._own) - self._before[1]
        return {
            "seconds": round(wall, 2),
            "server_cpu_s": round(server, 2),
            "server_core": round(server / wall, 4),
            "generator_core": round(own / wall, 4),
        }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def all_of(calls: Iterable[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Every call, so many under way at one time."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(work() for _ in range(at_once)))


async def steady(agents: Agents, seconds: float, *, echo: bool = False) -> None:
    """Calls when they are due, whether or not the ones before were answered; with ``echo`` to one
    that takes as many bytes and does nothing."""
    under_way: set[asyncio.Task[None]] = set()
    schedule = Schedule(agents.options, agents.source)
    began = time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        for agent, fingerprint in schedule.due(passed):
            if echo:
                call = agents.echo(agent, fingerprint)
            else:
                call = agents.report(agent) if fingerprint else agents.heartbeat(agent)
            task = asyncio.create_task(agents.counted(call))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.sleep(_TICK_S)
    await asyncio.gather(*under_way)


class Schedule:
    """When each agent sends what; times are seconds from the beginning."""

    def __init__(self, options: argparse.Namespace, source: random.Random) -> None:
        self._options, self._source = options, source
        # As if they had been running for long.
        self._fingerprint = [source.uniform(0.0, options.period) for _ in range(options.agents)]
        self._heap: list[tuple[float, int]] = []
        for agent in range(options.agents):
            self._next(agent, source.uniform(0.0, options.heartbeat))

    def due(self, now: float) -> Iterator[tuple[int, bool]]:
        """Agents whose time has come, and whether it is for a fingerprint."""
        while self._heap and self._heap[0][0] <= now:
            at, agent = heapq.heappop(self._heap)
            fingerprint = at >= self._fingerprint[agent]
            if fingerprint:
                period = self._source.uniform(0.8, 1.2) * self._options.period
                self._fingerprint[agent] = at + period
            yield agent, fingerprint
            self._next(agent, at + self._source.uniform(1.0, 1.1) * self._options.heartbeat)

    def _next(self, agent: int, beat: float) -> None:
        heapq.heappush(self._heap, (min(beat, self._fingerprint[agent]), agent))


async def rankings(address: str, echo_address: str, options: argparse.Namespace) -> dict[str, Any]:
    """The ten best of all nodes as a scheduler gets them, and an echo of as many bytes, by turn."""
    random_ = random.Random(options.seed)
    taken: dict[str, list[float]] = {"rank": [], "echo": []}
    async with (
        grpc.aio.insecure_channel(address) as channel,
        grpc.aio.insecure_channel(echo_address) as echo_channel,
    ):
        predictor = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
        echo = echo_call(echo_channel)
        for _ in range(_RANKINGS):
            app = f"app-{random_.randrange(options.apps):03}"
            request = predictor_pb2.RankNodesRequest(app=app, limit=10)
            begun = time.perf_counter()
            answered = await predictor.RankNodes(request, timeout=30)
            middle = time.perf_counter()
            padded = echo_request(request.SerializeToString(), answered.ByteSize())
            again = time.perf_counter()
            await echo(padded, timeout=30)
            taken["echo"].append(time.perf_counter() - again)
            taken["rank"].append(middle - begun)
    ms = {kind: _quantiles_ms(times) for kind, times in taken.items()}
    limits = {name: 1.5 * ms["echo"][name] + RANK_MS for name in ms["echo"]}
    return {
        "ms": ms,
        "limit_ms": {name: round(limit, 3) for name, limit in limits.items()},
        "met": all(ms["rank"][name] <= limit for name, limit in limits.items()),
    }


async def burst(agents: Agents, seconds: float) -> None:
    end = time.perf_counter() + seconds

    async def work(first: int) -> None:
        agent = first
        while time.perf_counter() < end:
            await agents.counted(agents.report(agent % len(agents.facts), IN_A_STREAM))
            agent += STREAMS

    await asyncio.gather(*(work(number) for number in range(STREAMS)))


async def measure(
    server: ServerProcess, echo: EchoServer, options: argparse.Namespace
) -> dict[str, Any]:
    process = psutil.Process(server.pid)
    agents = Agents(server.grpc, echo.address, options)
    try:
        cost = Cost(process)
        calls = [lambda agent=agent: agents.register(agent) for agent in range(options.agents)]
        await all_of(calls, REGISTERING)
        registered = cost.document()
        registered["per_second"] = round(options.agents / registered["seconds"], 1)

        # Every node has a live fingerprint before anything is timed.
        await all_of(
            [lambda agent=agent: agents.report(agent) for agent in range(options.agents)],
            REGISTERING,
        )
        caught_up_s = await caught_up(server, options.settle)
        before = agents.sent, agents.accepted
        for latencies in agents.latencies.values():
            latencies.clear()
        cost = Cost(process)
        await steady(agents, options.seconds)
        at_rest: dict[str, Any] = cost.document()
        at_rest["fingerprints_sent"] = agents.sent - before[0]
        at_rest["fingerprints_accepted"] = agents.accepted - before[1]
        at_rest["ms"] = {
            kind: _quantiles_ms(latencies) for kind, latencies in agents.latencies.items()
        }
        at_rest["failed"] = dict(agents.failed)
        cost = Cost(psutil.Process(echo.pid))
        await steady(agents, options.seconds, echo=True)
        at_rest["echo_core"] = cost.document()["server_core"]
        ranked = await rankings(server.grpc, echo.address, options)
        at_rest["caught_up_s"] = round(caught_up_s, 1)

        agents.failed.clear()
        before_burst = agents.accepted
        cost = Cost(process)
        await burst(agents, options.burst)
        at_most: dict[str, Any] = cost.document()
        accepted = agents.accepted - before_burst
        at_most["accepted_per_second"] = round(accepted / at_most["seconds"], 1)
        at_most["server_cpu_us_each"] = round(1e6 * at_most["server_cpu_s"] / max(1, accepted), 1)
        at_most["failed"] = dict(agents.failed)
        memory = process.memory_full_info()
    finally:
        await agents.close()
    return {
        "register": registered,
        "steady": at_rest,
        "rank": ranked,
        "burst": at_most,
        "memory_mib": {
            "resident": round(memory.rss / 2**20, 1),
            "proportional": round(memory.pss / 2**20, 1),
        },
    }


async def caught_up(server: ServerProcess, least_s: float) -> float:
    """Waits until the server has worked out what it predicts for the whole fleet, which is no
    part of a steady state; how long that took, in seconds."""
    began = time.perf_counter()
    await asyncio.sleep(least_s)
    while time.perf_counter() - began < _CATCHING_UP_S:
        lines = (await asyncio.to_thread(server.get, "/metrics")).splitlines()
        (line,) = (metric for metric in lines if metric.startswith(f"{_STALENESS} "))
        if float(line.split()[1]) == 0.0:
            break
        await asyncio.sleep(1.0)
    return time.perf_counter() - began


def _quantiles_ms(latencies: Sequence[float]) -> dict[str, float]:
    if len(latencies) < 2:
        return {}
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return {"p50": round(1e3 * cuts[49], 3), "p99": round(1e3 * cuts[98], 3)}


def put_models(url: str, count: int, seed: int) -> None:
    """Models of made-up applications that know the recorded fingerprint's surrogates."""
    like = recorded()
    fleet = Fleet(argparse.Namespace(seed=seed, columns=len(like.surrogates), model=None))
    times = like.times()
    fleet.names = list(times)
    fleet.families = [like.surrogates[name].family for name in times]
    fleet.idle = fleet.idle[: len(times)]
    fleet.idle[:] = list(times.values())
    trainer = replace(like.node, id="trainer", name="trainer")
    with Store.open(url) as store:
        store.put_node(trainer)
        for number in range(count):
            document = seal(fleet.payload(number) | {"suite_version": like.suite_version})
            app, identity = document["app"], document["identity"]
            store.put_model(app, identity, trainer.id, "cross-core", document)


def measured_on(
    server: ServerProcess,
    options: argparse.Namespace,
    measure: Callable[[Any, EchoServer, argparse.Namespace], Coroutine[Any, Any, dict[str, Any]]],
) -> dict[str, Any]:
    """What ``measure`` finds on the server with models in its store, next to an echo; it is closed
    in any case."""
    put_models(server.store_url, options.apps, options.seed)
    try:
        server.start()
        with EchoServer() as echo:
            return asyncio.run(measure(server, echo, options))
    finally:
        server.close()


ONE_ADDRESS: dict[str, Any] = {"limits.rate_per_peer": 1e6, "limits.burst": 10**6}
"""Settings of a server all of whose agents come from one address: none has to wait."""


def fleet_parser(description: str | None, *, settle_s: float) -> argparse.ArgumentParser:
    """Options that benchmarks of a fleet share; ``settle_s`` is the default of ``--settle``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--apps", type=int, default=200)
    parser.add_argument(
        "--settle", type=float, default=settle_s, help="seconds before it is measured"
    )
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="exit 4 when a limit is missed")
    return parser


def main() -> int:
    parser = fleet_parser(__doc__, settle_s=3.0)
    parser.add_argument("--period", type=float, default=60.0, help="of fingerprints, in seconds")
    parser.add_argument("--heartbeat", type=float, default=75.0, help="of heartbeats, in seconds")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the steady part")
    parser.add_argument("--burst", type=float, default=5.0, help="seconds of the burst")
    parser.add_argument("--store", help="URL of an empty store (default: SQLite)")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="KEY=VALUE", help="of the server, in TOML"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kongming-load-") as name:
        folder = Path(name)
        settings = dict(ONE_ADDRESS)
        for key, _, value in (each.partition("=") for each in options.setting):
            settings |= {key: tomllib.loads(f"value = {value}")["value"]}
        server = ServerProcess(folder, store_url=options.store, settings=settings)
        figures = measured_on(server, options, measure)
    document = {
        "schema": 1,
        "benchmark": "service.load",
        "agents": options.agents,
        "applications": options.apps,
        "period_s": options.period,
        "heartbeat_s": options.heartbeat,
        "connections": options.connections,
        "settings": options.setting,
        "store": "sqlite" if options.store is None else options.store.partition(":")[0],
        **figures,
        "limits": {"server_core": CORE_LIMIT, "memory_mib": MEMORY_LIMIT_MIB},
        "met": _met(figures),
    }
    print(json.dumps(document, indent=2))
    return 4 if options.check and not document["met"] else 0


def _met(figures: dict[str, Any]) -> bool:
    at_rest = figures["steady"]
    return bool(
        at_rest["server_core"] < CORE_LIMIT
        and figures["memory_mib"]["proportional"] < MEMORY_LIMIT_MIB
        and figures["rank"]["met"]
        and at_rest["fingerprints_accepted"] == at_rest["fingerprints_sent"]
    )


if __name__ == "__main__":
    sys.exit(main())
