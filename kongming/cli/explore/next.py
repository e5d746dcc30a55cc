"""``kongming explore next``: the next points, for others to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.explore import options as explore_options
from kongming.quantities import count as count_of

if TYPE_CHECKING:
    from kongming.explore.runs_table import PointRun


@click.command(
    "next",
    short_help="Choose the next points, to be run by other means.",
    epilog=examples(
        "kongming explore next space.toml -n 8",
        "kongming explore next space.toml runs.csv -n 4 --json",
    ),
)
@explore_options.space_argument
@click.argument("runs", metavar="[RUNS.csv]", required=False, type=explore_options.PATH)
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of points.",
)
@explore_options.target_option
@explore_options.policy_option
@explore_options.expression_option
@explore_options.stop_option
@explore_options.seed_option
@options.wide_option
@options.json_option
def command(
    space_file: Path,
    runs: Path | None,
    count: int,
    target: str,
    policy: str,
    cost: str | None,
    stop_pct: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Choose the next points to run, from the runs of RUNS.csv; without it, the first ones.

    A row of RUNS.csv is a run: a column for each parameter and one of the target, empty where the
    run failed. Other columns are ignored, with a warning that names them. Add rows, and ask again.
    """
    from kongming.cli.extras import require

    require("kongming explore next", "predict", "sklearn")

    from kongming.cli.explore.report import print_stopped
    from kongming.explore import DecisionTreeProfiler, Space
    from kongming.explore.cost import REPORTED
    from kongming.explore.fitting import refuse_all_failed, tell
    from kongming.explore.runs_table import read_runs, text_of
    from kongming.records.errors import CannotAnswerError

    weights = explore_options.weights_of(policy, cost)
    space = Space.from_toml(space_file)
    known = [] if runs is None else read_runs(runs, space, target)
    if runs is not None:
        explore_options.warn_of_ignored(runs, space, target)
    warnings = _of_costs(known, runs) if cost == REPORTED and known else []
    profiler = DecisionTreeProfiler(
        space,
        budget=len(known) + max(count, 2),
        batch=count,
        policy=policy,
        cost=cost,
        stop_pct=stop_pct,
        random_state=seed,
        **weights,
    )
    for run in known:
        tell(profiler, run)
    points = profiler.suggest(count)
    try:
        refuse_all_failed(known)
    except CannotAnswerError as error:
        warnings.append(error.message)
    if as_json:
        output.emit_json(
            {
                "points": points,
                "runs": len(known),
                "left": profiler.points_left,
                "stopped": profiler.stopped,
                "warnings": warnings,
            }
        )
        return
    output.print_warnings(warnings)
    if profiler.stopped:
        print_stopped(stop_pct)
        return
    if not points:
        output.console().print("There is no further point to run.")
        return
    before = [run.parameters for run in known]
    repeated = sum(point in before for point in points)
    if repeated:
        output.print_warnings([f"Points that were run before, and are repeated: {repeated}."])
    if profiler.points_left == 0 and len(points) < count and repeated < len(points):
        output.print_warnings(["These are the last points of the space."])
    rows = [[text_of(point.get(name)) or None for name in space.names] for point in points]
    output.console().print(output.table(space.names, rows))


def _of_costs(known: Sequence[PointRun], table: Path | None) -> list[str]:
    """Return a warning where costs are not learned yet, since the runs have too few.

    Raises:
        InputError: no run has a cost.
    """
    from kongming.explore.cost import ENOUGH, REPORTED
    from kongming.records.errors import InputError

    priced = sum(run.cost is not None for run in known)
    if not priced:
        raise InputError(
            f"no run of {table} has a cost to learn from.",
            field="--cost",
            value=REPORTED,
            allowed="a table with costs in a column 'cost'; or an expression in the parameters",
        )
    if priced >= ENOUGH:
        return []
    return [
        f"Costs are not learned yet: {count_of(priced, 'run')} of {table} "
        f"{'has' if priced == 1 else 'have'} one, and {ENOUGH} are needed."
    ]
