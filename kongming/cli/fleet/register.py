"""``kongming register``: make applications known to a server, or to the store."""

from __future__ import annotations

from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, prediction_service, server_options


@click.command(
    "register",
    epilog=examples(
        "kongming register apps.toml",
        "kongming register apps.toml --app xz --server 127.0.0.1:7400",
    ),
)
@click.argument("file", metavar="APPS.toml", type=click.Path(path_type=Path))
@click.option(
    "--app", "names", metavar="NAME", multiple=True, help="Only this application (repeatable)."
)
@server_options
@options.store_option
@options.wide_option
@options.json_option
def command(
    file: Path, names: tuple[str, ...], server: Server, store_url: str | None, as_json: bool
) -> None:
    """Make the applications of APPS.toml known, without running them.

    Nothing of a file's commands is run on the server; agents profile only what their own list
    allows.
    """
    from kongming.profiling.appfile import load, select
    from kongming.profiling.plans.identity import identity

    apps = load(file)
    if names:
        apps = select(apps, names)
    with prediction_service(server, store_url, create=True) as service:
        applications = [
            service.register_application(name, identity(app), app.to_dict())
            for name, app in apps.items()
        ]
    if as_json:
        output.emit_json({"apps": [application.to_dict() for application in applications]})
        return
    output.console().print(
        output.table(
            ("application", "identity", "runs", "trained at"),
            [
                (a.name, a.identity[:8], a.runs or None, ", ".join(a.trained) or None)
                for a in applications
            ],
            right=("runs",),
            minor=("identity",),
        )
    )
