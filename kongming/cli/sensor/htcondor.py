"""``kongming sensor htcondor``: what a startd's cron job prints."""

from __future__ import annotations

import time

import click

from kongming.cli import options
from kongming.cli.examples import examples
from kongming.cli.fleet.serving import Server, prediction_service, server_options
from kongming.cli.sensor.question import SensorQuestion, ask, sensor_options
from kongming.sensors.htcondor import classad


@click.command(
    "htcondor", epilog=examples("kongming sensor htcondor --server 127.0.0.1:7400 --app sort")
)
@server_options
@sensor_options
@options.store_option
def command(
    server: Server, store_url: str | None, node: str, apps: tuple[str, ...], max_age_s: float
) -> None:
    """Print ClassAd attributes of a node for a startd's cron job (STARTD_CRON_JOBLIST)."""
    with prediction_service(server, store_url) as service:
        figures = ask(service, SensorQuestion(node, apps, max_age_s))
    click.echo(classad(figures, time.time()), nl=False)
