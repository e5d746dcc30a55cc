"""A key-value store behind a unix socket, durable or in memory.

Usage: store.py durable|memory DIR

durable: SQLite with a write-ahead log and synchronous=FULL; every PUT is on the device before it
is answered. memory: 200 MB of values in a dictionary; a GET fetches the values of many keys.
The protocol is a line each way: `PING`, `GET KEY...`, `PUT KEY VALUE`; an answer is the length of
its body, a newline and the body. The socket is DIR/store.sock, so no port can clash.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
from pathlib import Path
from typing import Protocol

DURABLE_KEYS = 100_000
MEMORY_KEYS = 200_000


class Store(Protocol):
    def get(self, key: int) -> bytes: ...

    def put(self, key: int, value: bytes) -> None: ...


class DurableStore:
    def __init__(self) -> None:
        for stale in Path().glob("store.db*"):
            stale.unlink()
        self._db = sqlite3.connect("store.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("CREATE TABLE pair (key INTEGER PRIMARY KEY, value BLOB)")
        rng = random.Random(5)
        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT INTO pair VALUES (?, ?)",
            ((key, rng.randbytes(512).hex().encode()) for key in range(DURABLE_KEYS)),
        )
        self._db.execute("COMMIT")
        self._db.execute("PRAGMA synchronous = FULL")

    def get(self, key: int) -> bytes:
        row = self._db.execute("SELECT value FROM pair WHERE key = ?", (key,)).fetchone()
        return b"" if row is None else bytes(row[0])

    def put(self, key: int, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO pair VALUES (?, ?)", (key, value))


class MemoryStore:
    def __init__(self) -> None:
        rng = random.Random(6)
        keys = list(range(MEMORY_KEYS))
        # Stored in another order than asked for, so that neighbours in memory mean nothing.
        rng.shuffle(keys)
        self._values = {key: rng.randbytes(1024) for key in keys}

    def get(self, key: int) -> bytes:
        return self._values.get(key, b"")

    def put(self, key: int, value: bytes) -> None:
        self._values[key] = value


def answer(store: Store, request: bytes) -> bytes:
    words = request.split()
    if words[:1] == [b"GET"]:
        return b"".join(store.get(int(key)) for key in words[1:])
    if words[:1] == [b"PUT"] and len(words) == 3:
        store.put(int(words[1]), words[2])
        return b"stored"
    return b"pong" if words == [b"PING"] else b"what?"


async def serve(store: Store) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readline():
                body = answer(store, request)
                writer.write(b"%d\n" % len(body) + body)
                await writer.drain()
        except ConnectionError:
            pass  # the client went away: its answer is of no use any more
        finally:
            writer.close()

    Path("store.sock").unlink(missing_ok=True)
    server = await asyncio.start_unix_server(handle, "store.sock")
    async with server:
        await server.serve_forever()


def main() -> None:
    kind, folder = sys.argv[1], sys.argv[2]
    # The path of a unix socket is limited to about a hundred characters; a relative one is short.
    os.chdir(folder)
    asyncio.run(serve(DurableStore() if kind == "durable" else MemoryStore()))


main()
