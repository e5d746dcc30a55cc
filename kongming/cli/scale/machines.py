"""``kongming scale drop`` and ``extra``: drop the slowest of the launched machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.float_range import FloatRange
from kongming.cli.shares import FRACTION
from kongming.quantities import per_cent

_fingerprints = click.argument(
    "fingerprints",
    metavar="FINGERPRINT.json...",
    nargs=-1,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
)

_families = click.option(
    "--by",
    "families",
    metavar="FAMILY,...",
    help="Families of surrogates to compare by: the part of a reading's name before its first "
    "point [default: memory,network of fingerprints, and all columns of a CSV].",
)


@click.command(
    "drop",
    short_help="Choose which of the launched machines to drop.",
    epilog=examples(
        "kongming scale drop a.json b.json c.json --keep 2",
        "kongming scale drop fingerprints.csv --keep 16 --by memory",
    ),
)
@_fingerprints
@click.option(
    "--keep", type=click.IntRange(min=1), required=True, help="Number of machines that are needed."
)
@_families
@options.wide_option
@options.json_option
def drop(fingerprints: Sequence[Path], keep: int, families: str | None, as_json: bool) -> None:
    """Drop the slowest of the launched machines, by their fingerprints.

    FINGERPRINT.json is the output of 'kongming fingerprint --json' on a machine, or a CSV with a
    column node and readings in seconds per operation. A parallel step ends with its slowest
    machine; the gain is the share of its time that is saved.
    """
    from kongming.scale.decide.overallocation import drop_slowest, slowness
    from kongming.scale.decide.readings import readings

    slow = slowness(readings(fingerprints, families))
    choice = drop_slowest(slow, keep)
    if as_json:
        output.emit_json(
            {
                "keep": list(choice.retained),
                "drop": list(choice.dropped),
                "slowness": slow,
                "worst_before": choice.worst_before,
                "worst_after": choice.worst_after,
                "gain_pct": 100.0 * choice.gain,
                "mean_gain_pct": 100.0 * choice.mean_gain,
            }
        )
        return
    rows = [
        (node, f"{slow[node]:.3f}", "drop" if node in choice.dropped else "")
        for node in sorted(slow, key=lambda node: slow[node])
    ]
    console = output.console()
    console.print(output.table(("node", "slowness", ""), rows, right=("slowness",)))
    console.print(
        f"Dropping {len(choice.dropped)} brings the slowest from {choice.worst_before:.3f} "
        f"(without extras, on average) to {choice.worst_after:.3f}: parallel steps are "
        f"{per_cent(100 * choice.gain)} shorter.",
        markup=False,
    )


@click.command(
    "extra",
    short_help="Compute how many extra machines to launch.",
    epilog=examples(
        "kongming scale extra fingerprints.csv --machines 16",
        "kongming scale extra a.json b.json c.json --machines 2 --target 1.05",
    ),
)
@_fingerprints
@click.option(
    "--machines",
    type=click.IntRange(min=1),
    required=True,
    help="Number of machines that are needed.",
)
@click.option(
    "--target",
    type=FloatRange(min=0.0, min_open=True),
    default=1.1,
    show_default=True,
    help="Maximum time of the slowest kept machine, as a multiple of the typical machine's.",
)
@click.option(
    "--risk",
    type=FRACTION,
    default=0.95,
    show_default=True,
    help="Probability of meeting the target.",
)
@click.option(
    "--most",
    type=click.IntRange(min=0),
    help="Maximum number of extra machines [default: as many as are needed].",
)
@_families
@options.wide_option
@options.json_option
def extra(
    fingerprints: Sequence[Path],
    machines: int,
    target: float,
    risk: float,
    most: int | None,
    families: str | None,
    as_json: bool,
) -> None:
    """Compute how many extra machines to launch, from the variability of measured machines."""
    from kongming.scale.decide.overallocation import extra_machines, slowness
    from kongming.scale.decide.readings import readings

    slow = slowness(readings(fingerprints, families))
    extras = extra_machines(
        list(slow.values()), machines, target=target, probability=risk, most=most
    )
    if as_json:
        output.emit_json(
            {
                "extra": extras.extra,
                "extra_pct": 100.0 * extras.share,
                "probability": extras.probability,
                "probability_without": extras.without,
                "target": extras.slowness,
                "gain_pct": 100.0 * extras.gain,
            }
        )
        return
    output.console().print(
        f"Launch {machines + extras.extra} machines, {extras.extra} extra "
        f"({per_cent(100 * extras.share, '.0f')}): the slowest of the {machines} fastest is "
        f"within {target:g} "
        f"times the typical machine with probability {extras.probability:.2f} "
        f"({extras.without:.2f} without extras), and parallel steps are "
        f"{per_cent(100 * extras.gain)} shorter.",
        markup=False,
    )
