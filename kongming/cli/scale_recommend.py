"""``kongming scale recommend``: the cheapest in time, or the fastest within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kongming.cli import options, output, scale_options


@click.command("recommend", short_help="The cheapest in time, or the fastest within a budget.")
@scale_options.model_argument
@click.option(
    "--deadline",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="SECONDS",
    help="The cheapest that ends in time.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="MONEY",
    help="The fastest that costs no more.",
)
@click.option(
    "--risk",
    type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="The probability with which the limit is to be kept.",
)
@click.option("--machines", metavar="RANGE", help="As 1..64 [default: to 4x the largest trained].")
@scale_options.question_options
@scale_options.group_option
@scale_options.prices_option
@scale_options.plot_option
@options.store_option
@options.json_option
def command(
    model: str,
    deadline: float | None,
    budget: float | None,
    risk: float,
    machines: str | None,
    scale: float,
    iterations: float | None,
    level: float,
    group: str | None,
    prices_file: Path | None,
    plot: Path | None,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Say how many machines to take, and of which type.

    Without --prices a machine costs 1 an hour, so that costs are machine-hours. Exit status 3
    when nothing keeps the limit; the likeliest is shown.
    """
    from kongming.cli import scale_models
    from kongming.cli.scale_curve import counts, row, show
    from kongming.errors import CannotAnswerError, InputError
    from kongming.scale.model import warnings_of
    from kongming.scale.recommendation import curve, read_prices, recommend

    if (deadline is None) == (budget is None):
        raise InputError("Give a deadline or a budget: --deadline SECONDS or --budget MONEY.")
    file = scale_models.load(model, store_url)
    models = file.of_group(group)
    warnings: list[str] = []
    if prices_file is not None:
        prices = read_prices(prices_file)
    elif len(models) > 1:
        raise InputError(
            "Machine types differ in price, which is not known.",
            field="--prices",
            hint="Give a CSV with columns type and price: --prices FILE",
        )
    else:
        prices = {None: 1.0, models[0].machine_type: 1.0}
        warnings.append("without --prices a machine costs 1 an hour: costs are machine-hours")
    offers, refused = curve(
        models,
        counts(machines, models),
        scale=scale,
        iterations=iterations,
        prices=prices,
        level=level,
    )
    best, likeliest, judged = recommend(
        models, offers, prices=prices, deadline_s=deadline, budget=budget, risk=risk
    )
    if likeliest is None:
        raise CannotAnswerError(refused[-1])
    stale, said = scale_models.staleness(file)
    warnings = [*said, *warnings, *warnings_of(models), *refused[-1:]]
    if plot is not None:
        from kongming.cli.scale_plot import draw

        draw(plot, f"Runtime at scale {scale:g}", judged, deadline)
    if as_json:
        document: dict[str, Any] = {
            "goal": {"deadline_s": deadline, "budget": budget, "risk": risk, "scale": scale},
            "recommendation": None if best is None else row(best),
            "likeliest": row(likeliest),
            "curve": [row(offer) for offer in judged],
            "stale": stale,
            "warnings": warnings,
        }
        if best is not None:
            document.update(row(best))
        output.emit_json(document)
    else:
        show(judged, best)
        goal = f"ends within {deadline:g} s" if deadline is not None else f"costs up to {budget:g}"
        one = best or likeliest
        of = f" of type {one.machine_type}" if one.machine_type is not None else ""
        say = "Take" if best is not None else f"Nothing surely {goal}. The likeliest are"
        output.console().print(
            f"{say} {one.machines} machines{of}: "
            f"{scale_models.interval(one.prediction.runtime_s)}, cost {one.cost:.4g}, "
            f"{goal} with probability {one.probability:.2f}.",
            markup=False,
        )
        scale_models.print_warnings(warnings)
    return 0 if best is not None else 3
