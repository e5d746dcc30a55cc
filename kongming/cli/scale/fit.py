"""``kongming scale fit``: fit a scale model to a table of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.float_range import FloatRange
from kongming.cli.scale import options as scale_options
from kongming.cli.scale import storing
from kongming.cli.shares import Share
from kongming.quantities import per_cent
from kongming.records import moments

if TYPE_CHECKING:
    from kongming.scale.fit.contexts.context_model import ContextModel
    from kongming.scale.fit.fitting import Settings
    from kongming.scale.fit.model import ScaleModel
    from kongming.scale.table import Columns

KINDS = (
    "auto",
    "stack",
    "ernest",
    "ernest-relative",
    "ernest-piecewise",
    "ernest-residuals",
    "repeat-nearest",
)


@click.command(
    "fit",
    short_help="Fit a scale model to a table of runs.",
    epilog=examples(
        "kongming scale fit runs.csv --name sort",
        "kongming scale fit runs.csv --context size_gb,k,type --type-column type --name kmeans",
    ),
)
@click.argument("runs", metavar="RUNS.csv", type=click.Path(dir_okay=False, path_type=Path))
@scale_options.table_options
@click.option("--group", "group_column", metavar="COLUMN", help="Column of jobs: one model each.")
@click.option(
    "--context",
    "context",
    multiple=True,
    metavar="COLUMN...",
    help="Columns of numbers or names that tell contexts apart, as the input's size or the machine "
    "type: one model over all of them (repeatable, or separated by commas).",
)
@scale_options.terms_option
@scale_options.items_option
@click.option(
    "--model",
    "kind",
    type=click.Choice(KINDS),
    default="auto",
    show_default=True,
    help="Kind of model. auto is stack, the average of all forms.",
)
@click.option(
    "--threshold",
    type=Share(2.0),
    default="20%",
    show_default=True,
    help="A larger leave-one-out error counts as a bad fit.",
)
@click.option("--drop-first", is_flag=True, help="Leave out each configuration's first run.")
@click.option(
    "--memory-load",
    type=FloatRange(min=0.0, min_open=True),
    metavar="X",
    help="The scale per machine that fits into memory: there are no predictions beyond it.",
)
@click.option(
    "--track",
    metavar="FILE",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The program or its input: when it changes, the model is stale (repeatable).",
)
@click.option(
    "--save",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the model to this file.",
)
@click.option(
    "--name",
    metavar="NAME",
    callback=options.refuse_empty,
    help="Keep the model in the store under this name.",
)
@options.store_option
@options.wide_option
@options.json_option
def command(
    runs: Path,
    scale_column: str | None,
    machines_column: str | None,
    time_column: str | None,
    iterations_column: str | None,
    type_column: str | None,
    group_column: str | None,
    context: Sequence[str],
    terms: str,
    items: float | None,
    kind: str,
    threshold: float,
    drop_first: bool,
    memory_load: float | None,
    track: Sequence[Path],
    save: Path | None,
    name: str | None,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Fit the runtime of a job as a function of its input and its machines.

    A row of RUNS.csv is a run: machines, scale (the share of the input), seconds. Several rows of
    one configuration are repeats. The model averages several forms (Ernest's sum of non-negative
    terms in seconds, in relative errors, robust, local or with a memory cliff, power laws, the
    nearest runs and others) by how well each predicts left-out configurations.
    """
    from kongming.cli.extras import require

    for module in ("numpy", "scipy"):
        require("kongming scale fit", "predict", module)

    from kongming.scale.fit.fitting import Settings, fit_table
    from kongming.scale.fit.scale_file import ScaleFile
    from kongming.scale.fit.terms import read_terms
    from kongming.scale.fit.tracked_files import track as tracked
    from kongming.scale.table import Columns, read_table

    settings = Settings(
        terms=read_terms(terms, items=items),
        items=items,
        kind=kind,
        threshold_pct=100.0 * threshold,
        drop_first=drop_first,
        memory_load=memory_load,
    )
    options.refuse_to_replace(save, {"table of runs": runs}, field="--save")
    columns = Columns(
        machines=machines_column or "machines",
        scale=scale_column,
        seconds=time_column or "seconds",
        iterations=iterations_column,
        group=group_column,
        machine_type=type_column,
    )
    files = tracked(track)
    models: tuple[ScaleModel, ...] = ()
    contexts: tuple[ContextModel, ...] = ()
    if names := scale_options.context_columns(context):
        contexts = _over_contexts(runs, columns, names, settings)
    else:
        models = fit_table(read_table(runs, columns), settings)
    now = moments.now("seconds")
    file = ScaleFile(name=name, created_at=now, models=models, tracked=files, contexts=contexts)
    destinations = storing.leave(file, save=save, name=name, store_url=store_url)
    if as_json:
        reports = _document(models) if models else _context_document(contexts)
        output.emit_json({**reports, **destinations})
        return
    for model in models:
        _show(model)
    for of_job in contexts:
        _show_contexts(of_job)
    storing.show(destinations)


