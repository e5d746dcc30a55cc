"""``kongming scale run``: run the experiments of a design."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from kongming.cli import options, output, runners
from kongming.cli.examples import examples
from kongming.quantities import count


@click.command(
    "run",
    short_help="Run the experiments of a design.",
    epilog=examples(
        "kongming scale run apps.toml --app sort --design design.json",
        "kongming scale run apps.toml --app sort --experiment 2@0.05 --out runs.csv",
    ),
)
@click.argument("file", metavar="APPS.toml", type=click.Path(dir_okay=False, path_type=Path))
@runners.app_option
@click.option(
    "--design",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A design from 'scale design --out' or its --json.",
)
@click.option(
    "--experiment",
    metavar="M@S",
    multiple=True,
    help="A configuration instead of a design (repeatable).",
)
@click.option(
    "--out",
    metavar="RUNS.csv",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append rows to this table [default: NAME-runs.csv].",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of times that the design is run.",
)
@runners.runner_option
@runners.image_option
@runners.share_option("With --runner local")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the order of the runs."
)
@options.anyway_option
@runners.scratch_option
@options.json_option
def command(
    file: Path,
    name: str | None,
    design: Path | None,
    experiment: Sequence[str],
    out: Path | None,
    repeats: int,
    runner: str,
    image: str | None,
    share: float,
    seed: int,
    anyway: bool,
    directory: Path | None,
    as_json: bool,
) -> int:
    """Run an application at each configuration of a design, and write the table of runs.

    In the command, set-up and prepare of APPS.toml, {machines} and {scale} stand for the
    configuration. A command with {rank} is started once on each machine. On one node a machine is a
    control group with an eighth of a CPU if control groups are writable, else a process. The same
    command resumes an interrupted measurement. Exit status 1 when a run failed.
    """
    from kongming.campaigns.experiments import ExperimentCampaign, open_runner
    from kongming.campaigns.other_machines import mixed_machines, refuse_other_machines
    from kongming.probes.measuring import disturbed_since, measuring
    from kongming.records.errors import InputError
    from kongming.scale.design.planning import configuration, read_design

    if (design is None) == (not experiment):
        raise InputError("Give a design or experiments: --design FILE or --experiment M@S.")
    app = runners.application(file, name)
    name = app.name
    wanted = (
        read_design(design)
        if design is not None
        else [(configuration(text, "--experiment"), 1) for text in experiment]
    )
    scales = {at.scale for at, _ in wanted}
    templates = " ".join(map(str, (app.command, app.setup, app.prepare)))
    if len(scales) > 1 and "{scale}" not in templates:
        raise InputError(
            f"has no {{scale}}, and the design has {count(len(scales), 'scale')}: its runs would "
            "all be alike.",
            field=f"apps.{name}",
            allowed="{scale} in command, setup or prepare",
        )
    wanted = [(at, times * repeats) for at, times in wanted]
    campaign = click.get_current_context().with_resource(
        closing(ExperimentCampaign.begin(app, wanted, out or Path(f"{name}-runs.csv"), seed=seed))
    )
    runners.warn_of_removed(campaign.table.path, campaign.table.removed)
    left = campaign.left
    if left:
        refuse_other_machines(campaign.table.hows, runner, share)
    # Machines of a cluster have locks of their own.
    cpus = None if runner == "local" and left else ()
    with (
        measuring("kongming scale run", cpus, anyway=anyway),
        open_runner(runner, app, directory, share, image) as running,
        output.progress(f"{name}: {len(left)} runs", total=float(len(left))) as shown,
    ):
        began = time.time()
        try:
            campaign.drive(
                running, lambda k, planned: shown.update(k, text=f"{name}: {planned.at}")
            )
        except KeyboardInterrupt:
            output.error_console().print(
                f"{campaign.measured} of {count(len(left), 'run')} measured and kept in "
                f"{campaign.table.path}; the same command goes on from there.",
                markup=False,
            )
            raise
        other = disturbed_since(began, cpus)
        reason = getattr(running, "reason", None)
    warnings = runners.disturbed_warnings(other)
    if runner == "local" and left and reason not in (None, "left"):
        warnings.append(f"machines are processes without CPU limits: {reason}")
    if (mixed := mixed_machines(campaign.table.hows)) is not None:
        warnings.append(mixed)
    if runner == "local" and left:
        from kongming.probes.node import node_facts

        most = max(planned.machines for planned in left)
        if most * share > len(node_facts().cpus):
            warnings.append(
                f"{most} machines of {share:g} CPUs exceed this node: they slow each other down"
            )
    failures = [
        {"machines": planned.machines, "scale": planned.at.scale, "error": outcome.error}
        for planned, outcome in campaign.failed
    ]
    resumed = len(campaign.experiments) - len(left)
    if as_json:
        output.emit_json(
            {
                "app": name,
                "out": str(campaign.table.path),
                "planned": len(campaign.experiments),
                "resumed": resumed,
                "measured": campaign.measured,
                "failed": failures,
                "identity": campaign.table.identity,
                "warnings": warnings,
            }
        )
    else:
        console = output.console()
        console.print(
            f"{count(campaign.measured, 'run')} measured, {resumed} were already there, "
            f"{len(failures)} failed: {campaign.table.path}",
            markup=False,
        )
        for failure in failures:
            console.print(
                f"failed at {failure['machines']} machines, scale {failure['scale']}: "
                f"{failure['error']}",
                markup=False,
            )
        output.print_warnings(warnings)
    return 1 if failures else 0
