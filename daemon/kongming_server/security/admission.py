"""The gate that every call goes through: who calls, whether they may, and whether there is room.

One object for gRPC and HTTP. It keeps counts and never waits, so it costs microseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from kongming.records.errors import AccessError, OverloadedError
from kongming.rpc.connections import address_of
from kongming_server.configuration.limits import Limits, Quotas
from kongming_server.configuration.settings import Security
from kongming_server.monitoring.metrics import Metrics
from kongming_server.security.addresses import Addresses
from kongming_server.security.certificates import holder, names_of
from kongming_server.security.rates import Rates
from kongming_server.security.refusals import FailedOftenError, Refusals
from kongming_server.security.roles import PROBES, PUBLIC, UNQUEUED, WATCHER, Role, permit
from kongming_server.security.tokens import TokenBook, is_pattern
from kongming_server.security.unread_answers import UnreadAnswers

__all__ = ["Call", "Caller", "Guard", "Ticket", "current_call"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller. ``name``: of the token or the certificate; ``identity`` distinguishes two callers
    of one address. ``token``: the id of what was shown; ``fingerprint`` and ``until`` (unix
    seconds): of the certificate that was. ``nodes`` are patterns of the names of nodes that an
    agent may speak for, empty for any."""

    role: Role
    name: str
    identity: str
    token: str = ""
    fingerprint: str = ""
    until: float | None = None
    nodes: tuple[str, ...] = ()

    @property
    def identified(self) -> bool:
        """Return whether it is no stranger."""
        return self is not NOBODY

    @property
    def is_agent(self) -> bool:
        """Return whether it had to say that it is an agent."""
        return self.role is Role.AGENT and self.identified


ANYBODY = Caller(Role.OPERATOR, "anybody", "")
"""The caller where callers are not authenticated."""

NOBODY = Caller(Role.AGENT, "nobody", "")
"""The caller of what is public."""


class Call(NamedTuple):
    """The call that the current task answers. ``peer``: the connection that it came over, as gRPC
    tells it; the call's own context must not be asked once the call may have ended."""

    method: str
    request_id: str
    caller: Caller
    peer: str = ""


current_call: ContextVar[Call | None] = ContextVar("kongming_call", default=None)


@dataclass(slots=True)
class Ticket:
    """A call that was let in, until ``Guard.leave``. ``peer``: whom it counts for, empty where it
    counts for no caller; ``stream``: whether as a stream; ``queued``: whether it has a place in the
    queue."""

    method: str
    caller: Caller
    peer: str = ""
    stream: bool = False
    queued: bool = False


_MOST_PUBLIC_STREAMS = 1024
"""In all: each takes some 40 kB, and its connection is never idle, so that whoever has thousands of
addresses would hold all connections there may be."""