def _over_contexts(
    runs: Path, columns: Columns, names: Sequence[str], settings: Settings
) -> tuple[ContextModel, ...]:
    """Fit one model over all contexts for each job.

    Raises:
        InputError: the table or an option does not suit a model over contexts.
    """
    from kongming.scale.fit.contexts.context_fitting import fit_contexts
    from kongming.scale.table import read_context_table

    scale_options.refuse_with_context(
        {
            "--model": settings.kind != "auto",
            "--terms auto": settings.terms.auto,
            "--memory-load": settings.memory_load is not None,
            "--drop-first": settings.drop_first,
        }
    )
    tables = read_context_table(runs, columns, names)
    return tuple(_with_notes(fit_contexts(table, settings)) for table in tables)


def _with_notes(model: ContextModel) -> ContextModel:
    """Add a warning for each column of names that may be meant as numbers."""
    notes = [
        f"the column {column.name} has names, as {column.names[0]}, which have no order: write "
        "numbers without their units if they are numbers"
        for column in model.columns
        if column.name != model.type_column
        and column.names
        and all(name[:1].isdigit() for name in column.names)
    ]
    if not notes:
        return model
    report = {**model.report, "warnings": [*model.report["warnings"], *notes]}
    return replace(model, report=report)


def _document(models: Sequence[ScaleModel]) -> dict[str, Any]:
    """Return a report; by machine type under ``types`` and by job under ``groups`` if there are
    such columns."""
    groups: dict[str | None, dict[str, Any]] = {}
    for model in models:
        report = dict(model.report)
        of = groups.setdefault(model.group, {})
        if model.machine_type is None:
            of.update(report)
        else:
            of.setdefault("types", {})[model.machine_type] = report
    if list(groups) == [None]:
        return groups[None]
    return {"groups": {str(name): report for name, report in groups.items()}}


def _context_document(models: Sequence[ContextModel]) -> dict[str, Any]:
    """Return a report over contexts, by job under ``groups`` if there is such a column."""
    reports = {str(model.group): _with_little_in_common(model) for model in models}
    if [model.group for model in models] == [None]:
        return next(iter(reports.values()))
    return {"groups": reports}


def _with_little_in_common(model: ContextModel) -> dict[str, Any]:
    """Return the report, with a warning that matters to contexts without runs alone."""
    from kongming.scale.fit.contexts.context_model import little_in_common

    missed = little_in_common(model.report)
    warnings = [*model.report["warnings"], *(() if missed is None else (missed,))]
    return {**model.report, "warnings": warnings}


