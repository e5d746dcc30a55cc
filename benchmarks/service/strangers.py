"""What strangers cost the server: messages without a token, next to a caller with one. JSON.

A real server is started over TLS. A caller with a token asks for predictions, by turns alone and
while ``--strangers`` callers without one send messages of 16 MiB each, made of two-byte parts, all
at once and over and over; which of the two comes first in a turn is random. Memory is the server's
own, by /proc.

    python -m benchmarks.service.strangers [--turns 9] [--seconds 4] [--strangers 100] [--check]

``ratio`` is attacked over calm: the median of the turns' ratios, and ``low`` and ``high`` that hold
the true median with 90 % at the least, by the order of the turns alone. With --check the exit
status is 4 where one message takes 32 MiB or more at its peak, where memory has grown by as much
once they are gone, or where p99 next to them is above 3 times that of calm, ``low`` included;
where the limit lies between ``low`` and ``high`` it is named under ``undecided``.
Strangers are a process of their own; on a machine of few CPUs they and the caller share them with
the server, so the JSON also has the server's own time of a call (CPU).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from click.testing import CliRunner
from kongming_server.commands.security_commands import token
from kongming_server.security.certificates import init_tls

from benchmarks.service.predict import NODE, block, prepare, quantiles, question
from kongming.rpc.channel import Connection
from kongming.rpc.v1 import predictor_pb2, predictor_pb2_grpc
from tests import builders
from tests.models import synthetic
from tests.server.fleet import FakeAgent, moment
from tests.server.process import ServerProcess, eventually

MESSAGE = b"\x12\x00" * ((8 << 20) - 8)
METHOD = "/kongming.rpc.v1.Predictor/Predict"
MOST_BYTES = 32 << 20
MOST_RATIO = 3.0


async def attack(address: str, ca: Path, strangers: int) -> None:
    """Send for ever, each on a connection of its own; a line for each message that was refused."""
    # They would be on machines of their own.
    os.nice(19)
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]

    async def send() -> None:
        async with grpc.aio.secure_channel(address, credentials, options) as channel:
            while True:
                try:
                    await channel.unary_unary(METHOD)(MESSAGE, timeout=60)
                except grpc.aio.AioRpcError as error:
                    sys.stdout.write(f"{error.code().name}\n")
                    sys.stdout.flush()

    await asyncio.gather(*(send() for _ in range(strangers)))


def memory(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def secret(store_url: str, role: str) -> str:
    arguments = ["add", "--role", role, "--store", store_url, "--json"]
    outcome = CliRunner().invoke(token, arguments, catch_exceptions=False)
    return str(json.loads(outcome.stdout)["token"])


def report(connection: Connection) -> None:
    """Report as the node's agent: its reference, and a live fingerprint."""
    with connection.open() as channel:
        agent = FakeAgent(channel, NODE)
        loaded = {name: seconds * 1.3 for name, seconds in synthetic.IDLE.items()}
        idle = builders.fingerprint(synthetic.IDLE, started_at=moment(60), node=agent.facts)
        agent.register(references=[idle])
        agent.report(builders.fingerprint(loaded, started_at=moment(), node=agent.facts))


async def latencies(connection: Connection, pid: int, seconds: float) -> dict[str, float]:
    async with connection.open_aio() as channel:
        stub = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
        request = question()
        answered = await stub.Predict(request)
        if answered.answers[0].prediction.basis != predictor_pb2.BASIS_MODEL:
            raise SystemExit(f"The server does not predict: {answered}")
        before = cpu_s(pid)
        latencies_s = await block(lambda: stub.Predict(request), 1, seconds)
    spent = cpu_s(pid) - before
    return {
        "calls": len(latencies_s),
        **{f"{name}_us": round(value * 1e6, 1) for name, value in quantiles(latencies_s).items()},
        "server_cpu_share": round(spent / seconds, 3),
    }


