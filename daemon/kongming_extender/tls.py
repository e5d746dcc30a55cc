"""TLS towards the scheduler: version 1.2 or newer, and its certificate where one is asked for."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

from kongming.errors import AccessError, InputError
from kongming_extender.config import Security

_log = logging.getLogger(__name__)


def context(security: Security) -> ssl.SSLContext | None:
    """None without TLS. The files are looked at again for each connection, so that renewed
    certificates count without a restart; while they cannot be used the last ones stay.

    Raises:
        InputError: a file cannot be read, or certificate and key do not belong together.
    """
    if not security.tls:
        return None
    made = _made(security)
    seen: list[Any] = [_stamp(security), made]

    def renewed(tls: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
        try:
            stamp = _stamp(security)
            if stamp != seen[0]:
                seen[:] = [stamp, _made(security)]
        except (OSError, InputError) as error:
            _log.warning("Certificates could not be read again; the last ones stay: %s", error)
        tls.context = seen[1]

    made.sni_callback = renewed  # called for each connection, whether it names a host or not
    return made


def check_caller(security: Security, certificate: Any) -> None:
    """Return where this caller may ask; ``certificate`` is what it showed, as ``getpeercert``
    has it.

    Raises:
        AccessError: it showed none, or one of another name.
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
    name = next(
        (
            value
            for part in certificate.get("subject", ())
            for key, value in part
            if key == "commonName"
        ),
        "",
    )
    if allowed and name not in allowed:
        raise AccessError(
            f"The client certificate is of {name!r}.",
            reason="forbidden",
            hint="Allowed are the names in security.client_names.",
        )


def _made(security: Security) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(security.certificate, security.key, password="")
        if security.client_ca:
            made.load_verify_locations(security.client_ca)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "not PEM"
        raise InputError(
            f"The files of security cannot be used: {reason}.",
            field="security",
            hint="Make working ones with: kongming-server init-tls DIR --name NAME",
        ) from error
    if security.client_ca:
        # Probes of the kubelet have none; who may ask what is decided for each path.
        made.verify_mode = ssl.CERT_OPTIONAL
    return made


def _stamp(security: Security) -> tuple[tuple[int, int], ...]:
    paths = filter(None, (security.certificate, security.key, security.client_ca))
    return tuple(
        (found.st_mtime_ns, found.st_size) for found in (Path(path).stat() for path in paths)
    )