def _show_contexts(model: ContextModel) -> None:
    from kongming.scale.context_columns import describe

    console = output.console()
    report = model.report
    console.print(
        f"Model of {model.label}: {report['runs']} runs of {report['configurations']} "
        f"configurations in {len(model.contexts)} contexts, one model over "
        f"{', '.join(report['columns'])}",
        markup=False,
    )

    def percent(value: float | None) -> str | None:
        return None if value is None else per_cent(value)

    keys = ("loo_error_pct", "context_out_error_pct", "alone_error_pct")
    # The model has its contexts in another order than the report.
    contexts = [
        tuple(row["context"][column.name] for column in model.columns) for row in report["contexts"]
    ]
    rows = [
        (describe(model.columns, context), row["configurations"], *(percent(row[k]) for k in keys))
        for context, row in zip(contexts, report["contexts"], strict=True)
    ]
    rows.append(("all", report["configurations"], *(percent(report[key]) for key in keys)))
    columns = ("context", "configurations", "leave one out", "context left out", "context alone")
    console.print(output.table(columns, rows, right=columns[1:]))
    fixed = report["fixed_time"]
    if fixed is not None:
        console.print(
            f"Fixed time of all contexts: {fixed['seconds']:.3g} s per run, for those with few "
            "configurations.",
            markup=False,
        )
    for text in _with_little_in_common(model)["warnings"]:
        console.print(f"warning: {text}", markup=False)
    console.print()


def _show(model: ScaleModel) -> None:
    console = output.console()
    report: Mapping[str, Any] = model.report
    title = (
        f"Model of {model.label}: {report['runs']} runs of {report['configurations']} "
        f"configurations, {report['model']}"
    )
    console.print(title, markup=False)
    _show_stack(report)
    rows = [(key, f"{value:.6g}") for key, value in report["terms"].items()]
    console.print(output.table((_terms_title(report), "seconds"), rows, right=("seconds",)))
    errors = [
        ("this model, leave one out", report["loo_error_pct"]),
        ("with the choice of its weights (nested)", report["nested_error_pct"]),
        ("this model, largest machine count left out", report["largest_out_error_pct"]),
        ("plain Ernest", report["baselines"]["ernest"]),
        ("plain Ernest, relative errors", report["baselines"]["ernest_relative"]),
        ("Amdahl", report["baselines"]["amdahl"]),
        ("repeat the nearest", report["baselines"]["repeat_nearest"]),
        ("noise floor (of the means of repeats)", report["noise_floor_of_means_pct"]),
    ]
    shown = [(name, None if value is None else per_cent(value)) for name, value in errors]
    console.print(output.table(("error", "mean"), shown, right=("mean",)))
    if not report.get("stack"):
        # Each form of a stack has its own.
        console.print(f"Terms: {report['terms_reason']}.", markup=False)
    console.print(f"Model: {report['model_reason']}.", markup=False)
    coverage = report["coverage"]
    if coverage["measured"] is not None:
        console.print(
            f"The {per_cent(100 * coverage['level'], '.0f')} interval contains "
            f"{per_cent(100 * coverage['measured'], '.0f')} "
            f"of {coverage['runs']} left-out runs.",
            markup=False,
        )
    for text in report["warnings"]:
        console.print(f"warning: {text}", markup=False)
    console.print()


def _terms_title(report: Mapping[str, Any]) -> str:
    """Return the title of the terms: those of a stack are of one of its forms."""
    from kongming.scale.fit.stack import BACKBONE

    for entry in report["stack"] or ():
        # Files of earlier versions do not name the form.
        if entry["form"] == report.get("terms_form", BACKBONE):
            weight = per_cent(100 * entry["weight"], ".0f")
            return f"term of {entry['form']} ({weight} of the weight)"
    return "term"


def _show_stack(report: Mapping[str, Any]) -> None:
    """Print the forms of a stack with their weights at the largest machine count and beyond it."""
    if not report["stack"]:
        return
    rows = [
        (
            entry["form"],
            per_cent(100 * entry["weight"], ".0f"),
            per_cent(100 * entry["weight_beyond"], ".0f"),
            None if entry["loo_error_pct"] is None else per_cent(entry["loo_error_pct"]),
        )
        for entry in sorted(report["stack"], key=lambda entry: -entry["weight"])
    ]
    columns = ("form", "weight", "twice the machines", "error")
    output.console().print(output.table(columns, rows, right=columns[1:]))
