"""TLS of the server, for gRPC and HTTP: version 1.2 or newer, and client certificates where an
authority for them is given."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import grpc

from kongming.records.errors import InputError, KongmingError
from kongming_server.settings import Security

__all__ = ["add_port", "http_ssl", "server_credentials"]

_log = logging.getLogger(__name__)
_NOT_RENEWED = "Certificates could not be read again; the last ones stay: %s"
_Stamp = tuple[tuple[int, int], ...]


def add_port(server: grpc.aio.Server, address: str, security: Security) -> int:
    """Listen at ``address`` as the settings say, and return the port.

    Raises:
        InputError: a file of TLS cannot be read.
        KongmingError: the address cannot be bound.
    """
    credentials = server_credentials(security) if security.tls else None
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise KongmingError(
            f"Cannot listen on {address}.",
            hint="Is another server there? Give another port with --listen; 0 is any free one.",
        ) from error
    return port


def server_credentials(security: Security) -> grpc.ServerCredentials:
    """Return what gRPC needs. The files are looked at again for each new connection, so that
    renewed certificates count without a restart; while they are unreadable the last ones stay.

    Raises:
        InputError: a file cannot be read, or certificate and key do not belong together.
    """
    _context(security)  # gRPC says nothing of what is wrong with a file; this does.
    seen = [_stamp(security)]

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        try:
            stamp = _stamp(security)
            if stamp == seen[0]:
                return None
            _context(security)
            configuration = _configuration(security)
        except (OSError, InputError) as error:
            _log.warning(_NOT_RENEWED, error)
            return None
        seen[0] = stamp
        return configuration

    return grpc.dynamic_ssl_server_credentials(
        _configuration(security),
        renewed,  # type: ignore[arg-type]  # None is allowed: nothing new
        require_client_authentication=bool(security.client_ca),
    )


def http_ssl(security: Security) -> ssl.SSLContext | None:
    """The same for HTTP; None without TLS.

    Raises:
        InputError: a file cannot be read, or certificate and key do not belong together.
    """
    if not security.tls:
        return None
    context = _context(security)
    seen: list[Any] = [_stamp(security), context]

    def renewed(tls: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
        try:
            stamp = _stamp(security)
            if stamp != seen[0]:
                seen[:] = [stamp, _context(security)]
        except (OSError, InputError) as error:
            _log.warning(_NOT_RENEWED, error)
        tls.context = seen[1]

    context.sni_callback = renewed  # called for each connection, whether it names a host or not
    return context


def _context(security: Security) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Of TLS 1.2; those of 1.3 are all of this kind.
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    try:
        context.load_cert_chain(security.certificate, security.key, password="")
    except (OSError, ssl.SSLError) as error:
        raise _unreadable("certificate", security.certificate, error) from error
    if security.client_ca:
        try:
            context.load_verify_locations(security.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise _unreadable("client_ca", security.client_ca, error) from error
        # Probes of an orchestrator have none, and what is public needs none; who calls is
        # decided at the gate.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _configuration(security: Security) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(Path(security.key).read_bytes(), Path(security.certificate).read_bytes())],
        Path(security.client_ca).read_bytes() if security.client_ca else None,
    )


def _stamp(security: Security) -> _Stamp:
    paths = filter(None, (security.certificate, security.key, security.client_ca))
    return tuple(
        (status.st_mtime_ns, status.st_size) for status in (Path(path).stat() for path in paths)
    )


def _unreadable(name: str, path: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "not PEM"
    return InputError(
        f"{path} or its key cannot be used: {reason}.",
        field=f"security.{name}",
        hint="Make working ones with: kongming-server init-tls DIR",
    )
