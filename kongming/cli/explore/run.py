"""``kongming explore run``: run a program at the points that adaptive profiling chooses."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output, runners
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.explore import options as explore_options
from kongming.quantities import count

if TYPE_CHECKING:
    from kongming.campaigns.point_runners import PointRunner
    from kongming.explore import Space
    from kongming.records.application import Application

COST_BATCH = 5
"""Runs of a batch where the number of runs is not known beforehand."""


class Budget(click.ParamType[tuple[str, float]]):
    """Gives ("runs", 40) for ``40``; ("seconds", 7200.0) for ``2h``, and ("cost", 500.0) for
    ``cost 500``."""

    name = "budget"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        text = str(value).strip()
        if text.isascii() and text.isdigit() and int(text) >= 2:
            return "runs", int(text)
        word, _, amount = text.partition(" ")
        try:
            cost = float(amount) if word == "cost" else 0.0
        except ValueError:
            cost = math.nan
        if 0.0 < cost < math.inf:
            return "cost", cost
        if word == "cost" or text[-1:].isdigit():
            self.fail(
                f"{text!r} is not a budget. Allowed: a number of runs from 2, a duration as 2h, or "
                "'cost 500'.",
                param,
                ctx,
            )
        return "seconds", DURATION.convert(text, param, ctx)


BUDGET = Budget()


@click.command(
    "run",
    short_help="Run a program at the points chosen.",
    epilog=examples(
        "kongming explore run apps.toml --app sort --space space.toml --budget 40 --out runs.csv",
        "kongming explore run apps.toml --app sort --space space.toml --budget 40 --jobs 2 "
        "--out runs.csv",
    ),
)
@click.argument("file", metavar="APPS.toml", type=explore_options.PATH)
@runners.app_option
@explore_options.space_option
@click.option(
    "--budget",
    type=BUDGET,
    metavar="B",
    required=True,
    help="Number of runs, those included that the table has already; or what they may take, as 2h; "
    "or cost, as 'cost 500', in the units of --cost [without --cost: seconds].",
)
@explore_options.batch_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="J",
    help="Number of parallel runs, each on its own CPUs.",
)
@click.option(
    "--out",
    metavar="RUNS.csv",
    type=explore_options.PATH,
    required=True,
    help="Append rows to this table, and resume from it.",
)
@explore_options.policy_option
@explore_options.expression_option
@explore_options.stop_option
@runners.runner_option
@runners.image_option
@runners.share_option("With machines on this node")
@explore_options.seed_option
@options.anyway_option
@runners.scratch_option
@options.json_option
def command(
    file: Path,
    name: str | None,
    space_file: Path,
    budget: tuple[str, float],
    batch: int | None,
    jobs: int,
    out: Path,
    policy: str,
    cost: str | None,
    stop_pct: float | None,
    runner: str,
    image: str | None,
    share: float,
    seed: int,
    anyway: bool,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Run an application at a few points of its parameters, and write the table of runs.

    In the command, setup, prepare and env of APPS.toml, {parameter} stands for its value. Each run
    has the CPUs that 'cpus' of the application says. A row is on disk before the next run begins:
    the same command resumes, and a larger --budget goes on. A failed run is a row without a value.
    Where the space has 'machines' and 'scale', the runners of 'scale run' are used, and 'scale fit'
    reads the table.
    """
    from kongming.cli.extras import require

    require("kongming explore run", "predict", "sklearn")

    from kongming.campaigns.exploration import Exploration
    from kongming.campaigns.other_machines import mixed_machines, refuse_other_machines
    from kongming.campaigns.point_runners import MACHINES, check_machines
    from kongming.campaigns.point_templates import at_some_point, check_placeholders, identity_at
    from kongming.campaigns.scripts import scripts_digest
    from kongming.cli.explore.report import print_stopped
    from kongming.explore import DecisionTreeProfiler, Space
    from kongming.explore.profiler import FEWEST_RUNS
    from kongming.explore.runs_table import RunsTable
    from kongming.probes.measuring import disturbed_since, measuring
    from kongming.profiling.cautions import stays_warm
    from kongming.records.errors import InputError

    app = runners.application(file, name)
    name = app.name
    space = Space.from_toml(space_file)
    machines = set(MACHINES) <= set(space.names)
    check_placeholders(app, space.names, MACHINES[:1] if machines else ())
    if runner != "local" and not machines:
        raise InputError(
            "needs a space with the parameters machines and scale.",
            field="--runner",
            value=runner,
            allowed="local",
        )
    if machines:
        check_machines(app, space.dimensions, runner)
    unit, most = budget
    if unit == "seconds" and cost is not None:
        raise InputError(
            "is a time, and --cost gives what a run costs in units of its own.",
            field="--budget",
            value=f"{most:g} s",
            allowed="a number of runs, or 'cost N' in the units of --cost",
            hint="Without --cost a budget of time counts the seconds of the runs.",
        )
    budget_in = "runs" if unit == "runs" else "cost"
    weights = explore_options.weights_of(policy, cost, counted=budget_in == "cost")
    size = batch or COST_BATCH
    if budget_in == "runs":
        size = explore_options.batch_of(int(most), batch)
    profiler = DecisionTreeProfiler(
        space,
        budget=most,
        budget_in=budget_in,
        batch=max(size, jobs),
        policy=policy,
        # Seconds are told, and learned from.
        cost=cost or ("told" if budget_in == "cost" else None),
        stop_pct=stop_pct,
        random_state=seed,
        **weights,
    )
    running, cpus = _runner(app, space, runner, machines, jobs, directory, share, image)
    if unit == "cost":
        unit = "seconds" if cost is None else "of cost"
    target = "seconds" if app.metric is None else "metric"
    program, scripts = identity_at(app, space), scripts_digest(app, space)
    table = RunsTable(out, space, target, identity=program, scripts=scripts)
    runners.warn_of_removed(out, table.removed)
    cautions = stays_warm(at_some_point(app, space))
    output.print_warnings(cautions)
    try:
        campaign = Exploration(profiler, table)
        if machines and not profiler.is_spent:
            refuse_other_machines([run.how for run in table.runs], runner, share)
        with (
            measuring("kongming explore run", cpus, anyway=anyway),
            running,
            output.progress(f"{name}: {most:g} {unit}", total=most) as shown,
        ):
            began = time.time()
            campaign.drive(running, lambda: shown.update(most - profiler.left, text=name))
            other = disturbed_since(began, cpus)
    except KeyboardInterrupt:
        output.error_console().print(
            f"{count(len(table.runs), 'run')} {'is' if len(table.runs) == 1 else 'are'} kept in "
            f"{out}; the same command goes on from there.",
            markup=False,
        )
        raise
    finally:
        table.close()
    of_runs = dict.fromkeys(text for run in campaign.measured for text in run.warnings)
    warnings = [*runners.disturbed_warnings(other), *of_runs]
    if (
        mixed := mixed_machines([run.how for run in table.runs if run.value is not None])
    ) is not None:
        warnings.append(mixed)
    failed = sum(run.status == "failed" for run in table.runs)
    ended = sum(run.status == "timeout" for run in table.runs)
    known = len(profiler.observations.repeatable)
    if known < FEWEST_RUNS:
        warnings.append(
            f"{count(known, 'point')} with a value: a model needs {FEWEST_RUNS}. The same command "
            "with a larger --budget goes on."
        )
    ended_early = not profiler.is_spent and not profiler.stopped
    if ended_early and profiler.points_left == 0:
        warnings.append(
            f"The space has no further point: all {space.size} were run, and the budget is not "
            "used up."
        )
    elif ended_early:
        warnings.append(
            f"What is left of the budget, {profiler.left:.4g} {unit}, pays for no further run."
        )
    if profiler.free_runs:
        warnings.append(
            f"{count(profiler.free_runs, 'run')} that cost nothing took a thousandth of the budget "
            "each, so that it ends."
        )
    if as_json:
        output.emit_json(
            {
                "app": name,
                "out": str(out),
                "target": target,
                "budget": most,
                "budget_in": budget_in,
                "spent": profiler.spent,
                "left": profiler.left,
                "stopped": profiler.stopped,
                "runs": len(table.runs),
                "resumed": campaign.resumed,
                "measured": len(campaign.measured),
                "failed": [
                    {"at": dict(run.point), "error": run.error}
                    for run in campaign.measured
                    if run.status == "failed"
                ],
                "timed_out": [
                    {"at": dict(run.point), "at_least": run.limit}
                    for run in campaign.measured
                    if run.status == "timeout"
                ],
                "identity": table.identity,
                "space": table.space_identity,
                "warnings": [*cautions, *warnings],
            }
        )
        return
    console = output.console()
    console.print(
        f"{count(len(campaign.measured), 'run')} measured, {campaign.resumed} already there, "
        f"{failed} failed, {ended} ended at the time limit: {out}",
        markup=False,
    )
    if profiler.stopped:
        print_stopped(stop_pct)
    output.print_warnings(warnings)
    if known < FEWEST_RUNS:
        return
    console.print(
        f"Next: kongming explore fit {space_file} {out} --target {target} --out {name}.json",
        markup=False,
    )


def _runner(
    app: Application,
    space: Space,
    kind: str,
    machines: bool,
    jobs: int,
    directory: Path | None,
    share: float,
    image: str | None,
) -> tuple[PointRunner, tuple[int, ...] | None]:
    """Return the runner of points, and the CPUs that it measures on (None: all)."""
    import os

    from kongming.campaigns.experiments import open_runner
    from kongming.campaigns.point_runners import MachinesRunner, NodeRunner
    from kongming.probes.folders import work_folder
    from kongming.records.errors import InputError

    if machines:
        if jobs > 1:
            raise InputError(
                "experiments on machines run one after the other.",
                field="--jobs",
                value=jobs,
                allowed="1",
            )
        return (
            MachinesRunner(app, lambda filled: open_runner(kind, filled, directory, share, image)),
            None if kind == "local" else (),
        )
    available = sorted(os.sched_getaffinity(0))
    node = NodeRunner(app, work_folder(directory), jobs=jobs, available=available)
    return node, tuple(cpu for slot in node.cpus for cpu in slot)
