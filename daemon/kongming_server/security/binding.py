"""Addresses at which the server may listen: beyond loopback only with TLS, or where --insecure was
said."""

from __future__ import annotations

from kongming.addresses import resolves_to_loopback, split_address
from kongming.records.errors import InputError
from kongming_server.configuration.settings import Security


def check_bind(address: str, security: Security, field: str) -> None:
    """Check that the server may listen at ``address``, ``HOST:PORT``.

    Raises:
        InputError: it is no address; or it reaches beyond this machine, and callers would
            not be authenticated.
    """
    if security.tls or security.insecure:
        return
    host, colon, _ = address.rpartition(":")
    if not colon or (host and not address.startswith("unix:")):
        split_address(address, field)
    if resolves_to_loopback(host):
        return
    raise InputError(
        f"{address} can be reached from other machines, and TLS is off.",
        field=field,
        allowed="an address of loopback, or any with TLS",
        hint="Make certificates with 'kongming-server init-tls DIR' and give --certificate and "
        "--key; or say --insecure if everybody who can reach it may do everything.",
    )
