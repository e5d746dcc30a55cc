"""Addresses ``HOST:PORT``, and whether they are of this machine alone. Only the standard library is
imported here."""

from __future__ import annotations

import ipaddress
import socket

from kongming.records.errors import InputError


def split_address(text: str, field: str, *, least_port: int = 0) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``[HOST]:PORT``; raises InputError naming the field."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and host and port.isascii() and port.isdigit()) or not (
        least_port <= int(port) <= 65535
    ):
        raise InputError(
            "is not an address.",
            field=field,
            value=text,
            allowed=f"HOST:PORT, port {least_port} to 65535",
        )
    return host, int(port)


def is_address(value: str, *, least_port: int = 0) -> bool:
    try:
        split_address(value, "", least_port=least_port)
    except InputError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether an address, or the name localhost, is of this machine alone.

    No other name is: where credentials are sent, whoever answers for names could take them.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def listens_on_loopback(host: str) -> bool:
    """Return whether what listens at ``host`` can be reached from this machine alone.

    Another name is loopback where each of its addresses is, for it is resolved once, here; an empty
    host is every interface.
    """
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not text or is_loopback(text):
        return bool(text)
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(text, None)}
    except (OSError, UnicodeError):
        return False
    return bool(addresses) and all(map(is_loopback, addresses))
