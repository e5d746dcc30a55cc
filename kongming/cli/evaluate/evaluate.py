"""``kongming evaluate``: compare predictions with measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kongming.cli import options
from kongming.cli.durations import DURATION
from kongming.cli.evaluate.request import Request
from kongming.cli.examples import examples

if TYPE_CHECKING:
    from kongming.audit.instances.leave_out import Leave

SCORED = ("bracketed", "raw")

LEAVES = ("instance", "session", "block")

_MEASURING = (
    "placement",
    "plan",
    "repeats",
    "precision",
    "sample",
    "budget",
    "out",
    "preregister",
    "score_only",
    "again",
    "dry_run",
    "directory",
    "store_url",
)


@click.command(
    "evaluate",
    short_help="Compare predictions with measurements.",
    epilog=examples(
        "kongming evaluate apps.toml --pairs --dry-run",
        "kongming evaluate a.parquet b.parquet --instances --out evaluation",
    ),
)
@click.argument(
    "files",
    metavar="APPS.toml | FILE.parquet...",
    nargs=-1,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option("--pairs", is_flag=True, help="Measure every ordered pair of different applications.")
@click.option("--nodes", is_flag=True, help="Measure each application in several environments.")
@click.option(
    "--instances",
    is_flag=True,
    help="Use the recordings of 'kongming observe' of several machines.",
)
@click.option(
    "--leave",
    type=click.Choice(LEAVES),
    default=None,
    help="With --instances, what is left out and predicted by models of the rest: a machine "
    "(default), a session, or a block of time (which is easier).",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=None,
    help="With --instances: number of worker processes (default: one for each CPU).",
)
@click.option("--app", "names", metavar="NAME", multiple=True, help="Only this one (repeatable).")
@options.placement_option
@click.option(
    "--plan",
    type=click.Choice(["quick", "paper"]),
    default="quick",
    show_default=True,
    help="Plan of the profiles that --pairs needs.",
)
@options.inducer_app_option
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=None,
    help="Runs of each pair, or in each environment (default: 2, or 3).",
)
@click.option(
    "--precision",
    metavar="SHARE",
    default=None,
    help="With --pairs: repeat each pair, four times or more, until the standard error of its log "
    "mean is this small, as 3%, or it ran 40 times.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=2),
    metavar="N",
    default=None,
    help="With --pairs: N ordered pairs instead of all, drawn at random so that each application "
    "is slowed, and presses, equally often.",
)
@click.option(
    "--models",
    metavar="NAME,NAME|all",
    default=None,
    help="Models to score next to MEAN; 'auto' is then the best of these (default: all except the "
    "slow ones, of which auto is a stack).",
)
@click.option(
    "--environments",
    type=click.IntRange(min=1),
    metavar="N",
    default=None,
    help="With --nodes: how many environments (default: two of each kind, and the idle node).",
)
@click.option(
    "--budget",
    type=DURATION,
    metavar="TIME",
    help="Stop after this; resumable. With --pairs, profiles are planned to end within it.",
)
@click.option(
    "--scored",
    type=click.Choice(SCORED),
    default=None,
    help="With --pairs, the costs to score. bracketed (default): relative to the solo runs "
    "around each run; raw: unchanged.",
)
@click.option(
    "--predictions",
    metavar="FILE.json",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="With --pairs: predictions of other predictors, shown as further models (repeatable). "
    'A list of {"app": NAME, "neighbour": NAME, "model": NAME, "slowdown": NUMBER}.',
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write document.json, table.md, a CSV of every case, and figures to this folder.",
)
@click.option(
    "--preregister",
    metavar="FILE.json",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="With --pairs: before measuring, write digests of the code, the models and the list to "
    "this file, or check those that are there. The table states them, and which code has changed "
    "since.",
)
@click.option("--score-only", is_flag=True, help="Measure nothing: score the runs in the store.")
@click.option("--again", is_flag=True, help="Repeat a complete measurement; profiles are reused.")
@options.anyway_option
@click.option("--dry-run", is_flag=True, help="Print the number of runs and their time, and stop.")
@click.option(
    "--seed",
    type=options.MODEL_SEED,
    default=None,
    help="Seed of the order of the runs (default: random, stored); of models: 0.",
)
@options.scratch_option
@options.store_option
@options.wide_option
@options.json_option
def command(
    files: Sequence[Path],
    pairs: bool,
    nodes: bool,
    instances: bool,
    leave: Leave | None,
    jobs: int | None,
    names: Sequence[str],
    inducer_names: Sequence[str],
    placement: str,
    plan: str,
    repeats: int | None,
    precision: str | None,
    sample: int | None,
    models: str | None,
    environments: int | None,
    budget: float | None,
    scored: str | None,
    predictions: Sequence[Path],
    out: Path | None,
    preregister: Path | None,
    score_only: bool,
    again: bool,
    anyway: bool,
    dry_run: bool,
    seed: int | None,
    directory: Path | None,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Score the models on runs they were not trained on; compare with trivial predictors and noise.

    --pairs profiles every application (or reuses its newest complete profile) and runs every
    ordered pair, its repeats far apart in time and with solo runs between them, all in one random
    order. The table shows the error of each model's predictions. With --inducer-app the profiles
    have programs as loads too; pairs with such a program as the neighbour are not scored. --nodes
    runs applications in environments that differ as cloud instances do (a CPU quota, a slower disk,
    unseen neighbours), and predicts each with models that were trained in the others. --instances
    measures nothing: it reads files of 'kongming observe' from several machines, and predicts each
    machine's runs with models that were trained on the others'.

    The same command resumes an interrupted measurement. Exit status 1 if runs failed or the budget
    was spent before the end; the complete part is scored.
    """
    from kongming.cli.extras import require
    from kongming.profiling.plans.precision import parse_precision
    from kongming.records.errors import InputError

    kinds = [
        name
        for name, given in (("--pairs", pairs), ("--nodes", nodes), ("--instances", instances))
        if given
    ]
    if len(kinds) != 1:
        raise InputError(
            f"{' and '.join(kinds)} are {len(kinds)} evaluations: choose one."
            if kinds
            else "Choose an evaluation: --pairs, --nodes, or --instances with files.",
            hint="See 'kongming evaluate --help'.",
        )
    for option, given in (("--leave", leave), ("--jobs", jobs)):
        if given is not None and not instances:
            raise InputError("belongs to --instances.", field=option)
    if not instances and len(files) > 1:
        raise InputError(
            f"{kinds[0]} takes one applications file.", field="APPS.toml", value=len(files)
        )
    for option, given, needed in (
        ("--environments", environments is not None, nodes),
        ("--inducer-app", bool(inducer_names), pairs),
        ("--predictions", bool(predictions), pairs),
        ("--scored", scored is not None, pairs),
        ("--precision", precision is not None, pairs),
        ("--sample", sample is not None, pairs),
        ("--preregister", preregister is not None, pairs),
    ):
        if given and not needed:
            raise InputError(
                f"belongs to {'--nodes' if option == '--environments' else '--pairs'}.",
                field=option,
            )
    for option, given in (("--again", again), ("--dry-run", dry_run)):
        if score_only and given:
            raise InputError(f"measures nothing, so {option} is left out.", field="--score-only")
    if precision is not None and repeats is not None:
        raise InputError("decides on the repeats, so --repeats is left out.", field="--precision")
    for module in ("numpy", "scipy", "sklearn", "lightgbm"):
        require("kongming evaluate", "predict", module)
    if instances:
        _refuse_measuring()
        require("kongming evaluate", "predict", "pyarrow")
        from kongming.cli.evaluate.evaluate_nodes import evaluate_instances
        from kongming.processes.pool import available_cpus

        return evaluate_instances(
            files,
            leave or "instance",
            programs=names,
            models=_models(models),
            seed=seed,
            jobs=jobs or available_cpus(),
            as_json=as_json,
        )
    request = Request(
        file=files[0],
        names=tuple(names),
        inducer_names=tuple(inducer_names),
        placement=placement,
        plan=plan,
        repeats=repeats,
        precision=None if precision is None else parse_precision(precision),
        sample=sample,
        models=_models(models),
        environments=environments,
        budget=budget,
        scored=scored or "bracketed",
        seed=seed,
        predictions=tuple(predictions),
        out=out,
        preregister=preregister,
        directory=directory,
        again=again,
        anyway=anyway,
        score_only=score_only,
        dry_run=dry_run,
        store_url=store_url,
        as_json=as_json,
    )
    if pairs:
        from kongming.cli.evaluate.pairs import evaluate_pairs

        return evaluate_pairs(request)
    from kongming.cli.evaluate.evaluate_nodes import evaluate_nodes

    return evaluate_nodes(request)


def _refuse_measuring() -> None:
    """--instances measures nothing. Raise InputError for options of evaluations that measure."""
    from kongming.records.errors import InputError

    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if parameter.name in _MEASURING and given == click.core.ParameterSource.COMMANDLINE:
            raise InputError(
                "belongs to --pairs or --nodes: --instances measures nothing.",
                field=parameter.opts[0],
            )


def _models(text: str | None) -> tuple[str, ...] | None:
    """Return the models to train, None for the default ones. Raises UnknownNameError."""
    from kongming.learning.registry import AUTO, model_kind, model_names

    if text is None:
        return None
    if text == "all":
        return model_names(optional=True)
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    # Of nothing but MEAN, auto would be that.
    return tuple(model_kind(name).name for name in names if name != AUTO) or None
