"""``kongming scale extra``: how many machines to launch beyond those that are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kongming.cli import options, output


@click.command("extra", short_help="How many extra machines to launch.")
@click.argument(
    "fingerprints",
    metavar="FINGERPRINT.json...",
    nargs=-1,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option("--machines", type=click.IntRange(min=1), required=True, help="How many are needed.")
@click.option(
    "--target",
    type=click.FloatRange(min=0.0, min_open=True),
    default=1.1,
    show_default=True,
    help="The slowest that is kept takes at most so many times the typical machine's time.",
)
@click.option(
    "--risk",
    type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="The probability with which the target is to be met.",
)
@click.option("--most", type=click.IntRange(min=0), help="Extras at most [default: as many more].")
@click.option(
    "--by",
    "families",
    metavar="FAMILY,...",
    default="memory,network",
    show_default=True,
    help="Families of surrogates to compare by.",
)
@options.json_option
def command(
    fingerprints: Sequence[Path],
    machines: int,
    target: float,
    risk: float,
    most: int | None,
    families: str,
    as_json: bool,
) -> None:
    """Say how many more machines to launch, from how those that were measured differ."""
    from kongming.cli.scale_readings import readings
    from kongming.scale.overallocation import extra_machines, slowness

    slow = slowness(readings(fingerprints, families))
    found = extra_machines(
        list(slow.values()), machines, target=target, probability=risk, most=most
    )
    if as_json:
        output.emit_json(
            {
                "extra": found.extra,
                "extra_pct": 100.0 * found.share,
                "probability": found.probability,
                "probability_without": found.without,
                "target": found.slowness,
                "gain_pct": 100.0 * found.gain,
            }
        )
        return
    output.console().print(
        f"Launch {machines + found.extra} machines, {found.extra} extra ({100 * found.share:.0f}%)"
        f": the slowest of the {machines} fastest is within {target:g} times the typical machine "
        f"with probability {found.probability:.2f} ({found.without:.2f} without extras), and "
        f"parallel steps are {100 * found.gain:.1f}% shorter.",
        markup=False,
    )
