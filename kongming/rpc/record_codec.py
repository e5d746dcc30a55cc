"""Records as messages and back, field by field: what agents report.

``message_codec`` translates by the names of fields, and could do this too, given the names that
differ. It encodes a fingerprint of 35 readings, a run with two of them and a signature in 0.94,
0.86 and 0.87 of the time, but a server decodes: there it takes 2.2, 2.1 and 2.3 times as long (212
us of CPU instead of 95 for the fingerprint, without the checks of ids that are made here; node
facts 1.1 and 1.3 times). Least of 15 rounds by turns, protobuf's C implementation, AMD EPYC, busy.

``*_from_message`` raise InputError for an unknown enum or a missing part, and ImplausibleError
where the record refuses a number; the field is named by its path in the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kongming.records.errors import InputError
from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading
from kongming.records.run import RUN_KINDS, LoadLevel, Run, Signature, Usage
from kongming.rpc import value_codec as values
from kongming.rpc.v1 import records_pb2
from kongming.rpc.value_codec import (
    iso,
    json_object,
    placement_to_message,
    struct,
    timestamp,
)

# -- nodes -------------------------------------------------------------------------------------


def node_to_message(node: NodeFacts) -> records_pb2.NodeFacts:
    return records_pb2.NodeFacts(
        id=node.id,
        name=node.name,
        architecture=node.architecture,
        cpu_vendor=node.cpu_vendor,
        cpu_model=node.cpu_model,
        cpus=node.cpus,
        cores=node.cores,
        sockets=node.sockets,
        l1d_bytes=node.l1d_bytes,
        l2_bytes=node.l2_bytes,
        llc_bytes=node.llc_bytes,
        llc_domains=[records_pb2.CpuSet(cpus=group) for group in node.llc_cpus],
        memory_bytes=node.memory_bytes,
        kernel=node.kernel,
        hypervisor=node.hypervisor,
        huge_pages=node.huge_pages,
        cgroup=struct(node.cgroup, "node.cgroup"),
        siblings=struct(node.siblings, "node.siblings"),
    )


def node_from_message(message: records_pb2.NodeFacts, field: str = "node") -> NodeFacts:
    """Raises InputError: no id, a negative CPU or size, or cgroup facts that are no JSON."""
    cpus = tuple(message.cpus)
    domains = tuple(tuple(group.cpus) for group in message.llc_domains)
    for cpu in (*cpus, *(cpu for group in domains for cpu in group)):
        values.count(cpu, f"{field}.cpus")
    siblings = json_object(message.siblings, f"{field}.siblings")
    for pair, seen in siblings.items():
        if not isinstance(seen, dict):
            raise InputError("is no JSON object.", field=f"{field}.siblings.{pair}", value=seen)
    return NodeFacts(
        id=values.named(message.id, f"{field}.id"),
        name=message.name,
        architecture=message.architecture,
        cpu_vendor=message.cpu_vendor,
        cpu_model=message.cpu_model,
        cpus=cpus,
        cores=dict(message.cores),
        sockets=dict(message.sockets),
        l1d_bytes=values.count(message.l1d_bytes, f"{field}.l1d_bytes"),
        l2_bytes=values.count(message.l2_bytes, f"{field}.l2_bytes"),
        llc_bytes=values.count(message.llc_bytes, f"{field}.llc_bytes"),
        llc_cpus=domains,
        memory_bytes=values.count(message.memory_bytes, f"{field}.memory_bytes"),
        kernel=message.kernel,
        hypervisor=message.hypervisor if message.HasField("hypervisor") else None,
        huge_pages=message.huge_pages,
        cgroup=json_object(message.cgroup, f"{field}.cgroup"),
        siblings=siblings,
    )


# -- fingerprints ------------------------------------------------------------------------------


def fingerprint_to_message(fingerprint: Fingerprint) -> records_pb2.Fingerprint:
    """Raises InputError where it has no valid time or its numbers do not fit the message."""
    return records_pb2.Fingerprint(
        id=fingerprint.id,
        node=node_to_message(fingerprint.node),
        suite=fingerprint.suite,
        suite_version=fingerprint.suite_version,
        cpu=fingerprint.cpu,
        started_at=timestamp(fingerprint.started_at),
        elapsed_seconds=fingerprint.elapsed_s,
        readings=[_reading_to_message(r) for r in fingerprint.surrogates.values()],
        passive=fingerprint.passive,
        warnings=fingerprint.warnings,
    )


def fingerprint_from_message(
    message: records_pb2.Fingerprint,
    field: str = "fingerprint",
    *,
    node: NodeFacts | None = None,
) -> Fingerprint:
    """``field`` is where the message stands in its request; ``node``, where it is known already,
    takes the place of the message's own, which is not looked at then.

    Raises InputError: a missing part, a surrogate twice, or a number that the record refuses.
    """
    if node is None and not message.HasField("node"):
        raise InputError("is missing.", field=f"{field}.node")
    if not message.HasField("started_at"):
        raise InputError("is missing.", field=f"{field}.started_at")
    readings: dict[str, Reading] = {}
    for number, reading in enumerate(message.readings):
        name = reading.name
        if not name:
            raise InputError("is missing.", field=f"{field}.readings[{number}].name")
        if name in readings:
            raise InputError("is there twice.", field=f"{field}.readings.{name}")
        readings[name] = _reading_from_message(reading, field)
    passive = message.passive
    described: dict[str, Any] = {
        "node": node_from_message(message.node, f"{field}.node") if node is None else node,
        "suite": values.named(message.suite, f"{field}.suite"),
        "suite_version": values.named(message.suite_version, f"{field}.suite_version"),
        "started_at": iso(message.started_at, f"{field}.started_at"),
        "id": values.named(message.id, f"{field}.id"),
    }
    try:
        return Fingerprint(
            **described,
            cpu=message.cpu,
            elapsed_s=message.elapsed_seconds,
            surrogates=readings,
            # A message's map is read by its keys several times as fast as dict() reads it.
            passive={name: passive[name] for name in passive},
            warnings=tuple(message.warnings),
        )
    except InputError as error:
        raise _placed(error, field) from error


def _reading_to_message(reading: Reading) -> records_pb2.Reading:
    times = (reading.seconds_per_op, reading.median, reading.p90)
    if reading.error is not None or None in times:
        return records_pb2.Reading(
            name=reading.name, family=reading.family, error=reading.error or "no timed work"
        )
    mean, median, p90 = (seconds or 0.0 for seconds in times)
    return records_pb2.Reading(
        name=reading.name,
        family=reading.family,
        op=reading.op,
        seconds_per_op=mean,
        median_seconds_per_op=median,
        p90_seconds_per_op=p90,
        batches=reading.n,
        operations=reading.ops,
        elapsed_seconds=reading.elapsed_s,
        size_bytes=reading.size_bytes,
        partial=reading.partial,
        direct=reading.direct,
    )


def _reading_from_message(message: records_pb2.Reading, prints: str) -> Reading:
    """``prints`` is where its fingerprint stands."""
    if message.error:
        return Reading(name=message.name, family=message.family, error=message.error)
    try:
        return Reading(
            message.name,
            message.family,
            message.op,
            message.seconds_per_op,
            message.median_seconds_per_op,
            message.p90_seconds_per_op,
            message.batches,
            message.operations,
            message.elapsed_seconds,
            message.size_bytes if message.HasField("size_bytes") else None,
            message.partial,
            message.direct if message.HasField("direct") else None,
        )
    except InputError as error:
        raise _placed(error, prints) from error


_MESSAGE_NAMES = {
    "surrogates": "readings",
    "median": "median_seconds_per_op",
    "p90": "p90_seconds_per_op",
    "n": "batches",
    "ops": "operations",
    "elapsed_s": "elapsed_seconds",
    "wall_s": "wall_seconds",
    "cpu_s": "cpu_seconds",
}
"""Fields whose messages have another name for them than the records."""


def _placed(error: InputError, place: str) -> InputError:
    """The error, with the field's path in the message that stands at ``place``."""
    first, *rest = (error.field or "").split(".")
    last = [_MESSAGE_NAMES.get(name, name) for name in rest[-1:]]
    return error.at(".".join([place, _MESSAGE_NAMES.get(first, first), *rest[:-1], *last]))


