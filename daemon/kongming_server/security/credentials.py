"""TLS of the server, 1.2 or newer for gRPC and 1.3 for HTTP, with client certificates where an
authority for them is given."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import grpc

from kongming.records.errors import InputError, KongmingError
from kongming.renewed_tls import NOT_RENEWED, load, renewing_context, stamp
from kongming_server.configuration.settings import Security

__all__ = ["add_port", "http_ssl", "server_credentials"]

_log = logging.getLogger(__name__)
_HINT = "Make working ones with: kongming-server init-tls DIR"


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
    load(security, _HINT)  # gRPC says nothing of what is wrong with a file; this does.
    seen = [stamp(security)]

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        try:
            now = stamp(security)
            if now == seen[0]:
                return None
            load(security, _HINT)
            configuration = _configuration(security)
        except (OSError, InputError) as error:
            _log.warning(NOT_RENEWED, error)
            return None
        seen[0] = now
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
    return renewing_context(security, _HINT)


def _configuration(security: Security) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(Path(security.key).read_bytes(), Path(security.certificate).read_bytes())],
        Path(security.client_ca).read_bytes() if security.client_ca else None,
    )
