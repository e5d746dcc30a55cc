"""``kongming scale next``: the next best experiment, or that enough were done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kongming.cli import options, output, scale_options


@click.command("next", short_help="The next best experiment, or that enough were done.")
@click.argument("runs", metavar="RUNS.csv", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--machines", metavar="RANGE", required=True, help="As 1..16 or 1,2,4,8.")
@click.option("--scale", "scale_range", metavar="RANGE", required=True, help="As 0.01..0.1.")
@click.option("--target", metavar="M@S", required=True, help="What is to be predicted: 64@1.0.")
@click.option(
    "--stop-at",
    type=click.FloatRange(min=0.0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="PCT",
    help="Enough when the 90% interval at the target reaches no farther than this above the "
    "median.",
)
@click.option("--per-cost/--per-run", default=True, help="Most for its cost, or most at all.")
@click.option(
    "--cost",
    "cost_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Machine-seconds of each experiment, as for 'scale design'.",
)
@scale_options.terms_option
@scale_options.items_option
@options.json_option
def command(
    runs: Path,
    machines: str,
    scale_range: str,
    target: str,
    stop_at: float,
    per_cost: bool,
    cost_file: Path | None,
    terms: str,
    items: float | None,
    as_json: bool,
) -> None:
    """Fit what was run so far; stop, or name the experiment that narrows the target most."""
    from kongming.cli.scale_models import interval
    from kongming.cli.scale_planning import configuration, experiments_of
    from kongming.scale.design import next_best
    from kongming.scale.fitting import Settings, fit_runs
    from kongming.scale.terms import read_terms

    aim = configuration(target, "--target")
    plan, warnings = experiments_of(
        machines=machines,
        scales_text=scale_range,
        in_seconds=per_cost,
        cost_file=cost_file,
        model=None,
        done=runs,
        terms=terms,
        items=items,
    )
    assert plan.runs is not None
    fitted = fit_runs(
        plan.runs, Settings(read_terms(terms, items=items), items=items, kind="ernest-relative")
    )
    prediction = fitted.predict(aim)
    reach = 100.0 * (prediction.upper / prediction.median - 1.0)
    # An interval from too few runs is wide or narrow by chance.
    enough = reach <= stop_at and plan.runs.count > len(plan.experiments.terms)
    document: dict[str, Any] = {
        "stop": enough,
        "runtime_s": prediction.runtime_s,
        "reach_pct": reach,
        "stop_at_pct": stop_at,
        "next": None,
        "warnings": warnings,
    }
    if not enough:
        best, now, after = next_best(plan.experiments, aim)
        document["next"] = {
            "machines": int(best.machines),
            "scale": best.scale,
            "variance_now": now,
            "variance_after": after,
        }
    if as_json:
        output.emit_json(document)
        return
    console = output.console()
    console.print(f"{aim}: {interval(prediction.runtime_s)}", markup=False)
    if enough:
        console.print(
            f"Enough: the interval reaches {reach:.1f}% above the median, at most {stop_at:g}% was "
            "asked for.",
            markup=False,
        )
    else:
        chosen = document["next"]
        console.print(
            f"Next: {chosen['machines']} machines at scale {chosen['scale']:g} (the interval "
            f"reaches {reach:.1f}% above the median; {stop_at:g}% was asked for).",
            markup=False,
        )
