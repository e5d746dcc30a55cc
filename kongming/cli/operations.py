"""``kongming operations``: the trainings of a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.serving import Server, remote, server_options
from kongming.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kongming.rpc.answers import OperationReport
    from kongming.rpc.protocol import Service


@click.group("operations", invoke_without_command=True)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True)
@server_options
@options.store_option
@options.json_option
@click.pass_context
def command(
    ctx: click.Context, limit: int, server: Server, store_url: str | None, as_json: bool
) -> None:
    """List the trainings in the store of a server, the newest first.

    The list is read from the store, so give --store URL as the server has it; 'follow' and
    'cancel' ask the server.
    """
    if ctx.invoked_subcommand is not None:
        return
    if server.named:
        raise InputError(
            "cannot list them.",
            field="--server",
            hint="The list is in its store: --store URL. One of them by its id: kongming "
            "operations follow ID",
        )
    from kongming.store import Store

    with Store.open(store_url) as store:
        rows = store.operations(limit=limit)
    if as_json:
        documents = [
            {
                "id": row.id,
                "state": row.state,
                "progress": row.progress,
                "message": row.message,
                "apps": list(row.document.get("apps", ())),
                "cause": row.document.get("cause", ""),
                "created_at": row.created_at,
                "started_at": row.started_at,
                "ended_at": row.ended_at,
            }
            for row in rows
        ]
        output.emit_json({"operations": documents})
        return
    console = output.console()
    if not rows:
        console.print("Nothing was trained by a server here: kongming train --server HOST:PORT")
        return
    console.print(
        output.table(
            ("operation", "state", "", "began", "applications", ""),
            [
                (
                    row.id,
                    row.state,
                    f"{100.0 * row.progress:.0f} %",
                    time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created_at)),
                    ", ".join(row.document.get("apps", ())) or None,
                    row.message,
                )
                for row in rows
            ],
        )
    )


@command.command("follow")
@click.argument("operation", metavar="ID")
@server_options
@options.json_option
def follow_command(operation: str, server: Server, as_json: bool) -> int:
    """Show the progress of a training until its end. Ctrl-C leaves it going."""
    with remote(server) as service:
        ended = followed(service, operation)
    return told(ended, as_json)


@command.command("cancel")
@click.argument("operation", metavar="ID")
@server_options
@options.json_option
def cancel_command(operation: str, server: Server, as_json: bool) -> int:
    """End a training. What it has trained so far stays; one that has ended stays as it is."""
    with remote(server) as service:
        service.cancel_operation(operation)
        ended = followed(service, operation)
    if as_json:
        output.emit_json(ended.to_dict())
    else:
        output.console().print(f"{ended.id}: {ended.state}. {ended.message}", markup=False)
    return 0


def followed(service: Service, operation_id: str) -> OperationReport:
    """The operation at its end. Ctrl-C says how to go on."""
    try:
        with output.progress("Waiting for its turn", 1.0) as shown:
            for report in service.watch_operation(operation_id):
                shown.update(report.progress, text=report.message or report.state)
                if report.ended:
                    return report
    except KeyboardInterrupt:
        output.error_console().print(
            f"The training goes on. Follow it: kongming operations follow {operation_id}\n"
            f"End it: kongming operations cancel {operation_id}",
            markup=False,
        )
        raise
    return service.operation(operation_id)


def told(operation: OperationReport, as_json: bool, asked: Sequence[str] = ()) -> int:
    """Print how a training ended; the exit status that says so: 3 where an application that was
    ``asked`` for, or every one, was not trained."""
    failed = [one for one in operation.trained if one.error]
    if as_json:
        output.emit_json(operation.to_dict())
    else:
        console = output.console()
        made = [one for one in operation.trained if not one.error]
        if made:
            console.print(
                output.table(
                    ("application", "placement", "version", "in service", ""),
                    [
                        (
                            one.app,
                            one.placement,
                            one.version,
                            "yes" if one.promoted else "no",
                            one.reason,
                        )
                        for one in made
                    ],
                    right=("version",),
                )
            )
        console.print(f"{operation.state}: {operation.message}", markup=False)
    for one in failed:
        output.error_console().print(f"Not trained: {one.app}: {one.error}", markup=False)
    if operation.state != "done":
        return 1
    return 3 if failed and (asked or len(failed) == len(operation.trained)) else 0
