"""``kongming spark``: from the event log of one run, any number of executors."""

from __future__ import annotations

import click

from kongming.cli import failures
from kongming.cli.examples import examples
from kongming.lazy_group import Entry, LazyGroup

SUBCOMMANDS = {
    "conf": Entry(
        "kongming.cli.spark.conf:command", "Print the settings for the most detailed log."
    ),
    "inspect": Entry(
        "kongming.cli.spark.inspect:command", "Show what a run did, and what limits its scaling."
    ),
    "estimate": Entry(
        "kongming.cli.spark.estimate:command", "Estimate the runtime on other numbers of executors."
    ),
    "evaluate": Entry(
        "kongming.cli.spark.evaluate:command", "Compare estimates with runs at several sizes."
    ),
    "sample": Entry(
        "kongming.cli.spark.sample:command", "Take a sample of the data that keeps its shape."
    ),
}


@click.group(
    "spark",
    cls=LazyGroup,
    entries=SUBCOMMANDS,
    unknown=failures.unknown_command,
    epilog=examples("kongming spark conf --for kubernetes", "kongming spark inspect LOG"),
)
def command() -> None:
    """Predict how long a Spark application takes on any number of executors.

    LOG is the event log of one run: a file, a rolling folder, a zip of the history server, or a
    folder of applications. Neither Java nor PySpark is needed to read it.
    """
