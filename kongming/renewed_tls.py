"""TLS of HTTP servers whose certificates are renewed while they run: version 1.3, no resumption."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Protocol

from kongming.records.errors import InputError

_log = logging.getLogger(__name__)

NOT_RENEWED = "Certificates could not be read again; the last ones stay: %s"

Stamp = tuple[tuple[int, ...], ...]
"""Number, moment of change (nanoseconds) and size of each file."""


class TlsFiles(Protocol):
    """Paths of PEM files. Without ``client_ca`` nobody is asked for a certificate."""

    @property
    def certificate(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def client_ca(self) -> str: ...


def stamp(files: TlsFiles) -> Stamp:
    """Return what changes with the files. Raises OSError where one is not there."""
    paths = filter(None, (files.certificate, files.key, files.client_ca))
    return tuple(
        (status.st_ino, status.st_mtime_ns, status.st_size)
        for status in (Path(path).stat() for path in paths)
    )


def load(files: TlsFiles, hint: str) -> ssl.SSLContext:
    """Read the files. A client certificate is optional in the handshake: probes of an orchestrator
    have none, so that callers are checked for each path.

    Raises:
        InputError: a file cannot be read, or certificate and key do not belong together; the way
            out is ``hint``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A session that is resumed shows no certificate again: one that has ended, or that an exchanged
    # client_ca no longer knows, would go on. Sessions of 1.2 cannot be switched off from Python.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # That of the system's configuration may be older, and then no handshake would succeed.
    context.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ssl.SSLError) as error:
        raise _unreadable("certificate", files.certificate, error, hint) from error
    if files.client_ca:
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise _unreadable("client_ca", files.client_ca, error, hint) from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def renewing_context(files: TlsFiles, hint: str) -> ssl.SSLContext:
    """Return a context of the files, which are checked for each connection, so that renewed
    certificates count without a restart; while they cannot be used the last ones stay.

    Raises:
        InputError: as ``load``.
    """
    first = load(files, hint)
    # No stamp is like the first: what changed while they were read counts at once.
    latest: tuple[Stamp, ssl.SSLContext] = (), first

    def renew(tls: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
        nonlocal latest
        try:
            now = stamp(files)
            if now != latest[0]:
                latest = now, load(files, hint)
        except (OSError, InputError) as error:
            _log.warning(NOT_RENEWED, error)
        tls.context = latest[1]

    first.sni_callback = renew  # called for each connection, whether it names a host or not
    return first


def _unreadable(name: str, path: str, error: Exception, hint: str) -> InputError:
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "not PEM"
    which = f"{path} or its key" if name == "certificate" else path
    return InputError(f"{which} cannot be used: {reason}.", field=f"security.{name}", hint=hint)
