"""TLS towards the scheduler: version 1.3, and its certificate where that is required."""

from __future__ import annotations

import ssl
from typing import Any

from kongming.records.errors import AccessError
from kongming.renewed_tls import renewing_context
from kongming_extender.extender_config import Security

_HINT = "Make working ones with: kongming-server init-tls DIR --name NAME"
_ROLE = "kongming:role/"
"""How a certificate's URI names a role; where it has none, its organizational unit does."""


def context(security: Security) -> ssl.SSLContext | None:
    """The server's context; None without TLS. Renewed certificates count without a restart.

    Raises:
        InputError: a file cannot be read, or certificate and key do not belong together.
    """
    if not security.tls:
        return None
    return renewing_context(security, _HINT)


def check_caller(security: Security, certificate: Any, now: float) -> None:
    """Check that this caller is allowed at ``now`` (Unix time); ``certificate`` is the caller's,
    as ``getpeercert`` has it.

    Raises:
        AccessError: it has none, or one that has ended, or its name is not allowed.
    """
    if not security.client_ca:
        return
    if not certificate:
        raise AccessError(
            "A client certificate is needed.",
            reason="unauthenticated",
            hint="Set certFile and keyFile in tlsConfig of the scheduler's extender.",
        )
    # A scheduler's connection may stay open for longer than its certificate.
    if ssl.cert_time_to_seconds(certificate["notAfter"]) <= now:
        raise AccessError(
            "The client certificate has ended.",
            reason="unauthenticated",
            hint="Renew it, as with kongming-server init-tls DIR --renew.",
        )
    allowed = {name.strip() for name in security.client_names.split(",") if name.strip()}
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in subject if key == "commonName"), "")
    if not allowed:
        uris = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"}
        roles = {uri.removeprefix(_ROLE) for uri in uris if uri.startswith(_ROLE)}
        if not roles:
            roles = {value for key, value in subject if key == "organizationalUnitName"}
        if roles in ({"scheduler"}, {"operator"}):
            return
    elif name in allowed:
        return
    raise AccessError(
        f"The client certificate is of {name[:100]!r}.",
        reason="forbidden",
        hint="Allowed are the names in security.client_names."
        if allowed
        else "It must be of the role scheduler, or its name in security.client_names.",
    )
