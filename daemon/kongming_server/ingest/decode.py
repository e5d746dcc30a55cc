"""Checks of what an agent sends: records that can be kept, or the reason why one cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from kongming.engine.settings import Purpose
from kongming.records import moments
from kongming.records.errors import ImplausibleError, InputError
from kongming.records.fingerprint import Fingerprint
from kongming.records.moments import unix
from kongming.records.run import Run, Signature
from kongming.rpc import record_codec as records
from kongming.rpc import value_codec as values
from kongming.rpc.v1 import fleet_pb2, records_pb2
from kongming_server.ingest.plausibility import check_plausible
from kongming_server.nodes.registry import Agent

References = Callable[[int], Mapping[str, float] | None]
"""Seconds per operation on the idle node by surrogate, of a cache domain; None where unknown."""

PURPOSES = {
    fleet_pb2.PURPOSE_LIVE: Purpose.LIVE,
    fleet_pb2.PURPOSE_REFERENCE: Purpose.REFERENCE,
    fleet_pb2.PURPOSE_ESTIMATE: Purpose.ESTIMATE,
}


LONGEST_S = 366 * 86400.0
"""No fingerprint and no run takes longer, in seconds."""

MOST_SEQUENCE = 2**53
"""The greatest sequence number that is acknowledged: beyond it agents could not count on."""


MOST_CPUS = 4096
"""Of a node, as in the contract."""


def sequence_of(value: int, field: str) -> int:
    """Raises InputError for a number that no agent has counted up to."""
    if value > MOST_SEQUENCE:
        raise InputError("is implausible.", field=field, value=value, allowed="up to 2^53")
    return value


def probe_cost_of(value: float) -> float:
    """Raises ImplausibleError for what is no share of CPUs: readers of JSON refuse whole lists of
    nodes where one number is NaN."""
    if not 0.0 <= value <= MOST_CPUS:
        raise ImplausibleError(
            "is implausible.",
            field="heartbeat.probe_cost",
            value=value,
            allowed=f"0 to {MOST_CPUS}",
        )
    return value


def plain_name(text: str, field: str) -> str:
    """Raises InputError for a name that is empty, or holds what cannot stand on a line."""
    if not text or not text.isprintable():
        raise InputError(
            "is not a name.",
            field=field,
            value=text,
            allowed="printable characters, one at the least",
        )
    return text


def node_name(text: str, field: str) -> str:
    """Raises InputError for an id or a name that a node cannot have: people would take a letter
    that looks like another one for it, a batch system a bracket for a list, and a command a dash
    for an option."""
    if _NODE_NAME.fullmatch(text) is None:
        raise InputError(
            "is no name of a node.",
            field=field,
            value=text,
            allowed="letters, digits and . _ : @ + - of ASCII, first a letter, a digit or _",
        )
    return text


_NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@+-]*")


def check_span(seconds: float, field: str) -> None:
    """Raises ImplausibleError for what would take longer than a year."""
    if not seconds <= LONGEST_S:
        raise ImplausibleError(
            "is implausible.", field=field, value=seconds, allowed=f"up to {LONGEST_S:.0f} s"
        )


def purpose_of(value: fleet_pb2.Purpose.ValueType) -> Purpose:
    """Raises InputError where it is not said."""
    if value not in PURPOSES:
        raise InputError(
            "is missing or unknown.",
            field="purpose",
            value=int(value),
            allowed=", ".join(fleet_pb2.Purpose.Name(known) for known in PURPOSES),
        )
    return PURPOSES[value]


def taken_at(fingerprint: Fingerprint) -> float:
    """Unix seconds at its end."""
    return unix(fingerprint.started_at) + fingerprint.elapsed_s


def ended_at(run: Run) -> float:
    """Unix seconds."""
    return unix(run.started_at) + run.wall_s


def fingerprint_of(
    message: records_pb2.Fingerprint,
    agent: Agent,
    references: References,
    *,
    now: float,
    skew_s: float,
    field: str = "fingerprint",
) -> tuple[Fingerprint, int]:
    """A fingerprint of this agent's node, and the cache domain that it was taken in.

    The node's facts are those that were registered; a time that lies ahead of the server's is
    replaced by the server's, with a warning in the record.

    Raises:
        ImplausibleError: a number that no node can measure: it is not believed any more.
        InputError: another node's, of a CPU that the node has not, or a part that is missing.
    """
    node_id = message.node.id
    if node_id not in ("", agent.facts.id):
        raise InputError("is another node's.", field=f"{field}.node.id", value=node_id)
    # Its own facts may come with every fingerprint; they are the registered ones, and long.
    fingerprint = records.fingerprint_from_message(message, field, node=agent.facts)
    check_span(fingerprint.elapsed_s, f"{field}.elapsed_seconds")
    domain = agent.domain_of(fingerprint.cpu)
    if domain is None:
        raise InputError(
            "is none of the node's.",
            field=f"{field}.cpu",
            value=fingerprint.cpu,
            allowed=", ".join(map(str, agent.facts.cpus)),
        )
    ended_s = values.unix(message.started_at) + fingerprint.elapsed_s
    if ended_s > now + skew_s:
        fingerprint = _set_back(fingerprint, now)
    check_plausible(fingerprint, references(domain), f"{field}.readings")
    return fingerprint, domain


def run_of(
    message: records_pb2.Run, agent: Agent, references: References, *, now: float, skew_s: float
) -> Run:
    """A run on this agent's node. Raises as ``fingerprint_of`` does."""
    if message.node_id != agent.facts.id:
        raise InputError("is another node's.", field="run.node_id", value=message.node_id)
    check_span(message.wall_seconds, "run.wall_seconds")
    plain_name(message.app, "run.app")
    read = _reader(agent, references, now, skew_s)
    run = records.run_from_message(message, read=read)
    if ended_at(run) > now + skew_s:
        started = moments.format(now - run.wall_s)
        run = replace(run, started_at=started, warnings=(*run.warnings, _ahead(run.started_at)))
    return run


def signature_of(
    message: records_pb2.Signature,
    agent: Agent,
    references: References,
    *,
    now: float,
    skew_s: float,
) -> Signature:
    """A signature that was taken on this agent's node. Raises as ``fingerprint_of`` does."""
    if message.node_id != agent.facts.id:
        raise InputError("is another node's.", field="signature.node_id", value=message.node_id)
    plain_name(message.app, "signature.app")
    read = _reader(agent, references, now, skew_s)
    return records.signature_from_message(message, read=read)


def _reader(
    agent: Agent, references: References, now: float, skew_s: float
) -> records.ReadFingerprint:
    """``fingerprint_of`` for the parts of another record."""

    def read(message: records_pb2.Fingerprint, field: str) -> Fingerprint:
        return fingerprint_of(message, agent, references, now=now, skew_s=skew_s, field=field)[0]

    return read


def _set_back(fingerprint: Fingerprint, now: float) -> Fingerprint:
    """The same, but that it ended now."""
    started = moments.format(now - fingerprint.elapsed_s)
    return replace(
        fingerprint,
        started_at=started,
        warnings=(*fingerprint.warnings, _ahead(fingerprint.started_at)),
    )


def _ahead(moment: str) -> str:
    return f"The node's clock was ahead: it said {moment}, and the server's time was taken."
