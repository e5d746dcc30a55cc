"""``kongming induce``: load the node with one surrogate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.shares import SHARE

if TYPE_CHECKING:
    from kongming.inducers import Inducer


@click.command(
    "induce",
    epilog=examples(
        "kongming induce compute.int --seconds 10",
        "kongming induce memory.streaming.1G --intensity 0.5 --cpu 1",
    ),
)
@click.argument("name")
@click.option(
    "--intensity", type=SHARE, default=1.0, show_default=True, help="Duty cycle: above 0, up to 1."
)
@click.option(
    "--copies", type=int, default=1, show_default=True, help="Number of worker processes."
)
@click.option("--cpu", type=int, metavar="N", help="CPU of all workers. Default: not pinned.")
@click.option(
    "--seconds", type=DURATION, metavar="TIME", help="End after this time. Default: until Ctrl-C."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder on the file system that I/O loads work on, as in 'kongming fingerprint'.",
)
@options.json_option
def command(
    name: str,
    intensity: float,
    copies: int,
    cpu: int | None,
    seconds: float | None,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Run the surrogate NAME as a load until the deadline or Ctrl-C.

    Print the duty cycle that was reached. No process or file remains afterwards.
    """
    from kongming.inducers import induce

    inducer = induce(
        name, intensity=intensity, copies=copies, cpu=cpu, seconds=seconds, directory=directory
    )
    try:
        with inducer:
            if not as_json:
                end = "Ctrl-C ends it." if seconds is None else f"It ends after {seconds:g} s."
                output.error_console().print(f"{_sentence(inducer, cpu)} {end}", markup=False)
            inducer.wait()
    except KeyboardInterrupt:
        # Printed before the interruption is reported, so that the result is kept.
        _report(inducer, cpu, as_json=as_json)
        raise
    _report(inducer, cpu, as_json=as_json)


def _sentence(inducer: Inducer, cpu: int | None) -> str:
    where = "any CPU" if cpu is None else f"CPU {cpu}"
    pids = ", ".join(map(str, inducer.pids))
    return f"{inducer.level} on {where} (process {pids})."


def _report(inducer: Inducer, cpu: int | None, *, as_json: bool) -> None:
    result = inducer.result
    if as_json:
        document = {**inducer.level.to_dict(), "cpu": cpu}
        output.emit_json(document | ({} if result is None else result.to_dict()))
    elif result is not None:
        output.console().print(
            f"{inducer.level}: duty {result.duty:.3f} over {result.elapsed_s:.1f} s, "
            f"{result.ops:.4g} operations, {result.cpu_s:.1f} s of CPU time.",
            markup=False,
        )
