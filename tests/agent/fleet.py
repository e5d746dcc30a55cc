"""A Fleet server for tests of the agent: keeps what it accepts in SQLite, before it answers.

As a program (``python fleet.py FOLDER PORT``) it can be killed at any moment. What it has
acknowledged is then in FOLDER/acknowledged, written before the answer is sent; what it has
committed in FOLDER/fleet.db, where every delivery is one row: a repeat is seen.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from kongming.records.errors import InputError
from kongming.rpc.errors import to_status
from kongming.rpc.record_codec import (
    fingerprint_from_message,
    node_from_message,
    run_from_message,
    signature_from_message,
)
from kongming.rpc.v1 import fleet_pb2, fleet_pb2_grpc
from kongming.rpc.value_codec import duration


class Fleet(fleet_pb2_grpc.FleetServicer):
    """``orders`` is what the next heartbeats are answered with, ``always`` what each is;
    ``refuse`` names ids to refuse."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()
        self.orders = fleet_pb2.Instructions()
        self.always: fleet_pb2.Instructions | None = None
        self.refuse: set[str] = set()
        self.broken = ""
        self.crashing = ""
        self.refuses_references = False
        self.registered: list[fleet_pb2.RegisterRequest] = []
        self.beats: list[fleet_pb2.Heartbeat] = []
        self.estimates: list[fleet_pb2.ReportedFingerprint] = []
        self.acknowledged = 0
        self.reports = 0
        self.heartbeat_s = 0.2
        self._database = sqlite3.connect(folder / "fleet.db", check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS kept "
            "(id TEXT PRIMARY KEY, kind TEXT, sequence INTEGER, purpose INTEGER, domain INTEGER)"
        )
        self._database.execute("CREATE TABLE IF NOT EXISTS nodes (id TEXT PRIMARY KEY, node BLOB)")
        self._database.commit()

    def close(self) -> None:
        self._database.close()

    def Register(  # noqa: N802
        self, request: fleet_pb2.RegisterRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.RegisterResponse:
        node_from_message(request.node)
        if self.refuses_references and request.references:
            status = to_status(InputError("is implausible.", field="references"))
            context.abort_with_status(_Aborted(status))
        self.registered.append(request)
        with self._lock:
            self._database.execute(
                "INSERT OR REPLACE INTO nodes VALUES (?, ?)",
                (request.node.id, request.node.SerializeToString()),
            )
            self._database.commit()
        return fleet_pb2.RegisterResponse(
            heartbeat_period=duration(self.heartbeat_s),
            acknowledged=self.acknowledged,
        )

    def Report(  # noqa: N802
        self, request: fleet_pb2.ReportRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportResponse:
        self.reports += 1
        answer = fleet_pb2.ReportResponse()
        rows = []
        for reported in request.fingerprints:
            self._check(request.node_id, context)
            message = reported.fingerprint
            message.node.CopyFrom(self._node(request.node_id))
            fingerprint = fingerprint_from_message(message)
            if reported.purpose == fleet_pb2.PURPOSE_ESTIMATE:
                self.estimates.append(reported)
            elif fingerprint.id in self.refuse:
                answer.rejected.add(id=fingerprint.id, field="fingerprint", message="refused")
            else:
                kind = (fingerprint.id, "fingerprint", reported.sequence, reported.purpose)
                rows.append((*kind, reported.domain))
        answer.accepted.extend(self._commit(rows))
        if request.HasField("heartbeat"):
            self.beats.append(request.heartbeat)
            orders, self.orders = self.orders, fleet_pb2.Instructions()
            answer.instructions.CopyFrom(self.always or orders)
        return answer

    def ReportRuns(  # noqa: N802
        self, request: fleet_pb2.ReportRunsRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportRunsResponse:
        self._check(request.node_id, context)
        answer = fleet_pb2.ReportRunsResponse()
        rows = []
        for reported in request.runs:
            run = run_from_message(reported.run)
            if self.broken and run.app == self.broken:
                status = to_status(InputError("is implausible.", field="run"))
                context.abort_with_status(_Aborted(status))
            if self.crashing and run.app == self.crashing:
                context.abort(grpc.StatusCode.INTERNAL, "unforeseen")
            if run.id in self.refuse:
                answer.rejected.add(id=run.id, field="run", message="refused")
            else:
                rows.append((run.id, "run", reported.sequence, 0, 0))
        for message in request.signatures:
            rows.append((signature_from_message(message).id, "signature", 0, 0, 0))
        answer.accepted.extend(self._commit(rows))
        return answer

    def stored(self) -> list[tuple[Any, ...]]:
        """(id, kind, sequence, purpose, domain) in the order of their commit."""
        with self._lock:
            return self._database.execute("SELECT * FROM kept ORDER BY rowid").fetchall()

    def forget(self) -> None:
        """As a server that was set up anew."""
        with self._lock:
            self._database.execute("DELETE FROM nodes")
            self._database.commit()

    def _check(self, node_id: str, context: grpc.ServicerContext) -> None:
        if self._node(node_id) is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "There is no such node.")

    def _node(self, node_id: str) -> Any:
        from kongming.rpc.v1 import records_pb2

        with self._lock:
            cursor = self._database.execute("SELECT node FROM nodes WHERE id = ?", (node_id,))
            row = cursor.fetchone()
        return None if row is None else records_pb2.NodeFacts.FromString(row[0])

    def _commit(self, rows: list[tuple[Any, ...]]) -> list[str]:
        with self._lock:
            self._database.executemany("INSERT OR IGNORE INTO kept VALUES (?, ?, ?, ?, ?)", rows)
            self._database.commit()
            ids = [row[0] for row in rows]
            with (self._folder / "acknowledged").open("a") as log:
                log.write("".join(f"{id}\n" for id in ids))
                log.flush()
                os.fsync(log.fileno())
        return ids


class _Aborted(grpc.Status):
    def __init__(self, status: Any) -> None:
        self.code, self.details = status.code, status.message
        self.trailing_metadata = status.trailers


def serve(fleet: Fleet, port: int = 0) -> tuple[grpc.Server, int]:
    """Starts it on loopback; returns the server and its port."""
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=4), options=[("grpc.so_reuseport", 0)]
    )
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, bound


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    server, bound = serve(Fleet(folder), port)
    sys.stdout.write(json.dumps({"port": bound}) + "\n")
    sys.stdout.flush()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
