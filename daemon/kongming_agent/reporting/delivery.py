"""Conversion of records to message bytes, and of these to requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from google.protobuf.message import DecodeError, Message

from kongming.records.errors import InputError
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature
from kongming.rpc.record_codec import (
    fingerprint_to_message,
    run_to_message,
    signature_to_message,
)
from kongming.rpc.v1 import fleet_pb2, records_pb2

Kind = Literal["fingerprint", "run", "signature"]

PURPOSES = {
    "live": fleet_pb2.PURPOSE_LIVE,
    "reference": fleet_pb2.PURPOSE_REFERENCE,
    "estimate": fleet_pb2.PURPOSE_ESTIMATE,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One spooled record: ``body`` holds the bytes of its message, without the sequence."""

    sequence: int
    kind: Kind
    id: str
    body: bytes


def reported_fingerprint(fingerprint: Fingerprint, purpose: str, domain: int) -> bytes:
    """Return the bytes of a ReportedFingerprint. Raises InputError if it does not fit a message."""
    return _reported(fingerprint, purpose, domain).SerializeToString()


def reported_run(run: Run, assignment_id: str) -> bytes:
    """Return the bytes of a ReportedRun. Raises InputError if it does not fit a message."""
    message = fleet_pb2.ReportedRun(run=run_to_message(run), assignment_id=assignment_id)
    return message.SerializeToString()


def reported_signature(signature: Signature) -> bytes:
    """Return the bytes of a Signature. Raises InputError if it does not fit a message."""
    return signature_to_message(signature).SerializeToString()


def report_of(
    node_id: str, entries: Iterable[Entry], estimates: Mapping[int, Fingerprint]
) -> fleet_pb2.ReportRequest:
    """Return a report of spooled fingerprints, and of ``estimates`` by domain, which are not
    spooled and have no sequence, since their loss is harmless.

    Raises:
        InputError: a record is damaged.
    """
    request = fleet_pb2.ReportRequest(node_id=node_id)
    for entry in entries:
        reported = request.fingerprints.add()
        _merge(reported, entry)
        _check(reported.fingerprint.id, entry)
        reported.sequence = entry.sequence
    for domain, estimate in estimates.items():
        request.fingerprints.append(_reported(estimate, "estimate", domain))
    return request


def runs_of(node_id: str, entries: Iterable[Entry]) -> fleet_pb2.ReportRunsRequest:
    """Return a report of spooled runs and signatures. Raises InputError for a damaged record."""
    request = fleet_pb2.ReportRunsRequest(node_id=node_id)
    for entry in entries:
        if entry.kind == "run":
            reported = request.runs.add()
            _merge(reported, entry)
            _check(reported.run.id, entry)
            reported.sequence = entry.sequence
        else:
            signature = request.signatures.add()
            _merge(signature, entry)
            _check(signature.id, entry)
    return request


def node_of(entry: Entry) -> str:
    """Return the id of the node that a spooled record was measured on; empty where it is not known,
    as of a fingerprint that an older agent spooled, and of a damaged record."""
    try:
        if entry.kind == "fingerprint":
            reported = fleet_pb2.ReportedFingerprint.FromString(entry.body)
            return reported.fingerprint.node.id
        if entry.kind == "run":
            return fleet_pb2.ReportedRun.FromString(entry.body).run.node_id
        return records_pb2.Signature.FromString(entry.body).node_id
    except DecodeError:
        return ""


def _merge(message: Message, entry: Entry) -> None:
    try:
        message.MergeFromString(entry.body)
    except DecodeError as error:
        raise _damaged(entry) from error


def _check(id: str, entry: Entry) -> None:
    # The server answers by the id in the message: by another one, the record would never go.
    if id != entry.id:
        raise _damaged(entry)


def _damaged(entry: Entry) -> InputError:
    return InputError("is damaged in the spool.", field=entry.kind, value=entry.id)


def _reported(fingerprint: Fingerprint, purpose: str, domain: int) -> fleet_pb2.ReportedFingerprint:
    if purpose not in PURPOSES:
        raise InputError("is unknown.", field="purpose", value=purpose, allowed=", ".join(PURPOSES))
    message = fingerprint_to_message(fingerprint)
    # The server knows the node from its registration. Only the id stays: a spool may outlive it.
    message.ClearField("node")
    message.node.id = fingerprint.node.id
    return fleet_pb2.ReportedFingerprint(
        fingerprint=message, purpose=PURPOSES[purpose], domain=domain
    )
