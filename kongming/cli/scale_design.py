"""``kongming scale design``: which experiments tell most for their cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kongming.cli import options, output, scale_options

DEFAULT_EXPERIMENTS = 7
"""As many as Ernest was trained on for its Table 1."""


@click.command("design", short_help="Which experiments tell most for their cost.")
@click.option("--machines", metavar="RANGE", required=True, help="As 1..16 or 1,2,4,8.")
@click.option(
    "--scale", "scale_range", metavar="RANGE", required=True, help="As 0.01..0.1 (ten) or ..:COUNT."
)
@click.option(
    "--budget-machine-seconds",
    "budget",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="X",
    help="What all experiments may cost together.",
)
@click.option(
    "--experiments", type=click.IntRange(min=1), metavar="K", help="Or how many [default: 7]."
)
@click.option(
    "--optimality",
    type=click.Choice(["A", "D", "I"]),
    help="What is best: the coefficients on average (A), together (D), or the prediction at the "
    "target (I) [default: I with a target, else A].",
)
@click.option("--target", metavar="M@S", help="What is to be predicted, as 64@1.0.")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often one configuration may be run.",
)
@click.option(
    "--at-least",
    metavar="M@S[=COUNT]",
    multiple=True,
    help="A configuration that has to be run (repeatable).",
)
@scale_options.planning_options
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the design there, for 'scale run'.",
)
@options.store_option
@options.json_option
def command(
    machines: str,
    scale_range: str,
    budget: float | None,
    experiments: int | None,
    optimality: str | None,
    target: str | None,
    repeats: int,
    at_least: Sequence[str],
    cost_file: Path | None,
    model: str | None,
    done: Path | None,
    terms: str,
    items: float | None,
    out: Path | None,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Choose the experiments that make the model, or the prediction at a target, most certain.

    The convex problem of fractions of experiments is solved first (with the gap to its optimum),
    then rounded to whole ones by exchange.
    """
    from kongming.cli.scale_planning import configuration, experiments_of, write_design
    from kongming.errors import InputError
    from kongming.scale.design import find_design

    if budget is not None and experiments is not None:
        raise InputError("--budget-machine-seconds and --experiments are two limits: give one.")
    aim = None if target is None else configuration(target, "--target")
    kind: Any = optimality or ("I" if aim is not None else "A")
    required: dict[Any, int] = {}
    for text in at_least:
        pair, _, count = text.partition("=")
        if count and not (count.isdigit() and int(count) > 0):
            raise InputError("is no count.", field="--at-least", found=text, allowed="as 4@0.1=2")
        required[configuration(pair, "--at-least")] = int(count or 1)
    plan, warnings = experiments_of(
        machines=machines,
        scales_text=scale_range,
        in_seconds=budget is not None,
        cost_file=cost_file,
        model=model,
        done=done,
        terms=terms,
        items=items,
        at_least=required,
        repeats=repeats,
        store_url=store_url,
    )
    limit = budget if budget is not None else float(experiments or DEFAULT_EXPERIMENTS)
    found = find_design(plan.experiments, limit, kind=kind, target=aim)
    chosen = []
    for i, one in enumerate(plan.experiments.points.configurations()):
        if found.counts[i] > 0:
            chosen.append(
                {
                    "machines": int(one.machines),
                    "scale": one.scale,
                    "runs": int(found.counts[i]),
                    "weight": float(found.relaxed.weights[i]),
                    "machine_seconds": None if plan.costs is None else float(plan.costs[i]),
                }
            )
    chosen.sort(key=lambda one: (one["machines"], one["scale"]))
    seconds = None if plan.costs is None else float(plan.costs @ found.counts)
    document: dict[str, Any] = {
        "optimality": kind,
        "target": None if aim is None else {"machines": int(aim.machines), "scale": aim.scale},
        "experiments": chosen,
        "count": int(found.counts.sum()),
        "machine_seconds": seconds,
        "candidates": len(plan.experiments.points),
        "relaxation": {
            "value": found.relaxed.value,
            "gap": found.relaxed.gap,
            "steps": found.relaxed.steps,
        },
        "value": found.value,
        "efficiency": found.efficiency,
        "predicted_variance": dict(found.variances) or None,
        "terms": [one.key for one in plan.experiments.terms],
        "done": 0 if plan.experiments.done is None else len(plan.experiments.done),
        "warnings": warnings,
    }
    if out is not None:
        write_design(out, document)
        document["saved"] = str(out)
    if as_json:
        output.emit_json(document)
        return
    _show(document)
    from kongming.cli.scale_models import print_warnings

    print_warnings(warnings)


def _show(document: dict[str, Any]) -> None:
    console = output.console()
    rows = [
        (
            one["machines"],
            f"{one['scale']:g}",
            one["runs"],
            None if one["machine_seconds"] is None else f"{one['machine_seconds']:.4g}",
        )
        for one in document["experiments"]
    ]
    columns = ("machines", "scale", "runs", "machine-seconds each")
    console.print(output.table(columns, rows, right=columns))
    cost = document["machine_seconds"]
    console.print(
        f"{document['optimality']}-optimal: {document['count']} experiments of "
        f"{document['candidates']} candidates"
        + ("" if cost is None else f", {cost:.4g} machine-seconds")
        + f"; {100 * document['efficiency']:.1f}% of what fractions of experiments could tell "
        f"(gap {document['relaxation']['gap']:.1e}).",
        markup=False,
    )
    variances = document["predicted_variance"]
    if variances:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in variances.items())
        console.print(
            f"Variance of the prediction at the target, over one run's: {shown}.", markup=False
        )
