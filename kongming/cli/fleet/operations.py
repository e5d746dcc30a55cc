"""``kongming operations``: the trainings of a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, asks_server, remote, server_options
from kongming.quantities import per_cent
from kongming.records import moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kongming.records.answers import OperationReport
    from kongming.rpc.protocol import Service


@click.group(
    "operations",
    invoke_without_command=True,
    epilog=examples("kongming operations", "kongming operations --ended --limit 5"),
)
@click.option("--ended", is_flag=True, help="Also show operations that have ended.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number to show.",
)
@server_options
@options.store_option
@options.wide_option
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    ended: bool,
    limit: int,
    server: Server,
    store_url: str | None,
    as_json: bool,
) -> None:
    """List the trainings of a server that have not ended, the newest first.

    --store reads them from the store that the server keeps them in; 'follow' and 'cancel' always
    ask the server.
    """
    if ctx.invoked_subcommand is not None:
        return
    where = ""
    if asks_server(server):
        with remote(server) as service:
            where = f" on the server {server.target}"
            operations = [
                operation.to_dict() for operation in service.operations(ended=ended, limit=limit)
            ]
    else:
        operations, url = _stored(store_url, ended, limit)
        where = f" in the store {url}"
    if as_json:
        output.emit_json({"operations": operations})
        return
    console = output.console()
    if not operations:
        console.print(
            f"No server has trained anything{where}: kongming train --server HOST:PORT"
            if ended
            else f"Nothing is being trained{where}. What has ended: kongming operations --ended",
            markup=False,
        )
        return
    console.print(
        output.table(
            ("operation", "state", "", "began", "ended", "applications", ""),
            [
                (
                    operation["id"],
                    operation["state"],
                    per_cent(100.0 * operation["progress"], ".0f"),
                    _clock(operation["started_at"]),
                    _clock(operation["ended_at"]),
                    ", ".join(_apps(operation)) or None,
                    operation["message"],
                )
                for operation in operations
            ],
            minor=("began", "ended"),
        )
    )


def _stored(store_url: str | None, ended: bool, limit: int) -> tuple[list[dict[str, Any]], str]:
    """The trainings in a store, as a server says of them, and the store's URL to show."""
    from kongming.store import Store

    states = None if ended else ("queued", "running")
    with Store.open(store_url, create=False) as store:
        # That one was abandoned shows once it is read: it shall not count for the limit.
        rows = store.operations(kind="train", states=states, limit=limit if ended else None)
        url = store.url
    now = time.time()
    rows = [row.or_abandoned(now) for row in rows]
    if states is not None:
        rows = [row for row in rows if row.state in states][:limit]
    trainings = [
        {
            "id": row.id,
            "state": row.state,
            "progress": row.progress,
            "message": row.message,
            "started_at": _iso(row.started_at),
            "ended_at": _iso(row.ended_at),
            # What an earlier version stored has no verdict.
            "trained": [{"profile": None, **model} for model in row.document.get("trained", ())],
            "apps": list(row.document.get("apps", ())),
            "cause": row.document.get("cause", ""),
            "created_at": _iso(row.created_at),
        }
        for row in rows
    ]
    return trainings, url


def _apps(operation: dict[str, Any]) -> list[str]:
    """All that it is about where that is known, else those that are trained already."""
    return operation["apps"] or list(dict.fromkeys(model["app"] for model in operation["trained"]))


def _iso(moment: float | None) -> str | None:
    return None if moment is None else moments.format(moment)


def _clock(moment: str | None) -> str | None:
    """A moment of a document as the clock on the wall has it."""
    if moment is None:
        return None
    return moments.parse(moment).astimezone().strftime("%Y-%m-%d %H:%M %Z")


@command.command("follow", epilog=examples("kongming operations follow OPERATION"))
@click.argument("operation", metavar="ID")
@server_options
@options.wide_option
@options.json_option
def follow_command(operation: str, server: Server, as_json: bool) -> int:
    """Show the progress of a training until its end. Ctrl-C does not stop the training."""
    with remote(server) as service:
        ended = followed(service, operation)
    return print_outcome(ended, as_json)


@command.command("cancel", epilog=examples("kongming operations cancel OPERATION"))
@click.argument("operation", metavar="ID")
@server_options
@options.wide_option
@options.json_option
def cancel_command(operation: str, server: Server, as_json: bool) -> int:
    """End a training. What it has trained so far is kept; an ended training stays as it is."""
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


def print_outcome(operation: OperationReport, as_json: bool, requested: Sequence[str] = ()) -> int:
    """Print how a training ended; the exit status that says so: 3 where an application that was
    ``requested``, or every one, was not trained."""
    failed = [model for model in operation.trained if model.error]
    if as_json:
        output.emit_json(operation.to_dict())
    else:
        console = output.console()
        models = [model for model in operation.trained if not model.error]
        if models:
            console.print(
                output.table(
                    ("application", "placement", "version", "in service", ""),
                    [
                        (
                            model.app,
                            model.placement,
                            model.version,
                            "yes" if model.promoted else "no",
                            model.reason,
                        )
                        for model in models
                    ],
                    right=("version",),
                )
            )
        for model in models:
            profile = model.profile
            if profile is not None and (remark := profile.remark(model.app)) is not None:
                console.print(f"! {remark}", markup=False)
        console.print(f"{operation.state}: {operation.message}", markup=False)
    for model in failed:
        output.error_console().print(f"Not trained: {model.app}: {model.error}", markup=False)
    if operation.state != "done":
        return 1
    return 3 if failed and (requested or len(failed) == len(operation.trained)) else 0