ReadFingerprint = Callable[[records_pb2.Fingerprint, str], Fingerprint]
"""Decodes the fingerprint at a field."""

# -- runs --------------------------------------------------------------------------------------


def run_to_message(run: Run) -> records_pb2.Run:
    """Raises InputError where it has no valid time or placement."""

    def optional(fingerprint: Fingerprint | None) -> records_pb2.Fingerprint | None:
        return None if fingerprint is None else fingerprint_to_message(fingerprint)

    return records_pb2.Run(
        id=run.id,
        app=run.app,
        identity=run.identity,
        node_id=run.node_id,
        placement=placement_to_message(run.placement),
        kind=run.kind,
        started_at=timestamp(run.started_at),
        wall_seconds=run.wall_s,
        metric=run.metric,
        metric_unit=run.metric_unit,
        better=run.better,
        levels=[
            records_pb2.LoadLevel(
                surrogate=level.surrogate,
                family=level.family,
                intensity=level.intensity,
                copies=level.copies,
            )
            for level in run.levels
        ],
        neighbours=run.neighbours,
        fingerprint=optional(run.fingerprint),
        before=optional(run.before),
        after=optional(run.after),
        usage=_usage_to_message(run.usage),
        passive=run.passive,
        exit_status=run.exit_status,
        error=run.error,
        warnings=run.warnings,
        campaign=run.campaign,
        step=run.step,
        config=struct(run.config, "run.config"),
        parts=run.parts,
    )


