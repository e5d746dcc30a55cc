"""``kongming scale drop``: which of the launched machines to drop before the job starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kongming.cli import options, output


@click.command("drop", short_help="Which of the launched machines to drop.")
@click.argument(
    "fingerprints",
    metavar="FINGERPRINT.json...",
    nargs=-1,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option("--keep", type=click.IntRange(min=1), required=True, help="How many are needed.")
@click.option(
    "--by",
    "families",
    metavar="FAMILY,...",
    default="memory,network",
    show_default=True,
    help="Families of surrogates to compare by.",
)
@options.json_option
def command(fingerprints: Sequence[Path], keep: int, families: str, as_json: bool) -> None:
    """Drop the slowest of the launched machines, by their fingerprints.

    FINGERPRINT.json is what 'kongming fingerprint --json' printed on a machine, or a CSV with a
    column node and readings in seconds per operation. A parallel step ends with its slowest
    machine: its share of time that is saved is the gain.
    """
    from kongming.cli.scale_readings import readings
    from kongming.scale.overallocation import drop_slowest, slowness

    slow = slowness(readings(fingerprints, families))
    found = drop_slowest(slow, keep)
    if as_json:
        output.emit_json(
            {
                "keep": list(found.kept),
                "drop": list(found.dropped),
                "slowness": slow,
                "worst_before": found.worst_before,
                "worst_after": found.worst_after,
                "gain_pct": 100.0 * found.gain,
                "mean_gain_pct": 100.0 * found.mean_gain,
            }
        )
        return
    rows = [
        (node, f"{slow[node]:.3f}", "drop" if node in found.dropped else "")
        for node in sorted(slow, key=lambda node: slow[node])
    ]
    console = output.console()
    console.print(output.table(("node", "slowness", ""), rows, right=("slowness",)))
    console.print(
        f"Dropping {len(found.dropped)} brings the slowest from {found.worst_before:.3f} (without "
        f"extras, on average) to {found.worst_after:.3f}: parallel steps are "
        f"{100 * found.gain:.1f}% shorter.",
        markup=False,
    )
