"""Addresses at which the server may listen: beyond loopback only with TLS, or where --insecure was
said."""

from __future__ import annotations

import ipaddress
import socket

from kongming.records.errors import InputError
from kongming_server.configuration.settings import Security

__all__ = ["check_bind", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``, a name or an address.

    A name is loopback where each of its addresses is; an empty host is every interface.
    """
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not text:
        return False
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        pass
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(text, None)}
    except (OSError, UnicodeError):
        return False
    return bool(addresses) and all(
        ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in addresses
    )


def check_bind(address: str, security: Security, field: str) -> None:
    """Return where the server may listen at ``address``, ``HOST:PORT``.

    Raises:
        InputError: it is no address; or it reaches beyond this machine, and callers would
            not be authenticated.
    """
    if security.tls or security.insecure:
        return
    host, colon, port = address.rpartition(":")
    if not address.startswith("unix:") and not (colon and port.isascii() and port.isdigit()):
        raise InputError(
            "is not an address.", field=field, value=address, allowed="HOST:PORT, as 127.0.0.1:7400"
        )
    if is_loopback(host):
        return
    raise InputError(
        f"{address} can be reached from other machines, and TLS is off.",
        field=field,
        allowed="an address of loopback, or any with TLS",
        hint="Make certificates with 'kongming-server init-tls DIR' and give --certificate and "
        "--key; or say --insecure if everybody who can reach it may do everything.",
    )
