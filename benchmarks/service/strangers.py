"""What strangers cost the server: messages without a token, next to a caller with one. JSON.

A real server is started over TLS. A caller with a token asks for predictions, first alone and then
while ``--strangers`` callers without one send messages of 16 MiB each, made of two-byte parts, all
at once and over and over. Memory is the server's own, by /proc.

    python -m benchmarks.service.strangers [--seconds 5] [--strangers 100] [--check]

With --check the exit status is 4 where one message takes 32 MiB or more at its peak, where memory
has grown by as much once they are gone, or where p99 next to them is above 3 times that of calm.
Strangers are a process of their own; on a machine of few CPUs they and the caller share them with
the server, so the JSON also has the server's own time of a call (CPU).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
from click.testing import CliRunner
from kongming_server.security.certificates import init_tls
from kongming_server.security.commands import token

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
    made = CliRunner().invoke(token, arguments, catch_exceptions=False)
    return str(json.loads(made.stdout)["token"])


def report(connection: Connection) -> None:
    """Speak for the node's agent: its reference, and a live fingerprint."""
    with connection.open() as channel:
        agent = FakeAgent(channel, NODE)
        loaded = {name: seconds * 1.3 for name, seconds in synthetic.IDLE.items()}
        idle = builders.fingerprint(synthetic.IDLE, started_at=moment(60), node=agent.facts)
        agent.register(references=[idle])
        agent.report(builders.fingerprint(loaded, started_at=moment(), node=agent.facts))


async def latencies(connection: Connection, pid: int, seconds: float) -> dict[str, float]:
    async with connection.open_aio() as channel:
        stub = predictor_pb2_grpc.PredictorStub(channel)  # type: ignore[no-untyped-call]
        asked = question()
        answered = await stub.Predict(asked)
        if answered.answers[0].prediction.basis != predictor_pb2.BASIS_MODEL:
            raise SystemExit(f"The server does not predict: {answered}")
        before = cpu_s(pid)
        found = await block(lambda: stub.Predict(asked), 1, seconds)
    spent = cpu_s(pid) - before
    return {
        "calls": len(found),
        **{f"{name}_us": round(value * 1e6, 1) for name, value in quantiles(found).items()},
        "server_cpu_share": round(spent / seconds, 3),
    }


def measure(folder: Path, seconds: float, strangers: int) -> dict[str, Any]:
    init_tls(folder / "tls")
    tls = folder / "tls"
    options = ["--certificate", str(tls / "server.crt"), "--key", str(tls / "server.key")]
    server = ServerProcess(folder, store_url=prepare(folder), options=options).start()
    ca = tls / "ca.crt"
    attacker: subprocess.Popen[str] | None = None
    try:
        agent = Connection(server.grpc, ca=ca, token=secret(server.store_url, "agent"))
        caller = Connection(server.grpc, ca=ca, token=secret(server.store_url, "scheduler"))
        eventually(lambda: _registered(agent))
        calm = asyncio.run(latencies(caller, server.pid, seconds))
        before = memory(server.pid, "VmRSS")
        peak_before = memory(server.pid, "VmHWM")
        credentials = grpc.ssl_channel_credentials(ca.read_bytes())
        with grpc.secure_channel(server.grpc, credentials) as channel:
            try:
                channel.unary_unary(METHOD)(MESSAGE, timeout=60)
            except grpc.RpcError as error:
                code = error.code().name
        one = memory(server.pid, "VmHWM") - peak_before
        words = [sys.executable, "-m", "benchmarks.service.strangers", "--attack", server.grpc]
        attacker = subprocess.Popen(
            [*words, "--ca", str(ca), "--strangers", str(strangers)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert attacker.stdout is not None
        first = attacker.stdout.readline().strip()
        attacked = asyncio.run(latencies(caller, server.pid, seconds))
        attacker.kill()
        refused = 1 + sum(1 for _ in attacker.stdout)
        time.sleep(1.0)
        after = memory(server.pid, "VmRSS")
        peak = memory(server.pid, "VmHWM")
    finally:
        if attacker is not None:
            attacker.kill()
            attacker.wait()
        server.close()
    return {
        "message_bytes": len(MESSAGE),
        "strangers": strangers,
        "codes": sorted({code, first}),
        "refused": refused,
        "calm": calm,
        "attacked": attacked,
        "ratio": {
            name: round(attacked[f"{name}_us"] / calm[f"{name}_us"], 2) for name in ("p50", "p99")
        },
        "memory_bytes": {
            "before": before,
            "one_message": one,
            "peak": peak,
            "grown": after - before,
        },
    }


def _registered(connection: Connection) -> bool:
    try:
        report(connection)
    except grpc.RpcError:
        return False
    return True


def over(document: dict[str, Any]) -> list[str]:
    found = []
    if document["memory_bytes"]["one_message"] >= MOST_BYTES:
        found.append("memory of one message")
    if document["memory_bytes"]["grown"] >= MOST_BYTES:
        found.append("memory that stays")
    if document["ratio"]["p99"] > MOST_RATIO:
        found.append("p99 next to strangers")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--strangers", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--ca", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        asyncio.run(attack(options.attack, options.ca, options.strangers))
    with tempfile.TemporaryDirectory() as folder:
        document = measure(Path(folder), options.seconds, options.strangers)
    document["limits"] = {"bytes": MOST_BYTES, "p99_ratio": MOST_RATIO}
    document["over"] = over(document)
    print(json.dumps(document, indent=2))
    return 4 if options.check and document["over"] else 0


if __name__ == "__main__":
    sys.exit(main())
