"""TLS towards the scheduler: version 1.2 or newer, and its certificate where that is required."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

from kongming.records.errors import AccessError, InputError
from kongming_extender.extender_config import Security

_log = logging.getLogger(__name__)

_ROLE = "kongming:role/"
"""How a certificate's URI names a role; where it has none, its organizational unit does."""


def context(security: Security) -> ssl.SSLContext | None:
    """The server's context; None without TLS. The files are checked for each connection, so that
    renewed certificates count without a restart; while they cannot be used the last ones stay.

    Raises:
        InputError: a file cannot be read, or certificate and key do not belong together.
    """
    if not security.tls:
        return None
    first = _load(security)
    latest: list[Any] = [_stamp(security), first]

    def renew(tls: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
        try:
            stamp = _stamp(security)
            if stamp != latest[0]:
                latest[:] = [stamp, _load(security)]
        except (OSError, InputError) as error:
            _log.warning("Certificates could not be read again; the last ones stay: %s", error)
        tls.context = latest[1]

    first.sni_callback = renew  # called for each connection, whether it names a host or not
    return first


def check_caller(security: Security, certificate: Any) -> None:
    """Return where this caller is allowed; ``certificate`` is the caller's, as ``getpeercert``
    has it.

    Raises:
        AccessError: it has none, or its name is not allowed.
    """
    if not security.client_ca:
        return
    if not certificate:
        raise AccessError(
            "A client certificate is needed.",
            reason="unauthenticated",
            hint="Set certFile and keyFile in tlsConfig of the scheduler's extender.",
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


def _load(security: Security) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(security.certificate, security.key, password="")
        if security.client_ca:
            context.load_verify_locations(security.client_ca)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "not PEM"
        raise InputError(
            f"The files of security cannot be used: {reason}.",
            field="security",
            hint="Make working ones with: kongming-server init-tls DIR --name NAME",
        ) from error
    if security.client_ca:
        # Probes of the kubelet have none; callers are checked for each path.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _stamp(security: Security) -> tuple[tuple[int, int], ...]:
    paths = filter(None, (security.certificate, security.key, security.client_ca))
    return tuple(
        (status.st_mtime_ns, status.st_size) for status in (Path(path).stat() for path in paths)
    )
