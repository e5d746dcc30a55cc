"""``kongming explore replay``: compare policies on a fully measured table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.explore import options as explore_options
from kongming.cli.shares import SHARE
from kongming.quantities import per_cent

RATE = 0.1
"""Share of the rows that are run unless a budget is given."""


@click.command(
    "replay",
    short_help="Compare policies on a fully measured table.",
    epilog=examples(
        "kongming explore replay table.csv --target seconds --rate 5%",
        "kongming explore replay table.csv --target seconds --policy dta --policy uni",
    ),
)
@click.argument("table", metavar="TABLE.csv", type=explore_options.PATH)
@click.option(
    "--target", metavar="COLUMN", required=True, help="The measured column; empty: the run failed."
)
@click.option("--budget", type=click.IntRange(min=2), metavar="N", help="Number of runs.")
@click.option(
    "--rate", type=SHARE, help=f"Share of the rows that are run [default: {100 * RATE:g}%]."
)
@explore_options.batch_option
@click.option(
    "--policy",
    "policies",
    type=click.Choice(explore_options.POLICIES),
    multiple=True,
    help="How points are chosen (repeatable) [default: auto and uni].",
)
@explore_options.model_option
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Profiles of each policy, each with another seed.",
)
@explore_options.seed_option
@click.option(
    "--choices",
    metavar="COLUMN",
    multiple=True,
    help="A column of names, even if they look like numbers (repeatable).",
)
@click.option(
    "--ignore", "ignored", metavar="COLUMN", multiple=True, help="Not a parameter (repeatable)."
)
@explore_options.cost_option
@options.wide_option
@options.json_option
def command(
    table: Path,
    target: str,
    budget: int | None,
    rate: float | None,
    batch: int | None,
    policies: Sequence[str],
    model: str,
    repeats: int,
    seed: int,
    choices: Sequence[str],
    ignored: Sequence[str],
    cost: str | None,
    as_json: bool,
) -> None:
    """Compare policies on a fully measured table, which replaces running the program.

    Every column of TABLE.csv except the target and the cost is a parameter. Errors are medians
    over --repeats profiles: over all rows, and over those that were not run. If most
    rows repeat a point, the noise floor is printed below: the error of knowing every point's mean.
    """
    from kongming.cli.extras import require

    require("kongming explore replay", "predict", "sklearn")

    from kongming.explore.choice import FEWEST
    from kongming.explore.measured_table import has_column, read_measured
    from kongming.explore.profiler import FEWEST_RUNS
    from kongming.explore.replay import ReplaySettings, World, compare, costs_of
    from kongming.records.errors import InputError

    if budget is not None and rate is not None:
        raise InputError("Give one of --budget N and --rate R.")
    column = cost if cost is not None and has_column(table, cost) else None
    measured = read_measured(table, target, choices=choices, cost=column, ignored=ignored)
    if len(measured) < FEWEST_RUNS:
        raise InputError(
            "is too small for any model.",
            field=str(table),
            value=f"{len(measured)} row",
            allowed=f"{FEWEST_RUNS} rows or more",
        )
    if budget is None:
        budget = max(1, round((rate or RATE) * len(measured)))
        if budget < FEWEST_RUNS:
            raise InputError(
                f"is {budget} of {len(measured)} rows, too few for any model.",
                field="--rate",
                value=per_cent(100.0 * (rate or RATE), "g"),
                allowed=f"{FEWEST_RUNS} runs or more",
                hint="Give --budget N.",
            )
    if budget > len(measured):
        raise InputError(
            "is more than the table has rows.",
            field="--budget",
            value=budget,
            allowed=f"{FEWEST_RUNS} to {len(measured)}",
        )
    needed = FEWEST.get(model, FEWEST_RUNS)
    if budget < needed:
        raise InputError(
            f"is too little for the model {model!r}.",
            field="--budget",
            value=budget,
            allowed=f"{needed} or more",
        )
    expression = cost if column is None else None
    costs = measured.costs if expression is None else costs_of(measured, expression)
    world = World(measured, costs)
    settings = ReplaySettings(
        budget=budget,
        batch=explore_options.batch_of(budget, batch),
        model=model,
        cost=expression,
        options=() if cost is None else tuple(explore_options.COUNTING_COSTS.items()),
    )
    chosen = tuple(dict.fromkeys(policies)) or ("auto", "uni")
    total = float(len(chosen) * repeats)
    with output.progress(f"{table.name}: {budget} of {len(measured)} rows", total) as shown:
        document = compare(
            world,
            chosen,
            settings,
            repeats=repeats,
            seed=seed,
            observe=lambda done, policy: shown.update(done, text=f"{table.name}: {policy}"),
        )
    if as_json:
        output.emit_json(document)
        return
    _show(document, repeats)
    output.print_warnings(
        f"{policy}: {seen['without_model']} of {repeats} profiles ended without a model, as too "
        "few of their runs had a value; they are left out of its row."
        for policy, seen in document["policies"].items()
        if "without_model" in seen
    )


def _show(document: dict[str, Any], repeats: int) -> None:
    from kongming.cli.explore.report import MODEL_WORDS

    columns = ("policy", "MSE", "MAE", "error", "unseen", "coverage", "cost", "failed", "model")
    rows: list[tuple[str | None, ...]] = [
        (
            policy,
            _number(seen["all"]["mse"]["median"]),
            _number(seen["all"]["mae"]["median"]),
            _per_cent(seen["all"]["mre_pct"]["median"]),
            _per_cent(seen["unseen"]["mre_pct"]["median"]),
            None if seen["coverage"] is None else per_cent(100 * seen["coverage"], ".0f"),
            _number(seen["cost"]),
            _number(seen["failed_runs"]),
            MODEL_WORDS[next(iter(seen["models"]))],
        )
        for policy, seen in document["policies"].items()
    ]
    floor = document.get("noise_floor")
    if floor is not None:
        missed = (_number(floor["mse"]), _number(floor["mae"]), *[_per_cent(floor["mre_pct"])] * 2)
        rows.append(("noise floor", *missed, *[None] * 4))
    title = (
        f"{document['budget']} of {document['rows']} rows run; "
        + (f"medians of {repeats} profiles" if repeats > 1 else "one profile")
        + ", over all rows"
    )
    right = columns[1:-1]
    output.console().print(
        output.table(columns, rows, title=title, right=right, minor=("failed", "cost", "MAE"))
    )


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _per_cent(value: float | None) -> str | None:
    return None if value is None else per_cent(value)
