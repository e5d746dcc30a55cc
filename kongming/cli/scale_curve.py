"""``kongming scale curve``: runtime and cost over the number of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output, scale_options

if TYPE_CHECKING:
    from kongming.scale.model import ScaleModel
    from kongming.scale.recommendation import Offer

FURTHER = 4
"""How many times the largest trained machine count is offered by default."""


@click.command("curve", short_help="Runtime and cost over the number of machines.")
@scale_options.model_argument
@click.option("--machines", metavar="RANGE", help="As 1..64 [default: to 4x the largest trained].")
@scale_options.question_options
@scale_options.group_option
@scale_options.prices_option
@scale_options.plot_option
@options.store_option
@options.json_option
def command(
    model: str,
    machines: str | None,
    scale: float,
    iterations: float | None,
    level: float,
    group: str | None,
    prices_file: Path | None,
    plot: Path | None,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Show how long the job takes on each number of machines, of each type."""
    from kongming.cli import scale_models
    from kongming.errors import CannotAnswerError
    from kongming.scale.model import warnings_of
    from kongming.scale.recommendation import curve, read_prices

    file = scale_models.load(model, store_url)
    models = file.of_group(group)
    prices = None if prices_file is None else read_prices(prices_file)
    offers, refused = curve(
        models,
        counts(machines, models),
        scale=scale,
        iterations=iterations,
        prices=prices,
        level=level,
    )
    if not offers:
        raise CannotAnswerError(refused[-1])
    stale, said = scale_models.staleness(file)
    warnings = [*said, *warnings_of(models), *refused[-1:]]
    if plot is not None:
        from kongming.cli.scale_plot import draw

        draw(plot, f"Runtime at scale {scale:g}", offers)
    if as_json:
        output.emit_json(
            {
                "scale": scale,
                "curve": [row(offer) for offer in offers],
                "stale": stale,
                "warnings": warnings,
            }
        )
        return
    show(offers)
    scale_models.print_warnings(warnings)


def counts(text: str | None, models: Sequence[ScaleModel]) -> tuple[int, ...]:
    """The machine counts that were asked for, or all to four times the largest trained one."""
    from kongming.scale.ranges import machine_counts

    if text is not None:
        return machine_counts(text)
    largest = max(model.ranges.machines[1] for model in models)
    return tuple(range(1, int(FURTHER * largest) + 1))


def row(offer: Offer) -> dict[str, Any]:
    """One machine count as JSON."""
    document: dict[str, Any] = {
        "machines": offer.machines,
        "type": offer.machine_type,
        "runtime_s": offer.prediction.runtime_s,
        "extrapolating": offer.prediction.extrapolating,
        "cost": offer.cost,
    }
    if offer.probability is not None:
        document["probability"] = offer.probability
    return document


def show(offers: Sequence[Offer], best: Offer | None = None) -> None:
    """A table for people; the best one is marked."""
    several = any(offer.machine_type is not None for offer in offers)
    judged = any(offer.probability is not None for offer in offers)
    priced = any(offer.cost is not None for offer in offers)
    columns = ["machines", "runtime", "from", "to", ""]
    columns[:0] = ["type"] if several else []
    columns += (["cost"] if priced else []) + (["probability"] if judged else [])
    rows = []
    for offer in offers:
        runtime: Mapping[str, float] = offer.prediction.runtime_s
        marks = ("extrapolating " if offer.prediction.extrapolating else "") + (
            "<-- best" if offer == best else ""
        )
        cells: list[object] = [offer.machine_type] if several else []
        cells += [offer.machines]
        cells += [output.format_seconds(runtime[key]) for key in ("median", "lower", "upper")]
        cells += [marks]
        cells += [None if offer.cost is None else f"{offer.cost:.4g}"] if priced else []
        cells += (
            [None if offer.probability is None else f"{100 * offer.probability:.0f} %"]
            if judged
            else []
        )
        rows.append(cells)
    right = ("machines", "runtime", "from", "to", "cost", "probability")
    output.console().print(output.table(columns, rows, right=right))
