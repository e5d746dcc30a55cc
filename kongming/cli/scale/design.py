"""``kongming scale design`` and ``next``: the experiments with the most information for their
cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.scale import options as scale_options
from kongming.cli.scale.predict import interval, load
from kongming.cli.shares import Share
from kongming.quantities import count, per_cent

if TYPE_CHECKING:
    from kongming.scale.fit.model import ScalePrediction

DEFAULT_EXPERIMENTS = 7
"""Default number of experiments: as in Table 1 of Ernest."""


@click.command(
    "design",
    short_help="Choose the experiments with the most information for their cost.",
    epilog=examples(
        "kongming scale design --machines 1..8 --scale 0.01..0.1 --target 64@1.0 --out design.json",
        "kongming scale design --done runs.csv --context size_gb=40,type=large --target 12@1 "
        "--machines 2..12:2 --scale 1 --experiments 3",
    ),
)
@click.option(
    "--machines", metavar="RANGE", required=True, help="Machine counts, as 1..16 or 1,2,4,8."
)
@click.option(
    "--scale",
    "scale_range",
    metavar="RANGE",
    required=True,
    help="Scales, as 0.01..0.1 (ten values) or 0.01..0.1:COUNT.",
)
@click.option(
    "--budget-machine-seconds",
    "budget",
    type=DURATION,
    metavar="TIME",
    help="Limit on the total cost of all experiments.",
)
@click.option(
    "--experiments",
    type=click.IntRange(min=1),
    metavar="K",
    help="Number of experiments, instead of a budget [default: 7].",
)
@click.option(
    "--optimality",
    type=click.Choice(["A", "D", "I"]),
    help="Minimise the variance of the coefficients on average (A), jointly (D), or of the "
    "prediction at the target (I) [default: I with a target, else A].",
)
@click.option(
    "--target", metavar="M@S", help="Configuration to predict: machines@scale, as 64@1.0."
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help="Maximum number of runs of one configuration [default: 1, or as many as --at-least "
    "requires of it].",
)
@click.option(
    "--at-least",
    metavar="M@S[=COUNT]",
    multiple=True,
    help="A configuration that must be run (repeatable).",
)
@scale_options.planning_options
@scale_options.context_option
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the design to this file, for 'scale run'.",
)
@options.store_option
@options.wide_option
@options.json_option
def design(
    machines: str,
    scale_range: str,
    budget: float | None,
    experiments: int | None,
    optimality: str | None,
    target: str | None,
    repeats: int | None,
    at_least: Sequence[str],
    cost_file: Path | None,
    model: str | None,
    done: Path | None,
    terms: str,
    items: float | None,
    context: Sequence[str],
    out: Path | None,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Choose the experiments that make the model, or the prediction at a target, most certain.

    Solve the convex problem of fractional experiments first (with the gap to its optimum), then
    round to whole ones by exchange. With --context, the experiments are chosen in all contexts of
    the runs in --done, and in the target's, one after the other.
    """
    from kongming.records.errors import InputError
    from kongming.scale.design.candidates import find_design
    from kongming.scale.design.planning import (
        configuration,
        design_document,
        experiments_of,
        write_design,
    )

    options.refuse_to_replace(
        out,
        {
            "table of runs": done,
            "table of costs": cost_file,
            "model": None if model is None else Path(model),
        },
    )
    if budget is not None and experiments is not None:
        raise InputError("--budget-machine-seconds and --experiments are two limits: give one.")
    if given := scale_options.context_values(context):
        from kongming.scale.design.in_contexts import context_design

        scale_options.refuse_with_context(
            {
                "--cost": cost_file,
                "--model": model,
                "--optimality": optimality,
                "--repeats": repeats,
                "--at-least": at_least,
                "--terms auto": terms == "auto",
            }
        )
        limits = (budget, experiments or DEFAULT_EXPERIMENTS)
        document = context_design(given, machines, scale_range, limits, target, done, terms, items)
    else:
        aim = None if target is None else configuration(target, "--target")
        kind: Any = optimality or ("I" if aim is not None else "A")
        required: dict[Any, int] = {}
        for text in at_least:
            pair, _, times = text.partition("=")
            if times and not (times.isascii() and times.isdigit() and int(times) > 0):
                raise InputError(
                    "is not a count.", field="--at-least", value=text, allowed="as 4@0.1=2"
                )
            if repeats is not None and int(times or 1) > repeats:
                raise InputError(
                    f"requires more runs of a configuration than --repeats {repeats} allows.",
                    field="--at-least",
                    value=text,
                    hint="Raise --repeats, or leave it out.",
                )
            required[configuration(pair, "--at-least")] = int(times or 1)
        plan, warnings = experiments_of(
            machines=machines,
            scales_text=scale_range,
            in_seconds=budget is not None,
            cost_file=cost_file,
            model=None if model is None else load(model, store_url).single(),
            done=done,
            terms=terms,
            items=items,
            target=aim,
            at_least=required,
            repeats=repeats or 1,
        )
        limit = budget if budget is not None else float(experiments or DEFAULT_EXPERIMENTS)
        best = find_design(plan.experiments, limit, kind=kind, target=aim)
        document = design_document(plan, best, aim, warnings)
    if out is not None:
        write_design(out, document)
        document["saved"] = str(out)
    if as_json:
        output.emit_json(document)
        return
    if given:
        _show_in_contexts(document["experiments"])
    else:
        _show(document)
    output.print_warnings(document["warnings"])


