"""Access to a server: address, authority, certificate, token; and the channel to it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from kongming.addresses import is_loopback
from kongming.records.errors import InputError

_log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 10.0
"""Seconds that a call may take."""

LARGEST_MESSAGE = 64 << 20
"""Bytes of one answer: a model file is larger than gRPC's own 4 MiB allows for."""


@dataclass(frozen=True, slots=True)
class Connection:
    """``target`` is HOST:PORT. TLS is used where ``tls`` or a file says so.

    ``ca`` is the authority that signed the server's certificate (default: the system's),
    ``cert`` and ``key`` the caller's own certificate, all PEM files. ``token`` is a bearer token;
    over plaintext it goes to the loopback interface only.

    Raises:
        InputError: no port, one of ``cert`` and ``key`` alone, or a token that others could read.
    """

    target: str
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: str | None = field(default=None, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S
    tls: bool = False
    largest_answer_bytes: int = LARGEST_MESSAGE

    def __post_init__(self) -> None:
        _host(self.target)
        if (self.cert is None) != (self.key is None):
            raise InputError(
                "comes alone.", field="cert", allowed="a certificate and its key, or neither"
            )
        if not 0.0 < self.timeout_s < float("inf"):
            raise InputError(
                "is out of range.", field="timeout_s", value=self.timeout_s, allowed="above 0"
            )
        if self.token is not None and not (self.secure or self.loopback):
            raise InputError(
                f"would be sent to {self.target} where others can read it.",
                field="token",
                hint="Use TLS: give the authority's certificate (--ca), or --tls for the system's.",
            )

    @property
    def secure(self) -> bool:
        return self.tls or self.ca is not None or self.cert is not None

    @property
    def loopback(self) -> bool:
        """Return whether it never leaves this machine."""
        host = _host(self.target)
        return host == "unix" or is_loopback(host)

    def open(self) -> grpc.Channel:
        """A channel; the caller closes it. Nothing is sent before the first call.

        Raises:
            InputError: a file cannot be read, or holds no certificate.
        """
        credentials = self._credentials()
        if credentials is None:
            return grpc.insecure_channel(self.target, options=self._options())
        return grpc.secure_channel(self.target, credentials, options=self._options())

    def open_aio(self) -> grpc.aio.Channel:
        """The same for asyncio."""
        credentials = self._credentials()
        if credentials is None:
            return grpc.aio.insecure_channel(self.target, options=self._options())
        return grpc.aio.secure_channel(self.target, credentials, options=self._options())

    def _credentials(self) -> grpc.ChannelCredentials | None:
        if self.secure:
            credentials = grpc.ssl_channel_credentials(
                root_certificates=_certificates(self.ca, "ca"),
                private_key=_read(self.key, "key"),
                certificate_chain=_certificates(self.cert, "cert"),
            )
        elif self.token is not None:
            # Plaintext that gRPC itself refuses to send beyond this machine.
            credentials = grpc.local_channel_credentials()
        else:
            return None
        if self.token is None:
            return credentials
        return grpc.composite_channel_credentials(
            credentials, grpc.access_token_call_credentials(self.token)
        )

    def _options(self) -> list[tuple[str, int]]:
        options = [("grpc.max_receive_message_length", self.largest_answer_bytes)]
        if self.loopback:
            # A proxy would look for the server on its own loopback interface.
            options.append(("grpc.enable_http_proxy", 0))
        return options


class ServerSettings(Protocol):
    """The section ``server`` of a program's settings: an address, and paths that may be empty."""

    @property
    def address(self) -> str: ...

    @property
    def ca(self) -> str: ...

    @property
    def cert(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def token_file(self) -> str: ...


def connection_from_settings(
    settings: ServerSettings, timeout_s: float, token: str | None = None
) -> Connection:
    """Read the token, unless one is given; the other files are read when the connection is opened.

    Raises:
        InputError: a setting or the file of the token cannot be used.
    """

    def path(text: str) -> Path | None:
        return Path(text) if text else None

    token_file = path(settings.token_file)
    return Connection(
        settings.address,
        ca=path(settings.ca),
        cert=path(settings.cert),
        key=path(settings.key),
        token=read_token(token_file) if token is None and token_file is not None else token,
        timeout_s=timeout_s,
    )


def read_token(file: Path) -> str:
    """The token that a file holds, without the white space around it. Raises InputError."""
    _warn_of_readers(file)
    text = (_read(file, "token_file") or b"").decode("utf-8", "replace").strip()
    if not text or any(not character.isprintable() for character in text):
        raise InputError("holds no token.", field="token_file", value=str(file))
    return text


def _warn_of_readers(file: Path) -> None:
    try:
        mode = file.stat().st_mode
    except OSError:
        # Reading it says what is wrong.
        return
    if mode & 0o007 and (file, mode) not in _warned:
        _warned.add((file, mode))
        _log.warning("Others on this machine can read the token in %s: chmod 600 it.", file)


_warned: set[tuple[Path, int]] = set()
"""Files that were warned of: a token is read again for each connection."""


def _host(target: str) -> str:
    if target.startswith("unix:"):
        return "unix"
    host, colon, port = target.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InputError(
            "is not an address.",
            field="server",
            value=target,
            allowed="HOST:PORT, as 127.0.0.1:7400",
        )
    if "/" in host:
        raise InputError(
            "is a URL, not an address.",
            field="server",
            value=target,
            allowed="HOST:PORT, as 127.0.0.1:7400, of the server's gRPC",
        )
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InputError(
            "is not an address.", field="server", value=target, allowed="[ADDRESS]:PORT for IPv6"
        )
    return host.strip("[]")


def _certificates(file: Path | None, what: str) -> bytes | None:
    """Raises InputError before gRPC writes lines of its own to stderr."""
    text = _read(file, what)
    if text is not None and b"-----BEGIN CERTIFICATE-----" not in text:
        raise InputError(
            "holds no certificate.",
            field=what,
            value=str(file),
            allowed="a PEM file of certificates",
        )
    return text


def _read(file: Path | None, what: str) -> bytes | None:
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}.", field=what, value=str(file)
        ) from error
