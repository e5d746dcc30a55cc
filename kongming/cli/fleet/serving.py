"""Service that answers a command: a server, or the library over the local store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kongming.cli.durations import DURATION
from kongming.cli.extras import require
from kongming.cli.options import refuse_empty
from kongming.records.errors import InputError

if TYPE_CHECKING:
    from kongming.rpc.client import RemoteService
    from kongming.rpc.protocol import PredictionService
    from kongming.scale.fit.scale_file import ScaleFile

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAMES = ("server", "ca", "cert", "key", "token_file", "tls", "timeout")
"""The options, in the order of Server's fields."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class Server:
    """The options of a server. ``named`` says that --server was typed, not found in the
    environment."""

    target: str | None
    ca: Path | None
    cert: Path | None
    key: Path | None
    token_file: Path | None
    tls: bool
    timeout_s: float
    named: bool


def server_options(function: _Function) -> _Function:
    """``--server`` and what it needs: parameter ``server`` (Server)."""

    @functools.wraps(function)
    def packed(**values: Any) -> Any:
        ctx = click.get_current_context()
        given = {name: _own_or_group(ctx, name, values.pop(name)) for name in _NAMES}
        (target, named), *rest = given.values()
        ca, cert, key, token_file, tls, timeout_s = (value for value, _ in rest)
        server = Server(target or None, ca, cert, key, token_file, tls, timeout_s, named)
        return function(server=server, **values)

    decorated: Any = packed
    for option in (
        click.option(
            "--timeout",
            type=DURATION,
            default="10s",
            show_default=True,
            metavar="TIME",
            help="Maximum time for an answer of the server.",
        ),
        click.option("--tls", is_flag=True, help="TLS with the system's authorities."),
        click.option(
            "--token-file",
            type=_FILE,
            envvar="KONGMING_TOKEN_FILE",
            help="File with the bearer token.",
        ),
        click.option(
            "--key", type=_FILE, envvar="KONGMING_KEY", help="Key of the certificate (PEM)."
        ),
        click.option(
            "--cert", type=_FILE, envvar="KONGMING_CERT", help="Own certificate for TLS (PEM)."
        ),
        click.option(
            "--ca", type=_FILE, envvar="KONGMING_CA", help="Authority of the server (PEM): TLS."
        ),
        click.option(
            "--server",
            metavar="HOST:PORT",
            envvar="KONGMING_SERVER",
            show_envvar=True,
            callback=refuse_empty,
            help="Ask this kongming-server.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _own_or_group(ctx: click.Context, name: str, value: Any) -> tuple[Any, bool]:
    """An option's value and whether it was typed; a group's own is that of its commands too."""
    typed = click.core.ParameterSource.COMMANDLINE
    if ctx.get_parameter_source(name) is typed:
        return value, True
    if ctx.parent is not None and ctx.parent.get_parameter_source(name) is typed:
        return ctx.parent.params[name], True
    return value, False


@contextmanager
def prediction_service(
    server: Server,
    store_url: str | None,
    scale_files: Mapping[str, ScaleFile] | None = None,
    *,
    create: bool = False,
) -> Iterator[PredictionService]:
    """The server where one is named, else the local store with scale models added to its own.

    Raises:
        InputError: both --server and --store were typed, or the store does not exist and is not
            to be created.
    """
    if asks_server(server):
        with remote(server) as service:
            yield service
        return
    require("Asking the local store", "predict", "numpy")
    from kongming.local_service import LocalService
    from kongming.store import Store

    with Store.open(store_url, create=create) as store:
        yield LocalService(store, scale_files=scale_files or {})


def asks_server(server: Server) -> bool:
    """Return whether a server is to be asked: a --store that was typed goes before KONGMING_SERVER.

    Raises:
        InputError: both --server and --store were typed.
    """
    if server.target is None:
        return False
    source = click.get_current_context().get_parameter_source("store_url")
    if source is not click.core.ParameterSource.COMMANDLINE:
        return True
    if server.named:
        raise InputError(
            "cannot be given with --store.",
            field="--server",
            hint="A server has a store of its own: choose who answers.",
        )
    return False


def answerer(server: Server, store_url: str | None) -> str:
    """Return who was asked, in words: the server or the store, and the option for the other."""
    from kongming.store.urls import shown_url

    if asks_server(server):
        return f"the server {server.target} (--store asks a local store)"
    return f"the store {shown_url(store_url)}"


def changes_server(server: Server) -> bool:
    """Return whether a command that changes something does so at a server: only where --server was
    typed, for what is profiled here is kept here whatever KONGMING_SERVER says.

    Raises:
        InputError: both --server and --store were typed.
    """
    return server.named and asks_server(server)


@contextmanager
def remote(server: Server) -> Iterator[RemoteService]:
    """The server.

    Raises:
        InputError: none is named, or its options do not go together.
        MissingExtraError: gRPC is not installed.
    """
    if server.target is None:
        raise InputError(
            "is missing.",
            field="--server",
            allowed="HOST:PORT, as 127.0.0.1:7400",
            hint="Start one with 'kongming-server', or set KONGMING_SERVER.",
        )
    require("Asking a server", "wire", "grpc")
    from kongming.rpc.channel import Connection, read_token
    from kongming.rpc.client import RemoteService

    connection = Connection(
        target=server.target,
        ca=server.ca,
        cert=server.cert,
        key=server.key,
        token=None if server.token_file is None else read_token(server.token_file),
        timeout_s=server.timeout_s,
        tls=server.tls,
    )
    with RemoteService(connection) as service:
        yield service