@click.command(
    "next",
    short_help="Choose the next experiment, or stop.",
    epilog=examples(
        "kongming scale next runs.csv --machines 1..8 --scale 0.01..0.1 --target 64@1.0",
        "kongming scale next runs.csv --machines 2..12:2 --scale 1 --target 12@1 "
        "--context size_gb=40,type=large",
    ),
)
@click.argument("runs", metavar="RUNS.csv", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--machines", metavar="RANGE", required=True, help="Machine counts, as 1..16 or 1,2,4,8."
)
@click.option(
    "--scale", "scale_range", metavar="RANGE", required=True, help="Scales, as 0.01..0.1."
)
@click.option(
    "--target",
    metavar="M@S",
    required=True,
    help="Configuration to predict: machines@scale, as 64@1.0.",
)
@click.option(
    "--stop-at",
    type=Share(2.0),
    default="10%",
    show_default=True,
    help="Stop when the 90 % interval at the target reaches at most this far above the median.",
)
@click.option(
    "--per-cost/--per-run",
    default=True,
    help="Choose by information per cost, or by information alone.",
)
@click.option(
    "--cost",
    "cost_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Machine-seconds of each experiment, as for 'scale design'.",
)
@scale_options.context_option
@scale_options.terms_option
@scale_options.items_option
@options.wide_option
@options.json_option
def next_experiment(
    runs: Path,
    machines: str,
    scale_range: str,
    target: str,
    stop_at: float,
    per_cost: bool,
    cost_file: Path | None,
    context: Sequence[str],
    terms: str,
    items: float | None,
    as_json: bool,
) -> None:
    """Fit the runs so far; stop, or name the experiment that narrows the interval at the target
    most. The interval is that of 'kongming scale fit' and 'predict', the experiment is chosen by
    the terms. Exit status 3 where the target lies beyond a memory cliff.

    RUNS.csv may also be a replay that 'kongming spark estimate --save' wrote: then machines are
    executors, and --runs of that command takes the new run.
    """
    from kongming.scale.design.planning import configuration

    aim = configuration(target, "--target")
    if given := scale_options.context_values(context):
        from kongming.scale.design.in_contexts import (
            context_experiments,
            fit_context_runs,
            warnings_at,
        )

        scale_options.refuse_with_context({"--cost": cost_file, "--terms auto": terms == "auto"})
        model = fit_context_runs(runs, given, terms, items)
        (chosen,) = context_experiments(
            model, given, machines, scale_range, target, count=1, per_cost=per_cost
        )
        prediction = model.at(given).predict(aim)
        warnings = [*prediction.reasons, *warnings_at(model, given)]
        document = _next_document(prediction, chosen, stop_at, warnings)
        _print_next(prediction, document, as_json)
        return
    from kongming.scale.design.candidates import candidates, next_best
    from kongming.scale.design.planning import experiments_of
    from kongming.scale.fit.fitting import Settings, fit_runs
    from kongming.scale.fit.model import warnings_of
    from kongming.scale.fit.terms import read_terms

    run = None
    if _is_document(runs):
        from kongming.scale.design.replay_next import next_run
        from kongming.scale.ranges import machine_counts, scales

        replay = load(str(runs), None).single()
        points = candidates(machine_counts(machines), scales(scale_range))
        # At once, since it refuses models that are no replay.
        run = next_run(replay, points, aim, per_cost=per_cost)
        prediction = replay.predict(aim)
        warnings, settled = list(prediction.reasons), True
    else:
        plan, warnings = experiments_of(
            machines=machines,
            scales_text=scale_range,
            in_seconds=per_cost,
            cost_file=cost_file,
            model=None,
            done=runs,
            terms=terms,
            items=items,
            target=aim,
        )
        assert plan.runs is not None
        # The terms choose the experiment; the answer is that of 'scale fit' and 'scale predict'.
        fitted = fit_runs(plan.runs, Settings(read_terms(terms, items=items), items=items))
        prediction = fitted.predict(aim)
        warnings = [*prediction.reasons, *warnings_of([fitted]), *warnings]
        # The width of an interval from too few runs is random.
        settled = plan.runs.count > len(plan.experiments.terms)
    best, now, after = run or next_best(plan.experiments, aim)
    chosen = {
        "machines": int(best.machines),
        "scale": best.scale,
        "variance_now": now,
        "variance_after": after,
    }
    document = _next_document(prediction, chosen, stop_at, warnings, settled=settled)
    _print_next(prediction, document, as_json)


