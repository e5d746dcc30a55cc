"""``kongming sensor gridengine``: a load sensor, which execd starts and asks by lines."""

from __future__ import annotations

import re
import sys

import click

from kongming.cli import options
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, prediction_service, server_options
from kongming.cli.sensor.question import SensorQuestion, ask, sensor_options
from kongming.printable import printable
from kongming.records.errors import InputError, KongmingError
from kongming.sensors.gridengine import answers, report


@click.command(
    "gridengine", epilog=examples("kongming sensor gridengine --server 127.0.0.1:7400 --app sort")
)
@server_options
@sensor_options
@click.option("--host", metavar="HOST", help="The node's name in Grid Engine, if it differs.")
@options.store_option
def command(
    server: Server,
    store_url: str | None,
    node: str,
    apps: tuple[str, ...],
    max_age_s: float,
    host: str | None,
) -> None:
    """Answer each line of standard input with a load report, until 'quit' or its end.

    While the server is away reports are empty, and standard error says why, once.
    """
    question, failed = SensorQuestion(node, apps, max_age_s), False
    if re.search(r"[:\s]", host or node):
        raise InputError(
            "cannot be a host of Grid Engine.",
            field="--host",
            value=host or node,
            allowed="a name without blanks and colons",
        )

    def current() -> str:
        nonlocal failed
        try:
            with prediction_service(server, store_url) as service:
                figures = ask(service, question)
        except KongmingError as error:
            if not failed:
                click.echo(printable(f"kongming sensor: {error}"), err=True)
            failed = True
            return report(host or node, None)
        failed = False
        return report(host or node, figures)

    # Line by line: iterating over a pipe would read ahead.
    for answer in answers(iter(sys.stdin.readline, ""), current):
        click.echo(answer, nl=False)
        sys.stdout.flush()
