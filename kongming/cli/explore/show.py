"""``kongming explore show``: a model in words."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.explore import options as explore_options
from kongming.quantities import per_cent


@click.command(
    "show",
    short_help="Show a model in words.",
    epilog=examples("kongming explore show sort.json"),
)
@click.argument("model", metavar="MODEL.json", type=explore_options.PATH)
@options.wide_option
@options.json_option
def command(model: Path, as_json: bool) -> None:
    """Show a model: its errors, which parameters matter, and the regions of the space.

    The regions are those of a decision tree of the runs, whichever kind of model predicts. The
    error of a region's line is that of left-out runs with the cuts known: lines miss new runs by
    more. A parameter's share is how much the predictions move if its values are shuffled.
    """
    from kongming.cli.extras import require

    require("kongming explore show", "predict", "sklearn")

    from kongming.cli.explore.report import print_report
    from kongming.explore.model_file import read_model
    from kongming.explore.regions import regions

    fitted = read_model(model)
    tree = regions(fitted)
    report = fitted.report()
    if as_json:
        output.emit_json(
            {
                "target": fitted.target,
                "created_at": fitted.created_at,
                "tree": [asdict(region) for region in tree],
                **report,
            }
        )
        return
    print_report(fitted, report)
    console = output.console()
    shares = sorted(report["importances"].items(), key=lambda item: -item[1])
    rows = [(name, per_cent(100 * share, ".0f")) for name, share in shares]
    console.print(output.table(("parameter", "share"), rows, right=("share",)))
    for region in tree:
        indent = "  " * region.depth
        line = f"{indent}{region.condition}: {region.runs} runs"
        if region.ended:
            line += f" ({region.ended} ended at a time limit)"
        if region.cut is None:
            least = "at least " if region.ended else ""
            line += f", {fitted.target} {least}{region.mean:.4g}, line within {region.error:.2g}"
        console.print(line, markup=False)
    if tree[0].cut is not None:
        console.print(
            "Within: of runs left out, with the cuts known. Lines miss new runs by more.",
            markup=False,
        )
