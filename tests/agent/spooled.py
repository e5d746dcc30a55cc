"""What lies in a spool, as records."""

from __future__ import annotations

from kongming_agent.reporting.delivery import Entry

from kongming import Fingerprint, Run, Signature
from kongming.rpc.record_codec import (
    fingerprint_from_message,
    run_from_message,
    signature_from_message,
)
from kongming.rpc.v1 import fleet_pb2, records_pb2
from tests import builders


def reported(entry: Entry) -> fleet_pb2.ReportedFingerprint:
    """A spooled fingerprint with its purpose and domain."""
    return fleet_pb2.ReportedFingerprint.FromString(entry.body)


def assignment_of(entry: Entry) -> str:
    return fleet_pb2.ReportedRun.FromString(entry.body).assignment_id


def record_of(entry: Entry) -> Fingerprint | Run | Signature:
    """The record; a fingerprint, which is spooled without its node, is of ``builders.node()``."""
    if entry.kind == "fingerprint":
        return fingerprint_from_message(reported(entry).fingerprint, node=builders.node())
    if entry.kind == "run":
        return run_from_message(fleet_pb2.ReportedRun.FromString(entry.body).run)
    return signature_from_message(records_pb2.Signature.FromString(entry.body))
