"""``kongming spark evaluate``: estimates against runs at several sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from kongming.spark.evaluation import Evaluation

_file = click.Path(dir_okay=False, path_type=Path)


@click.command(
    "evaluate",
    short_help="Compare estimates with runs at several sizes.",
    epilog=examples(
        "kongming spark evaluate logs/tpch-*",
        "kongming spark evaluate logs/tpch-* --history other-2 --history other-8 --json",
    ),
)
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--history",
    metavar="LOG",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Logs of other applications on this cluster, at two sizes or more (repeatable).",
)
@click.option(
    "--without", metavar="NAME", multiple=True, help="Leave a correction out (repeatable)."
)
@click.option(
    "--plot",
    metavar="FILE",
    type=_file,
    callback=options.image,
    help="Draw figure 5.1: SVG or PNG.",
)
@options.wide_option
@options.json_option
def command(
    logs: Sequence[Path],
    history: Sequence[Path],
    without: Sequence[str],
    plot: Path | None,
    as_json: bool,
) -> None:
    """Predict each run from each run of another size, and compare.

    LOGS are of one application at several sizes; a folder of applications gives all of its logs.
    Next to the replay: constant lengths (the thesis), Sparklens, linear scaling, and Ernest's terms
    fitted to the runs of all other sizes; for the application and for each SQL execution.
    """
    from kongming.cli.extras import require

    for module in ("numpy", "scipy", "msgspec"):
        require("kongming spark evaluate", "spark", module)

    from kongming.records.errors import InputError
    from kongming.spark.application import Application
    from kongming.spark.estimation import Estimator
    from kongming.spark.evaluation import evaluate
    from kongming.spark.finished_runs import findings_of
    from kongming.spark.history import learn_growth
    from kongming.spark.reading import read_all

    others = read_all(history)
    growth = learn_growth(others, without) if history else None

    def estimator_of(application: Application) -> Estimator:
        return Estimator(application, without=without, growth=growth)

    applications = read_all(logs)
    names = {each.name for each in applications}
    own = next((each for each in others if each.name in names), None)
    if own is not None:
        raise InputError(
            "is a run of the application that is evaluated: its sizes would not be predicted.",
            field="--history",
            value=own.source,
            allowed="logs of other applications",
        )
    evaluation = evaluate(applications, estimator_of)
    warnings = findings_of([*applications, *others])
    if plot is not None:
        from kongming.spark.figure import draw_evaluation

        draw_evaluation(plot, evaluation)
    if as_json:
        output.emit_json(evaluation.document() | {"warnings": warnings})
        return
    _show(evaluation)
    output.print_warnings(warnings)


def _show(evaluation: Evaluation) -> None:
    from kongming.spark.evaluation import table

    console = output.console()
    document = evaluation.document()
    errors = table(evaluation, "replay")
    sizes = evaluation.sizes
    rows = []
    for recorded in sizes:
        own = errors[recorded]
        cells: list[object] = [f"{recorded[0]} x {recorded[1]}"]
        cells += [
            per_cent(100 * own[predicted]) if predicted in own else None for predicted in sizes
        ]
        cells.append(per_cent(100 * sum(own.values()) / len(own)))
        rows.append(cells)
    names = [f"{executors} x {cores}" for executors, cores in sizes]
    console.print(
        output.table(
            ["from", *names, "mean"],
            rows,
            title="Relative error by executors x cores, recorded and predicted",
            right=[*names, "mean"],
        )
    )
    console.print(
        output.table(
            ["model", "mean", "median", "worst"],
            [
                [name, *(per_cent(own[key]) for key in ("mean", "median", "worst"))]
                for name, own in document["error_pct"].items()
            ],
            right=("mean", "median", "worst"),
        )
    )
    noise = document["noise_floor_pct"]
    over = document["error_over_constant"]
    check = document["self_check_pct"]
    console.print(
        f"Noise floor {'unknown: no repeats' if noise is None else per_cent(noise)}; the 90 % "
        f"interval held {per_cent(100 * document['coverage'], '.0f')}; beyond the noise the "
        "error is "
        f"{over['geometric_mean']:.2f} of constant lengths' (worst pair {over['worst']:.2f}). "
        f"Self-check: median {per_cent(check['median'])}, worst {per_cent(check['worst'])}.",
        markup=False,
    )
    if document["executions"]:
        columns = {
            "constant": "constant_durations",
            "Sparklens": "sparklens",
            "linear": "linear",
            "Ernest": "ernest",
        }
        names = ["execution", "error", "worst", *columns]
        console.print(
            output.table(
                names,
                [_of_execution(each, columns.values()) for each in document["executions"]],
                title="Relative error by SQL execution, over all pairs of sizes",
                right=names,
                minor=("linear", "Sparklens"),
            )
        )


def _of_execution(document: Mapping[str, Any], baselines: Iterable[str]) -> list[object]:
    errors = document["error_pct"]
    return [
        document["id"],
        per_cent(errors["replay"]["mean"]),
        per_cent(errors["replay"]["worst"]),
        *(per_cent(errors[name]["mean"]) if name in errors else None for name in baselines),
    ]
