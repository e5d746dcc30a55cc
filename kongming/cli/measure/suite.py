"""``kongming suite``: the surrogates of this node."""

from __future__ import annotations

from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.examples import examples


@click.command("suite", epilog=examples("kongming suite", "kongming suite --json"))
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder of the I/O surrogates; its file system limits their sizes.",
)
@options.wide_option
@options.json_option
def command(directory: Path | None, as_json: bool) -> None:
    """List the surrogates of this node: micro-benchmarks of one resource each.

    Each one is a probe (timed) and, with few exceptions, an inducer (a load). Sizes are fixed for a
    node; they follow from its caches, its total memory and limits, and its file system.
    """
    from kongming.probes.suite import load_suite

    suite = load_suite(directory=directory)
    if as_json:
        output.emit_json([known.to_dict() for known in suite.surrogates])
        return
    columns = ("surrogate", "family", "one operation", "size", "paper", "suites", "what it does")
    rows = []
    for known in suite.surrogates:
        what = known.description
        if "inducer" not in known.roles:
            what += f". Probe only: {known.no_inducer_reason or 'it is not useful as a load.'}"
        # Each suite contains the previous one, so naming the smallest is enough.
        shortest = known.suites[0] if known.suites else "by name"
        size = output.format_bytes(known.size_bytes)
        paper = "yes" if known.paper else ""
        rows.append((known.name, known.family, known.op, size, paper, shortest, what))
    console = output.console()
    console.print(
        output.table(columns, rows, right=("size",), minor=("paper", "one operation", "suites"))
    )
    console.print(
        f"{len(suite.surrogates)} surrogates, suite version {suite.version}, I/O in "
        f"{suite.directory}. The quick suite is part of standard, and standard of full.",
        markup=False,
    )
