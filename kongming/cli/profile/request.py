"""``kongming profile APP --node N --server URL``: ask a node's agent to profile an application."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kongming.cli import output
from kongming.cli.fleet.serving import Server, remote, server_options
from kongming.records.errors import InputError

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OWN = frozenset(
    {"node", "server", "ca", "cert", "key", "token_file", "tls", "timeout", "file", "as_json"}
)
"""Parameters of a request; all others are settings of a local campaign."""


def request_options(function: _Function) -> _Function:
    """``--node`` and the options of a server, with which the command sends a request and measures
    nothing.
    """

    @functools.wraps(function)
    def decided(*, node: str | None, server: Server, **values: Any) -> Any:
        if node is not None:
            _refuse_local_options(click.get_current_context())
            return request_profile(values["file"], node, server, as_json=values["as_json"])
        if server.named:
            raise InputError(
                "is missing.",
                field="--node",
                allowed="the id or name of a node that the server knows",
                hint="Without --server the applications of a file are profiled on this node.",
            )
        return function(**values)

    option = click.option(
        "--node",
        metavar="NODE",
        help="Request that this node's agent profile the application APP, which its own "
        "list must allow.",
    )
    return option(server_options(decided))  # type: ignore[return-value]


def request_profile(app: Path, node: str, server: Server, *, as_json: bool) -> int:
    """Ask the agent of ``node``, by id or name, to profile the application named ``app``.

    Raises:
        UnknownNameError: the server knows no such node.
        InputError: the node's own list does not allow the application.
    """
    with remote(server) as service:
        service.request_profile(node, [str(app)])
    if as_json:
        output.emit_json({"app": str(app), "node": node, "requested": True})
        return 0
    output.console().print(
        f"The agent of {node} will be asked to profile {app} when it next reports. Its runs "
        f"reach the server as they are measured; watch the node: kongming watch {node} "
        "--server "
        f"{server.target}. When they are complete: kongming train {app} --server {server.target}",
        markup=False,
        highlight=False,
    )
    return 0


def _refuse_local_options(ctx: click.Context) -> None:
    typed = click.core.ParameterSource.COMMANDLINE
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in _OWN and ctx.get_parameter_source(name) is typed:
            raise InputError(
                "cannot be given with --node.",
                field=parameter.opts[0],
                hint="The agent profiles by its own settings.",
            )