def run_from_message(
    message: records_pb2.Run,
    field: str = "run",
    *,
    read: ReadFingerprint = fingerprint_from_message,
) -> Run:
    """A metric of 0 or less is kept, as the store does: such a run is not ok.

    Raises InputError: a missing part, an unknown placement, kind or direction, or an
    implausible number.
    """
    if not message.HasField("started_at"):
        raise InputError("is missing.", field=f"{field}.started_at")
    prints = {
        part: read(getattr(message, part), f"{field}.{part}")
        for part in ("fingerprint", "before", "after")
        if message.HasField(part)
    }
    described: dict[str, Any] = {
        "id": values.named(message.id, f"{field}.id"),
        "placement": values.known_placement(message.placement, f"{field}.placement"),
        "kind": values.one_of(message.kind, f"{field}.kind", RUN_KINDS),
        "started_at": iso(message.started_at, f"{field}.started_at"),
        "better": values.one_of(message.better, f"{field}.better", ("lower", "higher")),
        "levels": tuple(
            LoadLevel(level.surrogate, level.family, level.intensity, level.copies)
            for level in message.levels
        ),
        "config": json_object(message.config, f"{field}.config"),
        **prints,
    }
    try:
        return Run(
            **described,
            app=message.app,
            identity=message.identity,
            node_id=message.node_id,
            wall_s=message.wall_seconds,
            metric=message.metric if message.HasField("metric") else None,
            metric_unit=message.metric_unit,
            neighbours=tuple(message.neighbours),
            usage=_usage_from_message(message.usage),
            passive=dict(message.passive),
            exit_status=message.exit_status if message.HasField("exit_status") else None,
            error=message.error if message.HasField("error") else None,
            warnings=tuple(message.warnings),
            campaign=message.campaign,
            step=message.step,
            parts=dict(message.parts),
        )
    except InputError as error:
        raise _placed(error, field) from error


_USAGE_COUNTS = tuple(name for name in Usage.__slots__ if name != "cpu_s")


def _usage_to_message(usage: Usage) -> records_pb2.Usage:
    counts = {name: getattr(usage, name) for name in _USAGE_COUNTS}
    return records_pb2.Usage(cpu_seconds=usage.cpu_s, **counts)


def _usage_from_message(message: records_pb2.Usage) -> Usage:
    counts = {name: getattr(message, name) for name in _USAGE_COUNTS}
    return Usage(cpu_s=message.cpu_seconds, **counts)


# -- signatures --------------------------------------------------------------------------------


def signature_to_message(signature: Signature) -> records_pb2.Signature:
    """Raises InputError where it has no valid time or placement."""
    return records_pb2.Signature(
        id=signature.id,
        app=signature.app,
        identity=signature.identity,
        node_id=signature.node_id,
        placement=placement_to_message(signature.placement),
        fingerprint=fingerprint_to_message(signature.fingerprint),
        iterations=signature.iterations,
        campaign=signature.campaign,
        step=signature.step,
    )


def signature_from_message(
    message: records_pb2.Signature,
    field: str = "signature",
    *,
    read: ReadFingerprint = fingerprint_from_message,
) -> Signature:
    """Raises InputError: a missing part, an unknown placement, an implausible number."""
    if not message.HasField("fingerprint"):
        raise InputError("is missing.", field=f"{field}.fingerprint")
    return Signature(
        id=values.named(message.id, f"{field}.id"),
        app=message.app,
        identity=message.identity,
        node_id=message.node_id,
        placement=values.known_placement(message.placement, f"{field}.placement"),
        fingerprint=read(message.fingerprint, f"{field}.fingerprint"),
        iterations=values.count(message.iterations, f"{field}.iterations"),
        campaign=message.campaign,
        step=message.step,
    )