def _next_document(
    prediction: ScalePrediction,
    chosen: Mapping[str, Any],
    stop_at: float,
    warnings: Sequence[str],
    *,
    settled: bool = True,
) -> dict[str, Any]:
    """Return whether the interval at the target is narrow enough, and else the experiment, as JSON.
    An interval that is not ``settled`` is never narrow enough."""
    reach = prediction.upper / prediction.median - 1.0
    enough = settled and reach <= stop_at
    return {
        "stop": enough,
        "runtime_s": prediction.runtime_s,
        "reach_pct": 100.0 * reach,
        "stop_at_pct": 100.0 * stop_at,
        "next": None if enough else dict(chosen),
        "warnings": list(warnings),
    }


def _print_next(prediction: ScalePrediction, document: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        output.emit_json(document)
        return
    console = output.console()
    console.print(f"{prediction.at}: {interval(prediction.runtime_s)}", markup=False)
    reach, limit = per_cent(document["reach_pct"]), per_cent(document["stop_at_pct"], "g")
    reaches = f"the interval reaches {reach} above the median; the limit is {limit}"
    chosen = document["next"]
    if chosen is None:
        console.print(f"Enough: {reaches}.", markup=False)
    else:
        console.print(
            f"Next: {count(chosen['machines'], 'machine')} at scale {chosen['scale']:g} "
            f"({reaches}).",
            markup=False,
        )
        if "context" in chosen:
            _show_in_contexts([chosen])
    output.print_warnings(document["warnings"])


def _is_document(path: Path) -> bool:
    """Return whether it is a saved model, not a table of runs."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(b"{")
    except OSError:
        return False  # the table's reader names it


def _show_in_contexts(experiments: Sequence[Mapping[str, Any]]) -> None:
    """Print experiments in the order of their choice."""
    from kongming.scale.context_columns import show

    columns = ("context", "machines", "scale", "machine-seconds", "variance at the target")
    cells = [
        (
            ", ".join(f"{name}={show(value)}" for name, value in each["context"].items()),
            each["machines"],
            f"{each['scale']:g}",
            f"{each['machine_seconds']:.4g}",
            f"{each['variance_now']:.3g} to {each['variance_after']:.3g}",
        )
        for each in experiments
    ]
    output.console().print(output.table(columns, cells, right=columns[1:]))


def _show(document: dict[str, Any]) -> None:
    console = output.console()
    rows = [
        (
            experiment["machines"],
            f"{experiment['scale']:g}",
            experiment["runs"],
            None
            if experiment["machine_seconds"] is None
            else f"{experiment['machine_seconds']:.4g}",
        )
        for experiment in document["experiments"]
    ]
    columns = ("machines", "scale", "runs", "machine-seconds each")
    shown = columns[: 3 if document["machine_seconds"] is None else 4]
    console.print(output.table(shown, [row[: len(shown)] for row in rows], right=shown))
    cost = document["machine_seconds"]
    console.print(
        f"{document['optimality']}-optimal: {document['count']} experiments of "
        f"{document['candidates']} candidates"
        + ("" if cost is None else f", {cost:.4g} machine-seconds")
        + f". This design gives {per_cent(100 * document['efficiency'])} of the information of "
        "the best one with fractional numbers of runs, an upper bound.",
        markup=False,
    )
    variances = document["predicted_variance"]
    if variances:
        names = {"chosen": "this design", "paper": "A-optimal", "uniform": "an even spread"}
        texts = [f"{names.get(name, name)} {value:.4g}" for name, value in variances.items()]
        console.print(
            "Variance of the prediction at the target, in units of the variance of one run: "
            f"{', '.join(texts)}.",
            markup=False,
        )
    if "saved" in document:
        console.print(
            f"Next: kongming scale run APPS.toml --app NAME --design {document['saved']}",
            markup=False,
        )