class Guard:
    """Knows callers and counts what they take. Used from one event loop. What it refuses is to go
    through ``refusals`` before it is answered.

    ``clock`` counts seconds steadily, ``wall`` is unix seconds (tokens expire by it).
    """

    def __init__(
        self,
        security: Security,
        limits: Limits,
        *,
        metrics: Metrics,
        tokens: TokenBook | None = None,
        quotas: Quotas | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.security = security
        self.limits = limits
        self.metrics = metrics
        self.refusals = Refusals()
        self.unread_answers = UnreadAnswers(clock)
        self._tokens = tokens if tokens is not None else TokenBook()
        self._quotas = Quotas() if quotas is None else quotas
        self._clock = clock
        self._wall = wall
        self._addresses = Addresses()
        self._rates = Rates(limits.rate_per_peer, limits.burst)
        # Guesses at tokens are slowed down by address long before they count, and so are calls
        # that what was shown does not allow.
        self._failures = Rates(rate=10.0, burst=100.0)
        self._public = Rates(rate=100.0, burst=1000.0)
        # Of each connection: whoever probes may share an address with strangers.
        self._probes = Rates(rate=1.0, burst=5.0)
        self._open = not security.authenticates
        self._at_work = 0
        self._calls: dict[str, int] = {}
        self._streams: dict[str, int] = {}
        self._public_streams: dict[str, int] = {}
        self._streams_open = 0
        self._public_open = 0
        metrics.calls_at_work.set_function(lambda: self._at_work)
        metrics.streams_open.set_function(lambda: self._streams_open)

    @property
    def open(self) -> bool:
        """Return whether callers are not authenticated."""
        return self._open

    @property
    def calls(self) -> int:
        """Unary calls of callers that were let in: at work, or with a body still to arrive."""
        return sum(self._calls.values())

    def admit(
        self,
        method: str,
        peer: str,
        authorization: str | None = None,
        certificate: bytes | None = None,
        *,
        stream: bool = False,
    ) -> Ticket:
        """Let a call in, or not; ``leave`` must follow what was let in, and ``begin`` may come
        before it.

        ``peer`` as gRPC tells it (``ipv4:HOST:PORT``); ``certificate`` in PEM or DER, as TLS
        has checked it.

        Raises:
            AccessError: unauthenticated or forbidden.
            OverloadedError: a limit was reached.
        """
        address = address_of(peer)
        try:
            caller = self._caller(method, address, authorization, certificate)
            who = self._who(caller, address)
            if method not in PROBES or self._probes.take(peer, self._clock()) > 0.0:
                self._pace(caller, address, who)
            return self._counted(Ticket(method, caller, who, stream))
        except AccessError as error:
            self.metrics.refused.labels(error.reason).inc()
            raise

    def _pace(self, caller: Caller, address: str, who: str) -> None:
        if not caller.identified and self._public.take(address, self._clock()) > 0.0:
            raise self.full("public_calls", kind=FailedOftenError)
        wait_s = self._rates.take(who, self._clock())
        if wait_s > 0.0:
            raise self.full("rate_per_peer", f"Try again in {wait_s:.3g} s.")

    def _who(self, caller: Caller, address: str) -> str:
        """Whom a call counts for: an address with what was shown. An agent's credentials have no
        more addresses at a time than they may have nodes."""
        if caller.is_agent:
            most = _nodes_of(caller, self._quotas)
            if not self._addresses.counts(caller.identity, address, most, self._clock()):
                address = "others"
        return f"{address} {caller.identity}"

    def begin(self, ticket: Ticket) -> None:
        """Give a call a place in the queue: what it asks has arrived.

        Raises:
            OverloadedError: there is none.
        """
        if ticket.stream or ticket.method in UNQUEUED:
            return
        if self._at_work >= self.limits.queue:
            raise self.full("queue")
        self._at_work += 1
        ticket.queued = True

    def begin_answer(self, ticket: Ticket, peer: str, sent: asyncio.Future[Any], size: int) -> None:
        """Let an answer of ``size`` bytes be sent over the connection of ``peer``; it was sent when
        ``sent`` is done.

        Raises:
            OverloadedError: the caller left too much unread.
        """
        caller = ticket.caller
        who = (caller.identity or ticket.peer or peer) if caller.identified else peer
        if not self.unread_answers.begin(sent, who, size, stranger=not caller.identified):
            raise self.full("unread_answers", "Read the answers that you asked for.")

    def check(self, ticket: Ticket) -> None:
        """Check that what the caller has shown is still in force.

        Raises:
            AccessError: it was revoked or has expired since the call was let in.
        """
        self._still(ticket.caller)

    def leave(self, ticket: Ticket) -> None:
        """Give back what a call has taken."""
        if ticket.queued:
            self._at_work -= 1
        if not ticket.peer:
            return
        counts = self._counts(ticket)
        left = counts[ticket.peer] - 1
        if left:
            counts[ticket.peer] = left
        else:
            del counts[ticket.peer]
        if ticket.stream:
            if ticket.method in PUBLIC:
                self._public_open -= 1
            else:
                self._streams_open -= 1

    def _counts(self, ticket: Ticket) -> dict[str, int]:
        if not ticket.stream:
            return self._calls
        return self._public_streams if ticket.method in PUBLIC else self._streams

    def _counted(self, ticket: Ticket) -> Ticket:
        limits, counts = self.limits, self._counts(ticket)
        count = counts.get(ticket.peer, 0)
        if not ticket.stream:
            if ticket.method in UNQUEUED:
                ticket.peer = ""
                return ticket
            if count >= limits.calls_per_peer:
                raise self.full("calls_per_peer")
        elif ticket.method in PUBLIC:
            # Streams that anybody may open are few, and take nothing from those of callers.
            most = max(_MOST_PUBLIC_STREAMS, limits.public_streams)
            if count >= limits.public_streams or self._public_open >= most:
                raise self.full("public_streams")
            self._public_open += 1
        else:
            if count >= limits.streams_per_peer:
                raise self.full("streams_per_peer")
            if self._streams_open >= limits.streams:
                raise self.full("streams")
            self._streams_open += 1
        counts[ticket.peer] = count + 1
        return ticket

    def _caller(
        self, method: str, address: str, authorization: str | None, certificate: bytes | None
    ) -> Caller:
        if self._open:
            return ANYBODY
        if method in PUBLIC or (self.security.public_watcher and method in WATCHER):
            return NOBODY
        try:
            caller = self._known(authorization, certificate)
        except AccessError:
            if self._failures.take(address, self._clock()) > 0.0:
                raise self.full("failed_authentications", kind=FailedOftenError) from None
            raise
        try:
            permit(method, caller.role)
        except AccessError:
            # By what was shown: addresses cost whoever took it nothing.
            if self._failures.take(caller.identity, self._clock()) > 0.0:
                raise self.full("forbidden_calls", kind=FailedOftenError) from None
            raise
        return caller

    def _known(self, authorization: str | None, certificate: bytes | None) -> Caller:
        if authorization is not None:
            # A token that is shown counts, and a bad one is not made good by a certificate.
            scheme, _, text = authorization.partition(" ")
            if scheme.lower() != "bearer":
                raise AccessError(
                    "Of authorization only the scheme Bearer is known.", reason="unauthenticated"
                )
            token = self._tokens.find(text.strip(), self._wall())
            return Caller(
                Role(token.role),
                token.subject or token.id,
                f"token {token.id}",
                token=token.id,
                nodes=token.nodes,
            )
        if certificate is not None:
            shown = holder(certificate)
            if shown.role is not None:
                nodes = names_of(certificate) if shown.role is Role.AGENT else ()
                if not nodes and shown.role is Role.AGENT and self.security.agents_by_name:
                    nodes = (shown.name,)
                caller = Caller(
                    shown.role,
                    shown.name,
                    f"certificate {shown.fingerprint}",
                    fingerprint=shown.fingerprint,
                    until=shown.until,
                    nodes=nodes,
                )
                self._still(caller)
                return caller
            raise AccessError(
                f"The certificate of {shown.name!r} names no role.",
                reason="unauthenticated",
                hint="It must have a URI such as kongming:role/scheduler among its alternative "
                "names, or a role as its organizational unit (OU); or show a token.",
            )
        raise AccessError(
            "The server must know who calls, and the call says nothing of it.",
            reason="unauthenticated",
            hint="Show a token (--token-file) or a client certificate (--cert and --key).",
        )

    def _still(self, caller: Caller) -> None:
        if caller.until is not None:
            # TLS looked at it when the connection was made, which may be long ago.
            if self._wall() >= caller.until:
                raise AccessError(
                    f"The certificate of {caller.name!r} has expired.", reason="unauthenticated"
                )
            if self._tokens.refuses(caller.fingerprint):
                raise AccessError(
                    f"The certificate of {caller.name!r} was revoked.", reason="unauthenticated"
                )
        elif caller.token and not self._tokens.in_force(caller.token, self._wall()):
            raise AccessError(
                f"The token {caller.token} was revoked or has expired.", reason="unauthenticated"
            )

    def full(
        self,
        limit: str,
        hint: str = "Try again a little later.",
        kind: type[OverloadedError] = OverloadedError,
    ) -> OverloadedError:
        """Return what to tell a caller that meets this limit."""
        self.metrics.refused.labels(limit).inc()
        return kind(f"The server's limit {limit} is reached.", hint=hint)


def _nodes_of(caller: Caller, quotas: Quotas) -> int:
    """Return how many nodes an agent's credentials may have."""
    if not caller.nodes:
        return quotas.nodes
    return quotas.named_nodes if any(map(is_pattern, caller.nodes)) else len(caller.nodes)
