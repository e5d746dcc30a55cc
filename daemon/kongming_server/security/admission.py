"""The gate that every call goes through: who calls, whether they may, and whether there is room.

One object for gRPC and HTTP. It keeps counts and never waits, so it costs microseconds.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from kongming.records.errors import AccessError, OverloadedError
from kongming_server.metrics import Metrics
from kongming_server.security.certificates import holder
from kongming_server.security.rates import Rates
from kongming_server.security.roles import PUBLIC, Role, permit
from kongming_server.security.tokens import TokenBook
from kongming_server.settings import Limits, Security

__all__ = ["Call", "Caller", "Guard", "Ticket", "current_call"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. ``name``: of the token or the certificate; ``identity`` tells two callers of
    one address apart."""

    role: Role
    name: str
    identity: str


ANYBODY = Caller(Role.OPERATOR, "anybody", "")
"""The caller where nobody is asked who they are."""

NOBODY = Caller(Role.AGENT, "nobody", "")
"""The caller of what is public."""


@dataclass(frozen=True, slots=True)
class Call:
    """The call that the current task answers."""

    method: str
    request_id: str
    caller: Caller


current_call: ContextVar[Call | None] = ContextVar("kongming_call", default=None)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A place that ``Guard.leave`` gives back. ``peer`` is empty for a unary call."""

    caller: Caller
    peer: str = ""


class Guard:
    """Knows callers and counts what they take. Used from one event loop.

    ``clock`` counts seconds steadily, ``wall`` is unix seconds (tokens expire by it).
    """

    def __init__(
        self,
        security: Security,
        limits: Limits,
        *,
        metrics: Metrics,
        tokens: TokenBook | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.security = security
        self.limits = limits
        self.metrics = metrics
        self._tokens = tokens if tokens is not None else TokenBook()
        self._clock = clock
        self._wall = wall
        self._rates = Rates(limits.rate_per_peer, limits.burst)
        # Guesses at tokens are slowed down by address long before they count.
        self._failures = Rates(rate=10.0, burst=100.0)
        self._open = not security.authenticates
        self._at_work = 0
        self._streams: dict[str, int] = {}
        self._streams_open = 0
        metrics.calls_at_work.set_function(lambda: self._at_work)
        metrics.streams_open.set_function(lambda: self._streams_open)

    @property
    def open(self) -> bool:
        """Whether nobody is asked who they are."""
        return self._open

    def admit(
        self,
        method: str,
        peer: str,
        authorization: str | None = None,
        certificate: bytes | None = None,
        *,
        stream: bool = False,
    ) -> Ticket:
        """Let a call in, or not; ``leave`` must follow what was let in.

        ``peer`` as gRPC tells it (``ipv4:HOST:PORT``); ``certificate`` in PEM or DER, as TLS
        has checked it.

        Raises:
            AccessError: unauthenticated or forbidden.
            OverloadedError: a limit was reached.
        """
        address = _address(peer)
        try:
            caller = self._caller(method, address, authorization, certificate)
            who = f"{address} {caller.identity}"
            wait_s = self._rates.take(who, self._clock())
            if wait_s > 0.0:
                raise self._full("rate_per_peer", f"Try again in {wait_s:.3g} s.")
            return self._place(caller, who, stream)
        except AccessError as error:
            self.metrics.refused.labels(error.reason).inc()
            raise

    def leave(self, ticket: Ticket) -> None:
        """Give a call's place back."""
        if not ticket.peer:
            self._at_work -= 1
            return
        self._streams_open -= 1
        left = self._streams[ticket.peer] - 1
        if left:
            self._streams[ticket.peer] = left
        else:
            del self._streams[ticket.peer]

    def _place(self, caller: Caller, who: str, stream: bool) -> Ticket:
        limits = self.limits
        if not stream:
            if self._at_work >= limits.queue:
                raise self._full("queue")
            self._at_work += 1
            return Ticket(caller)
        count = self._streams.get(who, 0)
        if count >= limits.streams_per_peer:
            raise self._full("streams_per_peer")
        if self._streams_open >= limits.streams:
            raise self._full("streams")
        self._streams[who] = count + 1
        self._streams_open += 1
        return Ticket(caller, who)

    def _caller(
        self, method: str, address: str, authorization: str | None, certificate: bytes | None
    ) -> Caller:
        if self._open:
            return ANYBODY
        if method in PUBLIC:
            return NOBODY
        try:
            caller = self._known(authorization, certificate)
        except AccessError:
            if self._failures.take(address, self._clock()) > 0.0:
                raise self._full("failed_authentications") from None
            raise
        permit(method, caller.role)
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
            return Caller(Role(token.role), token.subject or token.id, f"token {token.id}")
        if certificate is not None:
            name, role, fingerprint = holder(certificate)
            if role is not None:
                return Caller(role, name, f"certificate {fingerprint}")
            raise AccessError(
                f"The certificate of {name!r} names no role.",
                reason="unauthenticated",
                hint="It must have a URI such as kongming:role/scheduler among its alternative "
                "names, or a role as its organizational unit (OU); or show a token.",
            )
        raise AccessError(
            "The server must know who calls, and the call says nothing of it.",
            reason="unauthenticated",
            hint="Show a token (--token-file) or a client certificate (--cert and --key).",
        )

    def _full(self, limit: str, hint: str = "Try again a little later.") -> OverloadedError:
        self.metrics.refused.labels(limit).inc()
        return OverloadedError(f"The server's limit {limit} is reached.", hint=hint)


@lru_cache(maxsize=8192)
def _address(peer: str) -> str:
    """What limits count by: the address without its port; of IPv6 the network of 64 bits, since
    that is what one host is commonly given."""
    kind, _, rest = peer.partition(":")
    if kind == "ipv4":
        return rest.rpartition(":")[0]
    if kind == "ipv6":
        text = unquote(rest).rpartition("]")[0].lstrip("[").partition("%")[0]
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False).network_address)
    return kind
