"""Bearer tokens: made once, kept as hashes, compared in constant time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kongming.records.errors import AccessError, InputError, StoreError
from kongming.store import StoredToken
from kongming_server.running.supervision import Working, unwatched
from kongming_server.security.roles import Role

__all__ = [
    "CERTIFICATE",
    "FINGERPRINT_DIGITS",
    "Issued",
    "TokenBook",
    "digest",
    "duration_s",
    "is_pattern",
    "issue",
]

_log = logging.getLogger(__name__)
CERTIFICATE = "certificate"
"""In place of a role: the entry is no token, but the fingerprint of a refused certificate."""

FINGERPRINT_DIGITS = 16
"""Of the SHA-256 of a certificate, as hexadecimal digits."""

_PREFIX = "kongming"
_FORM = re.compile(rf"{_PREFIX}_([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})", re.ASCII)
_GLOB = re.compile(r"[*?\[]")
_SECRET_BYTES = 32
_NOBODY = hashlib.sha256(b"").hexdigest()
_LONGEST_S = 100 * 365 * 86400.0
"""A token lives no longer, in seconds: its end must be a date that can be shown."""

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True, slots=True)
class Issued:
    """A new token. ``text`` is what the caller shows: it is never stored, nor shown in a repr."""

    id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> str:
        return digest(self.text)


def issue() -> Issued:
    """A new token: a public id, and 32 random bytes."""
    identity = secrets.token_hex(6)
    return Issued(identity, f"{_PREFIX}_{identity}_{secrets.token_urlsafe(_SECRET_BYTES)}")


def digest(token: str) -> str:
    """Return what is kept of a token: 64 hexadecimal digits. The secret has 256 random bits, so a
    plain hash is enough: there is no dictionary to try."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_pattern(node: str) -> bool:
    """Return whether a token that is for nodes of this name is for any number of them."""
    return _GLOB.search(node) is not None


def duration_s(text: str) -> float:
    """Seconds of ``90s``, ``15m``, ``12h``, ``30d`` or ``4w``.

    Raises:
        InputError: it is no such text, no time at all, or more than 100 years.
    """
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise InputError(
            "is not a duration.",
            field="expires",
            value=text,
            allowed="a whole number with s, m, h, d or w, as 30d",
        )
    seconds = int(match[1]) * _UNITS_S[match[2]]
    if seconds > _LONGEST_S:
        raise InputError(
            "is too long.",
            field="expires",
            value=text,
            allowed="up to 100 years, as 5200w; without it a token never expires",
        )
    return seconds


class TokenBook:
    """The tokens of the store, held in memory so that a call never waits for the store.

    ``source`` reads all of them, and may block. While the store is away the last ones read stay
    in force: expiry is still checked, a revocation waits until the store is back.
    """

    def __init__(self, source: Callable[[], Iterable[StoredToken]] = tuple) -> None:
        self._source = source
        self._known: dict[str, StoredToken] = {}
        self._by_node: dict[str, list[str]] = {}
        self._patterns: list[tuple[str, str]] = []

    def load(self) -> None:
        """Read the tokens. Raises StoreError."""
        self._known = {token.id: token for token in self._source()}
        self._by_node, self._patterns = {}, []
        for token in self._known.values():
            for pattern in token.nodes:
                if is_pattern(pattern):
                    self._patterns.append((pattern.lower(), token.id))
                else:
                    self._by_node.setdefault(pattern.lower(), []).append(token.id)

    async def refresh(self) -> None:
        """``load`` in a thread. Raises StoreError."""
        await asyncio.to_thread(self.load)

    async def keep_fresh(
        self,
        period_s: float,
        working: Working = unwatched,
    ) -> None:
        """Refresh every ``period_s`` until cancelled; ``working`` is around each time."""
        away = False
        while True:
            await asyncio.sleep(period_s)
            try:
                with working("Reading tokens"):
                    await self.refresh()
                away = False
            except StoreError as error:
                # Once for each outage: this would be the loudest line of the log.
                if not away:
                    _log.warning("Tokens could not be read; the last ones stay: %s", error)
                away = True
            except Exception:
                if not away:
                    _log.exception("Tokens could not be read; the last ones stay.")
                away = True

    def in_force(self, token_id: str, now: float) -> bool:
        """Return whether a token of this id opens anything at ``now`` (unix s)."""
        known = self._known.get(token_id)
        if known is None or known.revoked_at is not None:
            return False
        return known.expires_at is None or now < known.expires_at

    def __len__(self) -> int:
        """Count all tokens, also those that open nothing any more."""
        return len(self._known)

    def refuses(self, fingerprint: str) -> bool:
        """Return whether the certificate of this fingerprint was revoked."""
        known = self._known.get(fingerprint)
        return known is not None and known.role == CERTIFICATE and known.revoked_at is not None

    def naming(self, node: str, now: float) -> tuple[str, ...]:
        """Ids of the tokens in force at ``now`` (unix s) that are for a node of this name, in
        whatever case."""
        node = node.lower()
        ids = [*self._by_node.get(node, ())]
        ids += [token_id for pattern, token_id in self._patterns if fnmatchcase(node, pattern)]
        return tuple(token_id for token_id in ids if self.in_force(token_id, now))

    def find(self, text: str, now: float) -> StoredToken:
        """The token that ``text`` is, at ``now`` (unix s).

        Raises:
            AccessError: unauthenticated: unknown, revoked or expired. Which of them is only said
                to who has the whole token.
        """
        parts = _FORM.fullmatch(text)
        known = self._known.get(parts[1]) if parts is not None else None
        # An unknown id takes as long as a wrong secret.
        right = hmac.compare_digest(
            digest(text), known.secret_hash if known is not None else _NOBODY
        )
        if known is None or not right:
            raise _refused("The token is not known.")
        if known.revoked_at is not None:
            raise _refused(f"The token {known.id} was revoked.")
        if known.expires_at is not None and now >= known.expires_at:
            raise _refused(f"The token {known.id} has expired.")
        if known.role not in set(Role):
            raise _refused(f"The token {known.id} has a role that this server does not know.")
        return known


def _refused(message: str) -> AccessError:
    return AccessError(
        message,
        reason="unauthenticated",
        hint="An operator makes one with: kongming-server token add --role ROLE",
    )
