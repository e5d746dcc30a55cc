"""What floods of headers cost the server: few bytes that gRPC keeps as much memory. JSON.

A real server is started over TLS, and a caller asks for predictions, first alone and then while
others open ``--connections`` and send ``--calls`` calls, each of one block of 16 kB that names one
compressed header 16,000 times. With ``--thief`` each of the connections first makes a call with an
agent's token. Memory is the server's own, by /proc.

    python -m benchmarks.service.header_floods [--connections 60] [--calls 5400] [--thief] [--check]

With --check the exit status is 4 where memory grew by 256 MiB or more at any moment, or where p99
next to the flood is above 3 times that of calm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from kongming_server.security.certificates import init_tls

from benchmarks.service.predict import prepare
from benchmarks.service.strangers import METHOD, latencies, memory, registered, secret
from kongming.rpc.channel import Connection
from tests.server.http2 import Http2
from tests.server.process import ServerProcess, eventually

REPORT = "/kongming.rpc.v1.Fleet/Report"
NAMED = 16_000
MOST_BYTES = 256 << 20
MOST_RATIO = 3.0


def attack(address: str, ca: Path, connections: int, calls: int, token: str) -> None:
    """Send as fast as the server takes it, once all have connected."""
    # They would be on machines of their own.
    os.nice(19)
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    ready = threading.Barrier(connections)

    def send() -> None:
        with suppress(OSError):
            made = socket.create_connection((host, int(port)), timeout=60)
            one = Http2(context.wrap_socket(made, server_hostname=host))
            if token:
                one.ask(REPORT, b"", headers)
                answer = b"".join(frame.content for frame in one.read(0.5))
                if b"grpc-status\x010" not in answer:
                    sys.exit("the token is not known, so this is no thief")
            ready.wait(60)
            for _ in range(calls // connections):
                one.flood(METHOD, NAMED, headers)
                sys.stdout.write("sent\n")
                sys.stdout.flush()
            one.read(10.0)

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(folder: Path, connections: int, calls: int, seconds: float, thief: bool) -> Any:
    tls = folder / "tls"
    init_tls(tls)
    options = ["--certificate", str(tls / "server.crt"), "--key", str(tls / "server.key")]
    server = ServerProcess(folder, store_url=prepare(folder), options=options).start()
    ca = tls / "ca.crt"
    try:
        agent = Connection(server.grpc, ca=ca, token=secret(server.store_url, "agent"))
        caller = Connection(server.grpc, ca=ca, token=secret(server.store_url, "operator"))
        stolen = secret(server.store_url, "agent") if thief else ""
        eventually(lambda: registered(agent))
        # Tokens are read once a second.
        time.sleep(1.5)
        calm = asyncio.run(latencies(caller, server.pid, seconds))
        before = memory(server.pid, "VmRSS")
        words = [sys.executable, "-m", "benchmarks.service.header_floods", "--attack", server.grpc]
        numbers = ["--connections", str(connections), "--calls", str(calls)]
        attacker = subprocess.Popen(
            [*words, *numbers, "--ca", str(ca)],
            env=os.environ | {"KONGMING_TOKEN": stolen},
            stdout=subprocess.PIPE,
        )
        try:
            attacked = asyncio.run(latencies(caller, server.pid, seconds))
        finally:
            attacker.kill()
            sent, _ = attacker.communicate()
        return {
            "connections": connections,
            "calls": calls,
            # The others met a connection that had ended.
            "sent": len(sent.splitlines()),
            "thief": thief,
            "calm": calm,
            "attacked": attacked,
            "ratio": {
                name: round(attacked[f"{name}_us"] / calm[f"{name}_us"], 2)
                for name in ("p50", "p99")
            },
            "memory_bytes": {
                "before": before,
                "peak": memory(server.pid, "VmHWM") - before,
                "grown": memory(server.pid, "VmRSS") - before,
            },
        }
    finally:
        server.close()


def over(document: dict[str, Any]) -> list[str]:
    found = []
    if not document["sent"]:
        found.append("no flood")
    if document["memory_bytes"]["peak"] >= MOST_BYTES:
        found.append("memory")
    if document["ratio"]["p99"] > MOST_RATIO:
        found.append("p99 next to a flood")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--connections", type=int, default=60)
    parser.add_argument("--calls", type=int, default=5400)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--thief", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--ca", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        token = os.environ.get("KONGMING_TOKEN", "")
        attack(options.attack, options.ca, options.connections, options.calls, token)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        document = measure(
            Path(folder), options.connections, options.calls, options.seconds, options.thief
        )
    document["limits"] = {"bytes": MOST_BYTES, "p99_ratio": MOST_RATIO}
    document["over"] = over(document)
    print(json.dumps(document, indent=2))
    return 4 if options.check and document["over"] else 0


if __name__ == "__main__":
    sys.exit(main())
