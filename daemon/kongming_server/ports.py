"""Check that the server will be able to listen, asked before it opens or makes a store."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

from kongming.addresses import split_address
from kongming.records.errors import KongmingError
from kongming.rpc.listener import listening
from kongming_server.configuration.settings import Config
from kongming_server.security.credentials import http_ssl

__all__ = ["cannot_listen", "check_ports"]


async def check_ports(config: Config) -> None:
    """Check that each address can be listened on, and certificate and key can be read.

    All are taken for a moment at the same time, so that two settings of one port are found too. Who
    takes one of them meanwhile is met when the server listens.

    Raises:
        InputError: a setting is no address, or a file of TLS cannot be read.
        KongmingError: an address cannot be bound.
    """
    http_ssl(config.security)
    fields = {"server.listen": config.server.listen, "server.http": config.server.http}
    with ExitStack() as held:
        for field, address in fields.items():
            if not address:
                continue
            try:
                for listener in await listening(*split_address(address, field)):
                    held.enter_context(listener)
            except OSError as error:
                raise cannot_listen(field, address, error) from error


def cannot_listen(field: str, address: str, error: OSError) -> KongmingError:
    """Return the error of an address that the system does not give, with the way out."""
    option = f"--{field.removeprefix('server.')}"
    if error.errno == errno.EADDRINUSE:
        hint = f"Is another server there? Give another port with {option}; 0 is any free one."
    elif error.errno in (errno.EACCES, errno.EPERM):
        hint = f"Ports below 1024 need a privilege: give another one with {option}."
    elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        hint = f"Give an address of this machine with {option}; 0.0.0.0 is all of them."
    else:
        hint = f"Give another address with {option}."
    return KongmingError(f"Cannot listen on {address}: {error.strerror or error}.", hint=hint)
