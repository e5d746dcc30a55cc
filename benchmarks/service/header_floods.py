"""What floods of headers cost the server: few bytes that gRPC keeps as much memory. JSON.

A real server is started over TLS, and a caller asks for predictions, first alone and then while
others open ``--connections`` (60) and send ``--calls`` calls, each of one block of 16 kB that names
one compressed header 16,000 times. With ``--thief`` each of the connections (20: one agent may not
ask more at once) first makes a call with an agent's token. With --again each connects from an
address of its own, sends 30 calls, leaves, and does so again until the time is over; with --fresh
it sends one, resets 4 ms later, and comes back from an address that nobody saw. Memory is the
server's own, by /proc.

    python -m benchmarks.service.header_floods [--connections N] [--calls 5400] [--thief] [--again]
        [--fresh] [--plain] [--check]

With --check the exit status is 4 where memory grew by 256 MiB or more at any moment (512 with
--again), or where p99 next to the flood is above 3 times that of calm.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
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
MOST_BYTES = {False: 256 << 20, True: 512 << 20}
"""By whether they come again."""
MOST_RATIO = 3.0


def to(address: str, ca: Path | None, source: str = "", timeout: float = 60.0) -> Http2:
    """A connection over TLS, or without where there is no authority."""
    host, _, port = address.rpartition(":")
    own = (source, 0) if source else None
    transport = socket.create_connection((host, int(port)), timeout=timeout, source_address=own)
    if ca is not None:
        context = ssl.create_default_context(cafile=str(ca))
        context.set_alpn_protocols(["h2"])
        transport = context.wrap_socket(transport, server_hostname=host)
    return Http2(transport)


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def come_again(address: str, ca: Path | None, connections: int, seconds: float) -> None:
    """Connect, send, leave, and again, each from an address of its own."""
    os.nice(19)
    say("ready")
    until = time.monotonic() + seconds

    def send(source: str) -> None:
        while time.monotonic() < until:
            with suppress(OSError):
                connection = to(address, ca, source, timeout=1.0)
                with suppress(OSError):
                    for _ in range(30):
                        connection.flood(METHOD, NAMED)
                        say("sent")
                connection.close()

    run_all([threading.Thread(target=send, args=(f"127.0.9.{n + 1}",)) for n in range(connections)])


def come_fresh(address: str, ca: Path | None, connections: int, seconds: float) -> None:
    """Connect from a new address, send one, reset, and again."""
    os.nice(19)
    say("ready")
    until = time.monotonic() + seconds

    def send(part: int) -> None:
        numbers = itertools.product(range(1, 255), range(256), range(100 + part, 228, connections))
        for low, high, number in numbers:
            if time.monotonic() > until:
                return
            with suppress(OSError):
                connection = to(address, ca, f"127.{number}.{high}.{low}", timeout=1.0)
                with suppress(OSError):
                    connection.flood(METHOD, NAMED)
                    say("sent")
                time.sleep(0.004)
                connection.reset()

    run_all([threading.Thread(target=send, args=(part,)) for part in range(connections)])


def run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def attack(address: str, ca: Path | None, connections: int, calls: int, token: str) -> None:
    """Send as fast as the server takes it, once all have connected."""
    # They would be on machines of their own.
    os.nice(19)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    ready = threading.Barrier(connections, action=lambda: say("ready"))

    def send() -> None:
        with suppress(OSError):
            # Not the caller's: who shares an address with a flood is limited with it.
            connection = to(address, ca, "127.0.8.1")
            if token:
                stream, answer, until = (
                    connection.ask(REPORT, b"", headers),
                    b"",
                    time.monotonic() + 60,
                )
                # Calls of one agent wait their turn.
                while stream not in connection.ended and time.monotonic() < until:
                    answer += b"".join(frame.content for frame in connection.read(0.5))
                if b"grpc-status\x010" not in answer:
                    print("the token is not known, so this is no thief", file=sys.stderr)
                    os._exit(1)
            ready.wait(120)
            for _ in range(calls // connections):
                connection.flood(METHOD, NAMED, headers)
                say("sent")
            connection.read(10.0)

    run_all([threading.Thread(target=send) for _ in range(connections)])


def measure(
    folder: Path,
    connections: int,
    calls: int,
    seconds: float,
    *,
    thief: bool,
    again: bool,
    fresh: bool,
    plain: bool,
) -> Any:
    ca, options = None, []
    if not plain:
        tls = folder / "tls"
        init_tls(tls)
        options = ["--certificate", str(tls / "server.crt"), "--key", str(tls / "server.key")]
        ca = tls / "ca.crt"
    settings = {"security.authenticate": "always"}
    server = ServerProcess(
        folder, store_url=prepare(folder), options=options, settings=settings
    ).start()
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
        numbers += ["--ca", str(ca)] if ca else []
        comes = [f"--{name}" for name, is_so in (("again", again), ("fresh", fresh)) if is_so]
        numbers += [*comes, "--seconds", str(seconds)] if comes else []
        attacker = subprocess.Popen(
            [*words, *numbers],
            env=os.environ | {"KONGMING_TOKEN": stolen},
            stdout=subprocess.PIPE,
        )
        try:
            # To connect, and be known, takes them a while.
            assert attacker.stdout is not None
            if attacker.stdout.readline() != b"ready\n":
                sys.exit("nobody attacks")
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
            "again": again,
            "fresh": fresh,
            "tls": not plain,
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
    exceeded = []
    if not document["sent"]:
        exceeded.append("no flood")
    if document["memory_bytes"]["peak"] >= MOST_BYTES[document["again"]]:
        exceeded.append("memory")
    if document["ratio"]["p99"] > MOST_RATIO:
        exceeded.append("p99 next to a flood")
    return exceeded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--connections", type=int)
    parser.add_argument("--calls", type=int, default=5400)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--thief", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--ca", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.connections is None:
        options.connections = 20 if options.thief else 60
    if options.attack:
        if options.again or options.fresh:
            come = come_fresh if options.fresh else come_again
            come(options.attack, options.ca, options.connections, options.seconds)
            return 0
        token = os.environ.get("KONGMING_TOKEN", "")
        attack(options.attack, options.ca, options.connections, options.calls, token)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        document = measure(
            Path(folder),
            options.connections,
            options.calls,
            options.seconds,
            thief=options.thief,
            again=options.again,
            fresh=options.fresh,
            plain=options.plain,
        )
    document["limits"] = {"bytes": MOST_BYTES[options.again], "p99_ratio": MOST_RATIO}
    document["over"] = over(document)
    print(json.dumps(document, indent=2))
    return 4 if options.check and document["over"] else 0


if __name__ == "__main__":
    sys.exit(main())
