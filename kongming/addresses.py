"""Addresses ``HOST:PORT``, and whether they are of this machine alone.

Only the standard library is imported here, and its larger modules where they are needed: what runs
before every job of a scheduler reads addresses too.
"""

from __future__ import annotations

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

    No other name is: where credentials are sent, whoever answers for names could take them, and a
    name may be another address the next time.
    """
    return host == "localhost" or _is_loopback_address(host)


def resolves_to_loopback(host: str) -> bool:
    """Return whether a name, or an address, is of this machine alone by what it resolves to now.

    An empty host is every interface.
    """
    import socket

    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not text or _is_loopback_address(text):
        return bool(text)
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(text, None)}
    except (OSError, UnicodeError):
        return False
    return bool(addresses) and all(map(_is_loopback_address, addresses))


def _is_loopback_address(text: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False