def measure(folder: Path, turns: int, seconds: float, strangers: int, seed: int) -> dict[str, Any]:
    init_tls(folder / "tls")
    tls = folder / "tls"
    options = ["--certificate", str(tls / "server.crt"), "--key", str(tls / "server.key")]
    server = ServerProcess(folder, store_url=prepare(folder), options=options).start()
    ca = tls / "ca.crt"
    order = random.Random(seed)
    codes: Counter[str] = Counter()
    measured: dict[str, list[dict[str, float]]] = {"calm": [], "attacked": []}
    try:
        agent = Connection(server.grpc, ca=ca, token=secret(server.store_url, "agent"))
        caller = Connection(server.grpc, ca=ca, token=secret(server.store_url, "scheduler"))
        eventually(lambda: registered(agent))
        asyncio.run(latencies(caller, server.pid, 1.0))
        before = memory(server.pid, "VmRSS")
        peak_before = memory(server.pid, "VmHWM")
        codes[_one_message(server.grpc, ca)] += 1
        growth_bytes = memory(server.pid, "VmHWM") - peak_before
        for _ in range(turns):
            for name in order.sample(sorted(measured), 2):
                # The fingerprint that predictions rest on is to stay a fresh one.
                report(agent)
                with _attacking(server.grpc, ca, strangers if name == "attacked" else 0) as refused:
                    figures = asyncio.run(latencies(caller, server.pid, seconds))
                codes.update(refused)
                measured[name].append(figures)
                time.sleep(1.0)
        after = memory(server.pid, "VmRSS")
        peak = memory(server.pid, "VmHWM")
    finally:
        server.close()
    return {
        "message_bytes": len(MESSAGE),
        "strangers": strangers,
        "seed": seed,
        "codes": sorted(codes),
        "refused": codes.total(),
        **{name: _medians(figures) for name, figures in measured.items()},
        "ratio": {
            name: _ratio(*([turn[f"{name}_us"] for turn in measured[of]] for of in measured))
            for name in ("p50", "p99")
        },
        "memory_bytes": {
            "before": before,
            "one_message": growth_bytes,
            "peak": peak,
            "grown": after - before,
        },
    }


def _one_message(address: str, ca: Path) -> str:
    """The status that one stranger's message ends with."""
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    with grpc.secure_channel(address, credentials) as channel:
        try:
            channel.unary_unary(METHOD)(MESSAGE, timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


@contextmanager
def _attacking(address: str, ca: Path, strangers: int) -> Iterator[list[str]]:
    """So many attack for the time of the block, from when each may have sent one message; the
    statuses of all messages are in the list afterwards."""
    codes: list[str] = []
    if not strangers:
        yield codes
        return
    words = [sys.executable, "-m", "benchmarks.service.strangers", "--attack", address]
    attacker = subprocess.Popen(
        [*words, "--ca", str(ca), "--strangers", str(strangers)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert attacker.stdout is not None
        codes.extend(attacker.stdout.readline().strip() for _ in range(strangers))
        yield codes
        attacker.kill()
        codes.extend(line.strip() for line in attacker.stdout)
    finally:
        attacker.kill()
        attacker.wait()


def _medians(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(figures[name] for figures in measured) for name in measured[0]}


def _ratio(calm: Sequence[float], attacked: Sequence[float]) -> dict[str, Any]:
    ratios = [b / a for a, b in zip(calm, attacked, strict=True)]
    low, high = median_interval(ratios)
    numbers = {"median": statistics.median(ratios), "low": low, "high": high}
    return {
        **{name: round(value, 2) for name, value in numbers.items()},
        "turns": [round(ratio, 2) for ratio in ratios],
    }


def median_interval(values: Sequence[float], confidence: float = 0.9) -> tuple[float, float]:
    """The narrowest two of the values, as far from either end, between which the true median lies
    with this confidence, whatever the distribution; least and greatest where there are few."""
    ordered, count = sorted(values), len(values)
    outside, skipped = 0.0, 0
    for number in range(count // 2):
        outside += 2 * math.comb(count, number) / 2**count
        if outside > 1.0 - confidence:
            break
        skipped = number
    return ordered[skipped], ordered[-1 - skipped]


def registered(connection: Connection) -> bool:
    try:
        report(connection)
    except grpc.RpcError:
        return False
    return True


def over(document: dict[str, Any]) -> list[str]:
    exceeded = []
    if document["memory_bytes"]["one_message"] >= MOST_BYTES:
        exceeded.append("memory of one message")
    if document["memory_bytes"]["grown"] >= MOST_BYTES:
        exceeded.append("memory that stays")
    if document["ratio"]["p99"]["low"] > MOST_RATIO:
        exceeded.append("p99 next to strangers")
    return exceeded


def undecided(document: dict[str, Any]) -> list[str]:
    ratio = document["ratio"]["p99"]
    return ["p99 next to strangers"] if ratio["low"] <= MOST_RATIO < ratio["high"] else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--strangers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--ca", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        asyncio.run(attack(options.attack, options.ca, options.strangers))
    with tempfile.TemporaryDirectory() as folder:
        document = measure(
            Path(folder), options.turns, options.seconds, options.strangers, options.seed
        )
    document["limits"] = {"bytes": MOST_BYTES, "p99_ratio": MOST_RATIO}
    document["over"] = over(document)
    document["undecided"] = undecided(document)
    print(json.dumps(document, indent=2))
    return 4 if options.check and document["over"] else 0


if __name__ == "__main__":
    sys.exit(main())
