"""What an agent sends, checked: records that can be kept, or the reason why one cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from kongming.errors import InputError
from kongming.fingerprint import Fingerprint
from kongming.rpc import records
from kongming.rpc.v1 import fleet_pb2, records_pb2
from kongming.run import Run, Signature
from kongming_server.core.questions import Purpose
from kongming_server.core.sanity import implausible
from kongming_server.state import Agent, PeerTiming

References = Callable[[int], Mapping[str, float] | None]
"""Seconds per operation on the idle node by surrogate, of a cache domain; None where unknown."""

PURPOSES = {
    fleet_pb2.PURPOSE_LIVE: Purpose.LIVE,
    fleet_pb2.PURPOSE_REFERENCE: Purpose.REFERENCE,
    fleet_pb2.PURPOSE_ESTIMATE: Purpose.ESTIMATE,
}


class NonsenseError(InputError):
    """A number that no node can measure: its node is not believed any more."""


def purpose_of(value: fleet_pb2.Purpose.ValueType) -> Purpose:
    """Raises InputError where it is not said."""
    if value not in PURPOSES:
        raise InputError(
            "is missing or unknown.",
            field="purpose",
            found=int(value),
            allowed=", ".join(fleet_pb2.Purpose.Name(known) for known in PURPOSES),
        )
    return PURPOSES[value]


def taken_at(fingerprint: Fingerprint) -> float:
    """Unix seconds at its end."""
    return _unix(fingerprint.started_at) + fingerprint.elapsed_s


def ended_at(run: Run) -> float:
    """Unix seconds."""
    return _unix(run.started_at) + run.wall_s


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
        NonsenseError: a number that cannot be true.
        InputError: another node's, of a CPU that the node has not, or a part that is missing.
    """
    told = message.node.id
    if told not in ("", agent.facts.id):
        raise InputError("is another node's.", field=f"{field}.node.id", found=told)
    try:
        # Its own facts may come with every fingerprint; they are the registered ones, and long.
        fingerprint = records.fingerprint_from_message(message, field, node=agent.facts)
    except InputError as error:
        if "cannot be true" in error.message or "is not finite" in error.message:
            raise _nonsense(error) from error
        raise
    domain = agent.domain_of(fingerprint.cpu)
    if domain is None:
        raise InputError(
            "is none of the node's.",
            field=f"{field}.cpu",
            found=fingerprint.cpu,
            allowed=", ".join(map(str, agent.facts.cpus)),
        )
    ended_s = records.unix(message.started_at) + fingerprint.elapsed_s
    if ended_s > now + skew_s:
        fingerprint = _set_back(fingerprint, now)
    why = implausible(fingerprint, references(domain))
    if why is not None:
        raise NonsenseError(why, field=f"{field}.readings")
    return fingerprint, domain


def peer_timing_of(message: fleet_pb2.PeerTiming, *, now: float) -> PeerTiming:
    """What an agent timed to another one; never later than ``now``.

    Raises:
        NonsenseError: a number that no network can have.
    """
    round_trip_s, bytes_per_s = message.round_trip_seconds, message.bytes_per_second
    if not 0.0 < round_trip_s <= _LONGEST_ROUND_TRIP_S:
        raise NonsenseError(
            "cannot be true.",
            field="peer_timing.round_trip_seconds",
            found=round_trip_s,
            allowed=f"above 0, up to {_LONGEST_ROUND_TRIP_S:g} s",
        )
    if not 0.0 <= bytes_per_s <= _FASTEST_NETWORK:
        raise NonsenseError(
            "cannot be true.",
            field="peer_timing.bytes_per_second",
            found=bytes_per_s,
            allowed=f"0 to {_FASTEST_NETWORK:g}",
        )
    taken_at = records.unix(message.taken_at) if message.HasField("taken_at") else now
    return PeerTiming(round_trip_s, bytes_per_s, min(taken_at, now))


_LONGEST_ROUND_TRIP_S = 60.0
_FASTEST_NETWORK = 1e13
"""Bytes a second: a hundred times what the fastest adapters carry."""


def run_of(
    message: records_pb2.Run, agent: Agent, references: References, *, now: float, skew_s: float
) -> Run:
    """A run on this agent's node. Raises as ``fingerprint_of`` does."""
    if message.node_id != agent.facts.id:
        raise InputError("is another node's.", field="run.node_id", found=message.node_id)
    prints = {
        part: fingerprint_of(
            getattr(message, part),
            agent,
            references,
            now=now,
            skew_s=skew_s,
            field=f"run.{part}",
        )[0]
        for part in ("fingerprint", "before", "after")
        if message.HasField(part)
    }
    try:
        run = records.run_from_message(message, node=agent.facts)
    except InputError as error:
        if "cannot be true" in error.message:
            raise _nonsense(error) from error
        raise
    run = replace(
        run,
        fingerprint=prints.get("fingerprint"),
        before=prints.get("before"),
        after=prints.get("after"),
    )
    if ended_at(run) > now + skew_s:
        started = datetime.fromtimestamp(now - run.wall_s, UTC)
        run = replace(
            run, started_at=_iso(started), warnings=(*run.warnings, _ahead(run.started_at))
        )
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
        raise InputError("is another node's.", field="signature.node_id", found=message.node_id)
    fingerprint, _ = fingerprint_of(
        message.fingerprint,
        agent,
        references,
        now=now,
        skew_s=skew_s,
        field="signature.fingerprint",
    )
    signature = records.signature_from_message(message, node=agent.facts)
    return replace(signature, fingerprint=fingerprint)


def _set_back(fingerprint: Fingerprint, now: float) -> Fingerprint:
    """The same, but that it ended now."""
    started = datetime.fromtimestamp(now - fingerprint.elapsed_s, UTC)
    return replace(
        fingerprint,
        started_at=_iso(started),
        warnings=(*fingerprint.warnings, _ahead(fingerprint.started_at)),
    )


def _ahead(moment: str) -> str:
    return f"The node's clock was ahead: it said {moment}, and the server's time was taken."


def _unix(moment: str) -> float:
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _nonsense(error: InputError) -> NonsenseError:
    made = NonsenseError(error.message)
    made.field, made.found, made.allowed = error.field, error.found, error.allowed
    return made
