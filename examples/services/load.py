"""Drives the store of store.py and prints what its clients see.

Usage: load.py ping DIR              exit 0 once the store answers
       load.py durable DIR REQUESTS  one GET or PUT each, half and half
       load.py memory DIR REQUESTS   GETs of 64 keys each
The requests are the same every time, from a seed, sent one after the other by one client.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time

KEYS = {"durable": 100_000, "memory": 200_000}


class Client:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect("store.sock")
        self._file = self._socket.makefile("rb")

    def ask(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        length = int(self._file.readline())
        return self._file.read(length)


def requests(kind: str, count: int) -> list[bytes]:
    rng = random.Random(8)
    keys = KEYS[kind]
    if kind == "memory":
        return [
            b"GET " + b" ".join(b"%d" % rng.randrange(keys) for _ in range(64)) + b"\n"
            for _ in range(count)
        ]
    return [
        b"GET %d\n" % rng.randrange(keys)
        if rng.random() < 0.5
        else b"PUT %d %s\n" % (rng.randrange(keys), rng.randbytes(512).hex().encode())
        for _ in range(count)
    ]


def main() -> int:
    kind, folder = sys.argv[1], sys.argv[2]
    os.chdir(folder)
    if kind == "ping":
        try:
            return 0 if Client().ask(b"PING\n") == b"pong" else 1
        except OSError:
            return 1
    batch = requests(kind, int(sys.argv[3]))
    client = Client()
    latencies = []
    begin = time.monotonic()
    for request in batch:
        start = time.monotonic()
        body = client.ask(request)
        latencies.append(time.monotonic() - start)
        if not body or body == b"what?":
            print("the store gave no answer", file=sys.stderr)
            return 1
    elapsed = time.monotonic() - begin
    latencies.sort()
    print(f"p50 {latencies[len(latencies) // 2] * 1e3:.4f} ms")
    print(f"p95 {latencies[int(len(latencies) * 0.95)] * 1e3:.4f} ms")
    print(f"throughput {len(batch) / elapsed:.1f} ops/s")
    return 0


sys.exit(main())
