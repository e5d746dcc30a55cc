"""A node as its agent speaks for it, for tests: one call a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc

from kongming import Fingerprint, NodeFacts, Run, Signature
from kongming.rpc import record_codec as records
from kongming.rpc.v1 import assignments_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from tests import builders

IDLE = {"memory.random.8M": 40e-9, "memory.stream.8M": 90e-6, "compute.int": 1e-9}
"""Seconds per operation on the idle node."""


def moment(age_s: float = 0.0) -> str:
    """A time so many seconds ago."""
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class FakeAgent:
    """``FakeAgent(channel, "node-1").register()``, and then what an agent does."""

    def __init__(self, channel: grpc.Channel, node_id: str = "node-1", **facts: Any) -> None:
        self.channel = channel
        self.fleet = fleet_pb2_grpc.FleetStub(channel)  # type: ignore[no-untyped-call]
        self.assignments = assignments_pb2_grpc.AssignmentsStub(channel)  # type: ignore[no-untyped-call]
        self.facts: NodeFacts = builders.node(id=node_id, **({"name": node_id} | facts))
        self.sequence = 0

    def register(
        self, *, references: Iterable[Fingerprint] = (), **fields: Any
    ) -> fleet_pb2.RegisterResponse:
        return self.fleet.Register(
            fleet_pb2.RegisterRequest(
                node=records.node_to_message(self.facts),
                references=[records.fingerprint_to_message(reference) for reference in references],
                **fields,
            ),
            timeout=100,
        )

    def fingerprint(
        self, factor: float = 1.2, *, age_s: float = 0.0, **changes: Any
    ) -> Fingerprint:
        """All surrogates slower than idle by a factor."""
        times = {name: seconds * factor for name, seconds in IDLE.items()}
        values = {"node": self.facts, "suite": "quick", "started_at": moment(age_s)}
        return builders.fingerprint(times, **({"elapsed_s": 0.0} | values | changes))

    def idle(self) -> Fingerprint:
        return self.fingerprint(1.0, age_s=60.0)

    def request(
        self,
        fingerprint: Fingerprint,
        purpose: fleet_pb2.Purpose.ValueType = fleet_pb2.PURPOSE_LIVE,
        readings: Mapping[str, float] | None = None,
    ) -> fleet_pb2.ReportedFingerprint:
        """``readings`` replaces seconds per operation in the message, whatever they are."""
        self.sequence += 1
        reported = fleet_pb2.ReportedFingerprint(
            sequence=self.sequence,
            fingerprint=records.fingerprint_to_message(fingerprint),
            purpose=purpose,
        )
        for reading in reported.fingerprint.readings:
            if readings and reading.name in readings:
                reading.seconds_per_op = readings[reading.name]
        return reported

    def send(
        self,
        reported: Iterable[fleet_pb2.ReportedFingerprint],
        heartbeat: Mapping[str, Any] | None = None,
    ) -> fleet_pb2.ReportResponse:
        """Fingerprints, and a heartbeat of these fields with them."""
        request = fleet_pb2.ReportRequest(node_id=self.facts.id, fingerprints=reported)
        if heartbeat is not None:
            request.heartbeat.CopyFrom(fleet_pb2.Heartbeat(**heartbeat))
        return self.fleet.Report(request, timeout=100)

    def report(self, *prints: Fingerprint) -> fleet_pb2.ReportResponse:
        return self.send(self.request(fingerprint) for fingerprint in prints)

    def report_runs(
        self,
        runs: Iterable[Run] = (),
        signatures: Iterable[Signature] = (),
        assignment_id: str = "",
    ) -> fleet_pb2.ReportRunsResponse:
        reported = []
        for run in runs:
            self.sequence += 1
            reported.append(
                fleet_pb2.ReportedRun(
                    sequence=self.sequence,
                    run=records.run_to_message(run),
                    assignment_id=assignment_id,
                )
            )
        return self.fleet.ReportRuns(
            fleet_pb2.ReportRunsRequest(
                node_id=self.facts.id,
                runs=reported,
                signatures=[records.signature_to_message(signature) for signature in signatures],
            ),
            timeout=100,
        )

    def heartbeat(self, **fields: Any) -> fleet_pb2.Instructions:
        return self.send([], fields).instructions

    def say(
        self, *prints: Fingerprint, heartbeat: Mapping[str, Any] | None = None
    ) -> fleet_pb2.ReportResponse:
        """Fingerprints, and a heartbeat of these fields with them."""
        return self.send([self.request(fingerprint) for fingerprint in prints], heartbeat)

    def node(self) -> fleet_pb2.Node:
        """This node as the server shows it."""
        return self.node_of(self.facts.id)

    def node_of(self, node_id: str) -> fleet_pb2.Node:
        """A node as the server shows it to this caller."""
        nodes = self.fleet.ListNodes(fleet_pb2.ListNodesRequest(), timeout=100).nodes
        return next(node for node in nodes if node.facts.id == node_id)
