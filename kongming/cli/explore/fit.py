"""``kongming explore fit``: fit a model to a table of runs."""

from __future__ import annotations

from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.explore import options as explore_options
from kongming.cli.shares import FRACTION


@click.command(
    "fit",
    short_help="Fit a model to a table of runs.",
    epilog=examples(
        "kongming explore fit space.toml runs.csv --out sort.json",
        "kongming explore fit space.toml runs.csv --target ops --model forest --out ops.json",
    ),
)
@explore_options.space_argument
@click.argument("runs", metavar="RUNS.csv", type=explore_options.PATH)
@click.option(
    "--out",
    metavar="MODEL.json",
    type=explore_options.PATH,
    required=True,
    help="Write the model to this file.",
)
@explore_options.target_option
@explore_options.model_option
@click.option(
    "--level",
    type=FRACTION,
    default=0.9,
    show_default=True,
    help="Probability that the interval holds the value.",
)
@explore_options.seed_option
@options.wide_option
@options.json_option
def command(
    space_file: Path,
    runs: Path,
    out: Path,
    target: str,
    model: str,
    level: float,
    seed: int,
    as_json: bool,
) -> None:
    """Fit a model of all points of the space to the runs of RUNS.csv.

    A row is a run: a column for each parameter and one of the target, empty where the run failed.
    Other columns are ignored, with a warning that names them. The kind of model that predicts
    left-out runs best is taken. Exit status 3 if all runs failed.
    """
    from kongming.cli.extras import require

    require("kongming explore fit", "predict", "sklearn")

    from kongming.cli.explore.report import print_report
    from kongming.explore import Space
    from kongming.explore.fitting import fit_runs
    from kongming.explore.model_file import write_model
    from kongming.explore.runs_table import read_runs

    options.refuse_to_replace(out, {"file of the space": space_file, "file of the runs": runs})
    space = Space.from_toml(space_file)
    table = read_runs(runs, space, target)
    explore_options.warn_of_ignored(runs, space, target)
    fitted = fit_runs(space, table, target, str(runs), model=model, level=level, seed=seed)
    write_model(out, fitted)
    report = fitted.report()
    if as_json:
        output.emit_json({"out": str(out), "target": target, **report})
        return
    print_report(fitted, report)
    output.console().print(f"saved: {out}", markup=False)
